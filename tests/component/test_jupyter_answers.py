# SPDX-License-Identifier: Apache-2.0
"""Every request of a client gets its reply and its idle status: the kernel's, or the gateway's where the
kernel is silent, has been restarted or has died. Subshells are answered beside the main shell."""

import pytest
from component import HELD, cell
from jupyter_wire import (
    Channels,
    execution_of,
    of,
    one,
    text,
    wait_until_done,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture
def client(gateway, kernel):
    with Channels(gateway, kernel) as client:
        yield client


def collect(client, *requests):
    """What is said about requests, whose messages may come in any order, up to all replies and idles."""
    messages = {request: [] for request in requests}

    def has_ended(request):
        replies = [it for it in messages[request] if it["channel"] in ("shell", "control")]
        states = [it["content"].get("execution_state") for it in messages[request]]
        return replies and "idle" in states

    while not all(map(has_ended, requests)):
        message = client.next()
        messages.get(message["parent_header"].get("msg_id"), []).append(message)
    return messages.values()


def until_output(client):
    client.until(lambda it: it["header"]["msg_type"] == "stream")


def is_busy(gateway, kernel):
    return gateway.client.get(f"/api/kernels/{kernel}").json()["execution_state"] == "busy"


# ---- A kernel that is silent


def test_a_reply_that_is_missing(client):
    """The next cell is not needed for it."""
    messages = client.run(cell("print said", "no-reply"))
    reply = one(messages, "execute_reply")["content"]
    assert (reply["status"], reply["ename"]) == ("error", "KernelError")
    assert one(messages, "error")["content"]["ename"] == "KernelError"
    assert text(messages) == "said\n" and text(client.run("print next")) == "next\n"


def test_a_reply_of_an_error_that_is_missing(client):
    messages = client.run(cell("no-reply", "error ValueError x"))
    assert one(messages, "error")["content"]["ename"] == "ValueError"
    assert one(messages, "execute_reply")["content"]["status"] == "error"


def test_an_idle_status_that_is_missing(client):
    """An answer to the next request comes in its place."""
    requests = client.execute(cell("print one", "no-idle")), client.execute("print two")
    for messages in collect(client, *requests):
        assert one(messages, "execute_reply")["content"]["status"] == "ok"


def test_an_interrupt_that_loses_the_reply(gateway, kernel, client):
    request = client.execute(cell("print on", "catch", "hang", "no-reply"))
    until_output(client)
    gateway.client.post(f"/api/kernels/{kernel}/interrupt")
    messages = client.until_idle(request)
    assert one(messages, "execute_reply")["content"]["ename"] == "KeyboardInterrupt"
    assert one(messages, "error")["content"]["ename"] == "KeyboardInterrupt"


# ---- A kernel that dies

DEATHS = {
    "die 3": ("KernelDied", "the kernel's process ended with code 3"),
    "kill 9": ("KernelDied", "the kernel's process was ended by signal 9 (KILL)"),
    "oom": (
        "OutOfMemory",
        "the kernel used more memory than its sandbox may have (512 MiB, setting memory-mb)",
    ),
}


@pytest.mark.parametrize("end", DEATHS)
def test_a_death_answers_all_that_was_asked(gateway, kernel, client, end):
    """What ran, what waited in the kernel, and what is no cell; the error comes before the reply."""
    running = client.execute(cell("print on", "take go", end))
    waiting = client.execute("print never")
    other = client.send("complete_request", {"code": "pri", "cursor_pos": 3})
    until_output(client)
    gateway.release(kernel)
    ename, evalue = DEATHS[end]
    *cells, completion = collect(client, running, waiting, other)
    for messages in cells:
        error, reply = one(messages, "error")["content"], one(messages, "execute_reply")["content"]
        assert (error["ename"], error["evalue"]) == (ename, evalue)
        assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", ename, evalue)
        kinds = [it["header"]["msg_type"] for it in messages]
        assert kinds.index("error") < kinds.index("execute_reply") < len(kinds) - 1
    assert one(completion, "complete_reply")["content"]["status"] == "error"
    assert not of(completion, "error")


def test_a_death_after_the_reply(client):
    """The reply stands; only the idle status is missing."""
    messages = client.run(cell("reply", "die 3"))
    assert one(messages, "execute_reply")["content"]["status"] == "ok"
    assert not of(messages, "error")


def test_a_death_is_told_to_the_client_that_asked(gateway, kernel, client):
    with Channels(gateway, kernel) as other:
        request = client.execute("die 3")
        client.until_idle(request)
        seen = other.until(lambda it: it["content"].get("execution_state") == "restarting")
        assert one(seen, "error")["parent_header"]["msg_id"] == request
        assert not of(seen, "execute_reply")


def test_the_end_of_the_session_answers(gateway, kernel, client):
    request = client.execute(HELD)
    until_output(client)
    gateway.client.delete(f"/api/kernels/{kernel}")
    reply = one(client.until_idle(request), "execute_reply")["content"]
    assert (reply["status"], reply["ename"]) == ("error", "KernelDied")


def test_a_restart_answers(gateway, kernel, client):
    """As skipped: a client that asked for the restart shows no error."""
    request = client.execute(HELD)
    until_output(client)
    gateway.client.post(f"/api/kernels/{kernel}/restart")
    messages = client.until_idle(request)
    assert one(messages, "execute_reply")["content"]["status"] == "aborted"
    assert not of(messages, "error")


# ---- Subshells


def test_a_subshell_leaves_the_main_cell_running(gateway, kernel, client):
    subshell = client.create_subshell()
    main = client.execute(cell("print on", "hang"))
    until_output(client)
    beside = client.until_idle(client.execute("print beside", subshell=subshell))
    assert text(beside) == "beside\n"
    assert is_busy(gateway, kernel)
    assert execution_of(gateway, kernel, main)["state"] == "running"
    gateway.client.post(f"/api/kernels/{kernel}/interrupt")
    messages = client.until_idle(main)
    assert one(messages, "error")["content"]["ename"] == "KeyboardInterrupt"
    wait_until_done(gateway, kernel, main)
    assert execution_of(gateway, kernel, main)["status"] == "interrupted"


def test_the_kernel_is_busy_while_a_subshell_is(gateway, kernel, client):
    subshell = client.create_subshell()
    beside = client.execute(cell("print on", "take go"), subshell=subshell)
    until_output(client)
    assert text(client.run("print main")) == "main\n"
    assert is_busy(gateway, kernel)
    gateway.release(kernel)
    client.until_idle(beside)
    wait_for(lambda: not is_busy(gateway, kernel))


def test_an_interrupt_is_not_a_subshells(gateway, kernel, client):
    """What goes on in it ends as it does."""
    subshell = client.create_subshell()
    beside = client.execute(cell("print on", "take go"), subshell=subshell)
    until_output(client)
    answer = gateway.client.post(f"/api/v1/sessions/{kernel}/interrupt").json()
    assert answer["interrupted"] is False
    execution = execution_of(gateway, kernel, beside)["execution_id"]
    main = client.execute(cell("print on", "take on"))
    until_output(client)
    answer = gateway.client.post(f"/api/v1/executions/{execution}/interrupt").json()
    assert answer["interrupted"] is False
    gateway.client.put(f"/api/v1/sessions/{kernel}/files/on", content=b"")
    assert one(client.until_idle(main), "execute_reply")["content"]["status"] == "ok"
    gateway.release(kernel)
    assert one(client.until_idle(beside), "execute_reply")["content"]["status"] == "ok"
    wait_until_done(gateway, kernel, beside)
    assert execution_of(gateway, kernel, beside)["status"] == "ok"


def test_a_subshell_does_not_wait_behind_the_main_queue(gateway, kernel, client):
    subshell = client.create_subshell()
    first = client.execute(cell("print on", "take go"))
    until_output(client)
    for _ in range(300):
        last = client.execute("print later")
    beside = client.execute("print beside", subshell=subshell)
    assert text(client.until_idle(beside)) == "beside\n"
    gateway.release(kernel)
    _, messages = collect(client, first, last)
    assert text(messages) == "later\n"
