# SPDX-License-Identifier: Apache-2.0
"""Faults of a kernel as its clients on WebSockets see them, and as they are seen by others beside them."""

import pytest
from component import cell
from jupyter_wire import Channels, of, one, text


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture(params=[True, False], ids=["v1", "legacy"])
def client(request, gateway, kernel):
    with Channels(gateway, kernel, v1=request.param) as client:
        yield client


def answers(client, *ids):
    """Reads until each of the requests has its reply and its idle status; returns the replies, by id."""
    replies, idle = {}, set()
    while not (replies.keys() >= set(ids) and idle >= set(ids)):
        message = client.next()
        parent = message["parent_header"].get("msg_id")
        if message["header"]["msg_type"].endswith("_reply"):
            replies[parent] = message
        if message["content"].get("execution_state") == "idle":
            idle.add(parent)
    return replies


def test_messages_of_others(client):
    """A client gets whatever the kernel publishes, also of unknown types and about other requests."""
    running = client.execute(
        cell('parent {"msg_id":"x","session":"y"}', "print other", 'send iopub own {"a":[1.50]}')
    )
    other = client.until(lambda message: message["content"].get("text") == "other\n")[-1]
    assert other["parent_header"] == {"msg_id": "x", "session": "y"}
    unknown = client.next_published()
    assert (unknown["header"]["msg_type"], unknown["content"]) == ("own", {"a": [1.5]})
    assert one(client.until_idle(running), "execute_reply")


@pytest.mark.parametrize(
    "code",
    [
        cell("bad-signature", "print lost"),
        "send iopub stream nonsense",
        'frames iopub ["a"]',
        "send iopub stream []",
        cell("bad-signature", 'again {"status":"ok"}'),
    ],
)
def test_messages_that_are_dropped(client, code):
    messages = client.run(cell(code, "print here"))
    assert text(messages) == "here\n" and not text(client.seen)
    assert not of(client.seen, "execute_reply")
    assert one(messages, "execute_reply")["content"]["status"] == "ok"


def test_text_that_is_not_valid_is_repaired(client):
    messages = client.run(cell(r'print "a\ud800b"', "display application/json [NaN,1]"))
    assert text(messages) == "a\ufffdb"
    assert one(messages, "display_data")["content"]["data"] == {"application/json": [None, 1]}


def test_requests_that_the_kernel_aborts(gateway, kernel, client):
    """Its own, as with any Jupyter server; an execution of the REST API runs nevertheless."""
    first = client.execute(cell("print on", "take go", "error ValueError no"))
    client.until(lambda message: message["content"].get("text") == "on\n")
    queued = [client.execute("write ran") for _ in range(3)]
    with gateway.stream("exists ran", session_id=kernel) as beside:
        gateway.release(kernel)
        replies = answers(client, first, *queued)
        assert beside.rest().text() == "False\n"
    assert replies[first]["content"]["ename"] == "ValueError"
    assert [replies[msg_id]["content"]["status"] for msg_id in queued] == ["aborted"] * 3
    again = client.execute("error ValueError no", stop_on_error=False)
    after = client.execute("print ran")
    assert answers(client, again, after)[after]["content"]["status"] == "ok"


def test_lost_reply(gateway, kernel, client):
    """The next request is answered, and a cell of the REST API is not kept waiting."""
    client.execute(cell("no-reply", "print said"))
    assert text(client.run("print next")) == "next\n"
    client.execute(cell("no-reply", "print said"))
    assert gateway.execute("print beside", session_id=kernel).text() == "beside\n"


def test_what_the_gateway_itself_asks(gateway, kernel, client):
    """After a lost reply it asks the kernel whether it lives; clients see the code, and nothing of that."""
    client.run("print first")  # with the end of what the kernel was set up with
    client.seen.clear()
    gateway.execute(cell("no-reply", "print lost"), session_id=kernel)
    after = client.run("print next")
    states = [
        message["content"]["execution_state"] for message in of([*client.seen, *after], "status")
    ]
    assert states == ["busy", "idle"] * 2


def test_lost_idle(gateway, kernel, client):
    lost = client.execute(cell("no-idle", "print said"))
    client.until(lambda message: message["header"]["msg_type"] == "execute_reply")
    assert gateway.execute("print beside", session_id=kernel).text() == "beside\n"
    assert text(client.run("print next")) == "next\n"
    listed = gateway.client.get(f"/api/v1/sessions/{kernel}/executions").json()["executions"]
    [found] = [execution for execution in listed if execution.get("msg_id") == lost]
    assert (found["state"], found["status"]) == ("done", "ok")


def test_second_reply(client):
    """It reaches the client, as all that is sent to it, and does no harm."""
    code = cell("reply", 'again {"status":"error","ename":"E","evalue":"v","traceback":[]}')
    running = client.execute(code)
    messages = client.until(lambda message: message["content"].get("execution_state") == "idle")
    while len(of(messages, "execute_reply")) < 2:
        messages.append(client.next())
    parents = {message["parent_header"]["msg_id"] for message in of(messages, "execute_reply")}
    assert parents == {running}
    assert text(client.run("print next")) == "next\n"


def test_output_after_the_end(gateway, kernel, client):
    """Unlike an execution of the REST API, a client gets it, with the parent that it has."""
    running = client.execute(cell("background", "take go", "print late"))
    assert one(client.until_idle(running), "execute_reply")
    gateway.release(kernel)
    late = client.until(lambda message: message["content"].get("text") == "late\n")[-1]
    assert late["parent_header"]["msg_id"] == running


def test_question_that_nobody_asked_for(client):
    """Of a kernel that asks although the client does not allow it: the kernel works on."""
    messages = client.run(
        cell('send stdin input_request {"prompt":"x","password":false}', "print a")
    )
    assert text(messages) == "a\n"
