# SPDX-License-Identifier: Apache-2.0
"""Joining and replaying an execution."""

import contextlib
import json
import os
import signal
import time

import pytest
from kernelgate import HELD, LineReader, problem, wait_for
from sandboxes import sandbox_of

TWICE = f"{HELD}print('off')"


@contextlib.contextmanager
def joined(gateway, execution_id, **params):
    """Yields a reader, which has joined by then."""
    with gateway.client.stream(
        "GET", f"/api/v1/executions/{execution_id}", params=params
    ) as response:
        assert response.status_code == 200
        yield LineReader(response)


def join(gateway, execution_id, **params):
    """All lines of an execution."""
    with joined(gateway, execution_id, **params) as reader:
        return reader.rest()


def test_replay_is_what_was_streamed(gateway, session):
    lines = gateway.execute("print('a')\ndisplay('b')\n1/0", session_id=session)
    replay = join(gateway, lines.headers["x-execution-id"])
    assert replay == lines
    assert replay.headers["content-type"] == lines.headers["content-type"]


def test_after(gateway, session):
    lines = gateway.execute("print(1, flush=True)\ndisplay(2)\n3", session_id=session)
    execution_id = lines.headers["x-execution-id"]
    for after in range(len(lines) + 1):
        assert join(gateway, execution_id, after=after) == lines[after:]
    assert join(gateway, execution_id, after=10**6) == []


def test_joining_while_it_runs(gateway, session):
    with gateway.stream(TWICE, session_id=session) as reader:
        reader.next_of("stdout")
        with joined(gateway, reader.response.headers["x-execution-id"]) as follower:
            assert follower.next()["text"] == "on\n"  # a replay
            gateway.release(session)
            assert follower.rest() == reader.rest()
            assert follower.lines.text() == "on\noff\n"


def test_coming_back_after_leaving(gateway, session):
    with gateway.stream(TWICE, session_id=session, on_disconnect="continue") as reader:
        seen = reader.next_of("stdout")["seq"]
        execution_id = reader.response.headers["x-execution-id"]
    gateway.release(session)
    lines = join(gateway, execution_id, after=seen)
    assert lines.text() == "off\n" and lines.status == "ok"
    assert [line["seq"] for line in lines] == list(range(seen + 1, seen + 1 + len(lines)))


def test_an_execution_goes_on_while_any_reader_is_left(gateway, session):
    before = gateway.streams_ended()
    with contextlib.ExitStack() as readers:
        with gateway.stream(TWICE, session_id=session) as reader:
            reader.next_of("stdout")
            execution_id = reader.response.headers["x-execution-id"]
            follower = readers.enter_context(joined(gateway, execution_id))
        wait_for(lambda: gateway.streams_ended() > before)
        gateway.release(session)
        lines = follower.rest()
    assert lines.text() == "on\noff\n" and lines.status == "ok"


def test_interrupt(gateway, session):
    with gateway.stream(
        "print(1, flush=True)\nimport time; time.sleep(30)", session_id=session
    ) as reader:
        reader.next_of("stdout")
        execution_id = reader.response.headers["x-execution-id"]
        response = gateway.client.post(f"/api/v1/executions/{execution_id}/interrupt")
        assert response.status_code == 200
        assert reader.rest().status == "interrupted"


def test_an_interrupt_before_the_kernel_has_begun(gateway, session):
    """The kernel ignores signals between requests: one that came then would be lost, and the kernel be
    killed after the grace, with its variables."""
    gateway.execute("x = 41", session_id=session)
    kernel = sandbox_of(gateway, session).kernel()
    os.kill(kernel, signal.SIGSTOP)
    try:
        with gateway.stream("import time; time.sleep(60)", session_id=session) as reader:
            gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
            time.sleep(1)  # of the three seconds
            os.kill(kernel, signal.SIGCONT)
            assert reader.rest().status == "interrupted"
    finally:
        os.kill(kernel, signal.SIGCONT)
    assert gateway.execute("print(x + 1)", session_id=session).text() == "42\n"


SLOW_TO_BEGIN = """
import time
x, usual = 41, get_ipython().kernel.should_handle
def should_handle(*arguments):
    time.sleep(0.15)
    return usual(*arguments)
get_ipython().kernel.should_handle = should_handle
"""


def test_an_interrupt_that_the_kernel_misses_is_repeated(gateway, session):
    """It ignores signals after it has said that it begins, until the code runs."""
    gateway.execute(SLOW_TO_BEGIN, session_id=session)
    with gateway.stream("time.sleep(60)", session_id=session) as reader:
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert reader.rest().status == "interrupted"
    assert gateway.execute("print(x + 1)", session_id=session).text() == "42\n"


def test_interrupting_what_waits_takes_it_out_of_the_queue(gateway, session):
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        with gateway.stream("open('queued', 'w')", session_id=session) as second:
            execution_id = second.response.headers["x-execution-id"]
            gateway.client.post(f"/api/v1/executions/{execution_id}/interrupt")
            assert second.rest().status == "interrupted"
        gateway.release(session)
        assert first.rest().status == "ok"
    lines = gateway.execute("import os; print(os.path.exists('queued'))", session_id=session)
    assert lines.text() == "False\n"


def test_a_session_of_its_own_can_be_replayed_after_its_end(gateway):
    lines = gateway.execute("print(1)")
    assert join(gateway, lines.headers["x-execution-id"]) == lines


def test_unknown_executions(gateway):
    for path in ("nothing", "x" * 100):
        problem(gateway.client.get(f"/api/v1/executions/{path}"), 404, "not_found")
        problem(gateway.client.post(f"/api/v1/executions/{path}/interrupt"), 404, "not_found")


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "99999999999999999999"])
def test_bad_after(gateway, session, after):
    execution_id = gateway.execute("1", session_id=session).headers["x-execution-id"]
    response = gateway.client.get(f"/api/v1/executions/{execution_id}", params={"after": after})
    problem(response, 400, "invalid_request")


def test_logs_kept_for_replay_are_bounded_together(gateway, session):
    ids = [
        gateway.execute(f"print('{i}' * 5_000_000)", session_id=session).headers["x-execution-id"]
        for i in range(30)
    ]
    assert gateway.rss_mb() < 900
    # The newest is kept; the oldest was removed, or its lost lines are reported.
    assert join(gateway, ids[-1]).status == "ok"
    first = gateway.client.get(f"/api/v1/executions/{ids[0]}")
    if first.status_code == 200:
        assert json.loads(first.text.splitlines()[-1])["type"] == "done"
    else:
        problem(first, 404, "not_found")
    wait_for(lambda: not gateway.show_session(session)["is_busy"])


@pytest.mark.parametrize("after", [7, 2**63 - 1])
def test_joining_beyond_the_last_line(gateway, session, after):
    with gateway.stream(TWICE, session_id=session) as reader:
        reader.next_of("stdout")
        with joined(gateway, reader.response.headers["x-execution-id"], after=after) as follower:
            gateway.release(session)
            lines = reader.rest()
            assert follower.rest() == lines[1:]
