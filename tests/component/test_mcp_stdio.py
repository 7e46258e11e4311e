# SPDX-License-Identifier: Apache-2.0
"""`kernelgate mcp`: MCP over stdio, with the whole core inside or as a bridge to a gateway."""

import http.server
import json
import os
import pathlib
import select
import subprocess
import threading
import time

import component
import pytest
from kernelgate import BINARY, free_port, wait_for
from mcp_wire import call, cancelled, initialize, modern, request
from sandboxes import lives


class Process:
    """`kernelgate mcp`."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [BINARY, "mcp", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # select() looks at the descriptor
            env={"PATH": os.environ["PATH"]},
        )

    def send(self, *sent):
        for message in sent:
            text = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(text + b"\n")

    def receive(self, timeout=60):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline() if ready else b""
        assert line, self.process.stderr.read(4096) if self.process.poll() else "nothing came"
        return json.loads(line)

    def ask(self, message):
        self.send(message)
        return self.receive()

    def end(self):
        """Closes its input, and waits until it has ended; returns what else it wrote."""
        rest, log = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, log
        assert b"Sanitizer" not in log, log.decode()
        return rest


@pytest.fixture(params=["core inside", "bridge"])
def stdio(request):
    if request.param == "bridge":
        gateway = request.getfixturevalue("gateway")
        process = Process("--connect", gateway.url)
    else:
        process = Process(*request.getfixturevalue("own_gateway"), *component.FLAGS)
    yield process
    if process.process.poll() is None:
        process.process.kill()
        process.process.wait()


def test_stdio(stdio):
    assert stdio.ask(initialize("2025-06-18"))["result"]["protocolVersion"] == "2025-06-18"
    stdio.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert stdio.ask(request("ping")) == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert stdio.ask(b"garbage")["error"]["code"] == -32700
    assert stdio.ask(b'{"jsonrpc":"2.0","id":7}')["error"]["code"] == -32600
    told = stdio.ask(call("run_python_code", 3, token="t", code="print one\ntake go"))
    assert told.get("method") == "notifications/progress", told
    # Calls run concurrently.
    stdio.send(call("write_file", 4, path="go", content=""))
    ended = set()
    while ended != {3, 4}:
        ended.add(stdio.receive().get("id"))
        ended.discard(None)  # more progress
    # One that is cancelled gets no response.
    stdio.send(call("run_python_code", "long", code="hang"))
    stdio.send(cancelled("long"))
    assert stdio.ask(request("ping", 9))["id"] == 9
    assert stdio.end() == b""


def test_stdio_without_initialize(stdio):
    answer = stdio.ask(modern("server/discover"))
    assert answer["result"]["supportedVersions"] == ["2026-07-28"]
    assert stdio.ask(modern("tools/call", 2, name="list_sessions"))["result"]["content"]
    assert stdio.ask(modern("tools/list", 3, version="2030-01-01"))["error"]["code"] == -32022
    assert "error" in stdio.ask(request("tools/list", 4))
    stdio.send(modern("subscriptions/listen", "s", notifications={"toolsListChanged": True}))
    assert stdio.receive()["method"] == "notifications/subscriptions/acknowledged"
    assert stdio.ask(modern("tools/call", 5, name="list_sessions"))["id"] == 5
    stdio.send(cancelled("s"))
    assert stdio.ask(modern("tools/call", 6, name="list_sessions"))["id"] == 6
    assert stdio.end() == b""


def test_stdio_ends_while_a_call_runs(stdio):
    stdio.ask(initialize())
    stdio.send(call("run_python_code", code="hang"))
    stdio.end()


def test_more_signals_do_not_cut_the_end_short(stdio):
    stdio.ask(initialize())
    while stdio.process.poll() is None:
        stdio.process.terminate()
        time.sleep(0.0005)  # else it would do nothing but take signals
    stdio.end()


def test_a_killed_one(tmp_path):  # a short name: it is in the paths of sockets
    """Each process has its own state folder; the next one cleans up in the first free one."""
    state = str(tmp_path / "s")

    def start(code):
        process = Process("--state-dir", state, *component.FLAGS)
        process.ask(initialize())
        answer = process.ask(call("run_python_code", code=code))["result"]
        return process, answer["content"][0]["text"]

    def sandboxes(slot):
        """The first process of each live sandbox."""
        pids = pathlib.Path(state, "mcp", slot, "sb").glob("*/init.pid")
        return [pid for pid in (int(path.read_text()) for path in pids) if lives(pid)]

    first, text = start("set x 42\nget x")
    assert "42" in text
    second, _ = start("result 1")
    abandoned, kept = sandboxes("0"), sandboxes("1")
    assert len(abandoned) == len(kept) == 1
    first.process.kill()
    first.process.wait()
    assert sandboxes("0") == abandoned
    third, text = start("get x")
    assert "NameError" in text
    assert not os.path.exists(os.path.join(state, "mcp", "2"))
    assert not lives(abandoned[0])
    assert lives(kept[0])
    last = sandboxes("0") + kept
    for process in (third, second):
        process.end()
    assert not [pid for pid in last if lives(pid)]
    assert not list(pathlib.Path(state).glob("mcp/*/sb/*"))
    assert not list(pathlib.Path(state).glob("mcp/*/gateway/sb/*"))


def test_the_bridge_outlives_its_gateway(start_gateway):
    port = str(free_port())
    gateway = start_gateway("--port", port, "--api-key", "secret")
    stdio = Process("--connect", gateway.url, "--api-key", "secret")
    stdio.ask(initialize())
    assert stdio.ask(request("ping"))["result"] == {}
    gateway.kill()
    assert "cannot be reached" in stdio.ask(request("ping", 3))["error"]["message"]
    gateway.start()
    # It opens a session once a second at the most.
    wait_for(lambda: stdio.ask(request("ping", 4)).get("result") == {})
    assert stdio.ask(call("list_sessions", 5))["result"]["content"]
    stdio.end()


def test_the_bridge_opens_a_session_again_until_it_can(start_gateway):
    """The bridge survives a gateway that is back, but does not accept sessions yet."""
    port = free_port()
    gateway = start_gateway("--port", str(port))
    stdio = Process("--connect", gateway.url)
    stdio.ask(initialize())
    assert stdio.ask(request("ping"))["result"] == {}
    gateway.kill()
    asked = threading.Event()

    class Starting(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            begins = b'"initialize"' in body
            self.send_error(503 if begins else 404)
            if begins:
                asked.set()

        def log_message(self, *_):
            pass

    starting = http.server.ThreadingHTTPServer(("127.0.0.1", port), Starting)
    threading.Thread(target=starting.serve_forever).start()
    wait_for(lambda: "error" in stdio.ask(request("ping", 3)) and asked.is_set())
    starting.shutdown()
    starting.server_close()
    gateway.start()
    wait_for(lambda: stdio.ask(request("ping", 4)).get("result") == {})
    assert stdio.ask(call("list_sessions", 5))["result"]["content"]
    stdio.end()


def test_the_bridge_says_nothing_but_the_protocol(start_gateway):
    gateway = start_gateway("--api-key", "secret")
    stdio = Process("--connect", gateway.url, "--api-key", "wrong")
    answer = stdio.ask(initialize())
    assert answer.get("jsonrpc") == "2.0" and "401" in answer["error"]["message"], answer
    assert stdio.end() == b""


def test_the_bridge_says_what_is_wrong(gateway):
    nowhere = Process("--connect", "http://127.0.0.1:9")
    assert "cannot be reached" in nowhere.ask(initialize())["error"]["message"]
    nowhere.end()
    done = subprocess.run(
        [BINARY, "mcp", "--connect", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "setting connect" in done.stderr
