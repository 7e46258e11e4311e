# SPDX-License-Identifier: Apache-2.0
"""Joining, replaying and interrupting an execution."""

import contextlib

import pytest
from component import HELD, cell
from kernelgate import LineReader, problem, wait_for

TWICE = cell(HELD, "print off")


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
    code = cell("print a", "display text/plain b", "error ZeroDivisionError division by zero")
    lines = gateway.execute(code, session_id=session)
    replay = join(gateway, lines.headers["x-execution-id"])
    assert replay == lines
    assert replay.headers["content-type"] == lines.headers["content-type"]


def test_after(gateway, session):
    code = cell("print 1", "display text/plain 2", "result 3")
    lines = gateway.execute(code, session_id=session)
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
    with gateway.stream(cell("print 1", "hang"), session_id=session) as reader:
        reader.next_of("stdout")
        execution_id = reader.response.headers["x-execution-id"]
        response = gateway.client.post(f"/api/v1/executions/{execution_id}/interrupt")
        assert response.status_code == 200
        assert reader.rest().status == "interrupted"


def test_interrupting_what_waits_takes_it_out_of_the_queue(gateway, session):
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        with gateway.stream("write queued x", session_id=session) as second:
            execution_id = second.response.headers["x-execution-id"]
            gateway.client.post(f"/api/v1/executions/{execution_id}/interrupt")
            assert second.rest().status == "interrupted"
        gateway.release(session)
        assert first.rest().status == "ok"
    assert gateway.execute("exists queued", session_id=session).text() == "False\n"


def test_a_session_of_its_own_can_be_replayed_after_its_end(gateway):
    lines = gateway.execute("print 1")
    assert join(gateway, lines.headers["x-execution-id"]) == lines


def test_unknown_executions(gateway):
    for path in ("nothing", "x" * 100):
        problem(gateway.client.get(f"/api/v1/executions/{path}"), 404, "not_found")
        problem(gateway.client.post(f"/api/v1/executions/{path}/interrupt"), 404, "not_found")


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "99999999999999999999"])
def test_bad_after(gateway, session, after):
    execution_id = gateway.execute("result 1", session_id=session).headers["x-execution-id"]
    response = gateway.client.get(f"/api/v1/executions/{execution_id}", params={"after": after})
    problem(response, 400, "invalid_request")


def test_logs_kept_for_replay_are_bounded_together(gateway, session):
    """32 MiB, whatever a single one may keep."""
    ids = [
        gateway.execute("flood 5 1000000", session_id=session).headers["x-execution-id"]
        for _ in range(7)
    ]
    assert join(gateway, ids[-1]).text() == "x" * 5_000_000
    problem(gateway.client.get(f"/api/v1/executions/{ids[0]}"), 404, "not_found")


@pytest.mark.parametrize("after", [7, 2**63 - 1])
def test_joining_beyond_the_last_line(gateway, session, after):
    with gateway.stream(TWICE, session_id=session) as reader:
        reader.next_of("stdout")
        with joined(gateway, reader.response.headers["x-execution-id"], after=after) as follower:
            gateway.release(session)
            lines = reader.rest()
            assert follower.rest() == lines[1:]
