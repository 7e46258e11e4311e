# SPDX-License-Identifier: Apache-2.0
"""Sessions: state, lifetime, owners and bounds."""

import concurrent.futures
import datetime
import hashlib
import pathlib
import threading
import uuid

import component
import pytest
from component import HELD, cell
from contract import OPERATIONS, send_example
from kernelgate import problem, wait_for
from sandboxes import lives, sandbox_of


def name():
    return f"t-{uuid.uuid4().hex[:12]}"


def expiry(shown):
    return datetime.datetime.fromisoformat(shown["expires_at"])


HANGS = cell("print 1", "hang")

# ---- State


def test_state_persists_by_session_id(run):
    assert run("set x 41").status == "ok"
    assert run(cell("add x 1", "get x")).text() == "42\n"
    assert run("get x").done["execution_count"] == 3


def test_an_unknown_session_id_makes_the_session(gateway):
    session_id = name()
    assert gateway.execute("set x 1", session_id=session_id).status == "ok"
    assert gateway.show_session(session_id)["session_id"] == session_id
    assert gateway.execute("get x", session_id=session_id).text() == "1\n"
    assert gateway.delete_session(session_id).status_code == 200


def test_the_working_directory_keeps_files(run):
    assert run("sh pwd").text() == "/mnt/data\n"
    run("write a.txt kept")
    assert run("read /mnt/data/a.txt").text() == "kept"


def test_two_sessions_share_neither_variables_nor_files(gateway, session):
    other = gateway.create_session(session_id=name())
    gateway.execute(cell("set x 1", "write f x", "write /tmp/f x"), session_id=session)
    lines = gateway.execute(cell("exists f", "exists /tmp/f", "get x"), session_id=other)
    assert lines.text() == "False\nFalse\n" and lines.one("error")["ename"] == "NameError"
    gateway.delete_session(other)


# ---- The routes


def test_create(gateway):
    session_id = name()
    response = gateway.client.post("/api/v1/sessions", json={"session_id": session_id})
    body = response.json()
    assert body["resultCode"] == 0 and body["resultMsg"] == "success"
    assert body["data"] == {
        "session_id": session_id,
        "working_directory": "/mnt/data",
        "downloaded_files": [],
        "errors": [],
    }
    again = gateway.client.post("/api/v1/sessions", json={"session_id": session_id})
    assert again.status_code == 200 and again.json()["data"]["session_id"] == session_id
    gateway.delete_session(session_id)


def test_create_without_a_body_or_an_id(gateway):
    ids = [gateway.create_session(), gateway.create_session()]
    assert ids[0] != ids[1]
    for session_id in ids:
        assert gateway.execute("print 1", session_id=session_id).text() == "1\n"
        gateway.delete_session(session_id)


def test_env_of_a_session(gateway):
    session_id = gateway.create_session(env={"KG_SESSION": "s"})
    show = "getenv KG_SESSION"
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    assert gateway.execute(show, session_id=session_id, env={"KG_SESSION": "e"}).text() == "e\n"
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    gateway.client.post(f"/api/v1/sessions/{session_id}/restart")
    assert gateway.execute(show, session_id=session_id).text() == "s\n"
    gateway.delete_session(session_id)


@pytest.mark.parametrize(
    "body", [{"nonsense": 1}, {"idle_timeout": 0}, {"idle_timeout": "1"}, {"env": []}, []]
)
def test_create_refuses(gateway, body):
    problem(gateway.client.post("/api/v1/sessions", json=body), 400, "invalid_request")


def test_create_refuses_bad_ids_and_kernels(gateway):
    for body, status, code in (
        ({"session_id": "a/b"}, 400, "invalid_session_id"),
        ({"kernel": "cobol"}, 404, "unknown_kernel"),
    ):
        problem(gateway.client.post("/api/v1/sessions", json=body), status, code)


def test_show_and_list(gateway, session):
    gateway.execute(cell("memory 5000000", "result 1"), session_id=session)
    shown = gateway.show_session(session)
    assert shown["session_id"] == session and shown["execution_count"] == 1
    assert shown["is_busy"] is False and shown["working_directory"] == "/mnt/data"
    assert "script" in shown["kernels"]
    assert shown["created_at"] <= shown["last_activity"] < shown["expires_at"]
    assert shown["usage"]["memory_bytes"] == 5_000_000
    listed = gateway.client.get("/api/v1/sessions").json()
    assert listed["total"] == len(listed["sessions"])
    assert listed["sessions"][session]["session_id"] == session


def test_the_list_has_the_used_memory(gateway, session):
    gateway.execute("memory 50000000", session_id=session)
    assert gateway.show_session(session)["usage"]["memory_bytes"] == 50_000_000

    def listed():
        return gateway.client.get("/api/v1/sessions").json()["sessions"][session]["memory_bytes"]

    wait_for(lambda: listed() == 50_000_000)


def test_is_busy_while_it_executes(gateway, session):
    with gateway.stream(HANGS, session_id=session) as reader:
        reader.next_of("stdout")
        assert gateway.show_session(session)["is_busy"] is True
        assert gateway.client.post(f"/api/v1/sessions/{session}/interrupt").status_code == 200
        reader.rest()
    assert gateway.show_session(session)["is_busy"] is False


def test_delete(gateway):
    session_id = gateway.create_session(session_id=name())
    gateway.execute("result 1", session_id=session_id)
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
    with gateway.stream(HANGS, session_id=session_id) as reader:
        reader.next_of("stdout")
        assert gateway.delete_session(session_id).status_code == 200
        assert reader.rest().status in ("died", "interrupted")


def test_show_while_it_is_deleted(gateway):
    for _ in range(3):
        session_id = gateway.create_session()
        url = f"/api/v1/sessions/{session_id}"
        with concurrent.futures.ThreadPoolExecutor() as pool:
            shows = [pool.submit(gateway.client.get, url) for _ in range(8)]
            assert gateway.delete_session(session_id).status_code == 200
            assert {show.result().status_code for show in shows} <= {200, 404, 503}


def test_show_while_it_is_made(gateway):
    session_id = name()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(gateway.client.post, "/api/v1/sessions", json={"session_id": session_id})
        codes = set()
        while not made.done():
            codes.add(gateway.client.get(f"/api/v1/sessions/{session_id}").status_code)
    assert made.result().status_code == 200 and codes and codes <= {200, 404}
    gateway.delete_session(session_id)


def test_interrupt(gateway, session):
    with gateway.stream(cell("set x 1", HANGS), session_id=session) as reader:
        reader.next_of("stdout")
        assert gateway.client.post(f"/api/v1/sessions/{session}/interrupt").status_code == 200
        lines = reader.rest()
    assert lines.one("error")["ename"] == "KeyboardInterrupt"
    assert lines.status == "interrupted"
    assert gateway.execute("get x", session_id=session).text() == "1\n"


def test_restart(gateway, session):
    gateway.execute(cell("set x 1", "write kept f"), session_id=session)
    assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
    lines = gateway.execute(cell("read kept", "get x"), session_id=session)
    assert lines.text() == "f" and lines.one("error")["ename"] == "NameError"
    assert lines.done["execution_count"] == 1


def test_restart_of_a_busy_kernel(gateway, session):
    with gateway.stream(HANGS, session_id=session) as reader:
        reader.next_of("stdout")
        assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.execute("print 2", session_id=session).text() == "2\n"


def test_touch_renews_the_expiry(gateway, session):
    before = expiry(gateway.show_session(session))

    def renewed():
        assert gateway.client.post(f"/api/v1/sessions/{session}/touch").status_code == 200
        return expiry(gateway.show_session(session)) > before

    wait_for(renewed)


@pytest.mark.parametrize("action", ["interrupt", "restart", "touch"])
def test_actions_on_no_session(gateway, action):
    response = gateway.client.post(f"/api/v1/sessions/{name()}/{action}")
    problem(response, 404, "session_not_found")


def test_files_are_files(gateway, run, session):
    run(cell("mkdir d", "write d/f 12", "sh ln -s d/f link"))
    shown = gateway.show_session(session)
    assert [(file["path"], file["size"]) for file in shown["files"]] == [("d/f", 2)]
    assert shown["total_files"] == 1


def test_more_env_than_a_kernel_gets_is_refused(gateway):
    many, large = {f"A{i}": "" for i in range(65)}, {"A": "x" * 17000}
    for env, detail in ((many, "env has more than"), (large, "env is larger than")):
        response = gateway.client.post("/api/v1/sessions", json={"env": env})
        assert response.status_code == 400 and detail in response.json()["detail"]


# ---- Expiry and limits


def has_ended(gateway, session_id):
    # Asking for a session must not keep it alive.
    return gateway.client.get(f"/api/v1/sessions/{session_id}").status_code == 404


def test_an_idle_session_ends(gateway):
    session_id = gateway.create_session(session_id=name(), idle_timeout=1)
    wait_for(lambda: has_ended(gateway, session_id))
    listed = gateway.client.get("/api/v1/sessions").json()["sessions"]
    assert session_id not in listed


def test_a_running_execution_is_activity(gateway):
    """A session that is as old, and idle, ends meanwhile."""
    session_id = gateway.create_session(session_id=name(), idle_timeout=1)
    with gateway.stream(cell(HELD, "print done"), session_id=session_id) as reader:
        reader.next_of("stdout")
        idle = gateway.create_session(session_id=name(), idle_timeout=1)
        wait_for(lambda: has_ended(gateway, idle))
        gateway.release(session_id)
        assert reader.rest().text() == "on\ndone\n"
    wait_for(lambda: has_ended(gateway, session_id))


def test_max_sessions(start_gateway):
    gateway = start_gateway("--max-sessions", "2")
    first = gateway.create_session()
    gateway.create_session()
    response = gateway.client.post("/api/v1/sessions", json={})
    problem(response, 429, "max_sessions")
    assert int(response.headers["retry-after"]) > 0
    problem(gateway.client.post("/api/v1/execute", json={"code": "# x"}), 429, "max_sessions")
    gateway.delete_session(first)
    assert gateway.execute("print 1").text() == "1\n"


def test_many_sessions_at_once(start_gateway):
    gateway = start_gateway("--max-sessions", "6", "--pool-size", "1")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        runs = [
            pool.submit(gateway.execute, cell(f"set x {i}", "get x"), session_id=f"s{i}")
            for i in range(6)
        ]
        assert [run.result().text() for run in runs] == [f"{i}\n" for i in range(6)]


def test_a_session_queue_is_bounded(gateway, session):
    with gateway.stream(HANGS, session_id=session, timeout=600) as reader:
        reader.next_of("stdout")
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            body = {"code": "# nothing", "session_id": session}
            futures = [
                pool.submit(gateway.client.post, "/api/v1/execute", json=body) for _ in range(200)
            ]
            wait_for(lambda: any(f.done() and f.result().status_code == 429 for f in futures))
            gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
            responses = [future.result() for future in futures]
    problem(next(r for r in responses if r.status_code == 429), 429, "session_busy")
    assert {response.status_code for response in responses} == {200, 429}


# ---- Owners


def test_one_owners_session_is_404_to_another(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    digest = hashlib.sha256(b"key-of-bob").hexdigest()
    keys.write_text(f"# comment\nalice:key-of-alice\nbob:sha256:{digest}\n")
    gateway = start_gateway("--api-keys-file", str(keys), key="key-of-alice")
    bob = gateway.client_for("key-of-bob")
    gateway.create_session(session_id="mine")
    execution = gateway.execute('set x "alice"', session_id="mine").headers["x-execution-id"]
    for method, path in (it for it in OPERATIONS if it[1].startswith("/api/v1/sessions/{id}")):
        response = send_example(bob, method, path, "mine")
        problem(response, 404, "session_not_found")
    problem(bob.get(f"/api/v1/executions/{execution}"), 404, "not_found")
    problem(bob.post(f"/api/v1/executions/{execution}/interrupt"), 404, "not_found")
    assert bob.get("/api/v1/sessions").json() == {"sessions": {}, "total": 0}
    # For the other owner the same id is another session.
    lines = gateway.execute("get x", client=bob, session_id="mine")
    assert lines.one("error")["ename"] == "NameError"
    assert gateway.execute("get x", session_id="mine").text() == '"alice"\n'
    assert gateway.client.get(f"/api/v1/executions/{execution}").status_code == 200
    bob.close()


@pytest.fixture
def two_owners(start_gateway, clients, tmp_path):
    def start(*flags):
        keys = tmp_path / "keys"
        keys.write_text("ann:key-of-ann\nbob:key-of-bob\n")
        gateway = start_gateway("--api-keys-file", str(keys), *flags, key="key-of-ann")
        return gateway, clients(gateway, "key-of-bob")

    return start


def test_one_owner_takes_half_of_the_sessions(two_owners):
    gateway, bob = two_owners("--max-sessions", "3")
    gateway.create_session(session_id="a")
    gateway.create_session(session_id="b")
    problem(gateway.client.post("/api/v1/sessions", json={}), 429, "max_sessions")
    gateway.create_session(bob, session_id="a")
    problem(bob.post("/api/v1/sessions", json={}), 429, "max_sessions")


def test_ending_many_sessions_keeps_nobody_from_getting_one(two_owners, tmp_path):
    hold, held, runtime = tmp_path / "hold", tmp_path / "held", tmp_path / "runtime"
    held.mkdir()
    runtime.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f"*delete*) touch {held}/$$; while [ -e {hold} ]; do sleep .05; done;;\n"
        f'esac\nexec {component.TEST_RUNTIME} "$@"\n'
    )
    runtime.chmod(0o755)
    gateway, bob = two_owners("--max-sessions", "20", "--oci-runtime", str(runtime))
    for i in range(9):
        gateway.create_session(session_id=f"s{i}")
    hold.touch()
    deleting = [threading.Thread(target=gateway.delete_session, args=(f"s{i}",)) for i in range(9)]
    try:
        for thread in deleting:
            thread.start()
        wait_for(lambda: len(list(held.iterdir())) >= 6)
        assert gateway.execute("print 1", client=bob, session_id="new").text() == "1\n"
    finally:
        hold.unlink()
    for thread in deleting:
        thread.join()


# ---- Bounds that must agree


def test_more_sessions_than_can_be_connected(start_gateway, tmp_path):
    for name in ("script", *(f"script{i}" for i in range(7))):
        (tmp_path / name).symlink_to(component.HERE / "kernelspec/script")
    flags = ("--kernelspec-dir", str(tmp_path))
    with pytest.raises(AssertionError, match="setting max-sessions: .* at most 2687 sessions fit"):
        start_gateway(*flags, "--max-sessions", "2688")
    # With the project's two kernelspecs the largest number fits.
    gateway = start_gateway("--max-sessions", "10000")
    assert gateway.execute("print 1").text() == "1\n"


# ---- The gateway's process


def test_one_thread_runs_the_gateway(start_gateway):
    gateway = start_gateway()
    gateway.execute("print 1")
    names = pathlib.Path(f"/proc/{gateway.process.pid}/task").glob("*/comm")
    # libzmq's two threads run no code of the project.
    assert sorted(name.read_text().strip() for name in names) == [
        "ZMQbg/IO/0",
        "ZMQbg/Reaper",
        "kernelgate",
    ]
