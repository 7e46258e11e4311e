# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/execute and execute_sync: requests, responses, and when lines arrive."""

import concurrent.futures
import json

import pytest
from kernelgate import HELD, problem


def test_each_line_arrives_before_the_next_is_printed(gateway, session):
    """Also what is not flushed: the code waits until the client has seen each of its lines."""
    code = (
        "import os, time\n"
        "for i in range(3):\n"
        "    print(i)\n"
        "    while not os.path.exists('go'): time.sleep(0.02)\n"
        "    os.remove('go')"
    )
    with gateway.stream(code, session_id=session) as reader:
        for printed in ("0\n", "0\n1\n", "0\n1\n2\n"):
            while reader.lines.text() != printed:
                assert reader.next()["type"] == "stdout"
            gateway.release(session)
        assert reader.rest().status == "ok"


def test_head_of_the_response(gateway, session):
    lines = gateway.execute("1", session_id=session)
    assert lines.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert lines.headers["cache-control"] == "no-cache"
    assert lines.headers["x-accel-buffering"] == "no"
    assert lines.headers["x-session-id"] == session
    assert lines.headers["x-execution-id"]


def test_done_is_the_last_line_and_says_how_it_went(gateway, session):
    done = gateway.execute("print(1)", session_id=session).done
    assert done["status"] == "ok"
    assert done["session_id"] == session
    assert done["execution_count"] == 1
    assert done["duration_ms"] > 0
    assert not done.get("kernel_restarted")


def test_seq_counts_every_line_from_one(run):
    lines = run(
        "import sys\nfor i in range(20): print(i, flush=True)\nprint('e', file=sys.stderr)\n1"
    )
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= 4


def test_result(run):
    assert run("1+1").one("result") | {"seq": 0, "data": {}} == {
        "type": "result", "text": "2", "data": {}, "execution_count": 1, "seq": 0,
    }  # fmt: skip
    assert run("'é'").one("result")["execution_count"] == 2


def test_name_error(run):
    lines = run("x")
    error = lines.one("error")
    assert error["error"] == "NameError: name 'x' is not defined"
    assert error["ename"] == "NameError"
    assert error["evalue"] == "name 'x' is not defined"
    traceback = "\n".join(error["traceback"])
    assert "NameError" in traceback and "x" in traceback
    assert "\x1b" not in traceback
    assert lines.status == "error"


@pytest.mark.parametrize(
    "code, ename",
    [
        ("def", "SyntaxError"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemError('s')", "SystemError"),
    ],
)
def test_errors(run, code, ename):
    lines = run(code)
    assert lines.one("error")["ename"] == ename
    assert lines.status == "error"


def test_an_error_does_not_stop_what_is_queued(gateway, session):
    with gateway.stream(HELD + "1/0", session_id=session) as first:
        first.next_of("stdout")
        with gateway.stream(
            "print('second')", session_id=session
        ) as second:  # waits from its head on
            gateway.release(session)
            assert first.rest().status == "error"
            assert second.rest().text() == "second\n"


def test_streams_are_told_apart_and_in_order(run):
    lines = run(
        "import sys\n"
        "print('out', flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "display('shown')\n"
        "'value'"
    )
    assert lines.kinds() == ["stdout", "stderr", "display", "result", "done"]
    assert lines.text("stdout") == "out\n" and lines.text("stderr") == "err\n"


def test_shell_escapes_and_top_level_await(run):
    assert run("!echo from a shell").text().strip() == "from a shell"
    assert run("import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')").text() == "awaited\n"


@pytest.mark.once
def test_a_body_is_json_whatever_its_content_type(gateway):
    for kind in ("application/x-www-form-urlencoded", "text/plain", None):
        response = gateway.client.post(
            "/api/v1/execute",
            content=b'{"code":"print(1)"}',
            headers={"Content-Type": kind} if kind else {},
        )
        assert response.status_code == 200
        assert json.loads(response.text.splitlines()[0])["text"] == "1\n"


def test_without_a_session_id_the_session_ends_with_the_response(gateway):
    before = set(gateway.client.get("/api/v1/sessions").json()["sessions"])
    lines = gateway.execute("x = 1")
    session_id = lines.done["session_id"]
    assert session_id == lines.headers["x-session-id"]
    problem(gateway.client.get(f"/api/v1/sessions/{session_id}"), 404, "session_not_found")
    assert set(gateway.client.get("/api/v1/sessions").json()["sessions"]) == before
    assert gateway.execute("x").one("error")["ename"] == "NameError"


def test_executions_of_a_session_wait_for_one_another(gateway, session):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        code = (
            "import time\nbusy = globals().get('busy', 0) + 1\n"
            "time.sleep(0.2)\nbusy -= 1\nprint(busy)"
        )
        runs = [pool.submit(gateway.execute, code, session_id=session) for _ in range(5)]
        assert [run.result().text() for run in runs] == ["0\n"] * 5


# ---- variables and env


VALUES = {
    "n": 1,
    "s": "é ☃ 😀 \" ' \\ \n",
    "l": [1, None, True, 2.5],
    "d": {"k": {"x": []}},
    "ü": 3,
}


def test_variables_are_set_before_the_code_runs(run):
    lines = run("print(repr((n, s, l, d, ü)))", variables=VALUES)
    assert eval(lines.text()) == tuple(VALUES.values())
    assert lines.done["execution_count"] == 1


def test_a_million_numbers_as_variables(gateway, session):
    """Numbers keep the client's spelling; a member's name may be written with escapes."""
    numbers = ",".join(["0.1", "2"] * 500_000)
    body = '{"code":"print(len(x), x[:2], y)","session_id":"%s","\\u0076ariables":{"y":"é"}}'
    response = gateway.client.post("/api/v1/execute", content=body % session)
    assert "name 'x' is not defined" in response.text
    body = '{"code":"print(len(x), x[:2], y)","session_id":"%s","variables": {"x":[%s]}}'
    response = gateway.client.post("/api/v1/execute", content=body % (session, numbers))
    assert '"1000000 [0.1, 2] é\\n"' in response.text


def test_variables_leave_nothing_else_behind(run):
    run("before = None\nbefore = set(globals())")
    names = run("print(sorted(set(globals()) - before))", variables={"answer": 42}).text()
    assert [name for name in eval(names) if not name.startswith("_")] == ["answer"]


def test_variables_stay_as_any_name_does(run):
    run("pass", variables={"x": [1]})
    assert run("print(x)").text() == "[1]\n"


def test_env_holds_for_one_execution(run):
    show = "import os\nprint(os.environ.get('KG_A'), os.environ.get('LANG'))"
    plain = run(show).text()
    assert run(show, env={"KG_A": "ä =1", "LANG": "x"}).text() == "ä =1 x\n"
    assert run(show).text() == plain


def test_env_ends_when_its_execution_fails(run):
    assert run("1/0", env={"KG_A": "1"}).status == "error"
    assert run("import os; print('KG_A' in os.environ)").text() == "False\n"


def test_env_reaches_child_processes(run):
    assert run("!echo $KG_A", env={"KG_A": "child"}).text().strip() == "child"


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
    body = {"code": "1", "session_id": session_id}
    problem(gateway.client.post("/api/v1/execute", json=body), 400, "invalid_session_id")


def test_unknown_kernels(gateway):
    for field in ("kernel", "language"):
        response = gateway.client.post("/api/v1/execute", json={"code": "1", field: "cobol"})
        problem(response, 404, "unknown_kernel")


@pytest.mark.once
@pytest.mark.parametrize(
    "fields", [{"kernel": "python"}, {"language": "py"}, {"kernel": "python3"}]
)
def test_kernels_by_name_and_alias(run, fields):
    assert run("print(1)", **fields).text() == "1\n"


@pytest.mark.once
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
    data = sync(
        gateway,
        "import matplotlib.pyplot as plt\nprint('text')\nplt.plot([1, 2])\n1/0",
        session_id=session,
    )
    assert "".join(data["texts"]).startswith("text\n")
    assert len(data["images"]) == 1 and data["images"][0].startswith("iVBOR")
    assert [error["error"] for error in data["errors"]] == ["ZeroDivisionError: division by zero"]
    assert "ZeroDivisionError" in "\n".join(data["errors"][0]["traceback"])
    assert {"stdout", "display", "error"} <= {line["type"] for line in data["outputs"]}
    assert data["status"] == "error" and data["execution_count"] == 1
    assert data["duration_ms"] > 0 and data["session_id"] == session


def test_execute_sync_has_the_very_lines_of_a_stream(gateway, session):
    code = (
        "display({'application/json': [0.1 + 0.2, 1e22, {'text': 'a\\0 é'}]}, raw=True)\n"
        "display({'application/json': ['x' * 100_000]}, raw=True)\n"  # a worker writes the answer
        "print('\\u2028é')"
    )
    texts = []
    with gateway.client.stream(
        "POST", "/api/v1/execute", json={"code": code, "session_id": session}
    ) as response:
        texts = [line for line in response.iter_lines() if '"type":"done"' not in line]
    response = gateway.client.post(
        "/api/v1/execute_sync", json={"code": code, "session_id": session}
    )
    assert '"outputs":[' + ",".join(texts) + ',{"type":"done"' in response.text
    assert "0.30000000000000004" in response.text
    assert "".join(response.json()["data"]["texts"]) == "\u2028é\n"


@pytest.mark.once
def test_execute_sync_of_more_than_it_may_hold(start_gateway):
    gateway = start_gateway("--pool-size", "1", "--max-output-bytes", "65536")
    code = (
        "import sys\n"
        "for i in range(8):\n"
        "    sys.stdout.write(str(i) * 16_000 + '\\n')\n"
        "    sys.stdout.flush()"  # each of them is a line
    )
    data = sync(gateway, code)
    dropped, done = data["outputs"][-2:]
    assert dropped["type"] == "dropped" and dropped["messages"] == len(data["texts"]) == 4
    assert dropped["bytes"] > 4 * 16_000 and done["type"] == "done"
    assert data["status"] == "ok"


@pytest.mark.once
def test_execute_sync_of_nothing(gateway, session):
    data = sync(gateway, "pass", session_id=session)
    assert (data["texts"], data["images"], data["errors"], data["status"]) == ([], [], [], "ok")
