# SPDX-License-Identifier: Apache-2.0
"""What a client of the Jupyter face learns of a kernel's state, above all when it connects."""

import pytest
from component import HELD, cell, exact
from jupyter_wire import Channels, list_kernels, of, one, text
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture(params=[True, False], ids=["v1", "legacy"])
def connect(request, gateway, kernel):
    return lambda **options: Channels(gateway, kernel, v1=request.param, **options)


def is_on(message):
    return message["content"].get("text") == "on\n"


def is_comm_info(message):
    return message["header"]["msg_type"] == "comm_info_reply"


def states(messages):
    """The states that messages say, and whether each is the answer to a request."""
    found = [it for it in messages if it["header"]["msg_type"] == "status"]
    return [(it["content"]["execution_state"], bool(it["parent_header"])) for it in found]


def ask_info(client):
    return client.send("kernel_info_request", {})


# ---- The state at once


def test_an_idle_kernel(connect):
    with connect() as client:
        assert client.first_state == "idle"
        client.run("result 1")
        with connect() as other:
            assert other.first_state == "idle"
            assert states(other.run("result 2")) == [("busy", True), ("idle", True)]
            assert not other.seen  # neither is said twice


def test_a_kernel_that_runs_a_client_s_cell(gateway, kernel, connect):
    with connect() as client:
        running = client.execute(cell(HELD, "print done"))
        client.until(is_on)
        with connect() as other:
            assert other.first_state == "busy"
            gateway.release(kernel)
            assert text(client.until_idle(running)) == "done\n"
            until_idle = other.until(lambda it: ("idle", True) in states([it]))
            assert states(until_idle) == [("idle", True)] and text(until_idle) == "done\n"
        with connect() as third:
            assert third.first_state == "idle"


def test_a_kernel_that_runs_an_execution_of_the_rest_api(gateway, kernel, connect):
    with gateway.stream(HELD, session_id=kernel) as reader:
        reader.next()
        with connect() as client:
            assert client.first_state == "busy"
            gateway.release(kernel)
            assert states(client.until(lambda it: ("idle", True) in states([it])))


def test_code_that_has_ended_but_for_its_reply(gateway, kernel, connect):
    """The execution waits for a reply that does not come; iopub has said `idle`, and does not again."""
    with connect() as client, gateway.stream("no-reply", session_id=kernel) as reader:
        client.until(lambda it: ("idle", True) in states([it]))
        with connect() as other:
            assert other.first_state == "idle"
        reader.rest()


def test_a_client_that_connects_again(gateway, kernel, connect):
    """First the state, then what it has missed, which ends with the same state."""
    with connect(query="?session_id=a") as client:
        running = client.execute(cell(HELD, "print done"))
        client.until(is_on)
    wait_for(lambda: list_kernels(gateway)[kernel]["connections"] == 0)
    with connect(query="?session_id=a") as client:
        assert client.first_state == "busy"
    wait_for(lambda: list_kernels(gateway)[kernel]["connections"] == 0)
    gateway.release(kernel)
    wait_for(lambda: list_kernels(gateway)[kernel]["execution_state"] == "idle")
    with connect(query="?session_id=a") as client:
        assert client.first_state == "idle"
        assert states(client.until_idle(running)) == [("idle", True)]


# ---- What kernel it is, while it is busy


def test_kernel_info_of_a_busy_kernel(gateway, kernel, connect):
    with connect() as client:
        idle = one(client.until_idle(ask_info(client)), "kernel_info_reply")
        running = client.execute(cell(HELD, "print done"))
        client.until(is_on)
        with connect() as other:
            for asking in other, client:
                asked = ask_info(asking)
                messages = asking.until(lambda it: states([it]) == [("busy", False)])
                assert states(messages) == [("busy", True), ("idle", True), ("busy", False)]
                reply = one(messages, "kernel_info_reply")
                assert reply["channel"] == "shell" and reply["content"] == idle["content"]
                for message in messages[:-1]:
                    assert message["parent_header"]["msg_id"] == asked
                    assert message["parent_header"]["session"] == asking.session
            # The cell still runs, and nobody else has been told anything.
            gateway.release(kernel)
            assert text(client.until_idle(running)) == "done\n" and not client.seen
            ended = other.until(lambda it: ("idle", True) in states([it]))
            assert text(ended) == "done\n" and not of(ended, "kernel_info_reply")


def test_kernel_info_during_an_execution_of_the_rest_api(gateway, kernel, connect):
    with gateway.stream(HELD, session_id=kernel) as reader, connect() as client:
        reader.next()
        assert one(client.until_idle(ask_info(client)), "kernel_info_reply")
        gateway.release(kernel)
        assert reader.rest().status == "ok"


def test_an_idle_kernel_answers_itself(connect):
    """Its answer shows that it lives. It is seen by others, as any message on iopub."""
    with connect() as client, connect() as other:
        assert (client.first_state, other.first_state) == ("idle", "idle")
        assert one(client.until_idle(ask_info(client)), "kernel_info_reply")
        seen = other.until(lambda it: ("idle", True) in states([it]))
        assert states(seen) == [("busy", True), ("idle", True)]


def test_other_requests_wait_for_their_turn(gateway, kernel, connect):
    """On shell, behind the cell; on control the kernel answers, as it does without a gateway."""
    with connect() as client:
        client.execute(HELD)
        client.until(is_on)
        client.send("comm_info_request", {})
        client.send("kernel_info_request", {}, channel="control")
        assert not of(client.until(lambda it: it["channel"] == "control"), "comm_info_reply")
        gateway.release(kernel)
        replies = [it for it in client.until(is_comm_info) if it["channel"] == "shell"]
        assert [it["header"]["msg_type"] for it in replies] == ["execute_reply", "comm_info_reply"]


@pytest.mark.parametrize("header", ['{"msg_type":"kernel_info_request"}', "{", "[]", '""'])
def test_bad_headers_while_it_is_busy(gateway, kernel, connect, header):
    with connect() as client:
        client.execute(HELD)
        client.until(is_on)
        parts = [b"shell", header.encode(), b"{}", b"{}", b"{}"]
        with Channels(gateway, kernel) as other:
            offsets = [8 * (len(parts) + 2)]
            for part in parts:
                offsets.append(offsets[-1] + len(part))
            head = b"".join(n.to_bytes(8, "little") for n in [len(offsets), *offsets])
            other.ws.send_binary(head + b"".join(parts))
            assert other.closing_status() == 1008
        gateway.release(kernel)


# ---- Why it has ended


def reason(client, state):
    """What stderr says before a state."""
    messages = client.until(lambda it: states([it]) == [(state, False)])
    own = [it for it in messages if not it["parent_header"]]
    assert [it["header"]["msg_type"] for it in own] == ["stream", "status"]
    return text(own, "stderr")


@pytest.mark.parametrize(
    "code, why",
    [
        (cell("memory 1000000000", "oom"), "more memory than its sandbox may have"),
        ("die 3", "ended with code 3"),
        ("kill 11", "signal 11 (SEGV)"),
    ],
)
def test_the_reason_of_a_restart(gateway, kernel, connect, code, why):
    """To every client, also to those that have asked for nothing."""
    with connect() as client, connect() as other:
        client.execute(code)
        for each in client, other:
            assert why in reason(each, "restarting")
            assert states(each.until(lambda it: states([it]) == [("idle", False)]))
        assert text(client.run("print " + exact("on"))) == "on"


def test_a_restart_by_request_has_none(gateway, kernel, connect):
    with connect() as client:
        assert gateway.client.post(f"/api/kernels/{kernel}/restart").status_code == 200
        client.run("result 1")
        assert not [it for it in client.seen if it["header"]["msg_type"] == "stream"]
