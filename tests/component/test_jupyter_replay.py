# SPDX-License-Identifier: Apache-2.0
"""What a client of a kernel's channels missed, and gets when it connects again."""

import socket
import struct

import pytest
from component import HELD, cell
from jupyter_wire import (
    Channels,
    handshake,
    of,
    one,
    start_bounded_gateway,
    start_kernel,
    text,
    wait_until_left,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


def lose(client):
    """Cuts the connection without a word."""
    linger = struct.pack("ii", 1, 0)
    client.ws.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.ws.sock.close()
    client.ws.sock = None


def has_file(gateway, kernel, name):
    return gateway.client.get(f"/api/v1/sessions/{kernel}/files/{name}").status_code == 200


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_what_was_missed_comes_after_a_reconnect(gateway, v1):
    """Output, a request for input and a reply of code that ran on while its client was away."""
    kernel = start_kernel(gateway)
    old = Channels(gateway, kernel, query="?session_id=lab")
    running = old.execute(cell(HELD, "print done", "write asked", "input"), allow_stdin=True)
    old.until(lambda message: message["content"].get("text") == "on\n")
    lose(old)
    wait_until_left(gateway, kernel)
    gateway.release(kernel)
    wait_for(lambda: has_file(gateway, kernel, "asked"))
    with Channels(gateway, kernel, v1=v1, query="?session_id=lab") as new:
        new.session = old.session
        messages = new.until(lambda message: message["channel"] == "stdin")
        assert text(messages) == "done\n"
        new.send("input_reply", {"value": "me"}, "stdin", parent_header=messages[-1]["header"])
        messages = new.until_idle(running)
        assert text(messages) == "me\n"
        assert one(messages, "execute_reply")["content"]["status"] == "ok"
        assert text(new.run("print 1")) == "1\n"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_what_is_kept_for_a_client_that_is_away_is_bounded(start_gateway):
    """Output is dropped, and that is said; each `status` comes."""
    gateway = start_bounded_gateway(start_gateway, 2)
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        client.run("result 1")
    wait_until_left(gateway, kernel)
    for i in range(20):
        code = cell("flood 20 65537", f"print end {i}")
        assert gateway.execute(code, session_id=kernel).status == "ok"
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        messages = client.until(lambda it: it["content"].get("text", "").endswith("end 19\n"))
        messages += client.until(lambda it: it["content"].get("execution_state") == "idle")
        assert "kernelgate dropped" in text(messages, "stderr")
        assert len(text(messages)) < 2 << 20
        states = [it["content"]["execution_state"] for it in of(messages, "status")]
        assert states.count("busy") >= 20 and states[-40:] == ["busy", "idle"] * 20


def test_a_client_that_has_missed_more_than_may_be_kept_begins_anew(start_gateway):
    """What may not be dropped is bounded as well: the first connection is closed, the next is good."""
    gateway = start_gateway("--jupyter-api", "--max-output-bytes", "65536")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        client.run("result 1")
    wait_until_left(gateway, kernel)
    for _ in range(100):
        assert gateway.execute("result 1", session_id=kernel).status == "ok"
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        assert client.closing_status() == 1013
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        assert text(client.run("print 1")) == "1\n"


def test_what_was_missed_is_for_the_same_client_only(start_gateway):
    for flags, expected in ((), True), (("--jupyter-replay-time", "0"), False):
        gateway = start_gateway("--jupyter-api", *flags)
        kernel = start_kernel(gateway)
        for name in "lab", "other":
            with Channels(gateway, kernel, query=f"?session_id={name}") as client:
                client.run("result 1")
        wait_until_left(gateway, kernel)
        gateway.execute("print missed", session_id=kernel)
        with Channels(gateway, kernel, query="?session_id=third") as client:
            client.run("print 1")
            assert text(client.seen) == ""
        for _ in range(2):  # the first time only
            with Channels(gateway, kernel, query="?session_id=lab") as client:
                client.run("print 1")
                assert ("missed\n" in text(client.seen)) == expected
            wait_until_left(gateway, kernel)
            expected = False
        gateway.client.delete(f"/api/kernels/{kernel}")


def test_clients_that_are_away_take_no_place(gateway):
    kernel = start_kernel(gateway)
    for number in range(33):
        with Channels(gateway, kernel, query=f"?session_id=lab-{number}") as client:
            client.send("kernel_info_request", {})
        wait_until_left(gateway, kernel)
    assert gateway.execute("print 1", session_id=kernel).text() == "1\n"
    gateway.client.delete(f"/api/kernels/{kernel}")
    assert handshake(gateway, kernel).status_code == 404


def test_a_kernel_that_the_gateway_is_taking_up_again(start_gateway):
    """A client that connects at once waits for it, and sees the variables."""
    gateway = start_gateway("--jupyter-api")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        client.run("set x 7")
        gateway.kill()
    gateway.start()
    with Channels(gateway, kernel, query="?session_id=lab") as client:
        assert text(client.run("get x")) == "7\n"
