# SPDX-License-Identifier: Apache-2.0
"""How soon new sessions are usable, with kernels by fork and by exec; with the Docker Engine; and beside
no gateway at all.

Time to interactive, as ComputeSDK's public benchmark defines it: from the request for a session until its
first command is done; one after the other, one every 200 ms, and all at once. Then sessions that stay, each
with numpy imported and an array made: wall clock time and memory (PSS of the sandbox) of each; and memory of
those that have used pandas and are idle. At last forks and ends in a row: what they leave, and how much
gateway and zygote have grown. The Docker Engine is the tests' own; needs root and docker.io.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))

import dockerd
import scale
from contestants import BareClient, Connection, Kernelgate

STAGGER_SECONDS = 0.2
BURST = 20
ARRAY = "import numpy as np; a = np.arange(1000)"
TABLE = "import pandas as pd; pd.DataFrame({'a': [1, 2]}).a.sum()"
FORK = ("--kernel-start", "fork")
EXEC = ("--kernel-start", "exec")
SETTLE = 20  # sessions before anything's growth is measured


class Starter(Kernelgate):
    """A gateway whose zygote is ready where there is one."""

    def __init__(self, way, *flags):
        self.forks = "fork" in way
        super().__init__(*way, "--max-sessions", "200", *flags)

    def start(self):
        super().start()
        self.wait(
            lambda: not self.forks or "kernels can be forked" in self.log.read_text(),
            "no zygote gets ready",
        )

    def wait(self, condition, failure):
        for _ in range(3000):
            if condition():
                return
            time.sleep(0.02)
        raise RuntimeError(f"{failure}: {self.log.read_text()[-2000:]}")

    def fill_pool(self):
        """Its sandboxes without a kernel, too."""
        super().fill_pool()

        def is_quiet():
            metrics = self.connection.ask("GET", "/metrics").read()
            return re.search(rb"^kernelgate_pool_starting 0$", metrics, re.MULTILINE)

        self.wait(is_quiet, "the pool keeps starting sandboxes")

    def processes(self):
        """The process ids of the sandboxes' agents, and of the zygote if there is one."""
        zygotes = [
            (mark.parent / "init.pid").read_text()
            for mark in pathlib.Path(self.folder, "sb").glob("*/zygote")
        ]
        return list(self.agents()), zygotes

    def agents(self):
        """On any engine: agents have a folder of this gateway mounted."""
        folders = f"{os.path.basename(self.folder)}/sb/"
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_agent = (path / "cmdline").read_bytes().startswith(b"/run/kg-agent\0")
                if is_agent and folders in (path / "mountinfo").read_text():
                    yield path.name

    def memory_kb_of_sandboxes(self):
        """Of each sandbox with its processes; a zygote is none."""
        agents, _ = self.processes()
        total = 0
        for agent in agents:
            kernels = pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
            total += sum(map(scale.proportional_kb, (agent, *kernels)))
        return total / len(agents)


def spread(times):
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {f"p{at}": round(cuts[at - 1] * 1000) for at in (50, 95, 99)}


def session_time(gateway, number, code="1", end=True):
    """From the request for a session until its first command is done."""
    with Connection(gateway.url) as connection:
        started = time.perf_counter()
        connection.execute(code, f"start-{number}")
        seconds = time.perf_counter() - started
        if end:
            connection.end(f"start-{number}")
    return seconds


def sequential(gateway, count, code):
    return spread([session_time(gateway, number, code) for number in range(count)])


def together(gateway, count, code, stagger):
    def start(number):
        time.sleep(max(0, began + number * stagger - time.perf_counter()))
        return session_time(gateway, number, code)

    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        began = time.perf_counter()
        return spread(list(threads.map(start, range(count))))


def held(gateway, count, code):
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        began = time.perf_counter()
        list(threads.map(lambda number: session_time(gateway, number, code, False), range(count)))
        seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 1), "MiB": round(gateway.memory_kb_of_sandboxes() / 1024, 1)}


def in_a_row(gateway, count):
    """Forks and ends; what they leave beside a gateway that has no session any more."""

    def sizes():
        for _ in range(1000):
            left, [zygote] = gateway.processes()
            left += pathlib.Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
            if not left:
                break
            time.sleep(0.02)
        memory = [gateway.memory_kb("VmRSS"), memory_kb(zygote)]
        files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (gateway.process.pid, zygote)]
        return len(left), memory, files

    sequential(gateway, SETTLE, "1")
    _, memory, files = sizes()
    began = time.perf_counter()
    times = sequential(gateway, count - SETTLE, "1")
    seconds = time.perf_counter() - began
    left, memory_after, files_after = sizes()
    grown = [f"{(after - before) / 1024:+.1f}" for before, after in zip(memory, memory_after)]
    return {
        "p50": times["p50"],
        "seconds": round(seconds),
        "processes left": left,
        "MiB of gateway and zygote": " ".join(grown),
        "files": sum(files_after) - sum(files),
    }


def memory_kb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1])


def bare(count):
    """A kernel as a plain process, without a container."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        with BareClient() as kernel:
            kernel.execute(ARRAY)
            times.append(time.perf_counter() - started)
    return spread(times)


def measure(way, count):
    rows = {}
    with Starter(way, "--pool-size", "0") as gateway:
        rows["pandas used, one after the other"] = sequential(gateway, count, TABLE)
        rows["numpy used, one after the other"] = sequential(gateway, count, ARRAY)
        rows["one after the other"] = sequential(gateway, count, "1")
        rows["one every 200 ms"] = together(gateway, count, "1", STAGGER_SECONDS)
        rows["all at once"] = together(gateway, count, "1", 0)
        rows["held, with numpy"] = held(gateway, count, ARRAY)
    with Starter(way, "--pool-size", "0") as gateway:
        rows[f"{BURST} that are idle, with pandas"] = held(gateway, BURST, TABLE)
    with Starter(way) as gateway:  # its pool as by default, which grows with memory by fork
        gateway.fill_pool()
        rows["numpy used, one after the other, default pool"] = sequential(gateway, count, ARRAY)
        gateway.fill_pool()
        rows["one every 200 ms, default pool"] = together(gateway, count, "1", STAGGER_SECONDS)
        gateway.fill_pool()
        rows["all at once, default pool"] = together(gateway, count, "1", 0)
    with Starter(way, "--pool-size", "2") as gateway:
        gateway.fill_pool()
        rows[f"{BURST} at once, pool of 2"] = together(gateway, BURST, "1", 0)
    return rows


def measure_in_a_row(count):
    # One zygote makes 1,000: the next one would show no growth.
    with Starter(FORK, "--pool-size", "0") as gateway:
        return in_a_row(gateway, count)


def measure_docker(count):
    engine = dockerd.Dockerd(dockerd.KEPT)
    try:
        engine.start()
        engine.build_kernels()
        return measure((*EXEC, "--provisioner", "docker", "--docker-host", engine.host), count)
    finally:
        engine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file, too")
    parser.add_argument("--count", type=int, default=100, help="sessions of each kind")
    parser.add_argument(
        "--row", type=int, default=1000, help="forks and ends in a row, at most 1,000; 0: none"
    )
    arguments = parser.parse_args()
    results = {}
    if arguments.count > 0:
        results["fork"] = measure(FORK, arguments.count)
        results["exec"] = measure(EXEC, arguments.count)
        results["exec, Docker"] = measure_docker(arguments.count)
    if arguments.row > SETTLE:
        row = measure_in_a_row(arguments.row)
        results.setdefault("fork", {})[f"{arguments.row} forks in a row"] = row
    if arguments.count > 0:
        kernels = bare(min(arguments.count, 20))
        results["bare ipykernel"] = {"numpy used, one after the other": kernels}
    print(f"| {arguments.count} new sessions, ms | {' | '.join(results)} |")
    print(f"|---|{'---|' * len(results)}")
    for what in dict.fromkeys(what for rows in results.values() for what in rows):
        cells = [
            ", ".join(f"{name} {value}" for name, value in rows.get(what, {}).items())
            for rows in results.values()
        ]
        print(f"| {what} | {' | '.join(cells)} |")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
