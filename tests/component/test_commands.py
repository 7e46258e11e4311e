# SPDX-License-Identifier: Apache-2.0
"""Commands in a session's sandbox: requests, answers, beside its kernels, and those that misbehave."""

import concurrent.futures
import contextlib
import re
import socket
import time

import httpx
import pytest
from component import TEST_RUNTIME, cell
from kernelgate import Lines, run_until_timeout, wait_for
from session_commands import Commands


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


def processes(command):
    """The command lines of all processes in the sandbox. Its image may have no ps."""
    listed = command.wait("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]
    assert "script-kernel" in listed
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


def test_one_answer(command, session):
    answer = command.wait("echo out; echo err >&2")
    assert answer.pop("duration_ms") >= 0
    assert answer == {
        "stdout": "out\n",
        "stderr": "err\n",
        "status": "ok",
        "exit_code": 0,
        "session_id": session,
    }


def test_its_place(command, run):
    assert command.wait("pwd; id -un; echo $HOME")["stdout"] == "/mnt/data\nsandbox\n/tmp\n"
    run(cell("mkdir a", "mkdir a/ä b", "write a/x from the kernel"))
    assert command.wait("cat ../x", cwd="a/ä b")["stdout"] == "from the kernel"
    assert command.wait("pwd", cwd="/usr/bin")["stdout"] == "/usr/bin\n"
    assert "no/where: No such file" in command.problem("pwd", 400, "invalid_path", cwd="no/where")
    assert "is not a folder" in command.problem("pwd", 400, "invalid_path", cwd="a/x")
    assert command.wait("echo hers > mine")["status"] == "ok"
    assert run("read mine").text() == "hers\n"


def test_environment(start_gateway):
    gateway = start_gateway("--pass-through-env", "GIVEN,MISSING", env={"GIVEN": "gw ä"})
    session = gateway.create_session(env={"A": "session", "B": "session"})
    command = Commands(gateway, session)
    show = 'echo "$GIVEN|$A|$B|${MISSING-unset}"'
    assert command.wait(show, env={"B": "own", "GIVEN": "x"})["stdout"] == "x|session|own|unset\n"
    assert command.wait(show)["stdout"] == "gw ä|session|session|unset\n"
    assert command.wait("echo $PYTHONUNBUFFERED")["stdout"] == "1\n"
    unset = {"PYTHONUNBUFFERED": ""}
    assert command.wait("echo $PYTHONUNBUFFERED", env=unset)["stdout"] == "\n"
    code = cell("getenv GIVEN", "getenv A")
    assert gateway.execute(code, session_id=session).text() == "gw ä\nsession\n"
    for name in ("", "A=B", "1A", "A B", "A\n"):
        assert "env must map names" in command.problem(
            "true", 400, "invalid_request", env={name: ""}
        )


def test_pass_through_env_is_checked(start_gateway):
    with pytest.raises(AssertionError, match='pass-through-env: "1A" cannot be the name of a variable'):
        start_gateway("--pass-through-env", "HOME,1A")


def test_bad_requests(command, gateway, session):
    assert "unknown field" in command.problem("true", 400, "invalid_request", shell="bash")
    assert "timeout must be" in command.problem("true", 400, "invalid_request", timeout=0)
    assert "131071" in command.problem("x" * 131072, 413, "code_too_large")
    assert command.wait("echo " + "x" * 131000 + " | wc -c")["stdout"] == "131001\n"
    for url, status, code in (
        ("/api/v1/sessions/nobody/commands", 404, "session_not_found"),
        (f"/api/v1/sessions/{session}/commands?wait=yes", 400, "invalid_request"),
    ):
        response = gateway.client.post(url, json={"command": "true"})
        assert (response.status_code, response.json()["code"]) == (status, code)


def test_it_is_streamed(command):
    """The second line is printed when the client has seen the first."""
    with command.stream("echo one; while ! [ -e go ]; do sleep 0.05; done; echo two") as response:
        lines = response.iter_lines()
        assert '"one\\n"' in next(lines)
        command.wait("touch go")
        assert '"two\\n"' in next(lines)


def test_beside_a_busy_kernel(command, gateway, session):
    with gateway.stream(cell("print busy", "hang"), session_id=session) as busy:
        busy.next()
        assert command.wait("echo meanwhile")["stdout"] == "meanwhile\n"
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert busy.rest().status == "interrupted"


def test_a_session_that_is_being_made(start_gateway, tmp_path):
    """Its container starts when the command waits for it."""
    hold, runtime = tmp_path / "hold", tmp_path / "runtime"
    runtime.write_text(
        f'#!/bin/sh\ncase "$*" in *" run "*) while [ -e {hold} ]; do sleep .05; done;; esac\n'
        f'exec {TEST_RUNTIME} "$@"\n'
    )
    runtime.chmod(0o755)
    gateway = start_gateway("--oci-runtime", str(runtime))
    hold.touch()
    with concurrent.futures.ThreadPoolExecutor() as threads:
        made = threads.submit(gateway.create_session, session_id="early")
        wait_for(lambda: "early" in gateway.client.get("/api/v1/sessions").json()["sessions"])
        answer = threads.submit(Commands(gateway, "early").wait, "echo there")
        assert not made.done()
        hold.unlink()
        assert answer.result()["stdout"] == "there\n"
        made.result()


def test_commands_are_activity(gateway):
    """A session that is as old, and idle, ends meanwhile."""

    def has_ended(session):
        return gateway.client.get(f"/api/v1/sessions/{session}").status_code == 404

    session = gateway.create_session(idle_timeout=1)
    command = Commands(gateway, session)
    with command.stream("echo up; while ! [ -e go ]; do sleep 0.05; done; echo end") as response:
        lines = response.iter_lines()
        next(lines)
        idle = gateway.create_session(idle_timeout=1)
        wait_for(lambda: has_ended(idle))
        assert gateway.show_session(session)["is_busy"]
        gateway.release(session)
        assert '"end\\n"' in "".join(lines)
    wait_for(lambda: has_ended(session))


def test_the_session_ends_meanwhile(gateway):
    session = gateway.create_session()
    command = Commands(gateway, session)
    with command.stream("echo up; sleep 1000") as response:
        lines = response.iter_lines()
        next(lines)
        gateway.delete_session(session)
        rest = list(lines)
    assert '"CommandLost"' in rest[0] and '"status":"died","exit_code":null' in rest[1]


def test_metrics(command, gateway):
    def count(status):
        text = gateway.client.get("/metrics").text
        row = f'kernelgate_commands_total{{status="{status}"}} '
        return int(text.split(row)[1].split("\n")[0])

    before = count("ok"), count("error"), count("timeout")
    command("true"), command("false"), command("sleep 9", timeout=0.1)
    assert (count("ok"), count("error"), count("timeout")) == tuple(n + 1 for n in before)


# ---- What they do ---------------------------------------------------------------------------


def test_text(command):
    """A character in two writes, invalid bytes, a NUL, and U+2028."""
    # If the machine is slow, both come at once, and this shows less.
    lines = command(
        r"printf '\303'; sleep 0.2; printf '\244\377\000\342\200\250'; printf '\360\237'"
    )
    assert lines.text() == "ä\ufffd\0\u2028\ufffd"
    assert command.wait("head -c 100000 /dev/urandom")["status"] == "ok"


def test_a_mebibyte_without_a_newline(command):
    lines = command("head -c 1048576 /dev/zero | tr '\\0' x")
    assert lines.text() == "x" * 1048576


def test_exit_by_signal(command):
    done = command("kill -SEGV $$").done
    assert (done["status"], done["exit_code"], done["signal"]) == ("error", 139, "SIGSEGV")


def test_what_one_answer_holds(command):
    answer = command.wait("yes | head -c 3000000; echo late >&2")
    assert answer["stdout"] == "y\n" * (1 << 19)
    assert answer["dropped_bytes"] == 3000000 - (1 << 20) + len("late\n")
    assert (answer["stderr"], answer["status"]) == ("", "ok")


def test_a_flood_waits_for_its_reader(command, gateway, session):
    """16 MiB for a client that does not read at first."""
    # A new connection: the kernel enlarges the buffer of one that has read much.
    reader = Commands(gateway, session)
    reader.client = gateway.client_for(None)
    script = "for i in $(seq 256); do head -c 65536 /dev/zero | tr '\\0' x; echo $i > n; done"

    def count():
        return int(command.wait("cat n")["stdout"] or 0)

    with reader.client, reader.stream(script) as response:
        # It no longer grows, or does so slowly: then it is small, too.
        wait_for(lambda: 0 < count() == (time.sleep(0.3), count())[1])
        assert count() < 192
        lines = Lines(response)
        for text in response.iter_lines():
            lines.add(text)
    assert lines.text("stderr") == "" and lines.done["exit_code"] == 0
    assert lines.text() == "x" * (16 << 20)


def test_a_client_that_leaves(command):
    """A command that floods, and one that is silent and has a daemon: both end."""
    for script, word in (
        ("yes marker-1; :", "marker-1"),
        ("(setsid sleep 1111 &); sleep 1112; :", "sleep 1111"),
    ):
        with command.stream(script):
            wait_for(lambda word=word: processes(command).count(word) > 1)  # the shell has one, too
        wait_for(lambda: not re.search("marker-1|sleep 111", processes(command)))


def test_a_client_that_leaves_before_the_answer(command):
    url = httpx.URL(command.client.base_url)
    body = b'{"command":"sleep 1444"}'
    head = f"POST {command.url}?wait=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        wait_for(lambda: "sleep 1444" in processes(command))
    wait_for(lambda: "sleep 1444" not in processes(command))


def test_a_command_that_kills_its_keeper(command):
    """The command ends with its keeper; others are not affected."""
    done = command("kill -9 $PPID; sleep 60").done
    assert (done["status"], done["signal"]) == ("error", "SIGKILL")
    assert command.wait("echo next")["stdout"] == "next\n"


def test_timeout(command):
    script = "trap 'echo bye; exit 5' TERM; echo up; sleep 1000 & wait"
    lines = run_until_timeout(
        lambda timeout: command(script, timeout=timeout), lambda lines: "up" in lines.text()
    )
    assert lines.text() == "up\nbye\n"
    assert (lines.done["status"], lines.done["exit_code"]) == ("timeout", 5)
    assert "sleep 1000" not in processes(command)


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


def test_background(command, run):
    lines = command("sleep 1333 & echo $!")  # whose end is not waited for
    assert lines.done["status"] == "ok"
    # It keeps running, even when the kernel is killed.
    assert run("die 1").status == "died"
    assert run("print 2").text() == "2\n"
    assert "sleep 1333" in processes(command)
    command.wait(f"kill {lines.text()}")
    wait_for(lambda: "sleep 1333" not in processes(command))


def test_kernels_come_and_go_beside_it(command, gateway, session, run):
    run("set y 7")
    with command.stream("echo up; while ! [ -e go ]; do sleep 0.05; done; echo went") as response:
        lines = response.iter_lines()
        next(lines)
        restart = gateway.client.post(f"/api/v1/sessions/{session}/restart")
        assert restart.status_code == 200
        command("sleep 1000", timeout=0.1)
        run(cell("set z 8", "write go x"))
        assert '"went\\n"' in next(lines)
        assert '"status":"ok"' in next(lines)
    assert run("get z").text() == "8\n"


def test_how_many_at_a_time(command, gateway, session):
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(16):
            response = stack.enter_context(command.stream("echo up; sleep 1000"))
            streams.append(response.iter_lines())
            next(streams[-1])
        assert "16 commands run already" in command.problem("true", 429, "session_busy")

    def runs():
        url = f"/api/v1/sessions/{session}/commands"
        return gateway.client.post(url, json={"command": "true"}).status_code == 200

    wait_for(runs)
