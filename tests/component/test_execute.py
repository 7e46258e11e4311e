# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/execute and execute_sync: requests, responses, and when lines arrive."""

import contextlib
import json

import pytest
from component import HELD, cell
from kernelgate import problem


def test_each_line_arrives_before_the_next_is_printed(gateway, session):
    """The kernel waits until the client has seen each of its lines."""
    code = cell("print 0", "take go", "print 1", "take go", "print 2", "take go")
    with gateway.stream(code, session_id=session) as reader:
        for printed in ("0\n", "0\n1\n", "0\n1\n2\n"):
            while reader.lines.text() != printed:
                assert reader.next()["type"] == "stdout"
            gateway.release(session)
        assert reader.rest().status == "ok"


def test_head_of_the_response(gateway, session):
    lines = gateway.execute("result 1", session_id=session)
    assert lines.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert lines.headers["cache-control"] == "no-cache"
    assert lines.headers["x-accel-buffering"] == "no"
    assert lines.headers["x-session-id"] == session
    assert lines.headers["x-execution-id"]


def test_done_is_the_last_line_and_says_how_it_went(gateway, session):
    done = gateway.execute("print 1", session_id=session).done
    assert done["status"] == "ok"
    assert done["session_id"] == session
    assert done["execution_count"] == 1
    assert done["duration_ms"] > 0
    assert not done.get("kernel_restarted")


def test_seq_counts_every_line_from_one(run):
    lines = run(cell("repeat 20 print {i}", "stderr e", "result 1"))
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= 4


def test_result(run):
    assert run("result 2").one("result") | {"seq": 0, "data": {}} == {
        "type": "result", "text": "2", "data": {}, "execution_count": 1, "seq": 0,
    }  # fmt: skip
    assert run("result 'é'").one("result")["execution_count"] == 2


def test_an_error(run):
    lines = run("get x")
    error = lines.one("error")
    assert error["error"] == "NameError: name 'x' is not defined"
    assert error["ename"] == "NameError"
    assert error["evalue"] == "name 'x' is not defined"
    assert "NameError" in "\n".join(error["traceback"])
    assert lines.status == "error"


def test_an_error_does_not_stop_what_is_queued(gateway, session):
    code = cell(HELD, "error ZeroDivisionError division by zero")
    with gateway.stream(code, session_id=session) as first:
        first.next_of("stdout")
        # The second waits from its head on.
        with gateway.stream("print second", session_id=session) as second:
            gateway.release(session)
            assert first.rest().status == "error"
            assert second.rest().text() == "second\n"


def test_streams_are_told_apart_and_in_order(run):
    lines = run(cell("print out", "stderr err", "display text/plain shown", "result 'value'"))
    assert lines.kinds() == ["stdout", "stderr", "display", "result", "done"]
    assert lines.text("stdout") == "out\n" and lines.text("stderr") == "err\n"


def test_a_body_is_json_whatever_its_content_type(gateway):
    for kind in ("application/x-www-form-urlencoded", "text/plain", None):
        response = gateway.client.post(
            "/api/v1/execute",
            content=b'{"code":"print 1"}',
            headers={"Content-Type": kind} if kind else {},
        )
        assert response.status_code == 200
        assert json.loads(response.text.splitlines()[0])["text"] == "1\n"


def test_without_a_session_id_the_session_ends_with_the_response(gateway):
    before = set(gateway.client.get("/api/v1/sessions").json()["sessions"])
    lines = gateway.execute("set x 1")
    session_id = lines.done["session_id"]
    assert session_id == lines.headers["x-session-id"]
    problem(gateway.client.get(f"/api/v1/sessions/{session_id}"), 404, "session_not_found")
    assert set(gateway.client.get("/api/v1/sessions").json()["sessions"]) <= before
    assert gateway.execute("get x").one("error")["ename"] == "NameError"


def test_executions_of_a_session_wait_for_one_another(gateway, session):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(gateway.stream(HELD, session_id=session))
        first.next_of("stdout")
        count = cell("add n 1", "get n")
        rest = [stack.enter_context(gateway.stream(count, session_id=session)) for _ in range(4)]
        gateway.release(session)
        assert first.rest().status == "ok"
        assert [reader.rest().text() for reader in rest] == ["1\n", "2\n", "3\n", "4\n"]


# ---- variables and env


VALUES = {
    "n": 1,
    "s": "é ☃ 😀 \" ' \\ \n",
    "l": [1, None, True, 2.5],
    "d": {"k": {"x": []}},
    "ü": 3,
}


def test_variables_are_set_before_the_code_runs(run):
    lines = run(cell(*(f"get {name}" for name in VALUES)), variables=VALUES)
    assert [json.loads(line) for line in lines.text().splitlines()] == list(VALUES.values())
    assert lines.done["execution_count"] == 1


def test_variables_stay_as_any_name_does(run):
    run("# nothing", variables={"x": [1]})
    assert run("get x").text() == "[1]\n"


def test_env_holds_for_one_execution(run):
    show = cell("getenv KG_A", "getenv LANG")
    plain = run(show).text()
    assert run(show, env={"KG_A": "ä =1", "LANG": "x"}).text() == "ä =1\nx\n"
    assert run(show).text() == plain


def test_env_ends_when_its_execution_fails(run):
    assert run("error E x", env={"KG_A": "1"}).status == "error"
    assert run("getenv KG_A").text() == "None\n"


# ---- Requests that are refused


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"code"',
        b"{}",
        b'{"code":1}',
        b'{"code":null}',
        b'{"code":"1","code":"2"}',
        b'{"code":"1","cod":"2"}',
        b'{"code":"1","timeout":0}',
        b'{"code":"1","timeout":-1}',
        b'{"code":"1","timeout":"1"}',
        b'{"code":"1","timeout":true}',
        b'{"code":"1","timeout":3601}',
        b'{"code":"1","timeout":1e999}',
        b'{"code":"1","variables":[]}',
        b'{"code":"1","env":{"A":1}}',
        b'{"code":"1","env":"A=1"}',
        b'{"code":"1","on_disconnect":"nothing"}',
        b'{"code":"\xff"}',
        b'{"code":"1","variables":{"x":1\0}}',
        b'{"code":"1"} trailing',
        b"[" * 100000,
        b'{"code":"1","variables":' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}",
        b'{"code":"1","variables":{"x":[' + b"{}," * 400_000 + b"{}]}}",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_invalid_requests(gateway, body):
    for route in ("execute", "execute_sync"):
        problem(gateway.client.post(f"/api/v1/{route}", content=body), 400, "invalid_request")


@pytest.mark.parametrize("session_id", ["", "a b", "../x", "é", "x" * 65, "a/b"])
def test_invalid_session_ids(gateway, session_id):
    body = {"code": "result 1", "session_id": session_id}
    problem(gateway.client.post("/api/v1/execute", json=body), 400, "invalid_session_id")


def test_unknown_kernels(gateway):
    for field in ("kernel", "language"):
        response = gateway.client.post("/api/v1/execute", json={"code": "print 1", field: "cobol"})
        problem(response, 404, "unknown_kernel")


@pytest.mark.parametrize("fields", [{"kernel": "script"}, {"kernel": "python3"}])
def test_kernels_by_name_and_alias(run, fields):
    assert run("print 1", **fields).text() == "1\n"


def test_code_at_its_limit_and_above(gateway, session):
    fits = "#" * (1 << 20)
    assert gateway.execute(fits, session_id=session).status == "ok"
    response = gateway.client.post("/api/v1/execute", json={"code": fits + "#"})
    problem(response, 413, "code_too_large")


# ---- execute_sync


def sync(gateway, code, **fields):
    response = gateway.client.post("/api/v1/execute_sync", json={"code": code, **fields})
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["resultCode"] == 0 and body["resultMsg"] == "success"
    return body["data"]


def test_execute_sync(gateway, session):
    code = cell(
        "print text",
        'display {"image/png":"iVBORw0KGgo=","text/plain":"Figure"}',
        "error ZeroDivisionError division by zero",
    )
    data = sync(gateway, code, session_id=session)
    assert data["texts"] == ["text\n"]
    assert data["images"] == ["iVBORw0KGgo="]
    assert [error["error"] for error in data["errors"]] == ["ZeroDivisionError: division by zero"]
    assert "ZeroDivisionError" in "\n".join(data["errors"][0]["traceback"])
    assert [line["type"] for line in data["outputs"]] == ["stdout", "display", "error", "done"]
    assert data["status"] == "error" and data["execution_count"] == 1
    assert data["duration_ms"] > 0 and data["session_id"] == session


@pytest.mark.threads
def test_execute_sync_has_the_very_lines_of_a_stream(gateway, session):
    code = cell(
        'display application/json [0.30000000000000004,1e22,{"text":"a\\u0000 é"}]',
        'display application/json ["{100000*x}"]',  # a worker writes the answer
        r'print "\u2028é\n"',
    )
    with gateway.client.stream(
        "POST", "/api/v1/execute", json={"code": code, "session_id": session}
    ) as response:
        texts = [line for line in response.iter_lines() if '"type":"done"' not in line]
    response = gateway.client.post(
        "/api/v1/execute_sync", json={"code": code, "session_id": session}
    )
    assert '"outputs":[' + ",".join(texts) + ',{"type":"done"' in response.text
    assert "0.30000000000000004,1e22" in response.text
    assert "".join(response.json()["data"]["texts"]) == "\u2028é\n"


def test_execute_sync_of_more_than_it_may_hold(start_gateway):
    gateway = start_gateway("--max-output-bytes", "65536")
    data = sync(gateway, cell(*(f"print {{16000*{i}}}" for i in range(8))))
    dropped, done = data["outputs"][-2:]
    assert dropped["type"] == "dropped" and dropped["messages"] == len(data["texts"]) == 4
    assert dropped["bytes"] > 4 * 16_000 and done["type"] == "done"
    assert data["status"] == "ok"


def test_execute_sync_of_nothing(gateway, session):
    data = sync(gateway, "# nothing", session_id=session)
    assert (data["texts"], data["images"], data["errors"], data["status"]) == ([], [], [], "ok")
