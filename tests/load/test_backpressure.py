# SPDX-License-Identifier: Apache-2.0
"""Memory that clients take which do not read."""

import pathlib
import re

import pytest
from kernelgate import wait_for
from slow_reader import SlowReader

READERS_EACH, SESSIONS = 20, 5

# 8 MB in lines.
FLOOD = """
text = {"text/plain": "x" * 10_000}
for _ in range(800):
    display(text, raw=True)
"""


@pytest.fixture
def slow_reader():
    readers = []

    def start(*arguments):
        readers.append(SlowReader(*arguments))
        return readers[-1]

    yield start
    for reader in readers:
        reader.close()


def peak_mb(gateway):
    status = pathlib.Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def test_readers_that_do_not_read(start_gateway, slow_reader):
    gateway = start_gateway(
        "--max-output-bytes", "1000000", "--max-buffered-bytes", "4000000", "--pool-size", "0",
    )  # fmt: skip
    for i in range(SESSIONS):
        gateway.execute("1", session_id=f"s{i}")
    before = gateway.rss_mb()
    for i in range(SESSIONS):
        body = {"code": FLOOD, "session_id": f"s{i}", "timeout": 60}
        first = slow_reader(gateway, "POST", "/api/v1/execute", body)
        path = f"/api/v1/executions/{first.headers['x-execution-id']}"
        for _ in range(READERS_EACH - 1):
            slow_reader(gateway, "GET", path)

    def has_ended():
        sessions = gateway.client.get("/api/v1/sessions").json()["sessions"]
        return not any(session["is_busy"] for session in sessions.values())

    wait_for(has_ended, timeout=60)
    # Of 8 MB for each of 100 readers, 1 MB per execution is kept, and what each socket holds. Seen: 30.
    assert peak_mb(gateway) - before < 120
