# SPDX-License-Identifier: Apache-2.0
"""What code that calls tools as fast as it can costs other sessions."""

import concurrent.futures
import statistics
import time

import component
from kernelgate import wait_for
from sandboxes import sandbox_of
from tool_client import Caller, ToolClient, flooding, outcomes

CALLS = 10_000
TIMES_SLOWER = 4
CODE = f"""
import tools
for n in range({CALLS}):
    assert tools.echo(n=n) == n
"""


def took(gateway, session, client):
    began = time.monotonic()
    assert gateway.execute("1", client=client, session_id=session).status == "ok"
    return time.monotonic() - began


def test_many_calls_delay_no_other_session(start_gateway, clients):
    gateway = start_gateway("--pool-size", "0", "--max-tool-calls", str(CALLS))
    busy, other = gateway.create_session(), gateway.create_session()
    beside, own = clients(gateway, None), ToolClient(gateway, busy, {"echo": lambda n: n})
    for session in busy, other:
        gateway.execute("1", session_id=session)
    alone = [took(gateway, other, beside) for _ in range(200)]
    meanwhile = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        calling = pool.submit(own.run, CODE, timeout=600)
        wait_for(lambda: own.calls or calling.done())
        while not calling.done():
            meanwhile.append(took(gateway, other, beside))
            time.sleep(0.01)
        lines = calling.result()
    assert lines.status == "ok" and len(own.calls) == CALLS
    assert len(meanwhile) > 100
    before, then = statistics.median(alone) * 1000, statistics.median(meanwhile) * 1000
    print(f"warm 1: {before:.2f} ms, beside {CALLS} calls {then:.2f} ms, {len(meanwhile)} times")
    assert then < TIMES_SLOWER * before


def test_the_pace_of_calls(start_gateway):
    """1,000 a second, and 256 at once."""
    gateway = start_gateway(*component.FLAGS)
    session = gateway.create_session()
    client = ToolClient(gateway, session, {}, [{"name": "echo"}])
    with client.stream(component.HELD) as reader:
        reader.next_of("stdout")
        code = Caller(sandbox_of(gateway, session).agent)
        began = time.monotonic()
        with flooding(code):
            wait_for(lambda: time.monotonic() - began > 1)
            refused, elapsed = outcomes(gateway)["refused"], time.monotonic() - began
        code.close()
        gateway.release(session)
        reader.rest()
    assert 100 <= refused <= 256 + 1000 * elapsed + 100
