# SPDX-License-Identifier: Apache-2.0
"""What Jupyter clients run can be found, joined, replayed and interrupted by the HTTP API."""

import json

import pytest
from jupyter_wire import Channels, of, start_kernel, text
from kernelgate import HELD, problem, wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


def listed(gateway, kernel, msg_id):
    """The execution of a message; None: there is none."""
    body = gateway.client.get(f"/api/v1/sessions/{kernel}/executions").json()
    assert body["total"] == len(body["executions"])
    found = [each for each in body["executions"] if each.get("msg_id") == msg_id]
    assert len(found) <= 1
    return found[0] if found else None


def lines_of(gateway, execution, after=0):
    url = f"/api/v1/executions/{execution}?after={after}"
    return [json.loads(line) for line in gateway.client.get(url).text.splitlines()]


def test_a_cell_is_joined_while_it_runs_and_replayed(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        running = client.execute(HELD + "print('end')\n1 + 1")
        client.until(lambda message: message["content"].get("text") == "on\n")
        found = listed(gateway, kernel, running)
        assert (found["state"], found["kernel"], found["ended_at"]) == ("running", "python", None)
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
    assert listed(gateway, kernel, running)["status"] == "ok"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_executions_of_both_apis_are_in_one_list(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        first = client.execute("raise ValueError('no')")
        client.until_idle(first)
        done = gateway.execute("print(1)", session_id=kernel)
        last = client.execute("print(2)")
        client.until_idle(last)
        wait_for(lambda: listed(gateway, kernel, last)["state"] == "done")
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
        client.run("import time")
        running = client.execute("print('on', flush=True)\ntime.sleep(1000)")
        client.until(lambda message: message["content"].get("text") == "on\n")
        execution = listed(gateway, kernel, running)["execution_id"]
        answer = gateway.client.post(f"/api/v1/executions/{execution}/interrupt").json()
        assert answer["interrupted"]
        client.until_idle(running)
        assert lines_of(gateway, execution)[-1]["status"] == "interrupted"
        dies = client.execute("import os\nos._exit(1)")
        wait_for(lambda: (listed(gateway, kernel, dies) or {}).get("state") == "done")
        lines = lines_of(gateway, listed(gateway, kernel, dies)["execution_id"])
        assert [line["type"] for line in lines] == ["error", "done"]
        assert (lines[1]["status"], lines[1]["kernel_restarted"]) == ("died", True)
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_cell_that_nobody_waits_for_is_logged(gateway):
    """Its client has disconnected for ever, and what it prints is bounded as for any execution."""
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        code = HELD + "for i in range(30): print('x' * 1000000)\nprint('last')"
        running = client.execute(code)
        client.until(lambda message: message["content"].get("text") == "on\n")
    gateway.release(kernel)
    wait_for(lambda: listed(gateway, kernel, running)["state"] == "done")
    lines = lines_of(gateway, listed(gateway, kernel, running)["execution_id"])
    assert lines[0]["type"] == "dropped" and lines[-1]["status"] == "ok"
    assert lines[-2]["text"].endswith("last\n")
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_cell_belongs_to_its_owner(start_gateway, clients, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway(
        "--jupyter-api", "--pool-size", "0", "--api-keys-file", str(keys), key="key-a"
    )
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query="?token=key-a") as client:
        running = client.execute("print(1)")
        client.until_idle(running)
    execution = listed(gateway, kernel, running)["execution_id"]
    bert = clients(gateway, "key-b")
    problem(bert.get(f"/api/v1/sessions/{kernel}/executions"), 404, "session_not_found")
    problem(bert.get(f"/api/v1/executions/{execution}"), 404, "not_found")
    problem(bert.post(f"/api/v1/executions/{execution}/interrupt"), 404, "not_found")
    assert lines_of(gateway, execution)[0]["text"] == "1\n"
