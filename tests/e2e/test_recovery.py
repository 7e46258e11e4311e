# SPDX-License-Identifier: Apache-2.0
"""Faults: each affects only the session that it hits."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import docker_engine
import httpx
import pytest
from kernelgate import HELD, problem, wait_for
from sandboxes import folders_of_sandboxes, kill, lives, pooled, sandbox_of, sandboxes

TICKING = """
import time

TAKES_LONG = True
for i in range(6):
    print(i, flush=True)
    time.sleep(0.5)
ended = True
"""


def total(gateway):
    return gateway.client.get("/api/v1/sessions").json()["total"]


class Execution(threading.Thread):
    """An execution in a thread; the gateway may die before it ends."""

    def __init__(self, gateway, code, **fields):
        super().__init__()
        self.gateway, self.code, self.fields = gateway, code, fields
        self.lines = self.error = None  # no lines: not answered yet
        self.client = gateway.client_for(gateway.key)
        self.start()

    def run(self):
        try:
            with self.gateway.stream(self.code, self.client, **self.fields) as reader:
                self.lines = reader.lines
                reader.rest()
        except httpx.TransportError as error:
            self.error = error
        finally:
            self.client.close()

    def until(self, kind):
        wait_for(lambda: self.lines and self.lines.of(kind), timeout=60)
        return self

    def ended(self):
        self.join(60)
        assert not self.is_alive()
        return self.lines


# ---- The gateway dies


def test_kill_9_while_code_runs(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("x = 1; open('kept', 'w').write('k')", session_id="idle")
    gateway.execute("y = 2", session_id="busy")
    gateway.fill_pool()
    before = {sandbox.id: sandbox.session for sandbox in sandboxes(gateway)}
    created = gateway.client.get("/api/v1/sessions").json()["sessions"]["idle"]["created_at"]
    execution = Execution(gateway, f"{HELD}ended = True", session_id="busy").until("stdout")
    gateway.kill()
    assert execution.ended() and isinstance(execution.error, httpx.RemoteProtocolError)
    gateway.start()
    # Its sessions exist at once, and no new sandboxes were made for them.
    assert total(gateway) == 2
    assert gateway.execute("print(x, open('kept').read())", session_id="idle").text() == "1 k\n"
    assert gateway.show_session("idle")["created_at"] == created
    # The kernel is busy until its code has ended; new executions wait.
    assert gateway.show_session("busy")["is_busy"]
    with gateway.stream("print(y, ended)", session_id="busy") as reader:
        gateway.release("busy")
        lines = reader.rest()
    assert lines.text() == "2 True\n" and lines.status == "ok"
    assert not gateway.show_session("busy")["is_busy"]
    # The sandbox that waited is in the pool again.
    gateway.fill_pool()
    assert {sandbox.id: sandbox.session for sandbox in sandboxes(gateway)} == before
    [waiting] = [id for id, session in before.items() if session is None]
    gateway.execute("1", session_id="new")
    assert sandbox_of(gateway, "new").id == waiting


def test_a_busy_kernel_of_an_earlier_gateway_can_be_interrupted(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    execution = Execution(gateway, "z = 3\nprint(1)\nimport time; time.sleep(600)", session_id="s")
    execution.until("stdout")
    gateway.kill()
    execution.ended()
    gateway.start()
    # At once, before the agent has reported what runs there.
    assert gateway.show_session("s")["is_busy"]
    wait_for(lambda: gateway.show_session("s")["kernels"])
    gateway.client.post("/api/v1/sessions/s/interrupt")
    assert gateway.execute("print(z)", session_id="s").text() == "3\n"


SQUATTER = """
import subprocess, sys
code = '''
import os, socket, time
def dial(link):
    link.connect("/run/kg/door.sock")
def dial_and_end(link):
    # The socket says for ever that it is of a process which is gone.
    child = os.fork()
    if child == 0:
        try:
            dial(link)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
links = []
while True:
    for dialler in dial_and_end, dial:
        link = socket.socket(socket.AF_UNIX)
        try:
            dialler(link)
            link.sendall(b"KGLINK 1" + bytes([10]))
            links = [*links[-20:], link]
        except OSError:
            pass
    time.sleep(0.01)
'''
squatter = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
x = 1
"""


def test_a_tenant_dials_before_its_agent(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute(SQUATTER, session_id="s")
    gateway.kill()
    gateway.start()
    lines = gateway.execute("print(x, squatter.poll())", session_id="s")
    assert lines.text() == "1 None\n"


def test_kill_9_again_and_again(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("n = 0", session_id="s")
    for i in range(1, 4):
        gateway.kill()
        gateway.start()
        assert gateway.execute("n += 1; print(n)", session_id="s").text() == f"{i}\n"
    assert total(gateway) == 1


def test_half_made_sandboxes_are_removed(start_gateway):
    gateway = start_gateway("--pool-size", "3")
    # At this moment none of its kernels is ready; the containers are in the making.
    wait_for(lambda: folders_of_sandboxes(gateway), interval=0.001)
    gateway.kill()
    gateway.start()
    gateway.fill_pool()
    folders = {path.name for path in folders_of_sandboxes(gateway)}
    assert folders == {sandbox.id for sandbox in pooled(gateway)} and len(folders) == 3


def test_sandboxes_that_died_meanwhile_are_removed(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("x = 1", session_id="lives")
    gateway.execute("x = 1", session_id="dies")
    gateway.fill_pool()
    dead = [sandbox_of(gateway, "dies"), *pooled(gateway)]
    gateway.kill()
    for sandbox in dead:
        kill(sandbox.agent)
        sandbox.wait_until_ended()
    gateway.start()
    assert list(gateway.client.get("/api/v1/sessions").json()["sessions"]) == ["lives"]
    assert gateway.execute("print(x)", session_id="lives").text() == "1\n"
    wait_for(lambda: not {s.id for s in dead} & {s.id for s in sandboxes(gateway)})
    assert gateway.execute("print('x' in globals())", session_id="dies").text() == "False\n"


@pytest.mark.not_on("runsc", "no process of the machine is the kernel")
def test_a_kernel_that_died_meanwhile_is_started_again(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 1; open('kept', 'w').write('k')", session_id="s")
    kernel = sandbox_of(gateway, "s").kernel()
    gateway.kill()
    kill(kernel)
    gateway.start()
    lines = gateway.execute("print('x' in globals(), open('kept').read())", session_id="s")
    assert lines.text() == "False k\n"


@pytest.mark.once
def test_an_adopted_session_expires(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.create_session(session_id="stays")
    gateway.create_session(session_id="s", idle_timeout=2)
    gateway.kill()
    gateway.start()
    wait_for(lambda: list(gateway.client.get("/api/v1/sessions").json()["sessions"]) == ["stays"])
    wait_for(lambda: {sandbox.session for sandbox in sandboxes(gateway)} == {"stays"})


def test_an_adopted_session_whose_container_dies(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("1", session_id="s")
    gateway.kill()
    gateway.start()
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"
    sandbox_of(gateway, "s").kill_container()
    wait_for(lambda: total(gateway) == 0)
    assert gateway.execute("print(2)", session_id="s").text() == "2\n"


@pytest.mark.once
def test_owners_survive(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    gateway = start_gateway("--api-keys-file", str(keys), "--pool-size", "0", key="key-of-alice")
    gateway.execute("x = 1", session_id="mine")
    gateway.kill()
    gateway.start()
    with gateway.client_for("key-of-bob") as bob:
        problem(bob.get("/api/v1/sessions/mine"), 404, "session_not_found")
    assert gateway.execute("print(x)", session_id="mine").text() == "1\n"


def test_sandboxes_end_when_their_gateway_stays_away(start_gateway):
    gateway = start_gateway("--pool-size", "1", "--idle-timeout", "2")
    gateway.create_session(session_id="s")
    ending = sandboxes(gateway)
    assert ending
    gateway.kill()
    for sandbox in ending:
        wait_for(lambda: not lives(sandbox.agent), timeout=60)
        sandbox.wait_until_ended()
    wait_for(lambda: not gateway.sandbox_pids())
    gateway.start()
    wait_for(lambda: total(gateway) == 0)  # an engine may still list it as running


# ---- The gateway is ended


def test_sigterm_while_lines_are_streamed(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    with gateway.stream(TICKING, session_id="s") as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        lines = reader.rest()
    assert lines.text() == "0\n1\n2\n3\n4\n5\n" and lines.status == "ok"
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


@pytest.mark.once
def test_sigterm_while_a_reader_takes_nothing(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--drain-timeout", "1")
    with gateway.stream("while True: print('x' * 1000)", session_id="s", timeout=60) as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_keep_sandboxes(start_gateway):
    gateway = start_gateway("--pool-size", "1", "--keep-sandboxes")
    gateway.execute("x = 1", session_id="s")
    gateway.fill_pool()
    before = {sandbox.id: sandbox.session for sandbox in sandboxes(gateway)}
    gateway.stop()
    assert {sandbox.id: sandbox.session for sandbox in sandboxes(gateway)} == before
    gateway.flags = ("--pool-size", "1")
    gateway.start()
    assert gateway.execute("print(x)", session_id="s").text() == "1\n"
    gateway.fill_pool()
    assert {sandbox.id: sandbox.session for sandbox in sandboxes(gateway)} == before


def test_keep_sandboxes_while_code_runs(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes", "--drain-timeout", "1")
    execution = Execution(gateway, f"{HELD}ended = True", session_id="s").until("stdout")
    gateway.stop()
    assert execution.ended()[-1]["status"] == "died"
    gateway.flags = ("--pool-size", "0")
    gateway.start()
    gateway.release("s")
    assert gateway.execute("print(ended)", session_id="s").text() == "True\n"


# ---- A sandbox dies


@pytest.mark.not_on("runsc", "no process of the machine is the kernel")
def test_kill_9_of_a_kernel(gateway):
    gateway.execute("x = 1; open('kept', 'w').write('k')", session_id="kernel")
    gateway.execute("x = 1", session_id="other")
    execution = Execution(gateway, "print(1)\nimport time; time.sleep(60)", session_id="kernel")
    execution.until("stdout")
    kill(sandbox_of(gateway, "kernel").kernel())
    lines = execution.ended()
    assert [line["ename"] for line in lines if line["type"] == "error"] == ["KernelDied"]
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    look = "print('x' in globals())"
    assert gateway.execute(look, session_id="kernel").text() == "False\n"
    assert gateway.execute("print(open('kept').read())", session_id="kernel").text() == "k\n"
    assert gateway.execute(look, session_id="other").text() == "True\n"
    gateway.delete_session("kernel")
    gateway.delete_session("other")


@pytest.mark.parametrize("how", ["agent", "container"])
def test_kill_9_of_a_container(gateway, how):
    gateway.execute("x = 1", session_id="other")
    execution = Execution(gateway, "print(1)\nimport time; time.sleep(60)", session_id="dies")
    execution.until("stdout")
    # Executions in the queue end as well.
    queued = Execution(gateway, "print(2)", session_id="dies")
    wait_for(lambda: queued.lines is not None)
    sandbox = sandbox_of(gateway, "dies")
    if how == "agent":
        kill(sandbox.agent)
    else:
        sandbox.kill_container()
    for each in (execution, queued):
        lines = each.ended()
        assert lines.of("error")[-1]["ename"] == "KernelDied"
        assert lines.status == "died" and not lines.done.get("kernel_restarted")
    wait_for(lambda: gateway.client.get("/api/v1/sessions/dies").status_code == 404)
    wait_for(lambda: sandbox.id not in {each.id for each in sandboxes(gateway)})
    assert gateway.execute("print(x)", session_id="other").text() == "1\n"
    assert gateway.execute("print('x' in globals())", session_id="dies").text() == "False\n"
    gateway.delete_session("dies")
    gateway.delete_session("other")


def test_a_dead_container_frees_its_slot_at_once(start_gateway):
    gateway = start_gateway("--pool-size", "1", "--max-sessions", "1")
    for _ in range(3):
        gateway.create_session(session_id="s")
        problem(gateway.client.post("/api/v1/sessions", json={}), 429, "max_sessions")
        kill(sandbox_of(gateway, "s").agent)
        wait_for(lambda: total(gateway) == 0)


# ---- The state folder is full


def fill_up(folder):
    with contextlib.suppress(OSError), open(f"{folder}/filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(folder).f_bavail == 0


@pytest.mark.not_on("kubernetes", "a claim writes nothing into the state folder")
def test_a_full_state_folder(small_folder, start_gateway):
    folder = small_folder("4m")
    gateway = start_gateway("--pool-size", "0", state_dir=folder)
    gateway.execute("x = 1", session_id="s")
    fill_up(folder)
    response = gateway.client.post("/api/v1/sessions", json={"session_id": "new"})
    refusal = response.json()
    assert response.status_code in (503, 507) and "space" in refusal["detail"].lower(), refusal
    # Existing sessions keep working, and new ones can be made when there is space again.
    assert gateway.execute("print(x)", session_id="s").text() == "1\n"
    assert list(gateway.client.get("/api/v1/sessions").json()["sessions"]) == ["s"]
    os.unlink(f"{folder}/filler")
    wait_for(
        lambda: gateway.client.post("/api/v1/sessions", json={}).status_code == 200,
        timeout=60,
        interval=0.5,
    )


@pytest.mark.not_on("kubernetes", "a claim writes nothing into the state folder")
def test_a_full_state_folder_while_sandboxes_wait(small_folder, start_gateway):
    folder = small_folder("4m")
    gateway = start_gateway("--pool-size", "1", state_dir=folder)
    gateway.fill_pool()
    fill_up(folder)
    # A sandbox is not given to a session whose owner cannot be stored.
    response = gateway.client.post("/api/v1/sessions", json={"session_id": "s"})
    assert response.status_code in (503, 507) and "space" in response.text, response.text
    assert total(gateway) == 0
    assert gateway.client.get("/healthz").status_code == 200
    os.unlink(f"{folder}/filler")
    gateway.fill_pool()
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"


@pytest.mark.once
def test_a_gateway_that_cannot_listen_after_its_recovery(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    Execution(gateway, TICKING).until("stdout")  # one-shot: its sandbox is of no use to the next
    gateway.kill()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        failed = subprocess.run(
            [*gateway.command(), "--port", port], capture_output=True, text=True, timeout=30,
            env={**os.environ, **docker_engine.gateway_environment()}, check=False,
        )  # fmt: skip
    assert failed.returncode == 1, failed.stderr
    assert "cannot listen" in failed.stderr and "Assertion" not in failed.stderr
    gateway.start()
    wait_for(lambda: sandboxes(gateway) == [])


@pytest.mark.once
def test_a_reader_of_the_log_that_hangs(start_gateway, tmp_path):
    gateway = start_gateway("--pool-size", "0", "--log-level", "debug")
    gateway.stop()
    # stderr is a pipe of two pages, which nobody reads, instead of a file.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
        log_path, gateway.log_path = gateway.log_path, str(fifo)
        gateway.start()
        gateway.log_path = log_path
        for _ in range(100):
            assert gateway.execute("print(1)", session_id="s").text() == "1\n"
        assert len(os.read(reader, 1 << 20)) > 2048
        gateway.execute("1", session_id="s")
        assert b"log lines were lost" in os.read(reader, 1 << 20)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    finally:
        os.close(reader)


# ---- A gateway that leaves its sandboxes


@pytest.mark.only("oci", "its runtime is held back by a wrapper")
def test_a_kept_sandbox_that_ends_while_the_gateway_drains(start_gateway, tmp_path):
    hold, deleting, runtime = tmp_path / "hold", tmp_path / "deleting", tmp_path / "runc"
    real = shutil.which("runc") or shutil.which("crun")
    runtime.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"*delete*) touch {deleting}; while [ -e {hold} ]; do sleep .05; done;;\n"
        "esac\n"
        f'exec {real} "$@"\n'
    )
    runtime.chmod(0o755)
    gateway = start_gateway(
        *("--keep-sandboxes", "--pool-size", "0", "--log-level", "debug"),
        *("--oci-runtime", str(runtime)),
    )
    gateway.create_session(session_id="kept")
    agent = sandbox_of(gateway, "kept").agent
    hold.touch()
    gateway.execute("1")  # its sandbox is being removed for as long as the runtime is held back
    wait_for(deleting.exists)
    gateway.signal(signal.SIGTERM)
    wait_for(lambda: re.search(r"session state session=kept .*to=ending", gateway.log()))
    assert "sandbox's container ended" not in gateway.log()
    kill(agent)
    wait_for(lambda: "sandbox's container ended" in gateway.log())
    hold.unlink()
    assert gateway.wait() == 0 and "ERROR: AddressSanitizer" not in gateway.log()
    gateway.start()
    assert total(gateway) == 0
