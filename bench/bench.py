# SPDX-License-Identifier: Apache-2.0
"""Measures the release build beside its yardsticks, all in one run on this machine.

(a) warm execute("1"), through kernelgate, Jupyter Kernel Gateway, and no gateway at all
(b) 100 MB printed in lines: throughput, and kernelgate's memory meanwhile
(c) cold start, from nothing to the first result, and its parts
(d) kernelgate's memory for each idle session
(e) GET /healthz with wrk
(f) first result of a new session: out of the pool, without one, many at once
(g) sessions for each GiB of memory
(h) warm execute("1") while another session prints 100 MB; and beside readers that do not read
(i) a file of 50 MiB up and down, beside a plain copy; files beside a kernel that never ends
(j) Python beside JavaScript, and shell commands: the first result in a session, and warm ones
(k) install of a small package: with the index asked, and from the cache
(l) warm run_python_code("1") by MCP, beside the same by REST, and by an MCP server in Python

Every Python kernel runs from the same environment, build/kernels/python: kernelgate's in containers,
those of the yardsticks as plain processes. A goal that is missed is marked, and fails nothing.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

import files
import languages
import mcp_tool
import packages
import report
import scale
import soak
from contestants import BareClient, BareSocket, Kernelgate, KernelGateway

PRINT_100_MB = "line = 'y' * 99\nfor i in range(1_000_000): print(line)"
WARM_ROUNDS = 1000
COLD_ROUNDS = 5
IDLE_SESSIONS = 8


def milliseconds(seconds):
    return round(seconds * 1000, 3)


def warm(contestant):
    for _ in range(WARM_ROUNDS // 10):
        contestant.execute("1")
    times = []
    for _ in range(WARM_ROUNDS):
        started = time.perf_counter()
        contestant.execute("1")
        times.append(time.perf_counter() - started)
    cuts = statistics.quantiles(times, n=100)
    return {"p50_ms": milliseconds(cuts[49]), "p99_ms": milliseconds(cuts[98])}


def flood(contestant):
    started = time.perf_counter()
    received = contestant.execute(PRINT_100_MB)
    seconds = time.perf_counter() - started
    return {"mb_per_s": round(received / 1e6 / seconds, 1), "received_mb": round(received / 1e6, 1)}


def cold(gateway):
    rounds = []
    for _ in range(COLD_ROUNDS):
        marks = gateway.cold_start()
        parts = {
            f"{name}_ms": (mark - before) * 1000
            for (name, mark), before in zip(marks[1:], [mark for _, mark in marks])
        }
        rounds.append({"total_ms": (marks[-1][1] - marks[0][1]) * 1000} | parts)
    return {part: round(statistics.median(one[part] for one in rounds)) for part in rounds[0]}


def idle_sessions(gateway):
    before = gateway.memory_kb("VmRSS")
    for number in range(IDLE_SESSIONS):
        gateway.execute("1", session=f"idle-{number}")
    after = gateway.memory_kb("VmRSS")
    return {
        "base_mb": round(before / 1024, 1),
        "kb_per_session": round((after - before) / IDLE_SESSIONS),
    }


def healthz(gateway):
    output = subprocess.run(
        ["wrk", "-t1", "-c32", "-d3s", "--latency", f"{gateway.url}/healthz"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = {"requests_per_s": round(float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1]))}
    return found | {"p99": re.search(r"99%\s+(\S+)", output)[1]}


def measure():
    results = {"warm": {}, "flood": {}}
    for kind in (BareSocket, BareClient, KernelGateway):
        with kind() as contestant:
            results["warm"][kind.title] = warm(contestant)
            if kind is not BareSocket:
                results["flood"][kind.title] = flood(contestant)
    with Kernelgate("--pool-size", "1") as gateway:
        results["warm"][gateway.title] = warm(gateway)
        gateway.reset_peak()
        results["flood"][gateway.title] = flood(gateway)
        results["flood"][gateway.title]["peak_mb"] = round(gateway.memory_kb("VmHWM") / 1024, 1)
        results["healthz"] = healthz(gateway)
    with Kernelgate("--pool-size", "0") as gateway:
        results["idle"] = idle_sessions(gateway)
    with Kernelgate("--pool-size", "0", "--log-level", "debug", "--log-format", "json") as gateway:
        results["cold"] = cold(gateway)
    results["starts"] = scale.starts()
    results["memory"] = scale.memory()
    results["neighbour"] = scale.neighbour()
    results["slow readers"] = scale.slow_readers()
    results["files"] = files.transfers()
    results["files beside a busy kernel"] = files.busy()
    results["languages"] = languages.languages()
    results["packages"] = packages.installs()
    results["mcp"] = mcp_tool.measure()
    return results


def goals(results):
    """What the project asks of these numbers: (what, measured, whether it is met)."""
    floor, ours = results["warm"][BareClient.title], results["warm"][Kernelgate.title]
    theirs = results["warm"][KernelGateway.title]
    added = ours["p50_ms"] - floor["p50_ms"]
    flooded = results["flood"][Kernelgate.title]
    share = flooded["mb_per_s"] / results["flood"][BareClient.title]["mb_per_s"]
    return [
        (
            "(a) added to bare jupyter_client at p50: at most 0.5 ms",
            f"{added:+.3f} ms",
            added <= 0.5,
        ),
        (
            "(a) not slower than Jupyter Kernel Gateway at p50",
            f"{ours['p50_ms'] / theirs['p50_ms']:.2f} of it",
            ours["p50_ms"] <= theirs["p50_ms"],
        ),
        ("(b) at least 0.8 of bare jupyter_client's MB/s", f"{share:.2f} of it", share >= 0.8),
        (
            "(b) all of the 100 MB arrives",
            f"{flooded['received_mb']} MB",
            flooded["received_mb"] == 100,
        ),
        ("(b) memory below 64 MiB", f"{flooded['peak_mb']} MiB", flooded["peak_mb"] < 64),
        *scale_goals(results),
        *mcp_tool.goals(results["mcp"]),
    ]


def scale_goals(results):
    started, executed = results["starts"]["start, pool full"], results["starts"]["warm execute"]
    quiet, beside = results["neighbour"].values()
    for percentile in ("p50", "p99"):
        added = started[f"{percentile}_ms"] - executed[f"{percentile}_ms"]
        yield (
            f"(f) start from the pool at {percentile}: at most 15 ms above a warm execute",
            f"{added:+.1f} ms",
            added <= 15,
        )
    ratio = beside["p99_ms"] / quiet["p99_ms"]
    yield ("(h) p99 beside a flood: at most twice the quiet one", f"{ratio:.2f} of it", ratio <= 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers go as well")
    parser.add_argument(
        "--soak",
        nargs="?",
        type=int,
        const=300,
        metavar="SECONDS",
        help="instead: a mixed load with faults, and what it leaves behind",
    )
    arguments = parser.parse_args()
    if arguments.soak:
        sys.exit(soak.main(arguments.soak))
    results = measure()
    report.print_table(f'(a) warm execute("1"), {WARM_ROUNDS} times', results["warm"])
    report.print_table("(b) print of 100 MB in lines of 100 bytes", results["flood"])
    report.print_table(
        f"(c) cold start, median of {COLD_ROUNDS}, ms", {Kernelgate.title: results["cold"]}
    )
    report.print_table(
        f"(d) memory with {IDLE_SESSIONS} idle sessions", {Kernelgate.title: results["idle"]}
    )
    report.print_table("(e) GET /healthz, 32 connections", {Kernelgate.title: results["healthz"]})
    report.print_table("(f) first result of a new session", results["starts"])
    report.print_table("(g) idle sessions out of the pool", {Kernelgate.title: results["memory"]})
    report.print_table('(h) warm execute("1") beside another session', results["neighbour"])
    report.print_table(
        f"(h) beside {results['slow readers']['readers']} readers that do not read",
        {Kernelgate.title: results["slow readers"]},
    )
    report.print_table("(i) a file of 50 MiB", results["files"])
    report.print_table("(i) beside a kernel that never ends", results["files beside a busy kernel"])
    report.print_table('(j) "1" in each language, and a command', results["languages"])
    report.print_table(f"(k) install of {packages.PACKAGE}", results["packages"])
    report.print_table('(l) warm run_python_code("1"), in turns', results["mcp"])
    report.finish(results, goals(results), arguments.json)


main()
