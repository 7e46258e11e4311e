# SPDX-License-Identifier: Apache-2.0
"""Languages side by side, and commands: the first result in a session, and warm ones."""

import statistics
import time

from contestants import Kernelgate

COLD_ROUNDS = 5
WARM_ROUNDS = 500
KERNELS = ["python", "javascript"]


def timed(action):
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def execute(gateway, session, kernel):
    body = {"code": "1", "session_id": session, "kernel": kernel}
    lines = gateway.connection.ask("POST", "/api/v1/execute", body).read().splitlines()
    assert b'"status":"ok"' in lines[-1], lines


def command(gateway, session):
    url = f"/api/v1/sessions/{session}/commands?wait=1"
    assert gateway.connection.json("POST", url, {"command": "true"})["exit_code"] == 0


def first(gateway, session, kernel):
    """From the request to the result, in a session that has its sandbox and the other kernel."""
    other = next(name for name in KERNELS if name != kernel)
    gateway.connection.json("POST", "/api/v1/sessions", {"session_id": session, "kernel": other})
    milliseconds = timed(lambda: execute(gateway, session, kernel))
    gateway.connection.end(session)
    return milliseconds


def warm(action):
    for _ in range(WARM_ROUNDS // 10):
        action()
    cuts = statistics.quantiles([timed(action) for _ in range(WARM_ROUNDS)], n=100)
    return {"warm_p50_ms": round(cuts[49], 2), "warm_p99_ms": round(cuts[98], 2)}


def languages():
    results = {}
    with Kernelgate("--pool-size", "0") as gateway:
        for kernel in KERNELS:
            times = [first(gateway, f"{kernel}-{i}", kernel) for i in range(COLD_ROUNDS)]
            numbers = warm(lambda kernel=kernel: execute(gateway, "warm", kernel))
            results[kernel] = {"first_ms": round(statistics.median(times)), **numbers}
        results["command (true)"] = warm(lambda: command(gateway, "warm"))
    return results
