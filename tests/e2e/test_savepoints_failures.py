# SPDX-License-Identifier: Apache-2.0
"""Savepoints and branches that cannot be made: code that does not want it, and machines that are full."""

import concurrent.futures
import contextlib
import os

import pytest
from kernelgate import problem, wait_for
from session_savepoints import Savepoints, value


# ---- Code that does not want it


DAMAGES = {
    "no child": ("m.make = lambda text: None", "reached in time"),
    "a lie": ("m._fork = lambda run: 1", "reached in time"),
    "the end": ("import os; m._fork = lambda run: os._exit(1)", ("reached in time", "meanwhile")),
    "stops itself": (
        "import os, signal; m._fork = lambda run: os.kill(os.getpid(), signal.SIGSTOP)",
        ("reached in time", "did not answer in time"),  # what it has sent may be on the way
    ),
    "never answers": ("import time; m.make = lambda text: time.sleep(1000)", "did not answer in time"),
    "damaged": ("m.make = None", "not callable"),
    "the fork stops": (
        "import os, signal; m._be_savepoint = lambda plan: os.kill(os.getpid(), signal.SIGSTOP)",
        "reached in time",
    ),
    "the fork ends": ("import os; m._be_savepoint = lambda plan: os._exit(1)", "reached in time"),
    "the fork says nothing": (
        "import time; m._answer = lambda *_: time.sleep(1000)",
        "did not answer in time",
    ),
}


def processes(gateway, session):
    code = "__import__('os').listdir('/proc')"
    return int(value(gateway.execute, f"len([n for n in {code} if n.isdigit()])", session_id=session))


@pytest.mark.once
def test_a_kernel_that_does_not_fork(gateway):
    def try_one(damage):
        code, refused = damage
        session = gateway.create_session()
        savepoints = Savepoints(gateway, session)
        gateway.execute(f"import kernelgate_savepoints as m\n{code}", session_id=session)
        detail = savepoints.make(500, "savepoint_failed")
        assert any(each in detail for each in ([refused] if isinstance(refused, str) else refused)), detail
        assert savepoints.list()["savepoints"] == []
        gateway.client.post(f"/api/v1/sessions/{session}/restart").raise_for_status()
        savepoints.make()
        wait_for(lambda: processes(gateway, session) == 3)  # the agent, the kernel, the savepoint
        gateway.delete_session(session)

    with concurrent.futures.ThreadPoolExecutor(len(DAMAGES)) as pool:
        tried = pool.map(try_one, DAMAGES.values())
        other = gateway.create_session()
        assert gateway.execute("1 + 1", session_id=other).one("result")["text"] == "2"
        gateway.delete_session(other)
        list(tried)


SOMEBODY = r"""
import json, os, socket, kernelgate_savepoints as m
def make(text):
    folder = os.path.dirname(json.loads(text)["connection_file"])
    server = socket.socket(socket.AF_UNIX); server.bind(f"{folder}/k-6"); server.listen(1)
    def answer():
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(ANSWER)
    import threading; threading.Thread(target=answer, daemon=True).start()
m.make = make
"""


@pytest.mark.once
@pytest.mark.parametrize(
    "answer",
    [
        b'{"pid": 1}\n', b'{"pid": -1}\n', b'{"pid": "x"}\n', b"{}\n", b"[]\n", b"nonsense\n", b"x" * 100000, b"",
        b'{"pid": 99999999999999999999}\n',
    ],
    ids=lambda answer: answer[:20].decode(),
)  # fmt: skip
def test_a_kernel_that_lies(run, savepoints, answer):
    run(SOMEBODY.replace("ANSWER", repr(answer)))
    savepoints.make(500, "savepoint_failed")
    assert savepoints.list()["savepoints"] == [] and value(run, "1 + 1") == "2"


@pytest.mark.once
def test_somebody_elses_process(run, savepoints):
    """The kernel itself, and a child of it, which is not the agent's."""
    for pid in "os.getpid()", "__import__('subprocess').Popen(['sleep', '1000']).pid":
        code = SOMEBODY.replace("ANSWER", f"(b'{{\"pid\": %d}}\\n' % {pid})")
        run(code)
        assert "not a process of its own" in savepoints.make(500, "savepoint_failed")
    assert value(run, "1 + 1") == "2"


@pytest.mark.once
def test_another_process_of_the_sandbox(gateway, session, run, savepoints):
    """Of another kernel, of another savepoint, of a command and its keeper, one that has ended, and an orphan:
    that is the agent's child, and no kernel's, so only the session itself is deceived."""
    run("x = 1\nimport os")
    kept = savepoints.make()["savepoint"]
    savepoints.branch("b")
    command = {"command": "sleep 1000", "id": "sleeps", "background": True}
    gateway.client.post(f"/api/v1/sessions/{session}/commands", json=command).raise_for_status()
    stat = "{int(p): open(f'/proc/{p}/stat').read().rpartition(') ')[2].split() for p in os.listdir('/proc') if p.isdigit()}"
    others = eval(value(run, f"[p for p, stat in {stat}.items() if p not in (1, os.getpid())]"))
    assert len(others) >= 4  # a savepoint, a branch, a keeper, its command
    ended = int(value(run, "import subprocess; p = subprocess.Popen('true'); p.wait(); p.pid"))
    for pid in [*others, ended, 4194303]:
        run(SOMEBODY.replace("ANSWER", f"b'{{\"pid\": {pid}}}\\n'"))
        assert "not a process of its own" in savepoints.make(500, "savepoint_failed")
    orphan = "subprocess.check_output('sleep 1000 >&- 2>&- & echo $!', shell=True)"
    run(SOMEBODY.replace("ANSWER", f"(b'{{\"pid\": %d}}\\n' % int({orphan}))"))
    made = savepoints.make()["savepoint"]
    assert savepoints.restore(made, 504, "kernel_start_timeout")
    wait_for(lambda: savepoints.ids() == [kept])  # it has ended with the kernel, in whose group it was
    assert value(run, "x", branch="b") == "1"
    listed = gateway.client.get(f"/api/v1/sessions/{session}/commands").json()["commands"]
    assert [each["command_id"] for each in listed] == ["sleeps"]
    savepoints.restore(kept)
    assert value(run, "x") == "1"


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_code_that_signals_its_savepoints(gateway, session, run, savepoints, how):
    run(
        "import os, signal\ndef others(): return {int(p) for p in os.listdir('/proc') if p.isdigit()}\nbefore = others()"
    )
    made = savepoints.make(name="mine")["savepoint"]
    run(f"[os.kill(pid, signal.{how}) for pid in others() - before]")
    if how == "SIGKILL":
        wait_for(lambda: savepoints.ids() == [])
        [gone] = savepoints.list()["dropped"]
        assert (gone["savepoint"], gone["name"], gone["reason"]) == (made, "mine", "its process ended")
        assert value(run, "before == others()") == "True"
        return
    assert "did not answer in time" in savepoints.restore(made, 504, "kernel_start_timeout")
    assert value(run, "1 + 1") == "2"  # by a new kernel
    savepoints.drop(made)
    wait_for(lambda: processes(gateway, session) == 2)


@pytest.mark.once
def test_a_thousand_children(gateway, session, run, savepoints):
    run(
        "import os, time, kernelgate_savepoints as m\nfork = m._fork\n"
        "def forks(run):\n"
        "    for _ in range(1000):\n"
        "        try:\n"
        "            if os.fork() == 0: time.sleep(1000); os._exit(0)\n"
        "        except OSError: break\n"
        "    return fork(run)\n"
        "m._fork = forks"
    )
    response = savepoints.client.post(f"{savepoints.url}/savepoints", json={}, timeout=60)
    assert response.status_code in (201, 500)
    other = gateway.create_session()
    assert gateway.execute("1 + 1", session_id=other).one("result")["text"] == "2"
    gateway.delete_session(other)
    savepoints.client.post(f"{savepoints.url}/restart").raise_for_status()
    for each in savepoints.ids():
        savepoints.drop(each)
    wait_for(lambda: processes(gateway, session) == 2)


# ---- A state folder that is full


def fill_up(folder):
    with contextlib.suppress(OSError), open(f"{folder}/filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.not_on("kubernetes", "its record is not in the state folder")
def test_what_cannot_be_recorded_is_not_kept(small_folder, start_gateway):
    folder = small_folder("4m")
    gateway = start_gateway("--pool-size", "0", "--max-savepoints", "2", state_dir=folder)
    session = gateway.create_session()
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    savepoints = Savepoints(gateway, session)
    run("x = 1")
    before = [savepoints.make()["savepoint"], savepoints.make()["savepoint"]]
    processes = "len([n for n in __import__('os').listdir('/proc') if n.isdigit()])"
    count = value(run, processes)
    fill_up(folder)
    for ask in savepoints.make, savepoints.branch:
        detail = ask(*([] if ask == savepoints.make else ["b"]), 507, "disk_full")
        assert "space" in detail.lower()
    response = savepoints.client.post(
        "/api/v1/execute", json={"code": "x = 2", "session_id": session, "savepoint": True}
    )
    problem(response, 507, "disk_full")  # the code has not run
    assert value(run, "x") == "1"
    assert savepoints.list() == {"savepoints": savepoints.list()["savepoints"], "dropped": []}
    assert savepoints.ids() == before and savepoints.branches() == {}
    wait_for(lambda: value(run, processes) == count)
    savepoints.restore(before[0])  # those that there are can be used
    os.unlink(f"{folder}/filler")
    made = savepoints.make(name="again")["savepoint"]
    savepoints.branch("b")
    assert savepoints.ids() == [before[1], made]
    gateway.delete_session(session)
