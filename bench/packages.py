# SPDX-License-Identifier: Apache-2.0
"""Packages: installs that ask the index, and those after them that the cache serves; and what sessions
take that have installed and imported large libraries.

As a program (script/bench --packages BINARY…) it compares the release build with other builds, whose
agent is beside each. Memory is what the machine has less available, with what the sandboxes' file
systems hold: page cache that can be given back does not count.
"""

import argparse
import json
import pathlib
import re
import statistics
import time

from contestants import BINARY, Kernelgate

PACKAGE = "humanize==4.12.3"
LIBRARIES = ("scikit-learn", "polars", "plotly")
IMPORTS = "import sklearn.linear_model, polars, plotly.graph_objects"
ROUNDS = 5
SESSIONS = 10


def install(gateway, session, *packages):
    gateway.execute("1", session=session)
    connection = gateway.connection.http
    body = json.dumps({"packages": packages})
    started = time.perf_counter()
    connection.request("POST", f"/api/v1/sessions/{session}/packages?wait=1", body)
    answer = json.loads(connection.getresponse().read())
    seconds = time.perf_counter() - started
    if answer.get("status") != "ok":
        raise RuntimeError(f"{packages}: {answer}")
    return round(seconds * 1000)


def installs():
    with Kernelgate("--pool-size", "1") as gateway:
        first = install(gateway, "first", PACKAGE)
        cached = [install(gateway, f"cached-{number}", PACKAGE) for number in range(ROUNDS)]
    return {
        "asking the index": {"median_ms": first},
        "from the cache": {"median_ms": round(statistics.median(cached)), "best_ms": min(cached)},
    }


def used_mib():
    """What is in use on this machine and cannot be given back."""
    text = pathlib.Path("/proc/meminfo").read_text()
    total, available = (
        int(re.search(rf"^{name}: +(\d+) kB", text, re.MULTILINE)[1])
        for name in ("MemTotal", "MemAvailable")
    )
    return (total - available) / 1024


def libraries(binary):
    """Ten sessions with large libraries."""
    flags = ("--pool-size", "0", "--max-sessions", str(SESSIONS))
    with Kernelgate(*flags, binary=binary) as gateway:
        first = install(gateway, "session-0", *LIBRARIES)
        gateway.execute(IMPORTS, session="session-0")
        time.sleep(2)  # for what is still being freed
        before, cached, imports = used_mib(), [], []
        for number in range(1, SESSIONS):
            session = f"session-{number}"
            cached.append(install(gateway, session, *LIBRARIES))
            started = time.perf_counter()
            gateway.execute(IMPORTS, session=session)
            imports.append(time.perf_counter() - started)
        time.sleep(2)
        return {
            "install ms": first,
            "cached ms": round(statistics.median(cached)),
            "import ms": round(statistics.median(imports) * 1000),
            "MiB each": round((used_mib() - before) / (SESSIONS - 1), 1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers go as well")
    parser.add_argument("binaries", nargs="*", metavar="BINARY", help="another build's executable")
    arguments = parser.parse_args()
    builds = [BINARY, *map(pathlib.Path, arguments.binaries)]
    results = {str(binary): libraries(binary) for binary in builds}
    for title, row in results.items():
        print(title)
        for name, value in row.items():
            print(f"  {name:12} {value:>10}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
