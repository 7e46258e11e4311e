# SPDX-License-Identifier: Apache-2.0
"""Sessions of real kernels in real containers: state, lifetime, and what happens when the gateway dies."""

import time
import uuid

import pytest
from kernelgate import problem, wait_for
from sandboxes import lives, sandbox_of


def name():
    return f"t-{uuid.uuid4().hex[:12]}"


# ---- State


def test_state_persists_by_session_id(run):
    assert run("x = 41\nimport json\ndef f(): return x + 1").status == "ok"
    assert run("print(f(), json.dumps([]))").text() == "42 []\n"
    assert run("x").done["execution_count"] == 3


def test_an_unknown_session_id_makes_the_session(gateway):
    session_id = name()
    assert gateway.execute("x = 1", session_id=session_id).status == "ok"
    assert gateway.show_session(session_id)["session_id"] == session_id
    assert gateway.execute("print(x)", session_id=session_id).text() == "1\n"
    assert gateway.delete_session(session_id).status_code == 200


def test_the_working_directory_keeps_files(run):
    assert run("import os\nos.getcwd()").one("result")["text"] == "'/mnt/data'"
    run("open('a.txt', 'w').write('kept')")
    assert run("print(open('/mnt/data/a.txt').read())").text() == "kept\n"


def test_two_sessions_share_neither_variables_nor_files(gateway, session):
    other = gateway.create_session(session_id=name())
    gateway.execute("x = 1; open('/mnt/data/f', 'w'); open('/tmp/f', 'w')", session_id=session)
    lines = gateway.execute(
        "import os; print('x' in globals(), os.path.exists('f'), os.path.exists('/tmp/f'))",
        session_id=other,
    )
    assert lines.text() == "False False False\n"
    gateway.delete_session(other)


# ---- The routes


def test_env_of_a_session(gateway):
    session_id = gateway.create_session(env={"KG_SESSION": "s"})
    show = "import os; print(os.environ.get('KG_SESSION'))"
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    assert gateway.execute(show, session_id=session_id, env={"KG_SESSION": "e"}).text() == "e\n"
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    gateway.client.post(f"/api/v1/sessions/{session_id}/restart")
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    gateway.delete_session(session_id)


def test_show_and_list(gateway, session):
    gateway.execute("1", session_id=session)
    shown = gateway.show_session(session)
    assert shown["session_id"] == session and shown["execution_count"] == 1
    assert shown["is_busy"] is False and shown["working_directory"] == "/mnt/data"
    assert "python" in shown["kernels"]
    assert shown["created_at"] <= shown["last_activity"] < shown["expires_at"]
    assert shown["usage"]["memory_bytes"] > 1 << 20 and shown["usage"]["pids"] >= 2
    listed = gateway.client.get("/api/v1/sessions").json()
    assert listed["total"] == len(listed["sessions"])
    assert listed["sessions"][session]["session_id"] == session


def test_the_list_has_the_used_memory(gateway, session):
    gateway.execute("kept = b'x' * (48 << 20)", session_id=session)
    used = gateway.show_session(session)["usage"]["memory_bytes"]
    assert used > 48 << 20

    def listed():
        return gateway.client.get("/api/v1/sessions").json()["sessions"][session]["memory_bytes"]

    wait_for(lambda: abs((listed() or 0) - used) < 16 << 20)


def test_an_absolute_end(gateway):
    """Whatever runs: a cell that catches all, and a command that ignores signals."""
    session_id = gateway.create_session(session_id=name(), max_lifetime=4, metadata={"a": "b"})
    assert gateway.show_session(session_id)["metadata"] == {"a": "b"}
    command = {"command": "trap '' TERM INT; sleep 600", "background": True}
    gateway.client.post(f"/api/v1/sessions/{session_id}/commands", json=command).raise_for_status()
    code = "import time\nwhile True:\n try: time.sleep(600)\n except BaseException: pass"
    lines = gateway.execute(code, session_id=session_id, timeout=600)
    assert lines.status == "died" and "max_lifetime" in lines.one("error")["error"]
    problem(gateway.client.get(f"/api/v1/sessions/{session_id}"), 404, "session_not_found")


def test_a_token(gateway):
    session_id = gateway.create_session(session_id=name())
    url = f"/api/v1/sessions/{session_id}/tokens"
    made = gateway.client.post(url, json={"scope": ["run"]}).json()
    holder = gateway.client_for(made["token"])
    assert gateway.execute("print(6 * 7)", client=holder, session_id=session_id).text() == "42\n"
    problem(holder.get(f"/api/v1/sessions/{session_id}/files"), 403, "token_scope")
    gateway.delete_session(session_id)
    problem(holder.get(f"/api/v1/sessions/{session_id}"), 401, "unauthorized")
    holder.close()


@pytest.mark.not_on("kubernetes", "a pod ends a moment after its deletion was accepted")
def test_delete(gateway):
    session_id = gateway.create_session(session_id=name())
    gateway.execute("1", session_id=session_id)
    pids = sandbox_of(gateway, session_id).pids()
    assert len(pids) > 1
    response = gateway.delete_session(session_id)
    assert response.status_code == 200
    assert response.json() == {"message": f"Session {session_id} terminated"}
    assert not any(map(lives, pids))
    problem(gateway.client.get(f"/api/v1/sessions/{session_id}"), 404, "session_not_found")
    problem(gateway.delete_session(session_id), 404, "session_not_found")


def test_delete_ends_a_running_execution(gateway):
    session_id = gateway.create_session(session_id=name())
    with gateway.stream(
        "print(1, flush=True)\nimport time; time.sleep(600)", session_id=session_id, timeout=900
    ) as reader:
        reader.next_of("stdout")
        assert gateway.delete_session(session_id).status_code == 200
        assert reader.rest().status in ("died", "interrupted")


def test_interrupt(gateway, session):
    with gateway.stream(
        "x = 1\nprint(1, flush=True)\nimport time; time.sleep(30)", session_id=session
    ) as reader:
        reader.next_of("stdout")
        assert gateway.client.post(f"/api/v1/sessions/{session}/interrupt").status_code == 200
        lines = reader.rest()
    assert lines.one("error")["ename"] == "KeyboardInterrupt"
    assert lines.status == "interrupted"
    assert gateway.execute("print(x)", session_id=session).text() == "1\n"


def test_restart(gateway, session):
    gateway.execute("x = 1; open('kept', 'w').write('f')", session_id=session)
    assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
    lines = gateway.execute("print('x' in globals(), open('kept').read())", session_id=session)
    assert lines.text() == "False f\n"
    assert lines.done["execution_count"] == 1


def test_restart_of_a_busy_kernel(gateway, session):
    with gateway.stream(
        "print(1, flush=True)\nimport time; time.sleep(30)", session_id=session
    ) as reader:
        reader.next_of("stdout")
        assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.execute("print(2)", session_id=session).text() == "2\n"


# ---- The gateway dies


def test_after_kill_9_the_next_gateway_works_and_nothing_is_orphaned(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("x = 1", session_id="s")
    gateway.kill()
    assert gateway.sandbox_pids()
    gateway.start()
    # When the test ends, leftovers.py finds what was neither adopted nor removed.
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"


def test_sandboxes_end_themselves_when_no_gateway_comes(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--idle-timeout", "2")
    gateway.create_session(session_id="s")
    killed = time.monotonic()
    gateway.kill()
    wait_for(lambda: not gateway.sandbox_pids(), timeout=60)
    assert time.monotonic() - killed > 0.5
    gateway.start()
    # A cluster says a moment later that a pod has ended.
    wait_for(lambda: gateway.client.get("/api/v1/sessions").json()["total"] == 0)
