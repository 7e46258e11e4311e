# SPDX-License-Identifier: Apache-2.0
"""What MCP adds to a warm execution: run_python_code("1") beside POST /api/v1/execute through the same
gateway, and beside an MCP server in Python before a kernel of its own. Same client for all: one
connection, nothing parsed but the answer."""

import json
import socket
import statistics
import subprocess
import sys
import time

from contestants import Connection, Kernelgate, _Bare, end

WARM_ROUNDS = 1000


class McpConnection(Connection):
    """One MCP client that has initialized."""

    def __init__(self, url, tool_arguments, path="/mcp"):
        super().__init__(url)
        self.path = path
        self.headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        self.arguments = tool_arguments
        self.last_id = 0
        opened = self.say(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "bench", "version": "1"},
        )
        self.headers["Mcp-Session-Id"] = opened.getheader("Mcp-Session-Id")
        self.headers["MCP-Protocol-Version"] = "2025-06-18"
        opened.read()

    def say(self, method, **params):
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        return self.post(message, self.headers)

    def post(self, message, headers):
        self.http.request("POST", self.path, json.dumps(message), headers)
        response = self.http.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read().decode())
        return response

    def call(self, tool, **arguments):
        """The answer's text."""
        text = self.say("tools/call", name=tool, arguments={**arguments, **self.arguments}).read()
        if json.loads(text).get("result", {"isError": True}).get("isError"):
            raise RuntimeError(text[:1000].decode())
        return text

    def execute(self, code):
        return self.call("run_python_code", code=code)


class Yardstick(_Bare):
    title = "MCP server in Python, jupyter_client"
    server = connection = None

    def start(self):
        super().start()
        self.client.stop_channels()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.server = subprocess.Popen(
            [sys.executable, "bench/mcp_yardstick.py", str(port), f"{self.folder}/c.json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            try:
                self.connection = McpConnection(f"http://127.0.0.1:{port}", {})
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise RuntimeError("the yardstick does not listen")

    def stop(self):
        if self.connection:
            self.connection.http.close()
        if self.server:
            end(self.server)
        super().stop()

    def execute(self, code):
        self.connection.execute(code)


def alternately(*contestants):
    """p50 and p99 of each, in ms, measured in turns, so that the machine's moods are shared."""
    times = [[] for _ in contestants]
    for number in range(WARM_ROUNDS + WARM_ROUNDS // 10):
        for execute, mine in zip(contestants, times):
            started = time.perf_counter()
            execute("1")
            if number >= WARM_ROUNDS // 10:
                mine.append(time.perf_counter() - started)
    cuts = [statistics.quantiles(mine, n=100) for mine in times]
    return [{"p50_ms": round(c[49] * 1e3, 3), "p99_ms": round(c[98] * 1e3, 3)} for c in cuts]


def measure():
    with Kernelgate("--pool-size", "1") as gateway, Yardstick() as yardstick:
        gateway.execute("1")
        tool = McpConnection(gateway.url, {"session_id": "bench"})
        names = ["POST /api/v1/execute", "MCP run_python_code", Yardstick.title]
        return dict(zip(names, alternately(gateway.execute, tool.execute, yardstick.execute)))


def goals(results):
    """(what, measured, whether it is met)"""
    rest, tool, yardstick = (row["p50_ms"] for row in results.values())
    added = tool - rest
    yield "(l) added by MCP to REST at p50: at most 0.3 ms", f"{added:+.3f} ms", added <= 0.3
    share = tool / yardstick
    yield "(l) not slower than an MCP server in Python at p50", f"{share:.2f} of it", share <= 1


if __name__ == "__main__":
    for name, row in measure().items():
        print(f"{name:40} {row}")
