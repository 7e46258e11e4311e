# SPDX-License-Identifier: Apache-2.0
"""Measures the release build on its two engines, oci and docker, beside one another.

    script/bench --engines

Container start and cold start (nothing to the first result), a claim from the pool, warm execution,
the end of a session. The Docker Engine is the tests' own (tests/e2e/dockerd.py), with the image that
kernelspec/Dockerfile makes; needs root and docker.io.
"""

import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))

import dockerd
import scale
from contestants import Kernelgate

COLD_ROUNDS = 7
POOLED_STARTS = 20
WARM_BLOCKS, WARM_ROUNDS = 5, 200  # by turns, so that both see the same machine


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


def warm(engines):
    times = {name: [] for name in engines}
    with Kernelgate(*engines["oci"]) as oci, Kernelgate(*engines["docker"]) as docker:
        gateways = {"oci": oci, "docker": docker}
        for gateway in gateways.values():
            gateway.fill_pool()
            for _ in range(WARM_ROUNDS):
                gateway.execute("1")
        for _ in range(WARM_BLOCKS):
            for name, gateway in gateways.items():
                times[name] += [scale.timed(gateway.execute, "1") for _ in range(WARM_ROUNDS)]
    return {name: scale.percentiles(values) for name, values in times.items()}


def measure(docker_host):
    engines = {
        "oci": ["--provisioner", "oci"],
        "docker": ["--provisioner", "docker", "--docker-host", docker_host],
    }
    rows = {name: cold(flags) | pooled(flags) for name, flags in engines.items()}
    for name, percentiles in warm(engines).items():
        rows[name]["warm execute, p50"] = percentiles["p50_ms"]
        rows[name]["warm execute, p99"] = percentiles["p99_ms"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file, too")
    arguments = parser.parse_args()
    engine = dockerd.Dockerd(dockerd.KEPT)
    try:
        engine.start()
        engine.build_kernels()
        rows = measure(engine.host)
    finally:
        engine.close()
    print(f"| milliseconds | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    for what in rows["oci"]:
        print(f"| {what} | {' | '.join(str(row[what]) for row in rows.values())} |")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
