# SPDX-License-Identifier: Apache-2.0
"""Many sessions on one gateway: how soon they start, what they cost, what they do to each other."""

import concurrent.futures
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import threading
import time

from contestants import Connection, Kernelgate

POOLED_STARTS = 50
EMPTY_STARTS = 10
STARTS_AT_ONCE = 20
SESSIONS = 8
QUIET_ROUNDS = 1000
READERS, FLOODS = 1000, 4
PRINT_100_MB = "line = 'y' * 99\nfor i in range(1_000_000): print(line)"


def timed(action, *arguments):
    started = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - started


def percentiles(times):
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49] * 1000, 3), "p99_ms": round(cuts[98] * 1000, 3)}


# ---- Starts


def start_and_end(gateway, session):
    seconds = timed(gateway.execute, "1", session)
    gateway.connection.end(session)
    return seconds


def starts():
    rows = {}
    with Kernelgate("--pool-size", "2", "--max-sessions", "40") as gateway:
        gateway.fill_pool()
        pooled = []
        for number in range(POOLED_STARTS):
            pooled.append(start_and_end(gateway, f"pooled-{number}"))
            gateway.fill_pool()
        gateway.execute("1")
        gateway.fill_pool()
        rows["warm execute"] = percentiles([timed(gateway.execute, "1") for _ in range(1000)])
        rows["start, pool full"] = percentiles(pooled)
        rows[f"{STARTS_AT_ONCE} starts at once, pool of 2"] = at_once(gateway)
    with Kernelgate("--pool-size", "0") as gateway:
        empty = [start_and_end(gateway, f"empty-{number}") for number in range(EMPTY_STARTS)]
        rows["start, no pool"] = percentiles(empty)
    return rows


def at_once(gateway):
    def start(number):
        with Connection(gateway.url) as connection:
            connection.execute("1", f"once-{number}")
        return time.perf_counter() - started

    with concurrent.futures.ThreadPoolExecutor(STARTS_AT_ONCE) as threads:
        started = time.perf_counter()
        return percentiles(list(threads.map(start, range(STARTS_AT_ONCE))))


# ---- Memory


def pids_of_sandboxes(folder):
    agents = [int(path.read_text()) for path in pathlib.Path(folder, "sb").glob("*/init.pid")]
    namespaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in agents}
    namespaces.discard(os.readlink("/proc/self/ns/pid"))  # a zygote is in the machine's
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") in namespaces:
                yield name
        except OSError:
            pass  # it has ended


def proportional_kb(pid):
    """Its memory, with its part of what it shares."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[1])


def memory():
    """Idle sessions that came out of the pool, and nothing beside them."""
    with Kernelgate("--pool-size", "1", "--max-sessions", str(SESSIONS)) as gateway:
        gateway.fill_pool()
        before = gateway.memory_kb("VmRSS")
        for number in range(SESSIONS):
            gateway.execute("1", f"idle-{number}")
            gateway.fill_pool()
        ours = (gateway.memory_kb("VmRSS") - before) / SESSIONS
        sandboxes = sum(map(proportional_kb, pids_of_sandboxes(gateway.folder))) / (SESSIONS + 1)
    return {
        "mb_per_sandbox": round(sandboxes / 1024, 1),
        "kb_of_gateway": round(ours),
        "sessions_per_gib": int(2**20 / (sandboxes + ours)),
    }


# ---- Neighbours


def execute_while(gateway, busy):
    times = []
    while busy() or len(times) < 100:
        times.append(timed(gateway.execute, "1"))
    return times


def flood_body(session):
    return {"code": PRINT_100_MB, "session_id": session, "timeout": 300}


def neighbour():
    """A warm execute, alone and while another session's 100 MB go to a client of their own."""
    with Kernelgate("--pool-size", "0") as gateway:
        gateway.execute("1")
        gateway.execute("1", "flood")
        quiet = [timed(gateway.execute, "1") for _ in range(QUIET_ROUNDS)]
        reader = subprocess.Popen(
            ["curl", "-sfN", "-o", "/dev/null", "--data", json.dumps(flood_body("flood")),
             f"{gateway.url}/api/v1/execute"]
        )  # fmt: skip
        beside = execute_while(gateway, lambda: reader.poll() is None)
        if reader.returncode != 0:
            raise RuntimeError(f"the flood's client ended with {reader.returncode}")
    return {"quiet": percentiles(quiet), "beside a flood of 100 MB": percentiles(beside)}


def slow_reader(url, method, path, body=None):
    """A client that sends a request, and reads no more than the answer's head."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    content = json.dumps(body) if body else ""
    client.sendall(
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n{content}".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1)
    return client, re.search(rb"(?i)x-execution-id: (\S+)", head)


def slow_readers():
    """Readers that stop after the head of their answer, with 100 MB behind each of them."""
    flags = ("--pool-size", "0", "--max-output-bytes", str(1 << 20), "--log-level", "warning")
    with Kernelgate(*flags) as gateway:
        for number in range(FLOODS):
            gateway.execute("1", f"flood-{number}")
        gateway.execute("1")
        gateway.reset_peak()
        before = gateway.memory_kb("VmRSS")
        clients = []
        for number in range(FLOODS):
            client, found = slow_reader(
                gateway.url, "POST", "/api/v1/execute", flood_body(f"flood-{number}")
            )
            path = f"/api/v1/executions/{found[1].decode()}"
            clients.append(client)
            for _ in range(READERS // FLOODS - 1):
                clients.append(slow_reader(gateway.url, "GET", path)[0])
        watch = Connection(gateway.url)
        busy = threading.Event()

        def look():
            while any(
                watch.json("GET", f"/api/v1/sessions/flood-{number}")["is_busy"]
                for number in range(FLOODS)
            ):
                time.sleep(0.2)
            busy.set()

        looking = threading.Thread(target=look)
        looking.start()
        times = execute_while(gateway, lambda: not busy.is_set())
        looking.join()
        peak = gateway.memory_kb("VmHWM")
        for client in clients:
            client.close()
        watch.http.close()
    return {
        "readers": len(clients),
        "added_peak_mb": round((peak - before) / 1024, 1),
        **percentiles(times),
    }
