# SPDX-License-Identifier: Apache-2.0
"""Compares builds of kernelgate by turns in one run: starts, warm executions, and a flood.

ready         from the gateway's start until it listens
new session   the first result of a new session without a pool
from the pool the first result of a new session that gets a sandbox from the pool
warm          `1` in a session that has run code
flood         MB a second of printed lines
memory        MiB of a sandbox whose session has run `1`: its processes, each with its part of
              what they share

The release build is compared with each BINARY, which is an executable in its own build folder, with
its agent beside it.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import time

from contestants import BINARY, Kernelgate
from scale import pids_of_sandboxes, proportional_kb, start_and_end, timed

TURNS = 5
STARTS, POOLED_STARTS, WARM_ROUNDS = 4, 10, 400  # a turn
FLOOD = "line = 'y' * 99\nfor i in range(500_000): print(line)"


class Build:
    def __init__(self, binary, flags):
        self.binary = binary
        self.flags = flags
        self.memory = []
        self.times = {"ready": [], "new session": [], "from the pool": [], "warm": []}
        self.floods = []

    @contextlib.contextmanager
    def gateway(self, pool):
        started = time.perf_counter()
        with Kernelgate("--pool-size", pool, *self.flags, binary=self.binary) as gateway:
            self.times["ready"].append(time.perf_counter() - started)
            yield gateway

    def take_turn(self):
        with self.gateway("0") as gateway:
            for number in range(STARTS):
                self.times["new session"].append(start_and_end(gateway, f"new-{number}"))
            for _ in range(50):
                gateway.execute("1")
            pids = pids_of_sandboxes(gateway.folder)
            self.memory.append(sum(map(proportional_kb, pids)) / 1024)
            self.times["warm"] += [timed(gateway.execute, "1") for _ in range(WARM_ROUNDS)]
            started = time.perf_counter()
            received = gateway.execute(FLOOD)
            self.floods.append(received / 1e6 / (time.perf_counter() - started))
        with self.gateway("1") as gateway:
            for number in range(POOLED_STARTS):
                gateway.fill_pool()
                self.times["from the pool"].append(start_and_end(gateway, f"pooled-{number}"))

    def results(self):
        row = {
            f"{name} ms": round(statistics.median(times) * 1000, 2)
            for name, times in self.times.items()
        }
        cuts = statistics.quantiles(self.times["warm"], n=100)
        return row | {
            "warm p99 ms": round(cuts[98] * 1000, 2),
            "flood MB/s": round(statistics.median(self.floods), 1),
            "memory MiB": round(statistics.median(self.memory), 1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers go as well")
    parser.add_argument("--kernel-start", choices=["fork", "exec"], help="as the gateway's setting")
    parser.add_argument("binaries", nargs="+", metavar="BINARY", help="another build's executable")
    arguments = parser.parse_args()
    paths = [*map(pathlib.Path.resolve, map(pathlib.Path, arguments.binaries)), BINARY]
    flags = ["--kernel-start", arguments.kernel_start] if arguments.kernel_start else []
    builds = {str(path): Build(path, flags) for path in paths}
    for _ in range(TURNS):
        for build in builds.values():
            build.take_turn()
    results = {title: build.results() for title, build in builds.items()}
    for title, row in results.items():
        print(title)
        for name, value in row.items():
            print(f"  {name:20} {value:>10}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


main()
