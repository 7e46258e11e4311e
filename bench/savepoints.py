# SPDX-License-Identifier: Apache-2.0
"""Savepoints and branches of a kernel that has loaded a frame of 100 MiB, beside a restart that runs the same
cells again; and the memory of branches beside that of as many sessions. All in one run, in turns."""

import argparse
import http.client
import json
import pathlib
import statistics
import time
import urllib.parse

import report
from contestants import Kernelgate

ROUNDS = 10
COUNTS = (1, 5, 20)
LOAD = """
import numpy as np, pandas as pd
frame = pd.DataFrame(np.random.default_rng(1).random((100 * 2**20 // 8 // 16, 16)))
for column in frame: frame[column] = frame[column].rolling(20).mean()
"""
USE = "float(frame[0].sum())"
MADE, RESTORED, BRANCHED = "savepoint", "back to a savepoint, and a cell", "branch, and a cell"
REPEATED = "restart, the same cells again, and a cell"


class Client:
    def __init__(self, gateway):
        url = urllib.parse.urlsplit(gateway.url)
        self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)

    def ask(self, method, path, body=None, session="bench"):
        path = f"/api/v1/sessions/{session}{path}" if not path.startswith("/api") else path
        self.connection.request(method, path, None if body is None else json.dumps(body))
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return json.loads(content) if content[:1] == b"{" else content

    def run(self, code, session="bench", **fields):
        body = {"code": code, "session_id": session, "timeout": 600, **fields}
        answer = self.ask("POST", "/api/v1/execute_sync", body)["data"]
        if answer["status"] != "ok":
            raise RuntimeError(f"{code[:40]}: {answer}")
        return answer["texts"]

    def memory(self, session="bench"):
        """Bytes that the session's sandbox holds, without files that can be read again."""
        return self.ask("GET", "", session=session)["usage"]["memory_bytes"]


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def times_of(client):
    client.run(LOAD)
    [used] = client.run(USE)

    def use(**fields):
        if client.run(USE, **fields) != [used]:
            raise RuntimeError("the frame is another one")

    def make():
        kept.append(client.ask("POST", "/savepoints", {"name": f"s{len(kept)}"})["savepoint"])

    def restore():
        client.ask("POST", f"/savepoints/{kept[-1]}/restore", {})
        use()

    def branch():
        client.ask("POST", "/branches", {"name": "b"})
        use(branch="b")

    def repeat():
        client.ask("POST", "/restart")
        client.run(LOAD)
        use()

    kept = []
    times = {MADE: [], RESTORED: [], BRANCHED: [], REPEATED: []}
    for _ in range(ROUNDS):
        for name, work in (MADE, make), (RESTORED, restore), (BRANCHED, branch):
            times[name].append(seconds(work))
        client.ask("DELETE", "/branches/b")
        client.ask("DELETE", f"/savepoints/{kept.pop()}")
        times[REPEATED].append(seconds(repeat))
    return times


def memory_of(client, count):
    """MiB that `count` branches of a loaded session take more, idle and after a cell that reads a column, and
    what as many loaded sessions take."""
    client.run(LOAD, "memory")
    before = client.memory("memory")
    for i in range(count):
        client.ask("POST", "/branches", {"name": f"b{i}"}, "memory")
    idle = client.memory("memory") - before
    for i in range(count):
        client.run(USE, "memory", branch=f"b{i}")
    branches = client.memory("memory") - before
    client.ask("DELETE", "", session="memory")
    client.run(LOAD, "one")
    sessions = client.memory("one") * count
    client.ask("DELETE", "", session="one")
    return {
        "idle_mib": round(idle / 2**20, 1),
        "each_idle_mib": round(idle / count / 2**20, 1),
        "after_a_cell_mib": round(branches / 2**20, 1),
        "sessions_mib": round(sessions / 2**20, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with Kernelgate("--memory-mb", "2048") as gateway:
        client = Client(gateway)
        times = times_of(client)
        memory = {f"{count} branches": memory_of(client, count) for count in COUNTS}
    beside = statistics.median(times[REPEATED])
    rows = {
        name: {
            "median_ms": round(statistics.median(each) * 1000, 1),
            "ratio": round(statistics.median(each) / beside, 3),
        }
        for name, each in times.items()
    }
    report.print_table("With a frame of 100 MiB (each ratio is to a restart)", rows)
    report.print_table("Memory beside as many loaded sessions (MiB)", memory)
    goals = [
        ("an idle branch takes less than 25 MiB", memory["20 branches"]["each_idle_mib"], memory["20 branches"]["each_idle_mib"] < 25),
        ("a restore takes some 0.25 s", f"{rows[RESTORED]['median_ms']} ms", rows[RESTORED]["median_ms"] < 500),
    ]  # fmt: skip
    report.finish({"times": rows, "memory": memory}, goals, arguments.json)


if __name__ == "__main__":
    main()
