# SPDX-License-Identifier: Apache-2.0
"""What Jupyter clients run can be found, joined, replayed and interrupted by the HTTP API."""

import json

import pytest
from component import HELD, cell
from jupyter_wire import Channels, execution_of, of, start_kernel, text, wait_until_done
from kernelgate import problem


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


def lines_of(gateway, execution, after=0):
    url = f"/api/v1/executions/{execution}?after={after}"
    return [json.loads(line) for line in gateway.client.get(url).text.splitlines()]


def test_a_cell_is_joined_while_it_runs_and_replayed(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        running = client.execute(cell(HELD, "print end", "result 2"))
        client.until(lambda message: message["content"].get("text") == "on\n")
        found = execution_of(gateway, kernel, running)
        assert (found["state"], found["kernel"], found["ended_at"]) == ("running", "script", None)
        execution = found["execution_id"]
        with gateway.client.stream("GET", f"/api/v1/executions/{execution}") as joined:
            assert joined.headers["X-Session-Id"] == kernel
            read = joined.iter_lines()
            assert json.loads(next(read))["text"] == "on\n"
            gateway.release(kernel)
            rest = [json.loads(line) for line in read]
        assert [line["type"] for line in rest] == ["stdout", "result", "done"]
        assert (rest[0]["text"], rest[1]["text"], rest[2]["status"]) == ("end\n", "2", "ok")
        assert rest[2]["execution_count"] == 1 and rest[2]["session_id"] == kernel
        messages = client.until_idle(running)
        assert text(messages) == "end\n" and of(messages, "execute_result")
    assert lines_of(gateway, execution, after=1) == rest
    assert execution_of(gateway, kernel, running)["status"] == "ok"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_executions_of_both_apis_are_in_one_list(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        first = client.execute("error ValueError no")
        client.until_idle(first)
        done = gateway.execute("print 1", session_id=kernel)
        last = client.execute("print 2")
        client.until_idle(last)
        wait_until_done(gateway, kernel, last)
    body = gateway.client.get(f"/api/v1/sessions/{kernel}/executions").json()
    assert [each.get("msg_id") for each in body["executions"]] == [last, None, first]
    assert [each["status"] for each in body["executions"]] == ["ok", "ok", "error"]
    assert body["executions"][1]["execution_id"] == done.headers["x-execution-id"]
    failed = lines_of(gateway, body["executions"][2]["execution_id"])
    assert failed[0]["ename"] == "ValueError"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_cell_is_interrupted_or_dies_with_its_kernel(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        running = client.execute(cell("print on", "hang"))
        client.until(lambda message: message["content"].get("text") == "on\n")
        execution = execution_of(gateway, kernel, running)["execution_id"]
        answer = gateway.client.post(f"/api/v1/executions/{execution}/interrupt").json()
        assert answer["interrupted"]
        client.until_idle(running)
        assert lines_of(gateway, execution)[-1]["status"] == "interrupted"
        dies = client.execute("die 1")
        wait_until_done(gateway, kernel, dies)
        lines = lines_of(gateway, execution_of(gateway, kernel, dies)["execution_id"])
        assert [line["type"] for line in lines] == ["error", "done"]
        assert (lines[1]["status"], lines[1]["kernel_restarted"]) == ("died", True)
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_cell_that_nobody_waits_for_is_logged(gateway):
    """Its client has disconnected for ever, and what it prints is bounded as for any execution."""
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        running = client.execute(cell(HELD, "flood 30 1000000", "print last"))
        client.until(lambda message: message["content"].get("text") == "on\n")
    gateway.release(kernel)
    wait_until_done(gateway, kernel, running)
    lines = lines_of(gateway, execution_of(gateway, kernel, running)["execution_id"])
    assert lines[0]["type"] == "dropped" and lines[-1]["status"] == "ok"
    assert lines[-2]["text"].endswith("last\n")
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_cell_belongs_to_its_owner(start_gateway, clients, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway("--jupyter-api", "--api-keys-file", str(keys), key="key-a")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query="?token=key-a") as client:
        running = client.execute("print 1")
        client.until_idle(running)
    execution = execution_of(gateway, kernel, running)["execution_id"]
    bert = clients(gateway, "key-b")
    problem(bert.get(f"/api/v1/sessions/{kernel}/executions"), 404, "session_not_found")
    problem(bert.get(f"/api/v1/executions/{execution}"), 404, "not_found")
    problem(bert.post(f"/api/v1/executions/{execution}/interrupt"), 404, "not_found")
    assert lines_of(gateway, execution)[0]["text"] == "1\n"
