# SPDX-License-Identifier: Apache-2.0
"""Large answers and messages of MCP, which go each way; with the scripted kernel."""

import base64
import contextlib
import json

import httpx
from mcp_wire import Client, call, events, initialize, request, result

KEYS = "alice:alice-secret\nbob:bob-secret\n"
FIGURE_BYTES = 4_900_000  # of base64; larger ones are not shown to models
BODY_BYTES = 9_000_000
PATIENCE_S = 300  # of ten kernels that work at once, on a machine that does other things, too
SVG = '<svg a="\\">\n</svg>'


def owners(tmp_path):
    """Flags for the owners alice and bob."""
    path = tmp_path / "keys"
    path.write_text(KEYS)
    return ["--api-keys-file", str(path), "--max-sessions-per-owner", "10"]


def client_of(gateway, version="2025-11-25"):
    """A client of alice with a ready session, which accepts only JSON."""
    client = Client(gateway, version, key="alice-secret")
    client.http.timeout = PATIENCE_S
    client.headers["Accept"] = "application/json"
    result(client.post(call("run_python_code", code="result 1")))
    return client


def text_client_of(gateway):
    """A client of the profile in which a figure of any size is part of a JSON text."""
    client = Client(gateway, key="alice-secret", profile="sandbox-mcp")
    client.http.timeout = PATIENCE_S
    client.headers["Accept"] = "application/json"
    answer = result(client.post(call("execute_python_code", code="result 1")))
    client.session_id = json.loads(answer["content"][0]["text"])["session_id"]
    return client


def figures(n=2):
    return "\n".join([f"display image/png iVBO{{{FIGURE_BYTES - 4}*A}}"] * n)


def check_figures(answer, n=2):
    images = [block for block in answer["result"]["content"] if block["type"] == "image"]
    assert [len(image["data"]) for image in images] == [FIGURE_BYTES] * n
    assert all(image["data"].startswith("iVBOAAAA") for image in images)


def with_values(message, values):
    message["params"]["_meta"] = {"values": values}
    return message


# Messages, and whether each is accepted.
MESSAGES = {
    "text": (call("write_file", path="x", content="x" * BODY_BYTES), True),
    "base64": (
        call("write_file", path="x", content="A" * BODY_BYTES, encoding="base64"),
        True,
    ),
    "numbers": (with_values(call("write_file", path="x", content=""), [1] * 340_000), True),
    "objects": (with_values(call("write_file", path="x", content=""), [{}] * 40_000), True),
    "refused": (with_values(request("no/such/method"), [1] * 340_000), False),
    "invalid": ("x" * BODY_BYTES, False),
}


# ---- Each of these asks with a client for something large, and checks what comes


def figures_as_json(client):
    answer = client.post(call("run_python_code", code=figures()))
    assert answer.headers["content-type"] == "application/json"
    check_figures(answer.json())


def figures_as_a_stream(client):
    message = call("run_python_code", code=figures(), token="t")
    with client.stream(message=message, Accept="text/event-stream") as stream:
        said = [json.loads(event["data"]) for event in stream.events if event.get("data")]
    check_figures(said[-1])
    assert all(message["method"] == "notifications/progress" for message in said[:-1])


def figures_in_a_batch(client):
    """The client is one of 2025-03-26."""
    batch = [
        call("run_python_code", id_=7, code=figures()),
        request("ping", id_=8),
        call("run_python_code", id_=9, code=figures(1)),
    ]
    answers = {answer["id"]: answer for answer in client.post(batch).json()}
    assert set(answers) == {7, 8, 9} and answers[8]["result"] == {}
    check_figures(answers[7])
    check_figures(answers[9], 1)


def large_text(client):
    """The client is one of text_client_of()."""
    bundle = '{"image/png":"{10000000*A}","text/plain":"fig"}'
    arguments = {"session_id": client.session_id, "timeout": PATIENCE_S}
    message = call("execute_python_code", code=f"display {bundle}", **arguments)
    said = json.loads(result(client.post(message))["content"][0]["text"])
    assert [image["data"] for image in said["images"]] == ["A" * 10_000_000]


def large_message(client, message, ok):
    body = json.dumps(message)
    answer = client.http.post("/mcp", content=body, headers=client.headers).json()
    assert ("result" in answer and not answer["result"].get("isError")) == ok


def large_files(client):
    python = "open('binary', 'wb').write(bytes(range(256)) * 40_000)"
    code = f'sh python3 -c "{python}"\nwrite text "{{2000000*text\\n}}"'
    made = result(client.post(call("run_python_code", code=code)))
    session_id = made["_meta"]["kernelgate/session_id"]

    def read(name):
        message = request("resources/read", uri=f"kernelgate://{session_id}/{name}")
        return result(client.post(message))["contents"][0]

    def read_both():
        assert base64.b64decode(read("binary")["blob"]) == bytes(range(256)) * 40_000
        assert read("text")["text"] == "text\n" * 2_000_000

    return read_both


# ---- The old transport


@contextlib.contextmanager
def old_transport(gateway):
    """Yields a function that sends a message over HTTP+SSE, and returns the answer."""
    params = {"api_key": "alice-secret"}
    with (
        gateway.client_for(None) as http,
        http.stream("GET", "/sse", params=params, timeout=PATIENCE_S) as stream,
    ):
        coming = events(stream.iter_lines())
        endpoint = gateway.url + next(coming)["data"]

        def ask(message):
            assert httpx.post(endpoint, json=message, timeout=PATIENCE_S).status_code == 202
            return json.loads(next(coming)["data"])

        ask(initialize("2024-11-05"))
        ask(call("run_python_code", code="result 1"))
        yield ask


def figures_over_the_old_transport(ask):
    check_figures(ask(call("run_python_code", code=figures())))


def large_code_over_the_old_transport(ask):
    code = f"write f {'x' * 900_000}\nsh wc -c <f"
    assert "900000" in json.dumps(ask(call("run_python_code", code=code)))
