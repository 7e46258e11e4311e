# SPDX-License-Identifier: Apache-2.0
"""Terminals and commands: a keystroke's echo beside a terminal of this machine, a command with an id beside one
without. All in one run, in turns, so that their ratios can be compared between machines."""

import argparse
import http.client
import json
import os
import pathlib
import pty
import statistics
import subprocess
import time
import urllib.parse

import report
import websockets.sync.client
from contestants import Kernelgate

KEYSTROKES = 1000
COMMANDS = 200
SESSION = "/api/v1/sessions/bench"
LOCAL, REMOTE = "keystroke, a terminal of this machine", "keystroke, a terminal of a session"
PLAIN, NAMED = "command", "command with an id"
FOLLOWED = "command with an id, in the background, and its output"


def quiet(socket):
    """Reads until nothing comes any more."""
    shown = b""
    while True:
        try:
            shown += socket.recv(0.5, decode=False)
        except TimeoutError:
            return shown


def keystrokes(gateway):
    """What is typed into terminals in which `cat` runs. Linux echoes it, at once."""
    ours, theirs = pty.openpty()
    cat = subprocess.Popen(["cat"], stdin=theirs, stdout=theirs, start_new_session=True)
    url = gateway.url.replace("http", "ws", 1) + f"{SESSION}/terminal?id=keys"
    times = {LOCAL: [], REMOTE: []}
    with websockets.sync.client.connect(url, ping_interval=None) as socket:

        def local():
            os.write(ours, b"x")
            return os.read(ours, 100)

        def remote():
            socket.send(b"x")
            return socket.recv(10)

        socket.send(b"exec cat\n")
        quiet(socket)
        for _ in range(KEYSTROKES):  # less than a line may have
            for name, echo in (LOCAL, local), (REMOTE, remote):
                started = time.perf_counter()
                if echo() != b"x":
                    raise RuntimeError(f"{name}: something else was shown")
                times[name].append(time.perf_counter() - started)
        if quiet(socket):
            raise RuntimeError("more was shown than was typed")
    cat.kill()
    cat.wait()
    os.close(ours)
    os.close(theirs)
    return times


class Client:
    def __init__(self, gateway):
        url = urllib.parse.urlsplit(gateway.url)
        self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)

    def ask(self, method, path, body=None):
        self.connection.request(method, SESSION + path, body and json.dumps(body))
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content


def commands(gateway):
    client = Client(gateway)

    def followed(name):
        body = {"command": "echo x", "id": name, "background": True}
        client.ask("POST", "/commands", body)
        return client.ask("GET", f"/commands/{name}/output")

    kinds = {
        PLAIN: lambda i: client.ask("POST", "/commands", {"command": "echo x"}),
        NAMED: lambda i: client.ask("POST", "/commands", {"command": "echo x", "id": f"n{i}"}),
        FOLLOWED: lambda i: followed(f"f{i}"),
    }
    times = {name: [] for name in kinds}
    for i in range(COMMANDS):
        for name, run in kinds.items():
            started = time.perf_counter()
            if b'"x\\n"' not in run(i):
                raise RuntimeError(f"{name}: its output is missing")
            times[name].append(time.perf_counter() - started)
    client.connection.close()
    return times


def row(times, beside):
    median = statistics.median(times)
    return {
        "median_ms": round(median * 1000, 3),
        "p99_ms": round(statistics.quantiles(times, n=100)[98] * 1000, 3),
        "ratio": round(median / statistics.median(beside), 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with Kernelgate("--pool-size", "0") as gateway:
        gateway.execute("1")
        times = keystrokes(gateway) | commands(gateway)
    first = {LOCAL: LOCAL, REMOTE: LOCAL, PLAIN: PLAIN, NAMED: PLAIN, FOLLOWED: PLAIN}
    rows = {name: row(times[name], times[first[name]]) for name in first}
    report.print_table("Terminals and commands (each ratio is to the first of its kind)", rows)
    goals = [
        (
            "a keystroke's echo, at the median",
            f"{rows[REMOTE]['median_ms']} ms",
            rows[REMOTE]["median_ms"] < 10,
        ),
        (
            "an id costs a command at most a fifth",
            rows[NAMED]["ratio"],
            rows[NAMED]["ratio"] <= 1.2,
        ),
    ]
    report.finish({"terminals": rows}, goals, arguments.json)


if __name__ == "__main__":
    main()
