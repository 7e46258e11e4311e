# SPDX-License-Identifier: Apache-2.0
"""The wire codec against jupyter_client's own: what one makes the other must read.

WIRE_CODEC names the program (built by the dev preset).
"""

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from jupyter_client.session import Session, json_packer

KEY = "0123456789abcdef" * 4
PROGRAM = os.environ.get(
    "WIRE_CODEC", Path(__file__).resolve().parents[2] / "build" / "dev" / "bin" / "wire_codec"
)


def surrogates_kept(obj):
    """As json.dumps writes it: ASCII, lone surrogates as escapes."""
    return json.dumps(obj, default=str).encode("ascii")


def session(key=KEY, pack=json_packer):
    return Session(key=key.encode(), pack=pack, username="kernel")


def run(mode, data, key=KEY):
    done = subprocess.run(
        [PROGRAM, mode, key], input=data, stdout=subprocess.PIPE, timeout=60, check=True
    )
    return done.stdout


def to_wire(frames):
    parts = [struct.pack(">I", len(frames))]
    for frame in frames:
        parts.append(struct.pack(">I", len(frame)))
        parts.append(bytes(frame))
    return b"".join(parts)


def from_wire(data):
    messages = []
    at = 0
    while at < len(data):
        (n_frames,) = struct.unpack_from(">I", data, at)
        at += 4
        frames = []
        for _ in range(n_frames):
            (length,) = struct.unpack_from(">I", data, at)
            frames.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        messages.append(frames)
    return messages


def parse(frames, key=KEY):
    (line,) = run("parse", to_wire(frames), key).splitlines()
    return json.loads(line)


def kernel_message(content, pack=json_packer, key=KEY, buffers=(), parent=None, metadata=None):
    kernel = session(key, pack)
    message = kernel.msg("stream", content=content, parent=parent, metadata=metadata)
    frames = kernel.serialize(message, ident=b"kernel.1.stream")
    return message, [*frames, *buffers]


CONTENTS = {
    "plain": {"name": "stdout", "text": "1\n"},
    "empty": {},
    "unicode": {"text": "ä€😀漢字\u2028\x7f\x1b[31m"},
    "control characters": {"text": "".join(map(chr, range(1, 32)))},
    "nul": {"text": "a\u0000b"},
    "nested": {"a": [[{"b": [None, True, False, "", 0, -1.5e-7]}]]},
    "integers": {"a": [2**53 + 1, 2**63 - 1, -(2**63)]},
    "large": {"text": "x" * 5_000_000},
}


@pytest.mark.parametrize("pack", [json_packer, surrogates_kept], ids=["utf-8", "ascii"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_kernel_messages_arrive_as_they_are(content, pack):
    message, frames = kernel_message(content, pack, metadata={"k": "ü"})
    parsed = parse(frames)
    assert parsed["content"] == content
    assert parsed["metadata"] == {"k": "ü"}
    assert parsed["msg_type"] == "stream"
    assert parsed["msg_id"] == message["header"]["msg_id"]
    assert parsed["parent_id"] == ""
    assert parsed["header"]["username"] == "kernel"


REPAIRED = {
    "lone surrogates": ({"text": "a\ud800b\udfffc"}, {"text": "a\ufffdb\ufffdc"}),
    "surrogate before a pair": ({"text": "\ud800😀"}, {"text": "\ufffd😀"}),
    "surrogate in a key": ({"\udc80": 1}, {"\ufffd": 1}),
    "nul in a key": ({"a\u0000": "\u0000"}, {"a\ufffd": "\u0000"}),
    "backslashes": ({"\\u0000\ud800": "\\ud800"}, {"\\u0000\ufffd": "\\ud800"}),
    "nan": ({"a": [float("nan"), 1]}, {"a": [None, 1]}),
    "infinities": ({"a": float("inf"), "b": -float("inf")}, {"a": None, "b": None}),
    "big integers": ({"a": [2**64, -(10**30)]}, {"a": [2.0**64, -1e30]}),
    "huge integer": ({"a": 10**400}, {"a": 1.7976931348623157e308}),
}


@pytest.mark.parametrize("content,expected", REPAIRED.values(), ids=REPAIRED.keys())
def test_what_json_forbids_is_repaired(content, expected):
    _, frames = kernel_message(content, surrogates_kept)
    parsed = parse(frames)
    assert parsed["content"] == expected


@pytest.mark.parametrize(
    "raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80"]
)
def test_bytes_that_are_not_utf8_become_what_python_makes_of_them(raw):
    _, frames = kernel_message({"text": b"a" + raw + b"z"}, pack_raw)
    assert parse(frames)["content"]["text"] == (b"a" + raw + b"z").decode("utf-8", "replace")


def pack_raw(obj):
    text = obj.get("text")
    if isinstance(text, bytes):
        return b'{"text": "' + text + b'"}'
    return json_packer(obj)


def test_the_parent_arrives_past_buffers():
    request = session().msg("execute_request")
    buffers = [bytes(range(256)), b"", b"x" * 100_000]
    message, frames = kernel_message({"a": 1}, buffers=buffers, parent=request)
    parsed = parse(frames)
    assert parsed["content"] == {"a": 1}
    assert parsed["parent_id"] == request["header"]["msg_id"]
    assert parsed["parent_header"]["session"] == request["header"]["session"]
    assert parsed["header"]["date"].startswith(message["header"]["date"].isoformat()[:19])


def test_bad_signatures_are_refused():
    _, frames = kernel_message({"text": "x"}, key="another key")
    assert parse(frames)["code"] == "unauthorized"
    _, frames = kernel_message({"text": "x"})
    frames[-1] = frames[-1].replace(b"x", b"y")
    assert parse(frames)["code"] == "unauthorized"
    frames[2] = b""
    assert parse(frames)["code"] == "unauthorized"


def test_without_a_key_nothing_is_signed():
    _, frames = kernel_message({"text": "x"}, key="")
    assert parse(frames, key="")["content"] == {"text": "x"}


def make(requests, key=KEY):
    data = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    return from_wire(run("make", data, key))


@pytest.mark.parametrize("key", [KEY, "", "ключ"])
def test_jupyter_client_reads_our_messages(key):
    requests = [
        {"msg_type": "execute_request", "content": content}
        for content in [*CONTENTS.values(), {"code": "print(1)", "silent": False}]
    ]
    kernel = session(key)
    ids = set()
    for request, frames in zip(requests, make(requests, key), strict=True):
        identities, frames = kernel.feed_identities(frames)
        message = kernel.deserialize(frames)
        assert identities == []
        assert message["content"] == request["content"]
        assert message["msg_type"] == "execute_request"
        assert message["parent_header"] == {} and message["metadata"] == {}
        header = message["header"]
        assert header["version"] == "5.3" and header["username"] and header["session"]
        assert header["date"].tzinfo is not None
        ids.add(header["msg_id"])
    assert len(ids) == len(requests)


def test_jupyter_client_refuses_our_messages_under_another_key():
    (frames,) = make([{"msg_type": "kernel_info_request", "content": {}}])
    with pytest.raises(ValueError, match="Invalid Signature"):
        session("another key").deserialize(frames[1:])
