# SPDX-License-Identifier: Apache-2.0
"""Calls of tools that code makes, and its client or an MCP server behind the gateway answers, beside a warm `1` and
the server alone; and what 10,000 of them cost another session. All in one run."""

import argparse
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import report
from contestants import Kernelgate

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests/support"))
from tool_servers import stdio, write_file  # noqa: E402

ROUNDS = 200
FLOOD = 10_000
ECHO = [{"name": "echo", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}]
WARM, CALL, ALONE, BESIDE = "a warm 1", "a call and its answer", "another session's 1, alone", "beside the calls"
SERVER, SERVED = "an MCP server's call, asked directly", "the same from code"
CALLS = """
import time, tools
echo, times = {echo}, []
for n in range({n}):
    began = time.perf_counter()
    echo(n=n)
    times.append(time.perf_counter() - began)
print(*times)
"""


class Client:
    def __init__(self, gateway):
        self.url = urllib.parse.urlsplit(gateway.url)
        self.connection = self.connect()

    def connect(self):
        return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=600)

    def start(self, body):
        self.connection.request("POST", "/api/v1/execute", json.dumps({"timeout": 600, **body}))
        return self.connection.getresponse()

    def one(self, session):
        """Seconds for a warm `1`."""
        began = time.perf_counter()
        self.start({"session_id": session, "code": "1"}).read()
        return time.perf_counter() - began

    def call(self, session, n, echo="tools.echo"):
        """Runs code that calls a tool n times; returns the seconds that each call took in the code."""
        answering = self.connect()
        text = ""
        answer = self.start({"session_id": session, "code": CALLS.format(n=n, echo=echo), "tools": ECHO})
        path = f"/api/v1/executions/{answer.headers['X-Execution-Id']}/tool_results"
        for line in map(json.loads, answer):
            if line["type"] == "tool_call":
                result = {"call_id": line["call_id"], "result": line["arguments"]["n"]}
                answering.request("POST", path, json.dumps({"results": [result]}))
                if answering.getresponse().read() and answering.sock is None:
                    raise RuntimeError("the connection was closed")
            text += line["text"] if line["type"] == "stdout" else ""
            if line["type"] == "error" or line.get("status") not in (None, "ok"):
                raise RuntimeError(line)
        return [float(each) for each in text.split()]


def ask_directly(n):
    """Seconds for each call of the server's tool, by its stdin and stdout."""
    spec = stdio()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([spec["command"], *spec["args"]], **pipes) as program:

        def ask(method, **params):
            began = time.perf_counter()
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            program.stdin.write(json.dumps(request).encode() + b"\n")
            program.stdin.flush()
            while not program.stdout.readline().startswith(b"{"):
                pass  # a banner, as programs print it
            return time.perf_counter() - began

        ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "b", "version": "1"})
        return [ask("tools/call", name="echo", arguments={"n": i}) for i in range(n)]


def flood(gateway):
    """10,000 calls of one session, and meanwhile what another one waits for."""
    rate, ended = {}, threading.Event()

    def call():
        began = time.perf_counter()
        Client(gateway).call("flood", FLOOD)
        rate["per_s"] = round(FLOOD / (time.perf_counter() - began))
        ended.set()

    other = Client(gateway)
    other.one("other")
    alone = [other.one("other") for _ in range(ROUNDS)]
    thread = threading.Thread(target=call)
    thread.start()
    beside = []
    while not ended.is_set():
        beside.append(other.one("other"))
        time.sleep(0.01)
    thread.join()
    return alone, beside, rate["per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Kernelgate("--max-tool-calls", str(FLOOD), "--mcp-servers", write_file(pathlib.Path(folder), program=stdio())) as gateway,
    ):  # fmt: skip
        client = Client(gateway)
        client.one("bench")
        times = {WARM: [client.one("bench") for _ in range(ROUNDS)], CALL: client.call("bench", ROUNDS)}
        times[SERVER], times[SERVED] = ask_directly(ROUNDS), client.call("bench", ROUNDS, "tools.program.echo")
        times[ALONE], times[BESIDE], per_s = flood(gateway)
    median = {name: statistics.median(each) * 1000 for name, each in times.items()}
    rows = {
        name: {"median_ms": round(each, 2), "ratio": round(each / median[WARM], 2)}
        for name, each in median.items()
    }
    report.print_table("Calls of tools (each ratio is to a warm 1)", rows)
    print(f"10,000 calls, one after the other: {per_s} in a second")
    added = median[SERVED] - median[SERVER]
    slower = median[BESIDE] / median[ALONE]
    goals = [
        ("a call takes at most 3 ms", f"{median[CALL]:.2f} ms", median[CALL] <= 3),
        ("an MCP server's takes at most 5 ms more than the server", f"{added:.2f} ms", added <= 5),
        ("another session's median at most doubles", f"{slower:.2f}", slower <= 2),
    ]
    report.finish({"times": rows, "calls_per_s": per_s}, goals, arguments.json)


if __name__ == "__main__":
    main()
