# SPDX-License-Identifier: Apache-2.0
"""A client of the gateway's Jupyter face that makes and reads each frame itself."""

import contextlib
import itertools
import json
import re
import select
import socket
import struct
import time
import uuid

import websocket
from kernelgate import wait_for

V1 = "v1.kernel.websocket.jupyter.org"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def start_kernel(gateway, client=None, **body):
    response = (client or gateway.client).post("/api/kernels", json=body)
    assert response.status_code == 201, response.text
    return response.json()["id"]


def list_kernels(gateway, client=None):
    return {model["id"]: model for model in (client or gateway.client).get("/api/kernels").json()}


def connections(gateway, kernel):
    return list_kernels(gateway)[kernel]["connections"]


def wait_until_left(gateway, kernel):
    """Returns when the kernel has no connection."""
    wait_for(lambda: connections(gateway, kernel) == 0)


def execution_of(gateway, kernel, msg_id):
    """The execution of a message, as the HTTP API has it; {}: there is none."""
    body = gateway.client.get(f"/api/v1/sessions/{kernel}/executions").json()
    assert body["total"] == len(body["executions"])
    found = [each for each in body["executions"] if each.get("msg_id") == msg_id]
    assert len(found) <= 1
    return found[0] if found else {}


def wait_until_done(gateway, kernel, msg_id):
    wait_for(lambda: execution_of(gateway, kernel, msg_id).get("state") == "done")


def handshake(gateway, kernel, client=None, **headers):
    """Asks for the upgrade; returns the response where it is refused."""
    sent = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **{name.replace("_", "-"): value for name, value in headers.items() if value},
    }
    sent = {name: value for name, value in sent.items() if headers.get(name, value)}
    path = f"/api/kernels/{kernel}/channels"
    return (client or gateway.client).get(path, headers=sent)


def start_bounded_gateway(start_gateway, buffered_mb):
    """A gateway that keeps 1 MB of the output of an execution, and `buffered_mb` for all clients."""
    return start_gateway(
        "--jupyter-api", "--pool-size", "0",
        "--max-output-bytes", str(1 << 20), "--max-buffered-bytes", str(buffered_mb << 20),
    )  # fmt: skip


def failure(response, status):
    """An error in the form that Jupyter's clients show."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body["message"] and body["reason"]
    return body["message"]


def encode_v1(message):
    parts = [message["channel"].encode()]
    for name in ("header", "parent_header", "metadata", "content"):
        parts.append(json.dumps(message[name]).encode())
    parts += message["buffers"]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def decode_v1(data):
    (count,) = struct.unpack_from("<Q", data)
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    assert offsets[0] == 8 * (count + 1) and offsets[-1] == len(data)
    parts = [data[begin:end] for begin, end in itertools.pairwise(offsets)]
    names = ("header", "parent_header", "metadata", "content")
    message = dict(zip(names, map(json.loads, parts[1:5]), strict=True))
    return {"channel": parts[0].decode(), **message, "buffers": parts[5:]}


def encode_legacy(message):
    body = {name: value for name, value in message.items() if name != "buffers"}
    if not message["buffers"]:
        return json.dumps({**body, "buffers": []})
    parts = [json.dumps(body).encode(), *message["buffers"]]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f">{len(offsets) + 1}I", len(parts), *offsets) + b"".join(parts)


def decode_legacy(data):
    if isinstance(data, str):
        message = json.loads(data)
        assert message["buffers"] == []
    else:
        (count,) = struct.unpack_from(">I", data)
        offsets = [*struct.unpack_from(f">{count}I", data, 4), len(data)]
        assert offsets[0] == 4 * (count + 1) and count >= 2
        parts = [data[begin:end] for begin, end in itertools.pairwise(offsets)]
        message = {**json.loads(parts[0]), "buffers": parts[1:]}
    assert message["msg_id"] == message["header"]["msg_id"]
    assert message["msg_type"] == message["header"]["msg_type"]
    return message


class Channels:
    """A WebSocket to a kernel's channels."""

    def __init__(self, gateway, kernel_id, *, v1=True, query="", timeout=60, **options):
        url = gateway.url.replace("http", "ws", 1) + f"/api/kernels/{kernel_id}/channels{query}"
        self.v1 = v1
        self.session = uuid.uuid4().hex
        self.ws = websocket.create_connection(
            url, subprotocols=[V1] if v1 else None, timeout=timeout, **options
        )
        self._timeout = timeout
        self.seen = []  # what was read while another message was waited for
        self._replies = []  # which came before the messages on iopub that were waited for
        first = self.next()
        assert (first["channel"], first["header"]["msg_type"]) == ("iopub", "status")
        assert first["parent_header"] == {}
        self.first_state = first["content"]["execution_state"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ws.close()

    def send(self, msg_type, content, channel="shell", buffers=(), subshell=None, **parts):
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": msg_type,
            "username": "test",
            "session": self.session,
            "date": "",
            "version": "5.3",
        }
        if subshell:
            header["subshell_id"] = subshell
        message = {
            "channel": channel,
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": list(buffers),
            **parts,
        }
        data = encode_v1(message) if self.v1 else encode_legacy(message)
        if isinstance(data, bytes):
            self.ws.send_binary(data)
        else:
            self.ws.send(data)
        return msg_id

    def execute(self, code, subshell=None, **content):
        return self.send(
            "execute_request",
            {
                "code": code,
                "silent": False,
                "store_history": True,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
                **content,
            },
            subshell=subshell,
        )

    def next(self):
        deadline = time.monotonic() + self._timeout
        opcode = websocket.ABNF.OPCODE_PING
        while opcode in (websocket.ABNF.OPCODE_PING, websocket.ABNF.OPCODE_PONG):
            # Each ping of the gateway starts the socket's own timeout again.
            assert time.monotonic() < deadline, f"no message for {self._timeout} s"
            opcode, data = self.ws.recv_data(control_frame=True)
        assert opcode != websocket.ABNF.OPCODE_CLOSE, "the WebSocket was closed"
        data = data.decode() if opcode == websocket.ABNF.OPCODE_TEXT else data
        return decode_v1(data) if self.v1 else decode_legacy(data)

    def next_published(self):
        """The next message on iopub. A reply has a socket of its own, and may come before it."""
        message = self.next()
        while message["channel"] in ("shell", "control"):
            self._replies.append(message)
            message = self.next()
        return message

    def is_readable(self):
        """Whether something has come that was not read."""
        return bool(select.select([self.ws.sock], [], [], 0)[0])

    def until(self, condition):
        """Reads up to the first message for which that holds; returns all of them."""
        messages = []
        while not messages or not condition(messages[-1]):
            messages.append(self.next())
        self._replies += [it for it in messages[:-1] if it["channel"] in ("shell", "control")]
        return messages

    def until_printed(self, text):
        """Reads until a cell has printed that. A real kernel may send a line in two messages, since print()
        writes its end apart."""
        printed = ""

        def has_printed(message):
            nonlocal printed
            printed += message["content"].get("text", "")
            return text in printed

        return self.until(has_printed)

    def until_idle(self, msg_id):
        """What the kernel says about a request, up to its reply and its `idle`, in their order. The reply
        may have come already, before a message that was waited for."""
        mine = [it for it in self._replies if it["parent_header"].get("msg_id") == msg_id]
        left = {"idle"} if mine else {"reply", "idle"}
        while left:
            message = self.next()
            if message["parent_header"].get("msg_id") != msg_id:
                self.seen.append(message)
                continue
            mine.append(message)
            if message["channel"] in ("shell", "control"):
                left.discard("reply")
            if message["content"].get("execution_state") == "idle":
                left.discard("idle")
        return mine

    def run(self, code, **content):
        return self.until_idle(self.execute(code, **content))

    def create_subshell(self):
        reply = one(
            self.until_idle(self.send("create_subshell_request", {}, channel="control")),
            "create_subshell_reply",
        )
        return reply["content"]["subshell_id"]

    def closing_status(self):
        """The status of the close that the server sends; other messages before it are skipped."""
        while True:
            opcode, data = self.ws.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return struct.unpack("!H", data[:2])[0] if data else None


def start_and_connect(gateway):
    """A kernel, and a client that has connected before the kernel expired for want of one."""
    while True:
        kernel = start_kernel(gateway)
        with contextlib.suppress(websocket.WebSocketBadStatusException):
            return kernel, Channels(gateway, kernel)


def connect_without_reading(gateway, kernel, query=""):
    """A connection with the smallest buffer, which its owner does not read."""
    url = gateway.url.replace("http", "ws", 1) + f"/api/kernels/{kernel}/channels{query}"
    smallest = ((socket.SOL_SOCKET, socket.SO_RCVBUF, 4096),)
    return websocket.create_connection(url, subprotocols=[V1], sockopt=smallest, timeout=60)


def of(messages, msg_type):
    return [message for message in messages if message["header"]["msg_type"] == msg_type]


def one(messages, msg_type):
    found = of(messages, msg_type)
    assert len(found) == 1, [message["header"]["msg_type"] for message in messages]
    return found[0]


def text(messages, name="stdout"):
    streams = of(messages, "stream")
    return "".join(
        message["content"]["text"] for message in streams if message["content"]["name"] == name
    )
