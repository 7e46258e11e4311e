# SPDX-License-Identifier: Apache-2.0
"""Questions to a kernel about code that is being written: completion and inspection."""

import pytest
from component import HELD, cell
from kernelgate import problem


@pytest.fixture
def ask(gateway, session):
    def send(what, status=200, refusal=None, **body):
        url = f"/api/v1/sessions/{session}/{what}"
        response = gateway.client.post(url, json=body)
        if refusal:
            return problem(response, status, refusal)["detail"]
        assert response.status_code == status, response.text
        return response.json()

    return send


def test_completion(ask):
    answer = ask("complete", code="print x\nprin")
    assert "print" in answer["matches"] and answer["types"] == []
    assert (answer["cursor_start"], answer["cursor_end"]) == (8, 12)
    assert ask("complete", code="prin later", cursor_pos=4)["cursor_end"] == 4
    assert ask("complete", code="nothing_like_it")["matches"] == []


def test_inspection(ask):
    assert ask("inspect", code="print") == {
        "found": True,
        "data": {"text/plain": "The step print."},
    }
    assert ask("inspect", code="nothing_like_it", detail_level=1) == {"found": False, "data": {}}


def test_a_kernel_that_runs_code_is_not_asked(gateway, session, ask):
    with gateway.stream(HELD, session_id=session) as reader:
        reader.next_of("stdout")
        assert "busy" in ask("complete", 409, "kernel_busy", code="p")
        gateway.release(session)
        assert reader.rest().status == "ok"
    assert ask("complete", code="prin")["matches"]


def test_code_that_comes_meanwhile_runs(gateway, session, ask):
    for _ in range(20):
        ask("complete", code="prin")
        assert gateway.execute(cell("print x"), session_id=session).text() == "x\n"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"code": 1},
        {"code": "é", "cursor_pos": 2},
        {"code": "x", "cursor_pos": -1},
        {"code": "x", "cursor_pos": 1.0},
        {"code": "x", "detail_level": 2},
        {"code": "x", "other": 1},
        {"code": "x", "kernel": "script", "branch": "b"},
    ],
    ids=str,
)
def test_bad_requests(ask, body):
    for what in "complete", "inspect":
        ask(what, 400, "invalid_request", **body)


def test_what_is_not_there(gateway, ask):
    ask("complete", 404, "unknown_kernel", code="x", kernel="cobol")
    ask("complete", 404, "not_found", code="x", branch="none")
    url = "/api/v1/sessions/nobody/complete"
    problem(gateway.client.post(url, json={"code": "x"}), 404, "session_not_found")
