# SPDX-License-Identifier: Apache-2.0
"""Packages: an install that asks the index, and those after it that the cache serves."""

import json
import statistics
import time

from contestants import Kernelgate

PACKAGE = "humanize==4.12.3"
ROUNDS = 5


def install(gateway, session):
    gateway.execute("1", session=session)
    connection = gateway.connection.http
    body = json.dumps({"packages": [PACKAGE]})
    started = time.perf_counter()
    connection.request("POST", f"/api/v1/sessions/{session}/packages?wait=1", body)
    answer = json.loads(connection.getresponse().read())
    seconds = time.perf_counter() - started
    if answer.get("status") != "ok":
        raise RuntimeError(f"{PACKAGE}: {answer}")
    return round(seconds * 1000)


def installs():
    with Kernelgate("--pool-size", "1") as gateway:
        first = install(gateway, "first")
        cached = [install(gateway, f"cached-{number}") for number in range(ROUNDS)]
    return {
        "asking the index": {"median_ms": first},
        "from the cache": {"median_ms": round(statistics.median(cached)), "best_ms": min(cached)},
    }
