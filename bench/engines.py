# SPDX-License-Identifier: Apache-2.0
"""Measures the release build on its two engines, oci and docker, beside one another; or on two
runtimes of oci, runc and runsc (gVisor).

    script/bench --engines
    script/bench --runtimes

Container start and cold start (nothing to the first result), a claim from the pool, warm execution,
a command, the end of a session, and for runtimes the memory of a sandbox with an idle kernel. The
Docker Engine is the tests' own (tests/support/dockerd.py), with the image that kernelspec/Dockerfile
makes; needs root and docker.io, or runsc.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))

import dockerd
import scale
from contestants import Kernelgate

COLD_ROUNDS = 7
POOLED_STARTS = 20
WARM_BLOCKS, WARM_ROUNDS = 5, 200  # by turns, so that both see the same machine
COMMANDS = 20  # in each block
RUNTIMES = {name: ["--provisioner", "oci", "--oci-runtime", name] for name in ("runc", "runsc")}


def median_ms(seconds):
    return round(statistics.median(seconds) * 1000, 1)


def cold(flags):
    with Kernelgate(
        "--pool-size", "0", "--log-level", "debug", "--log-format", "json", *flags
    ) as gateway:
        gateway.cold_start()  # the first one reads from the disk
        rounds = [gateway.cold_start() for _ in range(COLD_ROUNDS)]
    return {
        "container start": median_ms([marks[1][1] - marks[0][1] for marks in rounds]),
        "cold start": median_ms([marks[-1][1] - marks[0][1] for marks in rounds]),
    }


def pooled(flags):
    starts, ends = [], []
    with Kernelgate("--pool-size", "1", *flags) as gateway:
        for number in range(POOLED_STARTS):
            gateway.fill_pool()
            starts.append(scale.timed(gateway.execute, "1", f"s-{number}"))
            gateway.fill_pool()
            ends.append(scale.timed(gateway.connection.end, f"s-{number}"))
    return {"first result from the pool": median_ms(starts), "end of a session": median_ms(ends)}


def command(gateway):
    body = {"command": "true"}
    gateway.connection.json("POST", "/api/v1/sessions/bench/commands?wait=1", body)


def sandbox_memory_mb(gateway):
    """What the control group of its session's sandbox counts, with the page cache that it filled."""
    [folder] = pathlib.Path(gateway.folder, "sb").glob("*/meta.json")
    for group in pathlib.Path("/sys/fs/cgroup").rglob(f"kg-*-{folder.parent.name}"):
        for name in ("memory.usage_in_bytes", "memory.current"):
            if (group / name).exists():
                return round(int((group / name).read_text()) / 2**20)
    raise RuntimeError("no control group counts memory")


def warm(engines, with_memory):
    times = {name: ([], []) for name in engines}
    rows = {name: {} for name in engines}
    with contextlib.ExitStack() as stack:
        gateways = {name: stack.enter_context(Kernelgate(*engines[name])) for name in engines}
        for name, gateway in gateways.items():
            gateway.fill_pool()
            gateway.execute("1")
            if with_memory:
                rows[name]["memory of a sandbox, MiB"] = sandbox_memory_mb(gateway)
            for _ in range(WARM_ROUNDS):
                gateway.execute("1")
        for _ in range(WARM_BLOCKS):
            for name, gateway in gateways.items():
                executed, commands = times[name]
                executed += [scale.timed(gateway.execute, "1") for _ in range(WARM_ROUNDS)]
                commands += [scale.timed(command, gateway) for _ in range(COMMANDS)]
    for name, (executed, commands) in times.items():
        percentiles = scale.percentiles(executed)
        rows[name]["warm execute, p50"] = percentiles["p50_ms"]
        rows[name]["warm execute, p99"] = percentiles["p99_ms"]
        rows[name]["command, p50"] = scale.percentiles(commands)["p50_ms"]
    return rows


def measure(engines, with_memory=False):
    rows = {name: cold(flags) | pooled(flags) for name, flags in engines.items()}
    for name, row in warm(engines, with_memory).items():
        rows[name] |= row
    return rows


def measure_engines():
    engine = dockerd.Dockerd(dockerd.KEPT)
    try:
        engine.start()
        engine.build_kernels()
        docker = ["--provisioner", "docker", "--docker-host", engine.host]
        return measure({"oci": ["--provisioner", "oci"], "docker": docker})
    finally:
        engine.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file, too")
    parser.add_argument("--runtimes", action="store_true", help="runc and runsc, not engines")
    arguments = parser.parse_args()
    rows = measure(RUNTIMES, with_memory=True) if arguments.runtimes else measure_engines()
    print(f"| milliseconds | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    for what in next(iter(rows.values())):
        print(f"| {what} | {' | '.join(str(row[what]) for row in rows.values())} |")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
