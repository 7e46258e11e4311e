# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with code, kernels, containers and clients, and how it is told."""

import json
import os
import pathlib
import re
import signal
import socket
import time

import httpx
import pytest
from kernelgate import wait_for

STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('deaf', flush=True)
while True: pass
"""


def test_timeout(run):
    run("x = 1")
    started = time.monotonic()
    lines = run("import time; time.sleep(60)", timeout=1)
    assert 0.9 < time.monotonic() - started < 5
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.of("error")[-1]["error"].startswith("TimeoutError")
    assert lines.status == "timeout"
    # The interrupt was enough: the kernel still knows its variables.
    assert not lines.done.get("kernel_restarted")
    assert run("print(x)").text() == "1\n"


def test_timeout_of_code_that_ignores_interrupts(run):
    run("x = 1; open('kept', 'w').write('k')")
    started = time.monotonic()
    lines = run(STUBBORN, timeout=1)
    assert 3 < time.monotonic() - started < 12
    assert lines.text() == "deaf\n"
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.status == "timeout" and lines.done["kernel_restarted"] is True
    assert run("print('x' in globals(), open('kept').read())").text() == "False k\n"


def test_default_timeout(start_gateway):
    gateway = start_gateway("--max-execution-time", "1", "--pool-size", "0")
    assert gateway.execute("import time; time.sleep(60)").status == "timeout"


def test_timeout_counts_from_running_not_from_queued(gateway, session):
    with gateway.stream("import time; time.sleep(2)", session_id=session):
        lines = gateway.execute("print('in time')", session_id=session, timeout=1)
    assert lines.text() == "in time\n" and lines.status == "ok"


def test_output_before_a_timeout_is_kept(run):
    assert run("print('before')\nimport time; time.sleep(60)", timeout=1).text() == "before\n"


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
def test_kernel_death(run, code):
    run("x = 1; open('kept', 'w').write('k')")
    started = time.monotonic()
    # The pause is for ipykernel's own threads, which die with what they have not sent.
    lines = run("import time\nprint('last words', flush=True)\ntime.sleep(0.5)\n" + code)
    assert time.monotonic() - started < 10
    assert lines.text() == "last words\n"
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
    run("import os, threading; threading.Timer(0.3, os._exit, (1,)).start()")
    wait_for(lambda: gateway.show_session(session)["kernels"]["python"]["state"] != "ready")
    assert run("print('again')").text() == "again\n"


def test_out_of_memory_is_told_apart(run):
    lines = run("x = []\nwhile True: x.append(bytearray(1 << 24))")
    assert lines.one("error")["ename"] == "OutOfMemory"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    assert run("print(1)").text() == "1\n"


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def init_of_sandbox(gateway, word):
    """The agent of the sandbox in which a process with `word` in its command line runs."""
    pids = gateway.sandbox_pids()
    namespaces = {pid: os.readlink(f"/proc/{pid}/ns/pid") for pid in pids}
    inside = next(pid for pid in pids if word in cmdline(pid))
    for pid in pids:
        names = pathlib.Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0]
        if namespaces[pid] == namespaces[inside] and names.split()[-1] == "1":
            return pid
    raise AssertionError("a sandbox without its first process")


def test_container_death(gateway):
    code = "import subprocess\nprint(1, flush=True)\nsubprocess.run(['sleep', '4711'])"
    with gateway.stream(code, session_id="dies") as reader:
        reader.next_of("stdout")
        wait_for(lambda: any(b"4711" in cmdline(pid) for pid in gateway.sandbox_pids()))
        os.kill(init_of_sandbox(gateway, b"4711"), signal.SIGKILL)
        lines = reader.rest()
    assert lines.of("error")[-1]["ename"] == "KernelDied"
    assert lines.status == "died" and not lines.done.get("kernel_restarted")
    wait_for(lambda: gateway.client.get("/api/v1/sessions/dies").status_code == 404)
    assert gateway.execute("print(2)", session_id="dies").text() == "2\n"
    gateway.delete_session("dies")


def test_an_agent_that_stops_answering(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    code = "import subprocess\nprint(1, flush=True)\nsubprocess.run(['sleep', '4711'])"
    with gateway.stream(code, session_id="s", timeout=2) as reader:
        reader.next_of("stdout")
        wait_for(lambda: any(b"4711" in cmdline(pid) for pid in gateway.sandbox_pids()))
        os.kill(init_of_sandbox(gateway, b"4711"), signal.SIGSTOP)
        lines = reader.rest()
    assert lines.status in ("timeout", "died")
    # Nothing inside can be asked any more, but the container is ended from outside.
    wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404)
    wait_for(lambda: not gateway.sandbox_pids())
    assert gateway.execute("print(2)", session_id="s").text() == "2\n"


# ---- Clients that leave


def ticking(session):
    return dict(
        code="import time\nopen('started', 'w')\nprint('on', flush=True)\n"
        "for i in range(4):\n    time.sleep(0.5)\nopen('finished', 'w')",
        session_id=session,
    )


def idle(gateway, session):
    return wait_for(lambda: not gateway.show_session(session)["is_busy"])


def test_a_client_that_leaves_interrupts_its_execution(gateway, session):
    with gateway.stream(**ticking(session)) as reader:
        reader.next_of("stdout")
    idle(gateway, session)
    lines = gateway.execute("import os; print(os.listdir())", session_id=session)
    assert "started" in lines.text() and "finished" not in lines.text()


def test_a_client_that_leaves_an_execution_to_continue(gateway, session):
    with gateway.stream(**ticking(session), on_disconnect="continue") as reader:
        reader.next_of("stdout")
    lines = gateway.execute("import os; print(os.listdir())", session_id=session)
    assert "finished" in lines.text()


def test_a_client_that_leaves_the_queue_takes_its_execution_along(gateway, session):
    with gateway.stream(
        "print(1, flush=True)\nimport time; time.sleep(2)", session_id=session
    ) as first:
        first.next_of("stdout")
        with gateway.stream("open('queued', 'w')", session_id=session):
            pass
        first.rest()
    lines = gateway.execute("import os; print(os.path.exists('queued'))", session_id=session)
    assert lines.text() == "False\n"


def test_a_client_that_leaves_a_session_of_its_own_ends_it(gateway):
    with gateway.stream("print(1, flush=True)\nimport time; time.sleep(60)") as reader:
        reader.next_of("stdout")
        session_id = reader.response.headers["x-session-id"]
    url = f"/api/v1/sessions/{session_id}"
    wait_for(lambda: gateway.client.get(url).status_code == 404)


# ---- What code does to its own streams


def test_closing_stdout(run):
    lines = run("import os\nprint('last', flush=True)\nfor fd in (0, 1, 2): os.close(fd)")
    assert lines.status == "ok"
    assert run("1+1").one("result")["text"] == "2"
    run("import sys; sys.stdout.close(); sys.stderr.close()")
    assert run("2+2").one("result")["text"] == "4"


def test_children_that_keep_writing(run):
    started = time.monotonic()
    lines = run(
        "import subprocess\n"
        "subprocess.Popen(['sh', '-c', 'while :; do echo spam; sleep 0.01; done'])\n"
        "print('started')"
    )
    assert lines.status == "ok" and "started" in lines.text()
    assert run("1+1").one("result")["text"] == "2"
    assert time.monotonic() - started < 10


def test_a_forked_child_does_not_end_the_execution_for_its_parent(run):
    lines = run(
        "import os, time\npid = os.fork()\n"
        "if pid == 0: os._exit(0)\n"
        "os.waitpid(pid, 0); time.sleep(0.5); print('parent')"
    )
    assert lines.text() == "parent\n" and lines.status == "ok"


def test_input_is_a_clear_error(run):
    started = time.monotonic()
    lines = run("input('name? ')")
    assert "input" in lines.one("error")["evalue"]
    assert lines.status == "error"
    assert time.monotonic() - started < 5


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
    assert time.monotonic() - started < 15
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


def test_what_waits_for_a_warm_up_does_not_disturb_it(start_gateway):
    def warming():
        text = gateway.client.get("/metrics").text
        pool = dict(re.findall(r"^kernelgate_pool_(\w+) (\d+)$", text, re.MULTILINE))
        return pool["starting"] == "0" and pool["ready"] == "0" and gateway.sandbox_pids()

    gateway = start_gateway("--pool-size", "1")
    wait_for(warming)
    # Neither does its time run, nor does an interrupt hit imports that are half done.
    with gateway.stream("print('ran')", session_id="w", timeout=0.5):
        pass
    lines = gateway.execute(
        "import matplotlib.pyplot as plt\nplt.plot([1])", session_id="w", timeout=10
    )
    assert lines.status == "ok" and lines.of("display"), lines
