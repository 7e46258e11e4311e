# SPDX-License-Identifier: Apache-2.0
"""Commands with ids: they outlive their clients, are listed, joined, fed, signalled, and have terminals."""

import base64
import json
import signal

import pytest
from component import cell
from kernelgate import problem, wait_for
from session_commands import Commands, Known, start


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


def text_of(lines, kind):
    return "".join(each["text"] for each in lines if each["type"] == kind)


def screen(lines):
    """What a terminal's lines show, up to its end."""
    return b"".join(base64.b64decode(each["data"]) for each in lines if each["type"] == "terminal")


def busy(gateway, session):
    return gateway.client.get(f"/api/v1/sessions/{session}").json()["is_busy"]


def read_until(lines, wanted):
    """What a terminal has shown when `wanted` is there."""
    shown = b""
    for line in lines:
        if line["type"] == "terminal":
            shown += base64.b64decode(line["data"])
        if wanted in shown:
            return shown
    raise AssertionError(shown)


# ---- Their life -----------------------------------------------------------------------------


def test_in_the_background(command, session):
    known = start(command, "echo on; read line; echo got $line; exit 3", "first", stdin=True)
    described = known.show()
    assert described["command"] == "echo on; read line; echo got $line; exit 3"
    assert described["running"] and not described["terminal"]
    assert (described["cwd"], described["on_disconnect"]) == ("/mnt/data", "continue")
    known.give("42\n")
    lines = known.output()
    assert lines[0] | {"pid": 0} == {
        "type": "started",
        "command_id": "first",
        "pid": 0,
        "terminal": False,
        "running": lines[0]["running"],
    }
    assert text_of(lines, "stdout") == "on\ngot 42\n"
    assert lines[-1] | {"duration_ms": 0} == {
        "type": "done",
        "status": "error",
        "exit_code": 3,
        "duration_ms": 0,
        "session_id": session,
        "command_id": "first",
    }
    assert (known.show()["running"], known.show()["exit_code"]) == (False, 3)
    # Its end is known, and it has nothing more to read.
    assert text_of(known.output(), "stdout") == "on\ngot 42\n"
    assert "ended" in known.give("x", 400)["detail"]


def test_its_client_leaves(command):
    body = {"command": "echo on; read x; echo $x", "id": "left", "on_disconnect": "continue"}
    with command.client.stream("POST", command.url, json={**body, "stdin": True}) as response:
        assert json.loads(next(response.iter_lines()))["type"] == "started"
    known = Known(command, "left")
    wait_for(lambda: known.show()["clients"] == 0)
    known.give("later\n")
    assert text_of(known.output(), "stdout") == "on\nlater\n"


def test_its_client_leaves_and_ends_it(command):
    body = {"command": "sleep 1000", "id": "mine"}
    with command.client.stream("POST", command.url, json=body) as response:
        assert json.loads(next(response.iter_lines()))["type"] == "started"
        assert Known(command, "mine").show()["on_disconnect"] == "kill"
    known = Known(command, "mine")
    known.ended()
    assert known.show()["signal"] == "SIGTERM"


def test_ids(command):
    known = start(command, "sleep 1000", "taken")
    response = command.client.post(
        command.url, json={"command": "true", "id": "taken", "background": True}
    )
    assert (response.status_code, response.json()["code"]) == (409, "command_exists")
    for bad in ("", "A", "a-b", "_1", "a" * 33, "ä"):
        assert "id must be" in command.problem("true", 400, "invalid_request", id=bad)
    made = start(command, "sleep 1000")
    listed = command.client.get(command.url).json()["commands"]
    assert [each["command_id"] for each in listed] == ["taken", made.name]
    for each in (known, made):
        assert each.client.delete(each.url).status_code == 200
        each.ended()
    for path in ("nobody", "B", "%C3%A4"):
        response = command.client.get(f"{command.url}/{path}")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
        response = command.client.get(f"{command.url}/{path}/output")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_what_excludes_each_other(command):
    refused = command.problem("true", 400, "invalid_request", stdin=True, terminal=True)
    assert "exclude each other" in refused
    response = command.client.post(
        command.url, params={"wait": 1}, json={"command": "true", "background": True}
    )
    assert response.status_code == 400
    response = command.client.post(command.url, json={"background": True})
    assert "command is missing" in response.json()["detail"]
    refused = command.problem("true", 400, "invalid_request", on_disconnect="stay")
    assert '"kill" or "continue"' in refused
    refused = command.problem("true", 400, "invalid_request", background=True, timeout=86401)
    assert "86400" in refused
    for size in ({"cols": 0, "rows": 1}, {"cols": 80}, {"cols": 80, "rows": 1001}, 80):
        command.problem("true", 400, "invalid_request", terminal=size)


def test_a_timeout(command):
    known = start(command, "sleep 1000", timeout=0.1)
    assert known.output()[-1]["status"] == "timeout"


def test_replay(command):
    known = start(command, "seq 20000; echo end")
    known.ended()
    lines = known.output()
    text = text_of(lines, "stdout")
    assert text.endswith("19999\n20000\nend\n")
    assert 60_000 < len(text) <= 65536
    assert (
        lines[0]["dropped_bytes"] + len(text) == len("".join(f"{n}\n" for n in range(1, 20001))) + 4
    )


def test_two_follow(command):
    known = start(command, "read x; seq 3; echo $x >&2", stdin=True)
    with known.joined() as one, known.joined() as other:
        assert {next(one)["type"], next(other)["type"]} == {"started"}
        assert known.show()["clients"] == 2
        known.give("go\n")
        for lines in map(list, (one, other)):
            assert text_of(lines, "stdout") == "1\n2\n3\n"
            assert text_of(lines, "stderr") == "go\n"


# ---- Input and signals ----------------------------------------------------------------------


def test_the_end_of_input(command):
    known = start(command, "cat; echo over", stdin=True)
    known.give(b"a\0\xff", end=1)
    assert text_of(known.output(), "stdout") == "a\0\ufffdover\n"
    shut = start(command, "sleep 1000", stdin=True)
    shut.give("", end=1)
    assert "closed" in shut.give("x", 400)["detail"]


def test_without_input(command):
    known = start(command, "sleep 1000")
    assert "without stdin" in known.give("x", 400)["detail"]
    assert "no terminal" in known.post("resize", 400, json={"cols": 1, "rows": 1})["detail"]


def test_too_much_input(command):
    known = start(command, "sleep 1000", stdin=True)
    known.give(b"x" * (1 << 20))
    refused = known.give(b"x" * (1 << 20), 429)
    assert refused["code"] == "session_busy" and "wait" in refused["detail"]
    assert known.give(b"x" * ((1 << 20) + 1), 413)["code"] == "upload_too_large"


def test_signals(command):
    known = start(command, "trap 'echo usr' USR1; echo on; while :; do sleep 0.1; done")
    with known.joined() as lines:
        for line in lines:
            if line.get("text") == "on\n":
                known.signal("USR1")
            elif line["type"] == "stdout":
                assert line["text"] == "usr\n"
                known.signal("SIGINT")
        assert line["signal"] == "SIGINT"
    assert "signal must be" in start(command, "sleep 1000").signal("SEGV", 400)["detail"]


# ---- Terminals ------------------------------------------------------------------------------


def test_a_terminal(command):
    known = start(
        command, "stty size; tty; read x; stty size; exit 7", terminal={"cols": 90, "rows": 30}
    )
    assert known.show()["terminal"]
    with known.joined() as lines:
        assert read_until(lines, b"/dev/pts/").startswith(b"30 90\r\n")
        known.post("resize", json={"cols": 100, "rows": 40})
        known.give("\n")
        rest = list(lines)
    assert b"40 100\r\n" in screen(rest)
    assert rest[-1]["exit_code"] == 7


def test_a_shell(command, gateway, session):
    known = start(command, None, "shell", terminal=True, env={"PS1": "> "})
    with known.joined() as lines:
        read_until(lines, b"> ")
        known.give("sleep 1000\n")
        read_until(lines, b"sleep 1000")
        # Until sleep has the terminal, ^C is bash's, which then goes on to wait for sleep.
        wait_for(lambda: busy(gateway, session))
        known.give("\x03")
        read_until(lines, b"^C")
        known.give("echo $((6*7))\n")
        read_until(lines, b"\r42\r\n")
        known.give("", end=1)  # ^D
        assert list(lines)[-1]["type"] == "done"


# ---- The session's life ---------------------------------------------------------------------


def test_activity(command, gateway, session):
    """What runs keeps its session; a shell at its prompt does not."""
    known = start(command, "sleep 1000")
    wait_for(lambda: busy(gateway, session))
    known.signal("KILL")
    wait_for(lambda: not busy(gateway, session))
    shell = start(command, None, "shell", terminal=True)
    shell.give("sleep 1000\n")
    wait_for(lambda: busy(gateway, session))
    shell.give("\x03")
    wait_for(lambda: not busy(gateway, session))


def test_the_session_ends(command, gateway, session):
    known = start(command, "sleep 1000")
    with known.joined() as lines:
        assert next(lines)["type"] == "started"
        gateway.client.delete(f"/api/v1/sessions/{session}")
        error, done = list(lines)[-2:]
    assert error["ename"] == "CommandLost" and done["status"] == "died"
    assert known.client.get(known.url).json()["code"] == "session_not_found"


# ---- A gateway that shuts down --------------------------------------------------------------


def test_followers_do_not_delay_a_shutdown(start_gateway):
    gateway = start_gateway("--keep-sandboxes", "--drain-timeout", "600")
    session = gateway.create_session()
    start(Commands(gateway, session), "echo on; sleep 600", "first")
    own = {"command": "echo on; sleep 600", "id": "second", "on_disconnect": "continue"}
    path = f"/api/v1/sessions/{session}/commands"
    with (
        gateway.client.stream("GET", f"{path}/first/output") as joined,
        gateway.client.stream("POST", path, json=own) as started,
    ):
        streams = [map(json.loads, answer.iter_lines()) for answer in (joined, started)]
        for lines in streams:
            assert [next(lines)["type"] for _ in range(2)] == ["started", "stdout"]
        gateway.signal(signal.SIGTERM)
        for lines, name in zip(streams, ("first", "second"), strict=True):
            line = {"type": "draining", "command_id": name, "session_id": session}
            assert list(lines) == [line]
    assert gateway.wait() == 0
    gateway.start()
    wait_for(lambda: gateway.client.get(path).status_code == 200)
    assert Known(Commands(gateway, session), "first").show()["running"]
    with gateway.client.stream("GET", f"{path}/second/output") as again:
        assert json.loads(next(again.iter_lines()))["running"]
    gateway.delete_session(session)


def test_no_follower_begins_while_a_gateway_shuts_down(start_gateway):
    gateway = start_gateway("--drain-timeout", "600")
    session = gateway.create_session()
    start(Commands(gateway, session), "sleep 600", "first")
    with gateway.stream(cell("print 1", "wait go"), session_id=session) as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        wait_for(lambda: gateway.client.get("/readyz").status_code == 503)
        path = f"/api/v1/sessions/{session}/commands/first/output"
        problem(gateway.client.get(path), 503, "draining")
        gateway.release(session)
        assert reader.rest().status == "ok"
    assert gateway.wait() == 0
