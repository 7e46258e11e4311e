# SPDX-License-Identifier: Apache-2.0
"""Failures of real code, kernels and containers, and how they are reported."""

import os
import signal
import subprocess

import pytest
from kernelgate import BINARY, HELD, STUBBORN, run_until_timeout, wait_for
from sandboxes import sandbox_of


def test_timeout(run):
    run("x = 1")
    lines = run("import time; time.sleep(60)", timeout=1)
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.of("error")[-1]["error"].startswith("TimeoutError")
    assert lines.status == "timeout"
    # The interrupt sufficed: the kernel keeps its variables.
    assert not lines.done.get("kernel_restarted")
    assert run("print(x)").text() == "1\n"


def test_timeout_of_code_that_ignores_interrupts(run):
    run("x = 1; open('kept', 'w').write('k')")
    lines = run_until_timeout(
        lambda timeout: run(STUBBORN, timeout=timeout), lambda lines: lines.text() == "deaf\n"
    )
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.status == "timeout" and lines.done["kernel_restarted"] is True
    assert run("print('x' in globals(), open('kept').read())").text() == "False k\n"


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


@pytest.mark.only("kubernetes", "tests/component has it for engines that end a container at once")
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


def test_a_client_that_leaves_interrupts_its_execution(gateway, session):
    before = gateway.streams_ended()
    code = f"open('started', 'w')\n{HELD}open('finished', 'w')"
    with gateway.stream(code, session_id=session) as reader:
        reader.next_of("stdout")
    wait_for(lambda: gateway.streams_ended() > before)
    wait_for(lambda: not gateway.show_session(session)["is_busy"])
    lines = gateway.execute("import os; print(os.listdir())", session_id=session)
    assert "started" in lines.text() and "finished" not in lines.text()


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


def test_a_forked_child_does_not_end_the_execution_for_its_parent(gateway, session):
    code = (
        "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\n"
        f"{HELD}print('parent')"
    )
    with gateway.stream(code, session_id=session) as reader:
        reader.next_of("stdout")
        gateway.release(session)
        lines = reader.rest()
    assert lines.text() == "on\nparent\n" and lines.status == "ok"


def test_input_is_a_clear_error(run):
    lines = run("input('name? ')")
    assert "input" in lines.one("error")["evalue"]
    assert lines.status == "error"  # and not "timeout"


@pytest.mark.only("oci", "other engines' images are not the machine's own files")
@pytest.mark.not_on("runsc", "it is about mounts")
def test_a_package_that_the_machine_gets_meanwhile(start_gateway, tmp_path):
    """Its folder is not in the root that the gateway has made; new sandboxes start all the same."""
    without = tmp_path / "gateway"
    without.write_text(
        '#!/bin/sh\nexec unshare --mount sh -c \'mount -t tmpfs tmpfs /var/cache && exec "$0" "$@"\' '
        f'{BINARY} "$@"\n'
    )
    without.chmod(0o755)
    gateway = start_gateway("--pool-size", "0", binary=str(without))
    assert gateway.execute("print(1)").text() == "1\n"
    inside = ["nsenter", "--mount", "--target", str(gateway.process.pid)]
    subprocess.run([*inside, "mkdir", "/var/cache/fontconfig"], check=True)
    assert gateway.execute("print(2)").text() == "2\n"
