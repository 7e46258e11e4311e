# SPDX-License-Identifier: Apache-2.0
"""Large answers and messages of MCP: they do not hold the loop, whichever way they go, and nothing
goes wrong where somebody leaves in the middle of them."""

import base64
import concurrent.futures
import contextlib
import json
import pathlib
import re
import socket
import threading

import httpx
import pytest
from kernelgate import wait_for
from mcp_wire import BOTH, Client, call, events, gauge, initialize, request, result
from waits import SANITIZED, holds_nobody_up

KEYS = "alice:alice-secret\nbob:bob-secret\n"
FIGURE_BYTES = 4_900_000  # of base64; larger ones are not shown to models
BODY_BYTES = 9_000_000

PATIENCE_S = 300  # of ten kernels that work at once, on a machine that does other things, too
PEAK_MB = 150 * (4 if SANITIZED else 1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(KEYS)
    return ["--api-keys-file", str(path), "--max-sessions-per-owner", "10"]


@pytest.fixture
def gateway(start_gateway, keys):
    return start_gateway("--pool-size", "1", *keys, key="alice-secret")


def client_of(gateway, version="2025-11-25"):
    """A client of alice with a ready session, which accepts only JSON."""
    client = Client(gateway, version, key="alice-secret")
    client.http.timeout = PATIENCE_S
    client.headers["Accept"] = "application/json"
    result(client.post(call("run_python_code", code="1")))
    return client


def figures(n=2):
    return (
        "from IPython.display import display\n"
        f"for i in range({n}):\n"
        f"    display({{'image/png': 'iVBO' + 'A' * {FIGURE_BYTES - 4}}}, raw=True)\n"
    )


def check_figures(answer, n=2):
    images = [block for block in answer["result"]["content"] if block["type"] == "image"]
    assert [len(image["data"]) for image in images] == [FIGURE_BYTES] * n
    assert all(image["data"].startswith("iVBOAAAA") for image in images)


# ---- Nobody waits


def test_figures_as_json(gateway):
    client = client_of(gateway)

    def ask():
        answer = client.post(call("run_python_code", code=figures()))
        assert answer.headers["content-type"] == "application/json"
        check_figures(answer.json())

    holds_nobody_up(gateway, "bob-secret", ask)


def test_figures_as_a_stream(gateway):
    client = client_of(gateway)

    def ask():
        message = call("run_python_code", code=figures(), token="t")
        with client.stream(message=message, Accept="text/event-stream") as stream:
            said = [json.loads(event["data"]) for event in stream.events if event.get("data")]
        check_figures(said[-1])
        assert all(message["method"] == "notifications/progress" for message in said[:-1])

    holds_nobody_up(gateway, "bob-secret", ask)
    # The newest response is kept, and sent again to a client that missed it.
    stream_of = {"message": call("run_python_code", code=figures()), "Accept": "text/event-stream"}
    with client.stream(**stream_of) as stream:
        for event in stream.events:
            if event.get("id") and not event.get("data"):
                break
    last = {"Last-Event-ID": event["id"]}
    with client.stream("GET", **{k.replace("-", "_"): v for k, v in last.items()}) as stream:
        check_figures(next(json.loads(e["data"]) for e in stream.events if e.get("data")))


def test_figures_in_a_batch(gateway):
    client = client_of(gateway, "2025-03-26")

    def ask():
        batch = [
            call("run_python_code", id_=7, code=figures()),
            request("ping", id_=8),
            call("run_python_code", id_=9, code=figures(1)),
        ]
        answers = {answer["id"]: answer for answer in client.post(batch).json()}
        assert set(answers) == {7, 8, 9} and answers[8]["result"] == {}
        check_figures(answers[7])
        check_figures(answers[9], 1)

    holds_nobody_up(gateway, "bob-secret", ask)


def test_figures_over_the_old_transport(gateway):
    params = {"api_key": "alice-secret"}
    with (
        gateway.client_for(None) as http,
        http.stream("GET", "/sse", params=params) as stream,
    ):
        coming = events(stream.iter_lines())
        endpoint = gateway.url + next(coming)["data"]

        def ask(message):
            assert httpx.post(endpoint, json=message).status_code == 202
            return json.loads(next(coming)["data"])

        ask(initialize("2024-11-05"))
        ask(call("run_python_code", code="1"))
        holds_nobody_up(
            gateway,
            "bob-secret",
            lambda: check_figures(ask(call("run_python_code", code=figures()))),
        )
        large = call("run_python_code", code="print(len('''" + "x" * 900_000 + "'''))")
        holds_nobody_up(gateway, "bob-secret", lambda: "900000" in json.dumps(ask(large)))


def text_client_of(gateway):
    """A client of the profile in which a figure of any size is part of a JSON text."""
    client = Client(gateway, key="alice-secret")
    client.http.timeout = PATIENCE_S
    client.http.params = {"profile": "sandbox-mcp"}
    client.headers = {**BOTH, "Accept": "application/json"}
    begun = client.post(initialize())
    client.headers["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
    answer = result(client.post(call("execute_python_code", code="1")))
    client.session_id = json.loads(answer["content"][0]["text"])["session_id"]
    return client


def ask_for_large_text(client):
    code = (
        "from IPython.display import display\n"
        "display({'image/png': 'A' * 10_000_000, 'text/plain': 'fig'}, raw=True)"
    )
    message = call(
        "execute_python_code", code=code, session_id=client.session_id, timeout=PATIENCE_S
    )
    said = json.loads(result(client.post(message))["content"][0]["text"])
    assert [image["data"] for image in said["images"]] == ["A" * 10_000_000]


def test_an_image_of_ten_megabytes_as_text(gateway):
    client = text_client_of(gateway)
    holds_nobody_up(gateway, "bob-secret", lambda: ask_for_large_text(client))


def test_large_images_with_escapes(gateway):
    """Base64 loses its line ends, SVG is unchanged, also within a JSON text."""
    code = (
        "from IPython.display import display\n"
        "display({'image/png': 'iVBOAAA\\n' * 20_000}, raw=True)\n"
        "display({'image/svg+xml': '<svg a=\"\\\\\">\\n</svg>' * 20_000}, raw=True)\n"
    )
    svg = '<svg a="\\">\n</svg>' * 20_000
    client, as_text = client_of(gateway), text_client_of(gateway)
    content = result(client.post(call("run_python_code", code=code)))["content"]
    images = [block["data"] for block in content if block["type"] == "image"]
    assert images == ["iVBOAAA" * 20_000]
    message = call("execute_python_code", code=code, session_id=as_text.session_id)
    said = json.loads(result(as_text.post(message))["content"][0]["text"])
    assert [image["data"] for image in said["images"]] == ["iVBOAAA" * 20_000, svg]


def with_values(message, values):
    message["params"]["_meta"] = {"values": values}
    return message


@pytest.mark.parametrize(
    "message, ok",
    [
        (call("write_file", path="x", content="x" * BODY_BYTES), True),
        (call("write_file", path="x", content="A" * BODY_BYTES, encoding="base64"), True),
        (with_values(call("write_file", path="x", content=""), [1] * 340_000), True),
        (with_values(call("write_file", path="x", content=""), [{}] * 40_000), True),
        (with_values(request("no/such/method"), [1] * 340_000), False),
        ("x" * BODY_BYTES, False),
    ],
    ids=["text", "base64", "numbers", "objects", "refused", "invalid"],
)
def test_large_messages(gateway, message, ok):
    client = client_of(gateway)
    body = json.dumps(message)

    def post():
        answer = client.http.post("/mcp", content=body, headers=client.headers)
        assert ("result" in answer.json() and not answer.json()["result"].get("isError")) == ok

    holds_nobody_up(gateway, "bob-secret", post)


def test_large_files(gateway):
    client = client_of(gateway)
    code = (
        "open('binary', 'wb').write(bytes(range(256)) * 40_000)\n"
        "open('text', 'w').write('text\\n' * 2_000_000)"
    )
    session_id = result(client.post(call("run_python_code", code=code)))["_meta"][
        "kernelgate/session_id"
    ]

    def read(name):
        message = request("resources/read", uri=f"kernelgate://{session_id}/{name}")
        return result(client.post(message))["contents"][0]

    def read_both():
        assert base64.b64decode(read("binary")["blob"]) == bytes(range(256)) * 40_000
        assert read("text")["text"] == "text\n" * 2_000_000

    holds_nobody_up(gateway, "bob-secret", read_both)


# ---- Memory


def memory_mb(gateway, field):
    status = pathlib.Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024


def test_ten_large_answers_at_once_are_bounded(gateway):
    """None is lost either, though together they exceed the default bound of the logs."""
    clients = [client_of(gateway) for _ in range(10)]

    def ask(client):
        answer = client.post(call("run_python_code", code=figures(), timeout=PATIENCE_S))
        check_figures(answer.json())

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(ask, clients))
    assert memory_mb(gateway, "VmHWM") < PEAK_MB


def test_ten_large_texts_at_once_are_bounded(gateway):
    clients = [text_client_of(gateway) for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(ask_for_large_text, clients))
    assert memory_mb(gateway, "VmHWM") < PEAK_MB


def test_answers_that_nobody_reads_are_bounded(gateway):
    """The owner gets an error; another owner is not affected."""
    client = client_of(gateway)
    other = Client(gateway, key="bob-secret")
    other.headers["Accept"] = "application/json"
    result(other.post(call("run_python_code", code="1")))
    host, port = gateway.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
    sockets = []
    for n in range(12):
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
        lambda: client.post(call("run_python_code", code=figures())).json().get("error"), 60
    )
    assert refused["data"]["code"] == "rate_limited" and "were not read" in refused["message"]
    result(client.post(call("run_python_code", code="1")))  # a small one is taken all the same
    check_figures(other.post(call("run_python_code", code=figures())).json())
    for one in sockets:
        one.close()
    wait_for(
        lambda: "result" in client.post(call("run_python_code", code=figures())).json(), 30, 0.5
    )


# ---- Somebody leaves


def leave_in_the_middle(client, message, seconds):
    """Sends a request, and closes the connection a moment later."""
    timeout = httpx.Timeout(60, read=seconds)
    with (
        httpx.Client(base_url=client.http.base_url, headers=client.http.headers) as http,
        contextlib.suppress(httpx.ReadTimeout),
    ):
        http.post("/mcp", json=message, headers=client.headers, timeout=timeout)


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
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0, 60)
    check_figures(client.post(call("run_python_code", code=figures())).json())


def test_an_mcp_session_ends_in_the_middle(gateway):
    for n in range(4):
        client = client_of(gateway)
        done = threading.Event()

        def ask(client=client, done=done):
            client.post(call("run_python_code", code=figures()))
            done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        done.wait(0.1 * n)
        ended = client.http.delete("/mcp", headers=client.headers)
        assert ended.status_code == 204
        asking.join()
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0, 60)


def test_the_gateway_ends_in_the_middle(start_gateway, keys):
    """If the gateway has sanitizers, their reports are checked when it has ended."""
    gateway = start_gateway("--pool-size", "1", *keys, "--drain-timeout", "0", key="alice-secret")
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
