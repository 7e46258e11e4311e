# SPDX-License-Identifier: Apache-2.0
"""E2B's protocol beside our own API: the same work by both, in turns, over plain HTTP without an SDK."""

import argparse
import http.client
import json
import pathlib
import statistics
import time

import report
from contestants import Kernelgate

ROUNDS = 200
CREATIONS = 30
MEGABYTE = bytes(range(256)) * 4096
FILE = "/api/v1/sessions/bench/files/bench.bin"
CREATED, RAN, COMMAND, WROTE, READ = (
    "create, and the first result",
    "a warm cell",
    "a command",
    "write 1 MB",
    "read 1 MB",
)


class Client:
    """One connection, as the SDKs keep it."""

    def __init__(self, gateway):
        self.connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"))
        self.sandbox = {}  # headers

    def send(self, method, path, body=None, headers=None):
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self.connection.request(method, path, content, headers or {})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:200]}")
        return answer

    # ---- Our own

    def own_create(self):
        path = "/api/v1/sessions/new"
        run = {"code": "1", "session_id": "new"}
        yield self.send("POST", "/api/v1/execute", run)
        self.send("DELETE", path)

    def own_run(self):
        yield self.send("POST", "/api/v1/execute", {"code": "1", "session_id": "bench"})

    def own_command(self):
        yield self.send("POST", "/api/v1/sessions/bench/commands", {"command": "true"})

    def own_write(self):
        yield self.send("PUT", FILE, MEGABYTE)

    def own_read(self):
        yield self.send("GET", FILE)

    # ---- E2B's

    def make(self):
        made = json.loads(self.send("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 3600}))
        token = {"X-Access-Token": made["envdAccessToken"], "E2b-Sandbox-Id": made["sandboxID"]}
        return made["sandboxID"], token

    def e2b_create(self):
        sandbox, token = self.make()
        yield self.send("POST", "/execute", {"code": "1"}, token)
        self.send("DELETE", f"/sandboxes/{sandbox}")

    def e2b_run(self):
        yield self.send("POST", "/execute", {"code": "1"}, self.sandbox)

    def e2b_command(self):
        process = {"cmd": "/bin/bash", "args": ["-c", "true"]}
        message = json.dumps({"process": process}).encode()
        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        envelope = b"\0" + len(message).to_bytes(4) + message
        yield self.send("POST", "/process.Process/Start", envelope, headers | self.sandbox)

    def e2b_write(self):
        headers = {"Content-Type": "application/octet-stream"} | self.sandbox
        yield self.send("POST", "/files?path=bench.bin", MEGABYTE, headers)

    def e2b_read(self):
        yield self.send("GET", "/files?path=bench.bin", headers=self.sandbox)


def milliseconds(work):
    """Of what comes before the generator's yield; the rest is cleaning up."""
    began = time.perf_counter()
    steps = work()
    next(steps)
    taken = (time.perf_counter() - began) * 1000
    for _ in steps:
        pass
    return taken


def measure():
    with Kernelgate() as gateway:
        client = Client(gateway)
        client.send("POST", "/api/v1/sessions", {"session_id": "bench"})
        client.sandbox = client.make()[1]
        works = {
            CREATED: (client.own_create, client.e2b_create, CREATIONS),
            RAN: (client.own_run, client.e2b_run, ROUNDS),
            COMMAND: (client.own_command, client.e2b_command, ROUNDS),
            WROTE: (client.own_write, client.e2b_write, ROUNDS),
            READ: (client.own_read, client.e2b_read, ROUNDS),
        }
        results = {}
        for name, (own, e2b, rounds) in works.items():
            times = {"ours": [], "E2B's": []}
            for _ in range(rounds):
                for side, work in zip(times, (own, e2b), strict=True):
                    times[side].append(milliseconds(work))
                    if name == CREATED:
                        time.sleep(1)  # the pool is filled again
            medians = {side: round(statistics.median(each), 2) for side, each in times.items()}
            results[name] = medians | {"ratio": round(medians["E2B's"] / medians["ours"], 3)}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    results = {"e2b": measure()}
    report.print_table("The same work by our API and by E2B's protocol (ms, median)", results["e2b"])
    goals = [
        (f"{name}: at most 10 % slower", f"{figures['ratio']:.2f}", figures["ratio"] <= 1.1)
        for name, figures in results["e2b"].items()
    ]
    report.finish(results, goals, arguments.json)


if __name__ == "__main__":
    main()
