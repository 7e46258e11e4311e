# SPDX-License-Identifier: Apache-2.0
"""Large answers and messages of MCP: they come whole, whichever way they go, and nothing goes wrong where
somebody leaves in the middle of them. That they hold nobody up, and what memory they take, is in
tests/load/test_mcp.py."""

import concurrent.futures
import contextlib
import json
import socket
import threading

import httpx
import mcp_large
import pytest
from component import exact
from kernelgate import wait_for
from mcp_large import (
    BODY_BYTES,
    MESSAGES,
    SVG,
    check_figures,
    client_of,
    figures,
    text_client_of,
    with_values,
)
from mcp_wire import Client, call, gauge, result

TAKES_LONG = True


@pytest.fixture
def gateway(start_gateway, tmp_path):
    return start_gateway(*mcp_large.owners(tmp_path), key="alice-secret")


# ---- They come whole


@pytest.mark.threads
def test_figures_as_json(gateway):
    mcp_large.figures_as_json(client_of(gateway))


def test_figures_as_a_stream(gateway):
    client = client_of(gateway)
    mcp_large.figures_as_a_stream(client)
    # The newest response is kept, and sent again to a client that missed it.
    stream_of = {"message": call("run_python_code", code=figures()), "Accept": "text/event-stream"}
    with client.stream(**stream_of) as stream:
        for event in stream.events:
            if event.get("id") and not event.get("data"):
                break
    with client.stream("GET", Last_Event_ID=event["id"]) as stream:
        check_figures(next(json.loads(e["data"]) for e in stream.events if e.get("data")))


def test_figures_in_a_batch(gateway):
    mcp_large.figures_in_a_batch(client_of(gateway, "2025-03-26"))


def test_figures_over_the_old_transport(gateway):
    with mcp_large.old_transport(gateway) as ask:
        mcp_large.figures_over_the_old_transport(ask)
        mcp_large.large_code_over_the_old_transport(ask)


def test_an_image_of_ten_megabytes_as_text(gateway):
    mcp_large.large_text(text_client_of(gateway))


def test_large_images_with_escapes(gateway):
    """Base64 loses its line ends, SVG is unchanged, also within a JSON text."""
    code = (
        'display image/png "{20000*iVBOAAA\\n}"\n'
        f'display image/svg+xml "{{20000*{exact(SVG)[1:-1]}}}"\n'
    )
    client, as_text = client_of(gateway), text_client_of(gateway)
    content = result(client.post(call("run_python_code", code=code)))["content"]
    images = [block["data"] for block in content if block["type"] == "image"]
    assert images == ["iVBOAAA" * 20_000]
    message = call("execute_python_code", code=code, session_id=as_text.session_id)
    said = json.loads(result(as_text.post(message))["content"][0]["text"])
    assert [image["data"] for image in said["images"]] == ["iVBOAAA" * 20_000, SVG * 20_000]


@pytest.mark.threads
@pytest.mark.parametrize("message, ok", MESSAGES.values(), ids=MESSAGES)
def test_large_messages(gateway, message, ok):
    mcp_large.large_message(client_of(gateway), message, ok)


def test_large_files(gateway):
    mcp_large.large_files(client_of(gateway))()


# ---- Many at once


def test_ten_large_answers_at_once(gateway):
    """None is lost, though together they exceed the default bound of the logs."""
    clients = [client_of(gateway) for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(mcp_large.figures_as_json, clients))


def test_answers_that_nobody_reads_are_bounded(gateway):
    """The owner gets an error; another owner is not affected."""
    client = client_of(gateway)
    other = Client(gateway, key="bob-secret")
    other.headers["Accept"] = "application/json"
    result(other.post(call("run_python_code", code="result 1")))
    host, port = gateway.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
    sockets = []
    for n in range(8):  # seven exceed what one owner may have
        body = json.dumps(call("run_python_code", id_=100 + n, code=figures())).encode()
        sockets.append(socket.socket())
        sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sockets[-1].connect((host, int(port)))
        sockets[-1].sendall(
            f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer alice-secret\r\n{head}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
    refused = wait_for(
        lambda: client.post(call("run_python_code", code=figures())).json().get("error"), 120
    )
    assert refused["data"]["code"] == "rate_limited" and "were not read" in refused["message"]
    result(
        client.post(call("run_python_code", code="result 1"))
    )  # a small one is taken all the same
    check_figures(other.post(call("run_python_code", code=figures())).json())
    for one in sockets:
        one.close()
    wait_for(
        lambda: "result" in client.post(call("run_python_code", code=figures())).json(), 120, 0.5
    )


# ---- Somebody leaves


def leave_in_the_middle(client, message, seconds):
    """Sends a request, and closes the connection a moment later: whichever moment it is, is right."""
    timeout = httpx.Timeout(60, read=seconds)
    with (
        httpx.Client(base_url=client.http.base_url, headers=client.http.headers) as http,
        contextlib.suppress(httpx.ReadTimeout),
    ):
        http.post("/mcp", json=message, headers=client.headers, timeout=timeout)


@pytest.mark.threads
def test_clients_leave_at_every_moment(gateway):
    """While bodies are parsed, lines read, and responses encoded or sent: no call is left."""
    client = client_of(gateway)
    messages = [
        call("run_python_code", code=figures()),
        call("write_file", path="x", content="x" * BODY_BYTES),
        with_values(call("write_file", path="x", content=""), [1] * 340_000),
    ]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tries = [
            pool.submit(leave_in_the_middle, client, {**message, "id": f"{n}-{i}"}, 0.02 + n * 0.06)
            for n in range(6)
            for i, message in enumerate(messages)
        ]
        for attempt in tries:
            attempt.result()
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0, 120)
    check_figures(client.post(call("run_python_code", code=figures())).json())


@pytest.mark.threads
def test_an_mcp_session_ends_in_the_middle(gateway):
    for n in range(4):
        client = client_of(gateway)
        done = threading.Event()

        def ask(client=client, done=done):
            client.post(call("run_python_code", code=figures()))
            done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        done.wait(0.1 * n)  # whichever moment this is, is right
        ended = client.http.delete("/mcp", headers=client.headers)
        assert ended.status_code == 204
        asking.join()
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0, 120)


@pytest.mark.threads
def test_the_gateway_ends_in_the_middle(start_gateway, tmp_path):
    """If the gateway has sanitizers, their reports are checked when it has ended."""
    flags = mcp_large.owners(tmp_path)
    gateway = start_gateway(*flags, "--drain-timeout", "0", key="alice-secret")
    client = client_of(gateway)
    messages = [
        call("run_python_code", code=figures()),
        *[call("write_file", path="x", content="x" * BODY_BYTES)] * 4,
    ]

    def ask(i):
        try:
            client.post({**messages[i], "id": i})
        except httpx.HTTPError:
            return

    with concurrent.futures.ThreadPoolExecutor(len(messages)) as pool:
        for i in range(len(messages)):
            pool.submit(ask, i)
        wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") > 0, interval=0.001)
        gateway.stop()
