# SPDX-License-Identifier: Apache-2.0
"""Clients that do not read: their memory is bounded, and other clients lose nothing."""

import json
import pathlib

import pytest
from component import cell
from kernelgate import wait_for
from slow_reader import SlowReader

READERS_EACH, SESSIONS = 20, 5
LINE_BYTES, LINES = 10_000, 800

# Every display is one line, and all are alike but for their number.
FLOOD = f"repeat {LINES} display text/plain {{{LINE_BYTES}*x}}"


@pytest.fixture
def slow_reader():
    readers = []

    def start(*arguments):
        readers.append(SlowReader(*arguments))
        return readers[-1]

    yield start
    for reader in readers:
        reader.close()


def send_queues(gateway):
    """How many bytes the machine holds for each connection from the gateway."""
    port = int(gateway.url.rpartition(":")[2])
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        int(row[4].partition(":")[0], 16)
        for row in rows
        if int(row[1].partition(":")[2], 16) == port and row[3] == "01"
    ]


def check(lines, after=0):
    """Asserts that each line was received or reported as dropped, once and in order."""
    parsed = [json.loads(line) for line in lines]
    parsed = [(line, len(raw)) for line, raw in zip(parsed, lines) if line["type"] != "keepalive"]
    # The size of a line without its number.
    own = {size - len(str(line["seq"])) for line, size in parsed if line["type"] == "display"}
    assert len(own) == 1
    seen, lost = after, 0
    for line, _ in parsed:
        if line["type"] != "dropped":
            assert line["seq"] == seen + 1
            seen = line["seq"]
            continue
        gone = range(seen + 1, seen + 1 + line["messages"])
        assert line["messages"] > 0 and line["seq"] == gone[-1]
        if "bytes" in line:
            assert line["bytes"] == sum(min(own) + len(str(seq)) for seq in gone)
        else:
            assert after > 0 and lost == 0
        seen = line["seq"]
        lost += line["messages"]
    assert seen == LINES + 1 and parsed[-1][0]["type"] == "done", parsed[-1]
    assert parsed[-1][0]["status"] == "ok"
    return lost


def test_readers_that_do_not_read(start_gateway, slow_reader):
    gateway = start_gateway("--max-output-bytes", "1000000", "--max-buffered-bytes", "4000000")
    for i in range(SESSIONS):
        gateway.create_session(session_id=f"s{i}")
    readers = []
    for i in range(SESSIONS):
        body = {"code": FLOOD, "session_id": f"s{i}", "timeout": 600}
        readers.append(slow_reader(gateway, "POST", "/api/v1/execute", body))
        path = f"/api/v1/executions/{readers[-1].headers['x-execution-id']}"
        readers += [slow_reader(gateway, "GET", path) for _ in range(READERS_EACH - 1)]
    # The floods end although nobody reads, and another session keeps working.
    for i in range(20):
        assert gateway.execute(cell("add n 1", "get n"), session_id="other").text() == f"{i + 1}\n"
    wait_for(
        lambda: (
            not any(
                session["is_busy"]
                for session in gateway.client.get("/api/v1/sessions").json()["sessions"].values()
            )
        ),
        timeout=60,
    )
    losses = [check(reader.rest()) for reader in readers]
    assert min(losses) > LINES / 4
    assert gateway.execute("get n", session_id="other").text() == "20\n"


def test_the_machine_holds_little_for_readers_that_do_not_read(start_gateway, slow_reader):
    """Of the 8 MB for each: what the gateway has sent is not in its own memory, but in the kernel's."""
    gateway = start_gateway()
    body = {"code": FLOOD, "session_id": "s", "timeout": 600}
    first = slow_reader(gateway, "POST", "/api/v1/execute", body)
    path = f"/api/v1/executions/{first.headers['x-execution-id']}"
    for _ in range(9):
        slow_reader(gateway, "GET", path)
    wait_for(lambda: not gateway.show_session("s")["is_busy"], timeout=60)
    held = sorted(send_queues(gateway))[-10:]
    assert held[0] > 0  # each has more to come
    assert held[-1] < 512 << 10, held


def test_a_reader_that_reads_loses_nothing_beside_slow_ones(start_gateway, slow_reader):
    gateway = start_gateway()
    body = {"code": FLOOD, "session_id": "s", "timeout": 600}
    slow = slow_reader(gateway, "POST", "/api/v1/execute", body)
    path = f"/api/v1/executions/{slow.headers['x-execution-id']}"
    assert check(slow_reader(gateway, "GET", path).rest()) == 0
    assert check(slow.rest()) == 0  # 8 MB are within the bound of 10


def test_slow_readers_that_leave_cost_nothing(start_gateway, slow_reader):
    gateway = start_gateway()
    # The first large message starts the workers, which stay.
    gateway.execute("display text/plain {200000*x}", session_id="s")
    files = gateway.open_files()
    for _ in range(3):
        body = {"code": FLOOD, "session_id": "s", "timeout": 600}
        readers = [slow_reader(gateway, "POST", "/api/v1/execute", body)]
        path = f"/api/v1/executions/{readers[0].headers['x-execution-id']}"
        readers += [slow_reader(gateway, "GET", path) for _ in range(20)]
        for reader in readers:
            reader.close()
        wait_for(lambda: not gateway.show_session("s")["is_busy"])
    assert gateway.execute("print 1", session_id="s").text() == "1\n"
    wait_for(lambda: gateway.open_files() <= files)


@pytest.mark.parametrize("bound, lost", [("20000000", False), ("500000", True)])
def test_coming_back_for_the_rest(start_gateway, slow_reader, bound, lost):
    gateway = start_gateway("--max-output-bytes", bound)
    body = {"code": FLOOD, "session_id": "s", "timeout": 600, "on_disconnect": "continue"}
    with gateway.client.stream("POST", "/api/v1/execute", json=body) as response:
        seen = json.loads(next(response.iter_lines()))["seq"]
        path = f"/api/v1/executions/{response.headers['x-execution-id']}"
    wait_for(lambda: not gateway.show_session("s")["is_busy"], timeout=60)
    rest = slow_reader(gateway, "GET", f"{path}?after={seen}").rest()
    assert (check(rest, after=seen) > 0) is lost
