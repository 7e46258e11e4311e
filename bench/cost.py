# SPDX-License-Identifier: Apache-2.0
"""What one execution costs the gateway, beside a bare jupyter_client, by turns in one run.

processor time   user and system time of all threads, for each warm execution of `1`
latency          of a warm execution of `1`, the median
system calls     of all threads, for each warm execution of `1`, as strace counts them
flood            MB of printed lines for each second of processor time, and its reciprocal
idle             wake-ups a second of all threads (voluntary context switches), with one idle kernel

Counts hardly depend on what else the machine does; processor time does, by its caches.
`--against BINARY` (may be given several times) measures other builds beside the release build.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import time

from contestants import BINARY, BareClient, Kernelgate

TURNS = 5
EXECUTIONS = 300  # a turn
TRACED_EXECUTIONS = 100
FLOOD = "line = 'y' * 99\nfor i in range(200_000): print(line)"
IDLE_SECONDS = 10
TICKS = os.sysconf("SC_CLK_TCK")


class Subject:
    """A contestant, and the process whose cost counts."""

    def __init__(self, title, contestant):
        self.title = title
        self.contestant = contestant
        self.turns = []
        self.latencies = []
        self.once = {}

    @property
    def pid(self):
        gateway = isinstance(self.contestant, Kernelgate)
        return self.contestant.process.pid if gateway else os.getpid()

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS  # utime and stime

    def wakeups(self):
        return sum(
            int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status.read_text())[1])
            for status in pathlib.Path(f"/proc/{self.pid}/task").glob("*/status")
        )

    def take_turn(self):
        before = self.processor_seconds()
        for _ in range(EXECUTIONS):
            started = time.perf_counter()
            self.contestant.execute("1")
            self.latencies.append(time.perf_counter() - started)
        warm = self.processor_seconds() - before
        received = self.contestant.execute(FLOOD)
        flood = self.processor_seconds() - before - warm
        self.turns.append((warm / EXECUTIONS, flood / (received / 1e6)))

    def count_calls(self, folder):
        table = pathlib.Path(folder, "calls")
        command = ["strace", "-f", "-c", "-U", "calls,name", "-o", table, "-p", str(self.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            strace.stderr.readline()  # it is attached
            self.contestant.execute("1")
            for _ in range(TRACED_EXECUTIONS - 1):
                self.contestant.execute("1")
            strace.terminate()
        counts = {
            name: int(n) for n, name in re.findall(r"^ *(\d+) (\w+)$", table.read_text(), re.M)
        }
        total = counts.pop("total")
        most = sorted(counts, key=counts.get, reverse=True)[:8]
        self.once["calls"] = round(total / TRACED_EXECUTIONS, 1)
        self.once["by name"] = {name: round(counts[name] / TRACED_EXECUTIONS, 1) for name in most}

    def count_wakeups(self):
        before = self.wakeups()
        time.sleep(IDLE_SECONDS)
        self.once["wake-ups a second"] = round((self.wakeups() - before) / IDLE_SECONDS, 1)

    def results(self):
        warm, flood = (statistics.median(column) for column in zip(*self.turns))
        return {
            "ms a warm 1": round(warm * 1000, 3),
            "latency": round(statistics.median(self.latencies) * 1000, 2),
            "calls": self.once["calls"],
            "MB a second": round(1 / flood, 1),
            "ms a MB": round(flood * 1000, 1),
            "idle": self.once.get("wake-ups a second", ""),
            "by name": self.once["by name"],
        }


def measure(binaries):
    with contextlib.ExitStack() as running:
        subjects = [Subject(BareClient.title, running.enter_context(BareClient()))]
        for title, binary in binaries.items():
            gateway = Kernelgate("--pool-size", "0", binary=binary)
            subjects.append(Subject(title, running.enter_context(gateway)))
        for subject in subjects:
            for _ in range(50):
                subject.contestant.execute("1")
        for _ in range(TURNS):
            for subject in subjects:
                subject.take_turn()
        for subject in subjects:
            subject.count_calls(subject.contestant.folder)
        for subject in subjects[1:]:
            subject.count_wakeups()
        return {subject.title: subject.results() for subject in subjects}


def print_results(results):
    columns = ("ms a warm 1", "latency", "calls", "MB a second", "ms a MB", "idle")
    width = max(map(len, results))
    print(f"{'':{width}}" + "".join(f"  {column:>12}" for column in columns))
    for title, row in results.items():
        print(f"{title:{width}}" + "".join(f"  {row[column]:>12}" for column in columns))
    for title, row in results.items():
        print(f"{title}: " + ", ".join(f"{name} {n}" for name, n in row["by name"].items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers go as well")
    parser.add_argument("--against", action="append", default=[], metavar="BINARY",
                        help="another build of kernelgate")  # fmt: skip
    arguments = parser.parse_args()
    binaries = {other: pathlib.Path(other).resolve() for other in arguments.against}
    results = measure({**binaries, Kernelgate.title: BINARY})
    print_results(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


main()
