# SPDX-License-Identifier: Apache-2.0
"""Two connections of one client to a kernel: what each gets, and which of them stays."""

import contextlib
import functools
import socket

import pytest
from component import HELD, cell
from jupyter_wire import (
    Channels,
    connections,
    one,
    text,
    wait_until_done,
    wait_until_left,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture
def connect(gateway, kernel):
    return functools.partial(Channels, gateway, kernel, query="?session_id=lab")


def test_the_connection_that_sends_something_replaces_the_other(gateway, kernel, connect):
    with Channels(gateway, kernel, query="?session_id=other") as other, connect() as old:
        old.run("result 1")
        with connect() as new:
            assert connections(gateway, kernel) == 3
            assert text(new.run("print 1")) == "1\n"
            assert old.closing_status() == 1008
            assert connections(gateway, kernel) == 2
            assert text(other.run("print 2")) == "2\n"


@pytest.mark.parametrize("spoke", [True, False], ids=["after-a-message", "before-any-message"])
def test_an_abandoned_connection_that_arrives_last(gateway, kernel, connect, spoke):
    """jupyter_server's gateway client opens two for a page of JupyterLab, and the one in use may be
    the first to arrive."""
    with connect() as used:
        if spoke:
            used.run("result 1")
        with connect() as abandoned:
            assert text(used.run("print 1")) == "1\n"
            assert abandoned.closing_status() == 1008
            assert text(used.run("print 2")) == "2\n"
            assert connections(gateway, kernel) == 1


def test_both_get_everything_until_one_sends_something(gateway, kernel, connect):
    """Replies to what the other has sent, too."""
    with connect() as old:
        running = old.execute(cell(HELD, "print done"))
        old.until(lambda message: message["content"].get("text") == "on\n")
        with connect() as new:
            gateway.release(kernel)
            for client in old, new:
                messages = client.until_idle(running)
                assert text(messages) == "done\n" and one(messages, "execute_reply")


def test_the_new_connection_answers_what_the_old_one_was_asked(connect):
    with connect() as old:
        running = old.execute("input", allow_stdin=True)
        asked = old.until(lambda message: message["channel"] == "stdin")[-1]
        with connect() as new:
            new.session = old.session
            new.send("input_reply", {"value": "me"}, "stdin", parent_header=asked["header"])
            assert text(new.until_idle(running)) == "me\n"
            assert old.closing_status() == 1008


def test_the_other_goes_on_when_one_ends(gateway, kernel, connect):
    """What a client has got on one connection does not come again for another that has ended."""
    with connect() as used:
        used.run("result 1")
        with connect():
            pass
        wait_for(lambda: connections(gateway, kernel) == 1)
        assert text(used.run("print seen")) == "seen\n"
    wait_until_left(gateway, kernel)
    gateway.execute("print missed", session_id=kernel)
    with connect() as new:
        new.run("result 1")
        assert text(new.seen) == "missed\n"


def test_a_client_connects_again_to_a_kernel_without_a_free_place(gateway, kernel, connect):
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(connect())
        for _ in range(31):
            stack.enter_context(Channels(gateway, kernel))
        with connect() as new:
            assert old.closing_status() == 1008
            assert text(new.run("print 1")) == "1\n"


def test_what_waits_for_a_connection_that_is_not_read_passes_to_the_next(gateway, kernel, connect):
    smallest = ((socket.SOL_SOCKET, socket.SO_RCVBUF, 4096),)
    with connect(sockopt=smallest) as old:
        running = old.execute("repeat 100 print {i}{65536*x}")
        wait_until_done(gateway, kernel, running)
        with connect() as new:
            assert connections(gateway, kernel) == 1
            messages = new.until_idle(running)
            assert text(messages).endswith("\n99" + "x" * 65536 + "\n")
            assert one(messages, "execute_reply")
