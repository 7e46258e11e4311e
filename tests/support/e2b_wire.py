# SPDX-License-Identifier: Apache-2.0
"""envd in raw HTTP: files, and calls of the Connect protocol with its JSON codec."""

import base64
import contextlib
import hashlib
import json
import struct

STREAM_TYPE = "application/connect+json"
END = 2  # the flag of the last envelope


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def envelopes(chunks):
    """(flags, message) of each, as they come."""
    held = b""
    for chunk in chunks:
        held += chunk
        while len(held) >= 5:
            flags, length = struct.unpack(">BI", held[:5])
            if len(held) < 5 + length:
                break
            yield flags, json.loads(held[5 : 5 + length])
            held = held[5 + length :]
    assert held == b""


def encode(text):
    data = text if isinstance(text, bytes) else text.encode()
    return base64.b64encode(data).decode()


def create_sandbox(client, **body):
    """A sandbox as the SDKs make it: {"sandboxID", "envdAccessToken", …}."""
    answer = client.post("/v2/sandboxes", json={"templateID": "base", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def signature(token, path, operation, user="", expires=None):
    text = f"{path}:{operation}:{user}:{token}" + (f":{expires}" if expires is not None else "")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return "v1_" + digest.rstrip("=")


class Envd:
    """One sandbox, by a client without a credential of its own."""

    def __init__(self, client, sandbox, token=None):
        self.client = client
        self.sandbox = sandbox
        self.headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983"}
        token = token or sandbox.get("envdAccessToken")
        if token:
            self.headers["X-Access-Token"] = token

    def request(self, method, path, headers=None, **more):
        return self.client.request(method, path, headers=self.headers | (headers or {}), **more)

    # ---- Calls

    def call(self, method, message=None, status=200, headers=None, **more):
        """A unary call: the answer's message; of another status, its error."""
        own = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        answer = self.request(
            "POST", f"/{method}", own | (headers or {}), content=json.dumps(message or {}), **more
        )
        assert answer.status_code == status, answer.text
        return answer.json()

    def files(self, method, message=None, status=200, **more):
        return self.call(f"filesystem.Filesystem/{method}", message, status, **more)

    def process(self, method, message=None, status=200, **more):
        return self.call(f"process.Process/{method}", message, status, **more)

    def refused(self, method, message, code, **more):
        statuses = {
            "invalid_argument": 400, "unauthenticated": 401, "permission_denied": 403,
            "not_found": 404, "already_exists": 409, "resource_exhausted": 429,
            "unimplemented": 501,
        }  # fmt: skip
        error = self.call(method, message, statuses[code], **more)
        assert error["code"] == code
        return error["message"]

    @contextlib.contextmanager
    def raw_stream(self, method, content, headers=None):
        own = {"Content-Type": STREAM_TYPE, "Connect-Protocol-Version": "1"}
        with self.client.stream(
            "POST", f"/{method}", headers=self.headers | own | (headers or {}), content=content
        ) as answer:
            yield answer

    @contextlib.contextmanager
    def stream(self, method, message, headers=None):
        """An iterator over (flags, message)."""
        with self.raw_stream(method, envelope(message), headers) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"] == STREAM_TYPE
            yield envelopes(answer.iter_raw())

    def refused_stream(self, method, content):
        """The error of a stream that has nothing else."""
        content = content if isinstance(content, bytes) else envelope(content)
        with self.raw_stream(method, content) as answer:
            assert answer.status_code == 200, answer.read()
            ((flags, end),) = envelopes(answer.iter_raw())
        assert flags == END
        return end["error"]

    # ---- Commands

    @contextlib.contextmanager
    def started(self, command, args=None, headers=None, process=None, **fields):
        """A command that was started as the SDKs do it: `Events`."""
        config = {"cmd": "/bin/bash", "args": args or ["-l", "-c", command], **(process or {})}
        message = {"process": config, "stdin": False, **fields}
        with self.stream("process.Process/Start", message, headers) as stream:
            yield Events(stream)

    @contextlib.contextmanager
    def joined(self, selector, headers=None):
        with self.stream("process.Process/Connect", {"process": selector}, headers) as stream:
            yield Events(stream)

    def run(self, command, **fields):
        with self.started(command, **fields) as events:
            return events.rest()

    def give(self, pid, text, kind="stdin", **more):
        message = {"process": {"pid": pid}, "input": {kind: encode(text)}}
        return self.process("SendInput", message, **more)


class Events:
    """What a command's stream says; the first event is its start."""

    def __init__(self, stream):
        self.stream = stream
        flags, message = next(stream)
        assert flags == 0, message
        self.pid = message["event"]["start"]["pid"]
        self.texts = {"stdout": b"", "stderr": b"", "pty": b""}
        self.end = None
        self.error = None  # of the stream
        self.keepalives = 0

    def step(self):
        """Takes one envelope; False at the end."""
        flags, message = next(self.stream, (None, None))
        if flags is None:
            return False
        if flags == END:
            self.error = message.get("error")
            return False
        event = message["event"]
        for kind, data in event.get("data", {}).items():
            self.texts[kind] += base64.b64decode(data)
        self.end = event.get("end", self.end)
        self.keepalives += "keepalive" in event
        return True

    def until(self, text, kind="stdout"):
        while text.encode() not in self.texts[kind]:
            assert self.step(), (self.texts, self.end, self.error)

    def rest(self):
        while self.step():
            pass
        return self

    @property
    def stdout(self):
        return self.texts["stdout"].decode()

    @property
    def stderr(self):
        return self.texts["stderr"].decode()
