# SPDX-License-Identifier: Apache-2.0
"""Terminals and commands that live on in real containers: programs that draw, and a gateway that starts again."""

import contextlib

import pytest
import websockets
from kernelgate import wait_for
from session_commands import Commands, Known, start
from terminal_wire import check_job_control, terminal


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


OLD_GVISOR = pytest.mark.not_on(
    "runsc", "Debian's release of 2022 refuses the ioctls of tcsetattr(TCSAFLUSH), and knows no Ctrl+Z"
)
OF_THE_HOST = pytest.mark.only("oci", "the images of the other engines have no vi and no top")


@OF_THE_HOST
@OLD_GVISOR
def test_vi(gateway, session, command):
    with terminal(gateway, session, cols=90, rows=30) as screen:
        screen.type("vi -u NONE a\n")
        screen.until(b"[New")
        screen.type("ihello")
        screen.until(b"hello")
        screen.resize(100, 40)
        screen.until(b"\x1b[39;1H")  # it draws more lines
        screen.type("\x1b")
        screen.type(":wq\r")
        screen.until(b"written")
    assert command.wait("cat a")["stdout"] == "hello\n"


@OF_THE_HOST
@OLD_GVISOR
def test_top(gateway, session):
    with terminal(gateway, session, cols=90, rows=30) as screen:
        screen.type("top -d 0.2\n")
        screen.until(b"%CPU")
        screen.until(b"\x1b[H")  # it draws again
        screen.type("q")
        screen.until(b"$ ")
        screen.type("echo $((6*7))\n")
        screen.until(b"42\r\n")


@OLD_GVISOR
def test_job_control(gateway, session):
    with terminal(gateway, session) as screen:
        check_job_control(screen)


def test_one_terminal_too_many(gateway, session):
    """It is refused with a reason, and the others go on. With `oci` the sandbox has 16 (docs/security.md)."""
    with contextlib.ExitStack() as stack:
        screens = []
        with pytest.raises(websockets.InvalidStatus) as refused:
            while len(screens) < 65:
                screens.append(stack.enter_context(terminal(gateway, session)))
        assert refused.value.response.status_code == 429
        assert b"terminal" in refused.value.response.body
        assert 8 <= len(screens) <= 64
        for screen in screens:
            screen.type("echo $((6*7))\n")
        for screen in screens:
            screen.until(b"42\r\n")
        screens[0].type("exit\n")
        screens[0].until_told("exit_code")
        wait_for(lambda: can_open(gateway, session))


def can_open(gateway, session):
    try:
        with terminal(gateway, session):
            return True
    except websockets.InvalidStatus:
        return False


def test_processes_of_a_terminal_end_with_it(command):
    known = start(command, "sleep 1001 & setsid sleep 1002 & wait", terminal=True)
    count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 100[12]' | sort -u | wc -l"
    wait_for(lambda: command.wait(count)["stdout"] == "2\n")
    assert command.client.delete(known.url).status_code == 200
    wait_for(lambda: command.wait(count)["stdout"] == "0\n")


def test_the_gateway_starts_again(start_gateway):
    """Commands and terminals go on, and keep their session."""
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes")
    session = gateway.create_session()
    body = "echo on; read x; echo got $x; exit 5"
    start(Commands(gateway, session), body, "work", stdin=True)
    with terminal(gateway, session, id="main") as screen:
        screen.type("x=5; echo fir''st\n")
        screen.until(b"first\r\n")
    gateway.stop()
    gateway.start()
    known = Known(Commands(gateway, session), "work")
    wait_for(lambda: known.client.get(known.url).status_code == 200)  # its agent has answered
    with known.joined() as lines:
        assert next(lines)["command_id"] == "work"
        assert next(lines) == {"type": "stdout", "text": "on\n"}
        wait_for(lambda: gateway.show_session(session)["is_busy"])
        known.give("42\n")
        rest = list(lines)
    assert rest[0] == {"type": "stdout", "text": "got 42\n"} and rest[-1]["exit_code"] == 5
    with terminal(gateway, session, id="main") as screen:
        screen.until(b"first\r\n")
        screen.type("echo x is $x\n")
        screen.until(b"x is 5\r\n")
    gateway.delete_session(session)
