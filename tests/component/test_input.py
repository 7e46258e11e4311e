# SPDX-License-Identifier: Apache-2.0
"""Input that code asks for: allow_stdin, its lines, and what answers it."""

import concurrent.futures
import contextlib
import json

import pytest
from component import cell
from kernelgate import problem


@contextlib.contextmanager
def asking(gateway, session, *steps, **fields):
    """Yields a reader of a cell that has asked for input, and a function that gives it."""
    with gateway.stream(cell(*steps), session_id=session, allow_stdin=True, **fields) as reader:
        reader.next_of("input_request")
        url = f"/api/v1/executions/{reader.response.headers['x-execution-id']}/input"
        yield reader, lambda value, **more: gateway.client.post(url, json={"value": value}, **more)


def test_a_line_asks_and_a_request_answers(gateway, session):
    with asking(gateway, session, "input Name: ", "print over") as (reader, give):
        asked = reader.lines[-1]
        assert (asked["prompt"], asked["password"]) == ("Name: ", False)
        given = give("Ada")
        assert given.status_code == 200 and list(given.json()) == ["message"]
        reader.rest()
    assert reader.lines.status == "ok" and reader.lines.text() == "Ada\nover\n"
    assert reader.lines.one("input_reply")["value"] == "Ada"
    assert [line["seq"] for line in reader.lines] == list(range(1, len(reader.lines) + 1))


def test_a_password_is_not_shown(gateway, session):
    with asking(gateway, session, "password Secret: ") as (reader, give):
        assert reader.lines[-1]["password"] is True
        assert give("swordfish").status_code == 200
        reader.rest()
    assert "value" not in reader.lines.one("input_reply")
    assert reader.lines.text() == "swordfish\n"  # which the code itself shows


def test_several_times_and_any_text(gateway, session):
    values = ["", "two words", "äöü 日本 🎈", 'quotes " and \\', "x" * 65536]
    with asking(gateway, session, *["input more"] * len(values)) as (reader, give):
        for value in values[:-1]:
            assert give(value).status_code == 200
            reader.next_of("input_request")
        assert give(values[-1]).status_code == 200
        reader.rest()
    assert reader.lines.text() == "".join(f"{value}\n" for value in values)


def test_a_replay_has_both_lines(gateway, session):
    with asking(gateway, session, "input Name: ") as (reader, give):
        url = f"/api/v1/executions/{reader.response.headers['x-execution-id']}"
        with gateway.client.stream("GET", url) as joined:
            assert '"input_request"' in next(
                joined.iter_lines()
            )  # and anybody who joins may answer
        give("Ada")
        reader.rest()
    replayed = [json.loads(line) for line in gateway.client.get(url).text.splitlines()]
    assert replayed == reader.lines


def test_who_does_not_allow_it_is_not_asked(gateway, session):
    for fields in {}, {"allow_stdin": False}, {"allow_stdin": None}:
        lines = gateway.execute(cell("input Name: "), session_id=session, **fields)
        assert lines.one("error")["ename"] == "StdinNotImplementedError"
        assert "input_request" not in lines.kinds()
    after = gateway.execute(cell("input Name: "), session_id=session)  # nor after one that did
    assert after.one("error")["ename"] == "StdinNotImplementedError"


def test_nothing_is_asked_for(gateway, session):
    lines = gateway.execute(cell("print x"), session_id=session, allow_stdin=True)
    url = f"/api/v1/executions/{lines.headers['x-execution-id']}/input"
    problem(gateway.client.post(url, json={"value": "x"}), 409, "no_input_request")
    with asking(gateway, session, "input a", "take go") as (reader, give):
        assert give("x").status_code == 200
        problem(give("y"), 409, "no_input_request")
        gateway.release(session)
        reader.rest()
    problem(give("z"), 409, "no_input_request")
    lines = gateway.execute(cell("print x"), session_id=session)
    url = f"/api/v1/executions/{lines.headers['x-execution-id']}/input"
    assert (
        "allow_stdin"
        in problem(gateway.client.post(url, json={"value": ""}), 409, "no_input_request")["detail"]
    )


def test_of_two_answers_one_counts(gateway, session):
    with asking(gateway, session, "input a", "take go") as (reader, give):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            given = list(pool.map(give, "12345678"))
        assert sorted(answer.status_code for answer in given) == [200] + [409] * 7
        gateway.release(session)
        reader.rest()
    [value] = [str(i + 1) for i, answer in enumerate(given) if answer.status_code == 200]
    assert reader.lines.text() == f"{value}\n" and reader.lines.one("input_reply")["value"] == value


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"value": 1},
        {"value": None},
        {"value": ["x"]},
        {"value": "x" * 65537},
        {"values": "x"},
        [],
        "x",
    ],
    ids=lambda body: str(body)[:20],
)
def test_bad_answers(gateway, session, body):
    with asking(gateway, session, "input a") as (reader, give):
        url = f"/api/v1/executions/{reader.response.headers['x-execution-id']}/input"
        problem(gateway.client.post(url, json=body), 400, "invalid_request")
        assert give("good").status_code == 200  # it still waits
        assert reader.rest().text() == "good\n"


def test_bad_requests(gateway, session):
    for value in "yes", 1, {}:
        body = {"code": "x", "session_id": session, "allow_stdin": value}
        detail = problem(gateway.client.post("/api/v1/execute", json=body), 400, "invalid_request")[
            "detail"
        ]
        assert "allow_stdin" in detail
    body = {"code": "x", "session_id": session, "allow_stdin": True}
    refused = gateway.client.post("/api/v1/execute_sync", json=body)
    assert "allow_stdin" in problem(refused, 400, "invalid_request")["detail"]
    problem(
        gateway.client.post("/api/v1/executions/none/input", json={"value": ""}), 404, "not_found"
    )


def test_an_interrupt_ends_it(gateway, session):
    with asking(gateway, session, "input a") as (reader, give):
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        problem(give("late"), 409, "no_input_request")
        assert reader.rest().status == "interrupted"
    lines = gateway.execute(cell("input b"), session_id=session)  # what came late is not its answer
    assert lines.one("error")["ename"] == "StdinNotImplementedError"


def test_the_time_limit_goes_on(gateway, session):
    with asking(gateway, session, "input a", timeout=0.5) as (reader, give):
        assert reader.rest().status == "timeout"
    problem(give("late"), 409, "no_input_request")


def test_a_reader_that_leaves_ends_it(gateway, session):
    with asking(gateway, session, "input a") as (_, give):
        pass
    assert gateway.execute(cell("print next"), session_id=session).text() == "next\n"
    problem(give("late"), 409, "no_input_request")


def test_a_kernel_that_ends_while_it_asks(gateway, session):
    with asking(gateway, session, "input a", "input b") as (reader, give):
        gateway.client.post(f"/api/v1/sessions/{session}/restart")
        assert reader.rest().status == "interrupted"
    problem(give("late"), 409, "no_input_request")
    with asking(gateway, session, "input again") as (
        reader,
        give,
    ):  # the new process is linked, too
        assert give("x").status_code == 200
        assert reader.rest().text() == "x\n"
