# SPDX-License-Identifier: Apache-2.0
"""Failures of code, kernels, containers and clients, and how they are reported."""

import json
import os
import re
import signal
import socket
import time

import httpx
import pytest
from kernelgate import HELD, PROJECT, STUBBORN, run_until_timeout, wait_for
from sandboxes import sandbox_of


def test_timeout(run):
    run("x = 1")
    started = time.monotonic()
    lines = run("import time; time.sleep(60)", timeout=1)
    assert 0.9 < time.monotonic() - started < 30
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.of("error")[-1]["error"].startswith("TimeoutError")
    assert lines.status == "timeout"
    # The interrupt sufficed: the kernel keeps its variables.
    assert not lines.done.get("kernel_restarted")
    assert run("print(x)").text() == "1\n"


def test_timeout_of_code_that_ignores_interrupts(run):
    run("x = 1; open('kept', 'w').write('k')")
    started = time.monotonic()
    lines = run_until_timeout(
        lambda timeout: run(STUBBORN, timeout=timeout), lambda lines: lines.text() == "deaf\n"
    )
    assert 3 < time.monotonic() - started
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.status == "timeout" and lines.done["kernel_restarted"] is True
    assert run("print('x' in globals(), open('kept').read())").text() == "False k\n"


def test_default_timeout(start_gateway):
    gateway = start_gateway("--max-execution-time", "1", "--pool-size", "0")
    assert gateway.execute("import time; time.sleep(60)").status == "timeout"


def test_timeout_counts_from_running_not_from_queued(gateway, session):
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        with gateway.stream("print('in time')", session_id=session, timeout=2) as second:
            time.sleep(3)
            gateway.release(session)
            lines = second.rest()
    assert lines.text() == "in time\n" and lines.status == "ok"


def test_output_before_a_timeout_is_kept(run):
    code = "print('before')\nimport time; time.sleep(60)"
    lines = run_until_timeout(
        lambda timeout: run(code, timeout=timeout), lambda lines: lines.text() == "before\n"
    )
    assert lines.status == "timeout"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(1)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
    ],
    ids=["_exit", "SIGSEGV", "SIGKILL", "crash"],
)
def test_kernel_death(gateway, session, run, code):
    run("x = 1; open('kept', 'w').write('k')")
    # It dies when its output has arrived: ipykernel's threads die with what they have not sent.
    with gateway.stream(f"{HELD}{code}", session_id=session) as reader:
        reader.next_of("stdout")
        gateway.release(session)
        lines = reader.rest()
    assert lines.text() == "on\n"
    assert lines.one("error")["ename"] == "KernelDied"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    assert run("print('x' in globals(), open('kept').read())").text() == "False k\n"


@pytest.mark.parametrize("code", ["exit()", "quit()", "import sys; sys.exit(3)"])
def test_exit(run, code):
    run("x = 1; open('kept', 'w').write('k')")
    lines = run(code)
    if "sys" in code:  # IPython takes it for an exception, and goes on
        assert lines.one("error")["ename"] == "SystemExit"
    else:
        assert lines.done["kernel_restarted"] is True
    assert run("print(open('kept').read())").text() == "k\n"


def test_a_kernel_that_dies_while_idle_is_replaced(gateway, session, run):
    code = "while not os.path.exists('go'): time.sleep(0.02)\nos._exit(1)"
    run(
        f"import os, threading, time\nthreading.Thread(target=exec, args=({code!r}, globals())).start()"
    )
    gateway.release(session)
    wait_for(lambda: gateway.show_session(session)["kernels"]["python"]["state"] != "ready")
    assert run("print('again')").text() == "again\n"


def test_out_of_memory_is_told_apart(run):
    lines = run("x = []\nwhile True: x.append(bytearray(1 << 24))")
    assert lines.one("error")["ename"] == "OutOfMemory"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    assert run("print(1)").text() == "1\n"


def test_container_death(gateway):
    with gateway.stream(HELD, session_id="dies") as reader:
        reader.next_of("stdout")
        os.kill(sandbox_of(gateway, "dies").agent, signal.SIGKILL)
        lines = reader.rest()
    assert lines.of("error")[-1]["ename"] == "KernelDied"
    assert lines.status == "died" and not lines.done.get("kernel_restarted")
    wait_for(lambda: gateway.client.get("/api/v1/sessions/dies").status_code == 404)
    assert gateway.execute("print(2)", session_id="dies").text() == "2\n"
    gateway.delete_session("dies")


def test_an_agent_that_stops_answering(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.create_session(session_id="s")
    agent = sandbox_of(gateway, "s").agent
    with gateway.stream(HELD, session_id="s", timeout=4) as reader:
        reader.next_of("stdout")
        os.kill(agent, signal.SIGSTOP)
        lines = reader.rest()
    assert lines.status in ("timeout", "died")
    # The agent cannot be asked any more; the engine ends the container.
    wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404)
    wait_for(lambda: not gateway.sandbox_pids())
    assert gateway.execute("print(2)", session_id="s").text() == "2\n"


# ---- Clients that leave


@pytest.fixture
def leave(gateway):
    """Runs code until its first line, and leaves; returns when the gateway has seen that."""

    def leave(code, first_line=True, **fields):
        before = gateway.streams_ended()
        with gateway.stream(code, **fields) as reader:
            if first_line:
                reader.next_of("stdout")
        wait_for(lambda: gateway.streams_ended() > before)
        return reader.response.headers["x-session-id"]

    return leave


def test_a_client_that_leaves_interrupts_its_execution(gateway, session, leave):
    leave(f"open('started', 'w')\n{HELD}open('finished', 'w')", session_id=session)
    wait_for(lambda: not gateway.show_session(session)["is_busy"])
    lines = gateway.execute("import os; print(os.listdir())", session_id=session)
    assert "started" in lines.text() and "finished" not in lines.text()


def test_a_client_that_leaves_an_execution_to_continue(gateway, session, leave):
    leave(f"{HELD}open('finished', 'w')", session_id=session, on_disconnect="continue")
    gateway.release(session)
    lines = gateway.execute("import os; print(os.listdir())", session_id=session)
    assert "finished" in lines.text()


def test_a_client_that_leaves_the_queue_takes_its_execution_along(gateway, session, leave):
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        leave("open('queued', 'w')", first_line=False, session_id=session)
        gateway.release(session)
        first.rest()
    lines = gateway.execute("import os; print(os.path.exists('queued'))", session_id=session)
    assert lines.text() == "False\n"


def test_a_client_that_leaves_a_session_of_its_own_ends_it(gateway, leave):
    url = f"/api/v1/sessions/{leave(HELD)}"
    wait_for(lambda: gateway.client.get(url).status_code == 404)


# ---- What code does to its own streams


def test_closing_stdout(run):
    lines = run("import os\nprint('last', flush=True)\nfor fd in (0, 1, 2): os.close(fd)")
    assert lines.status == "ok"
    assert run("1+1").one("result")["text"] == "2"
    run("import sys; sys.stdout.close(); sys.stderr.close()")
    assert run("2+2").one("result")["text"] == "4"


def test_children_that_keep_writing(run):
    lines = run(
        "import subprocess\n"
        "subprocess.Popen(['sh', '-c', 'while :; do echo spam; sleep 0.01; done'])\n"
        "print('started')"
    )
    assert lines.status == "ok" and "started" in lines.text()
    assert run("1+1").one("result")["text"] == "2"


def test_a_forked_child_does_not_end_the_execution_for_its_parent(run):
    lines = run(
        "import os, time\npid = os.fork()\n"
        "if pid == 0: os._exit(0)\n"
        "os.waitpid(pid, 0); time.sleep(0.5); print('parent')"
    )
    assert lines.text() == "parent\n" and lines.status == "ok"


def test_input_is_a_clear_error(run):
    lines = run("input('name? ')")
    assert "input" in lines.one("error")["evalue"]
    assert lines.status == "error"  # and not "timeout"


def test_messages_with_a_bad_signature_are_dropped(gateway, session):
    lines = gateway.execute(
        """
from jupyter_client.session import Session
kernel = get_ipython().kernel
forger = Session(key=b'not the key')
for text in ('forged', 'again'):
    forger.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': text},
                parent=kernel.get_parent(), ident=b'stream')
print('genuine')
""",
        session_id=session,
    )
    assert lines.text() == "genuine\n" and lines.status == "ok"
    assert "signature" in gateway.log()


def test_output_after_the_end_is_not_the_next_executions(run):
    run("import threading, time\nthreading.Timer(0.5, lambda: print('late')).start()")
    lines = run("time.sleep(1)\nprint('own')")
    assert lines.text() in ("own\n", "late\nown\n")
    assert lines.status == "ok"


# ---- Kernels that do not start


def kernelspec(folder, name, argv, **extra):
    path = folder / name
    path.mkdir(parents=True)
    spec = {
        "argv": argv,
        "display_name": name,
        "language": name,
        "interrupt_mode": "signal",
        **extra,
    }
    path.joinpath("kernel.json").write_text(json.dumps(spec))


@pytest.mark.parametrize(
    "argv, status, codes",
    [
        (["/bin/sleep", "1000"], 504, {"kernel_start_timeout"}),
        (["/bin/false"], None, {"kernel_start_timeout", "internal", "provisioner_unavailable"}),
        (
            ["/no/such/program"],
            None,
            {"kernel_start_timeout", "internal", "provisioner_unavailable"},
        ),
    ],
    ids=["silent", "ends", "missing"],
)
def test_kernels_that_never_get_ready(start_gateway, tmp_path, argv, status, codes):
    kernelspec(tmp_path / "specs", "broken", argv)
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path / "specs"), "--kernels-dir", str(tmp_path),
        "--default-kernel", "broken", "--kernel-start-timeout", "2", "--pool-size", "0",
    )  # fmt: skip
    started = time.monotonic()
    response = gateway.client.post("/api/v1/execute", json={"code": "1"})
    assert response.status_code >= 500 and (status is None or response.status_code == status)
    assert response.json()["code"] in codes
    assert time.monotonic() - started < 40
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: not gateway.sandbox_pids())


def test_a_request_that_leaves_while_its_kernel_starts_leaves_nothing(start_gateway, tmp_path):
    # This kernel never gets ready, so the request leaves before it does on any machine.
    kernelspec(tmp_path / "specs", "silent", ["/bin/sleep", "1000"])
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path / "specs"), "--kernels-dir", str(tmp_path),
        "--default-kernel", "silent", "--pool-size", "0",
    )  # fmt: skip
    url = httpx.URL(gateway.url)
    with socket.create_connection((url.host, url.port)) as client:
        body = b'{"code": "1"}'
        client.sendall(
            b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_for(gateway.sandbox_pids)
    wait_for(lambda: not gateway.sandbox_pids(), timeout=20)
    wait_for(lambda: gateway.client.get("/api/v1/sessions").json()["total"] == 0)


def test_what_waits_for_a_warm_up_does_not_disturb_it(start_gateway, tmp_path):
    spec = json.loads((PROJECT / "kernelspec/python/kernel.json").read_text())
    metadata = {"kernelgate": {"warmup": "import time; time.sleep(3); import wave"}}
    kernelspec(tmp_path, "python", spec["argv"], env=spec["env"], metadata=metadata)
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path), "--pool-size", "1", "--log-level", "debug"
    )
    wait_for(lambda: re.search("pool entry state .* to=warming", gateway.log()), timeout=60)
    with gateway.stream("print('ran')", session_id="w"):
        pass  # the client leaves
    # A timeout does not run yet either, and no interrupt hits an import that is half done.
    code = "import sys; print('wave' in sys.modules)"
    lines = gateway.execute(code, session_id="w", timeout=0.5)
    assert lines.status == "ok" and lines.text() == "True\n", lines
