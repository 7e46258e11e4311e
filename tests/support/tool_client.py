# SPDX-License-Identifier: Apache-2.0
"""A client that brings tools: it sends code, and answers the calls that the code makes. And code that speaks the
agent's socket itself."""

import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import socket
import threading


class ToolClient:
    """`tools` are functions by name; their descriptions say what a model would see."""

    def __init__(self, gateway, session, tools, descriptions=None):
        self.gateway = gateway
        self.session = session
        self.tools = tools
        self.descriptions = descriptions or [{"name": name} for name in tools]
        self.calls = []

    def stream(self, code, **fields):
        """A reader of the lines; nothing answers the calls."""
        return self.gateway.stream(code, session_id=self.session, tools=self.descriptions, **fields)

    def answer(self, execution, *results, status=200, **more):
        """Gives results: pairs of a call's id and {"result" or "error"}."""
        body = {"results": [{"call_id": call, **result} for call, result in results], **more}
        answer = self.gateway.client.post(f"/api/v1/executions/{execution}/tool_results", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def result_of(self, call):
        try:
            return {"result": self.tools[call["name"]](**call["arguments"])}
        except Exception as error:  # noqa: BLE001 - as the tool says it
            return {"error": f"{type(error).__name__}: {error}"}

    def run(self, code, **fields):
        """Runs code as an agent's host would, call by call; returns all lines."""
        with self.stream(code, **fields) as reader:
            execution = reader.response.headers["x-execution-id"]
            while True:
                line = reader.next()
                if line["type"] == "tool_call":
                    self.calls.append(line)
                    self.answer(execution, (line["call_id"], self.result_of(line)))
                if line["type"] == "done":
                    return reader.lines

    def run_sync(self, code, **fields):
        """The same by execute_sync; returns the list of answers."""
        body = {"code": code, "session_id": self.session, "tools": self.descriptions, **fields}
        answer = self.gateway.client.post("/api/v1/execute_sync", json=body)
        answers = []
        while True:
            assert answer.status_code == 200, answer.text
            answers.append(answer.json()["data"])
            if answers[-1]["status"] != "tool_calls":
                return answers
            calls = answers[-1]["tool_calls"]
            self.calls += calls
            results = [{"call_id": call["call_id"], **self.result_of(call)} for call in calls]
            answer = self.gateway.client.post(
                f"/api/v1/executions/{answers[-1]['execution_id']}/tool_results",
                json={"results": results, "wait": True},
            )


def errors_of(lines):
    return [line["error"] for line in lines if line["type"] == "error"]


GREETING = b'{"method": "tools", "params": {}}\n'


def dial(pid):
    """Connects to the agent's socket in the network of a process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def inside():  # in a thread of its own, which ends there
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        if libc.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(60)
        link.connect("\0kernelgate")
        return link

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(inside).result()


class Caller:
    """Code in a sandbox that calls tools without the module `tools`."""

    def __init__(self, pid, greeting=GREETING):
        self.link = dial(pid)
        self.file = self.link.makefile("rb")
        self.ids = 0
        self.raw(greeting)

    def raw(self, data):
        self.link.sendall(data)

    def send(self, **request):
        self.raw(json.dumps(request).encode() + b"\n")

    def call(self, name, arguments, **more):
        """Begins a call; returns its id."""
        self.ids += 1
        self.send(id=self.ids, method="call", name=name, arguments=arguments, **more)
        return self.ids

    def next(self):
        """The next answer; None: the connection has ended."""
        try:
            line = self.file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def ask(self, name, arguments):
        """Calls a tool, and returns the answer, which is the next one."""
        number = self.call(name, arguments)
        answer = self.next()
        assert answer and answer.pop("id") == number, answer
        return answer

    def list(self):
        self.send(id=0, method="list")
        return self.next()

    def close(self):
        self.file.close()
        self.link.close()


def outcomes(gateway):
    """kernelgate_tool_calls_total by its outcome."""
    row = r'^kernelgate_tool_calls_total\{outcome="(\w+)"\} (\d+)'
    return {name: int(n) for name, n in re.findall(row, gateway.client.get("/metrics").text, re.M)}


FLOOD = b'{"id":1,"method":"call","name":"none","arguments":{}}\n' * 100


@contextlib.contextmanager
def flooding(code):
    """A connection of code's that calls a tool that is not there as fast as it can, and reads the answers."""
    stop = threading.Event()
    code.link.settimeout(0.2)  # so that it sees the end

    def call():
        data = FLOOD
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                data = data[code.link.send(data) :] or FLOOD

    def read():
        with contextlib.suppress(OSError):
            while True:
                with contextlib.suppress(TimeoutError):
                    if not code.link.recv(1 << 16):
                        break

    threads = [threading.Thread(target=each, daemon=True) for each in (call, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        threads[0].join()
        code.link.shutdown(socket.SHUT_RDWR)
        threads[1].join()
