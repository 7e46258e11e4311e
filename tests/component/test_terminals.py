# SPDX-License-Identifier: Apache-2.0
"""Terminals over WebSockets: what is typed and shown, several clients, those that vanish or do not read."""

import contextlib
import hashlib

import pytest
import websockets
from kernelgate import wait_for
from session_commands import Commands
from terminal_wire import check_job_control, terminal


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


def test_a_shell(gateway, session):
    with terminal(gateway, session, cols=90, rows=30) as screen:
        start = screen.told[0]
        assert start["terminal"] and start["running"] and start["pid"] > 1
        screen.type("stty size; echo $TERM; tty\n")
        screen.until(b"30 90\r\nxterm-256color\r\n/dev/pts/")
        screen.resize(100, 40)
        screen.type("stty size\n")
        screen.until(b"40 100\r\n")
        screen.type("exit 7\n")
        assert screen.until_told("exit_code") == 7
        with pytest.raises(websockets.ConnectionClosedOK):
            screen.read()


def test_job_control(gateway, session):
    with terminal(gateway, session) as screen:
        check_job_control(screen)


def test_a_client_that_comes_back(gateway, session, command):
    with terminal(gateway, session, id="mine") as screen:
        screen.type("echo first; x=5\n")
        screen.until(b"\rfirst\r\n")
    wait_for(lambda: command.client.get(f"{command.url}/mine").json()["clients"] == 0)
    with terminal(gateway, session, id="mine") as screen:
        screen.until(b"\rfirst\r\n")  # replayed
        screen.type("echo x is $x\n")
        screen.until(b"x is 5\r\n")
        screen.type("exit\n")
        assert screen.until_told("exit_code") == 0
    with terminal(gateway, session, id="mine") as screen:  # its end is known
        assert not screen.told[0]["running"]
        screen.until(b"x is 5\r\n")
        assert screen.until_told("exit_code") == 0


def test_two_clients(gateway, session):
    with (
        terminal(gateway, session, id="both") as one,
        terminal(gateway, session, id="both") as other,
    ):
        one.type("echo one\n")
        other.until(b"\rone\r\n")
        other.type("echo other\n")
        one.until(b"\rother\r\n")


def test_a_command_that_was_started(gateway, session, command):
    """Its text is shown, and what is typed is its input."""
    body = {"command": "read x; echo got $x", "id": "plain", "stdin": True, "background": True}
    assert command.client.post(command.url, json=body).status_code == 201
    with terminal(gateway, session, id="plain") as screen:
        assert not screen.told[0]["terminal"]
        screen.type("42\n")
        screen.until(b"got 42\n")
        assert screen.until_told("exit_code") == 0


def test_a_client_that_reads_slowly(gateway, session):
    """It holds the program back for a while, then misses output, and is told how much."""
    with (
        terminal(gateway, session, id="fast") as fast,
        terminal(gateway, session, id="fast") as slow,
    ):
        fast.type("yes | head -c 14000000; echo o''ver\n")
        fast.until(b"over\r\n")
        missed = slow.until_told("dropped_bytes")
        assert missed > 1_000_000
        slow.type("echo $((6*7))\n")
        slow.until(b"\r42\r\n")
    with terminal(gateway, session, id="held") as screen:
        screen.type("seq 200000; echo o''ver\n")  # 1.3 MB: nothing is missed by who reads
        shown = screen.until(b"over\r\n")
        assert b"\r1\r\n" in shown and shown.count(b"\r\n") >= 200_000
        assert len(screen.told) == 1


def test_what_does_not_read(gateway, session):
    """What is typed waits, within a bound, until the program reads it."""
    with terminal(gateway, session) as screen:
        screen.type("stty raw -echo; echo on; sleep 1; head -c 300000 | md5sum; stty sane\n")
        screen.until(b"on\n")
        for _ in range(30):
            screen.type(b"x" * 10_000)
        screen.until(hashlib.md5(b"x" * 300_000).hexdigest().encode())
        screen.type("echo $((6*7))\n")
        screen.until(b"42\r\n")


def test_bad_words(gateway, session):
    for bad in ("{}", "[]", '{"resize":[0,1]}', '{"resize":[1]}', '{"resize":["a",1]}', "x" * 300):
        with terminal(gateway, session, id="bad") as screen:
            screen.socket.send(bad)
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                while True:
                    screen.read()
            assert closed.value.rcvd.code == 1007
            assert "resize" in closed.value.rcvd.reason or "number" in closed.value.rcvd.reason


def test_what_is_refused(gateway, session, command):
    url = f"/api/v1/sessions/{session}/terminal"
    assert gateway.client.get(url).status_code == 426
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for query, detail in (
        ("id=A", "id must be"),
        ("cols=0", "cols must be"),
        ("rows=x", "rows must be"),
        ("cwd=nowhere", "nowhere"),
    ):
        response = gateway.client.get(f"{url}?{query}", headers=headers)
        assert response.status_code == 400 and detail in response.json()["detail"]
    response = gateway.client.get(f"{url}?id=_1", headers=headers)  # of none that was made
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    response = gateway.client.get("/api/v1/sessions/none/terminal", headers=headers)
    assert response.json()["code"] == "session_not_found"


def test_the_subprotocol_is_chosen(gateway, session):
    """A browser ends a WebSocket that has chosen none of what it offered."""
    for offered, chosen in ((["x", "kernelgate.terminal"], "kernelgate.terminal"), (["x"], None)):
        with terminal(gateway, session, subprotocols=offered) as screen:
            assert screen.socket.subprotocol == chosen


def test_the_session_ends(gateway, session):
    with terminal(gateway, session) as screen:
        gateway.client.delete(f"/api/v1/sessions/{session}")
        assert screen.until_told("exit_code") is None
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            screen.read()
        assert closed.value.rcvd.code == 1011


def test_the_65th(gateway, session):
    with contextlib.ExitStack() as stack:
        screens = [stack.enter_context(terminal(gateway, session)) for _ in range(64)]
        with pytest.raises(websockets.InvalidStatus) as refused:
            stack.enter_context(terminal(gateway, session))
        assert refused.value.response.status_code == 429
        assert b"64 commands and terminals" in refused.value.response.body
        screens[0].type("exit\n")
        screens[0].until_told("exit_code")
        wait_for(lambda: opens(gateway, session))
        for screen in screens[1:]:
            screen.type("echo $((6*7))\n")
        for screen in screens[1:]:
            screen.until(b"42\r\n")


def opens(gateway, session):
    try:
        with terminal(gateway, session):
            return True
    except websockets.InvalidStatus:
        return False
