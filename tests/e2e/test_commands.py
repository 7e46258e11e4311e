# SPDX-License-Identifier: Apache-2.0
"""Commands in real containers: beside real kernels, and those that misbehave."""

import re

import pytest
from kernelgate import run_until_timeout, wait_for
from session_commands import Commands


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


def processes(command):
    """The command lines of all processes in the sandbox. Its image may have no ps."""
    listed = command.wait("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]
    assert "ipykernel" in listed
    return listed


# ---- What they are --------------------------------------------------------------------------


def test_a_command(command, gateway, session):
    lines = command("echo out; echo err >&2; exit 3")
    assert lines.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert lines.headers["x-session-id"] == session
    assert (lines.text("stdout"), lines.text("stderr")) == ("out\n", "err\n")
    assert lines.done == {
        "type": "done",
        "status": "error",
        "exit_code": 3,
        "duration_ms": lines.done["duration_ms"],
        "session_id": session,
    }
    assert command("true").done["status"] == "ok"


def test_the_shell_is_bash(command, run):
    script = "a=(x y); [[ ${a[1]} == y ]] && echo {1..3} $0 $BASH_VERSION"
    assert command.wait(script)["stdout"].startswith("1 2 3 /bin/bash 5.")
    assert command.wait("exit 7")["exit_code"] == 7
    assert run("!echo {1..3}").text() == "1 2 3\r\n"
    assert run("x = !echo {4..5}\nprint(x)").text() == "['4 5']\n"


def test_its_place(command, run):
    assert command.wait("pwd; id -un; echo $HOME")["stdout"] == "/mnt/data\nsandbox\n/tmp\n"
    run("import os; os.makedirs('a/ä b'); open('a/x', 'w').write('from python')")
    assert command.wait("cat ../x", cwd="a/ä b")["stdout"] == "from python"
    assert command.wait("pwd", cwd="/usr/bin")["stdout"] == "/usr/bin\n"
    assert "no/where: No such file" in command.problem("pwd", 400, "invalid_path", cwd="no/where")
    assert "is not a folder" in command.problem("pwd", 400, "invalid_path", cwd="a/x")
    # The files are the kernel's, and its Python is on the PATH.
    assert command.wait("python -c 'import pandas' && echo hers > mine")["status"] == "ok"
    assert run("print(open('mine').read())").text() == "hers\n\n"


def test_python_starts_with_few_modules(command):
    """What the environment adds to every interpreter imports none that take time."""
    loaded = command.wait("python -c 'import sys; print(*sys.modules)'")["stdout"].split()
    assert "kernelgate_fonts" in loaded
    assert not {"importlib.util", "pathlib", "shutil"}.intersection(loaded)


def test_beside_a_busy_kernel(command, gateway, session):
    with gateway.stream("print('busy', flush=True)\nwhile True: pass", session_id=session) as busy:
        busy.next()
        assert command.wait("echo meanwhile")["stdout"] == "meanwhile\n"
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert busy.rest().status == "interrupted"


def test_the_session_ends_meanwhile(gateway):
    session = gateway.create_session()
    command = Commands(gateway, session)
    with command.stream("echo up; sleep 1000") as response:
        lines = response.iter_lines()
        next(lines)
        gateway.delete_session(session)
        rest = list(lines)
    assert '"CommandLost"' in rest[0] and '"status":"died","exit_code":null' in rest[1]


# ---- What they do ---------------------------------------------------------------------------


def test_a_client_that_leaves(command):
    """A command that floods, and one that is silent and has a daemon: both end."""
    for script, word in (
        ("yes marker-1; :", "marker-1"),
        ("(setsid sleep 1111 &); sleep 1112; :", "sleep 1111"),
    ):
        with command.stream(script):
            wait_for(lambda word=word: processes(command).count(word) > 1)  # the shell has one, too
        wait_for(lambda: not re.search("marker-1|sleep 111", processes(command)))


def test_a_command_that_kills_its_keeper(command):
    """The command ends with its keeper; others are not affected."""
    done = command("kill -9 $PPID; sleep 60").done
    assert (done["status"], done["signal"]) == ("error", "SIGKILL")
    assert command.wait("echo next")["stdout"] == "next\n"


def test_a_timeout_that_is_ignored(command):
    """Processes that ignore SIGTERM, in sessions of their own, forked twice: all are killed."""
    inner = 'trap "" TERM INT HUP; echo up; while :; do sleep 1222; done'
    script = f"for i in 1 2 3; do (setsid sh -c '{inner}' &) ; done; {inner}"
    lines = run_until_timeout(
        lambda timeout: command(script, timeout=timeout),
        lambda lines: lines.text().count("up") == 4,
    )
    assert (lines.done["status"], lines.done["signal"]) == ("timeout", "SIGKILL")
    assert "sleep 1222" not in processes(command)


@pytest.mark.not_on("runsc", "256 copies of Python take more memory there: it ends the session")
def test_a_fork_bomb(command, run):
    run("x = 1")
    bomb = "import os\nprint('up', flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass"
    lines = run_until_timeout(
        lambda timeout: command(f'python -c "{bomb}"', timeout=timeout),
        lambda lines: lines.text() == "up\n",
    )
    assert lines.done["status"] == "timeout"
    assert command.wait("echo back")["stdout"] == "back\n"
    assert run("print(x)").text() == "1\n"  # the kernel has lost nothing


def test_background(command, run):
    lines = command("sleep 1333 & echo $!")  # whose end is not waited for
    assert lines.done["status"] == "ok"
    # It keeps running, even when the kernel is killed.
    assert run("import os; os._exit(1)").status == "died"
    assert run("print(2)").text() == "2\n"
    assert "sleep 1333" in processes(command)
    command.wait(f"kill {lines.text()}")
    wait_for(lambda: "sleep 1333" not in processes(command))


def test_disk_full(command, run):
    answer = command.wait(
        "head -c 300M /dev/zero > big; echo $?; rm big; echo ok > small; cat small"
    )
    assert "No space left" in answer["stderr"]
    assert answer["stdout"] == "1\nok\n"
    assert run("print(3)").text() == "3\n"


@pytest.mark.not_on("runsc", "it ends the session, as all of a sandbox is one process there")
def test_out_of_memory(command):
    code = "b = []\nwhile True: b.append(bytearray(1 << 24))"
    done = command(f"exec python -c '{code}'").done
    assert (done["status"], done["signal"], done["out_of_memory"]) == ("error", "SIGKILL", True)
