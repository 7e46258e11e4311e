# SPDX-License-Identifier: Apache-2.0
"""Real MCP clients do what agents do: state, figures, files, progress, cancel, errors."""

import base64
import json
import os
import subprocess
import time

import pytest
from kernelgate import free_port
from mcp_clients import NODE, NODE_ROOT, McpError, NodeClient, client_of

CLIENTS = [
    ("1", "http"),
    ("1", "sse"),
    ("1", "stdio"),
    ("2-legacy", "http"),
    ("2-legacy", "sse"),
    ("2-legacy", "stdio"),
    ("2-auto", "http"),
    ("2-auto", "stdio"),
    ("python-legacy", "http"),
    ("python-legacy", "stdio"),
    ("python-auto", "http"),
    ("python-auto", "stdio"),
]
LONG_S = 62
FIGURE = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
TICKS = "import time\nfor i in range({n}): print('tick', i, flush=True); time.sleep({s})"


@pytest.fixture(scope="module", autouse=True)
def long_call(gateway):
    """A call that takes longer than clients wait; it runs beside all other tests of this file."""
    client = NodeClient("1", "http", gateway.url + "/mcp")
    client.__enter__()
    code = f"import time; time.sleep({LONG_S}); print('still here')"
    client.start(
        "call",
        name="run_python_code",
        args={"code": code, "timeout": 90},
        progress=True,
        timeout=20000,
    )
    yield client
    client.__exit__()


@pytest.fixture(params=CLIENTS, ids="-".join)
def client(request, gateway, own_gateway):
    with client_of(*request.param, gateway, flags=own_gateway) as client:
        yield client


def work_through(client):
    """Uses everything that every client can do, over any transport."""
    assert client.info["server"] == "kernelgate"
    assert "run_python_code" in client.info["instructions"]
    tools = client.tools()
    for name in (
        "run_python_code",
        "run_code",
        "run_command",
        "list_files",
        "read_file",
        "create_session",
    ):
        assert tools[name]["description"] and tools[name]["inputSchema"]["type"] == "object"
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True
    assert "outputSchema" not in tools["run_python_code"]

    # State. Without an MCP session, the id goes from call to call, as the description says.
    first = client.call("run_python_code", {"code": "x = 41"})
    assert not first.is_error
    session = {"session_id": first.session_id}
    named = f'session_id="{first.session_id}"' in first.text
    assert named == client.stateless, first.text
    own = session if named else {}
    assert client.call("run_python_code", {"code": "x + 1", **own}).text.startswith("42")
    assert client.call("run_code", {"code": "print(x)", **session}).text == "41\n"

    # A figure, an error, a file.
    figure = client.call("run_python_code", {"code": FIGURE, **own})
    assert figure.image() and base64.b64encode(figure.image()[:60]).decode() not in figure.text
    error = client.call("run_python_code", {"code": "1/0", **own})
    assert error.is_error and "ZeroDivisionError: division by zero" in error.text
    assert not client.call(
        "write_file", {"path": "in.csv", "content": "a,b\n1,2\n", **own}
    ).is_error
    code = "open('out.txt', 'w').write(open('in.csv').read().upper())"
    client.call("run_python_code", {"code": code, **own})
    assert client.call("read_file", {"path": "out.txt", **own}).text == "A,B\n1,2\n"
    uris = [resource["uri"] for resource in client.do("resources")["resources"]]
    uri = f"kernelgate://{first.session_id}/out.txt"
    assert uri in uris
    (content,) = client.do("read", uri=uri)["contents"]
    assert content["text"] == "A,B\n1,2\n" and content["mimeType"] == "text/plain"

    # Progress, and cancel: the kernel is free again at once, and has kept its state.
    told = client.call("run_python_code", {"code": TICKS.format(n=3, s=0.8), **own}, progress=True)
    values = [news["progress"] for news in told.progress]
    assert values and values == sorted(set(values))
    assert any(news["message"].startswith("tick") for news in told.progress)
    with pytest.raises(McpError):
        client.call(
            "run_python_code", {"code": "import time; time.sleep(60)", **own}, cancel_after=1000
        )
    started = time.monotonic()
    assert client.call("run_python_code", {"code": "x", **own}).text.startswith("41")
    assert time.monotonic() - started < 25  # and not when its 30 seconds are over

    # Wrong arguments are reported to the model, an unknown tool to the client.
    wrong = client.call("run_python_code", {"cod": "x"})
    assert wrong.is_error and 'unknown argument "cod"' in wrong.text
    with pytest.raises(McpError) as unknown:
        client.call("no_such_tool")
    assert unknown.value.code == -32602
    assert not client.call("close_session", session).is_error


def test_a_client_works(client):
    work_through(client)


def test_a_gateway_that_was_restarted(start_gateway, tmp_path):
    """A client connects again and continues in its session."""
    gateway = start_gateway("--pool-size", "0", "--port", str(free_port()))
    with client_of("1", "http", gateway) as client:
        session = client.call("run_python_code", {"code": "x = 41"}).session_id
        gateway.kill()
        gateway.start()
        with pytest.raises(McpError) as lost:
            client.call("run_python_code", {"code": "x"})
        assert "404" in str(lost.value) or lost.value.code in (404, -32001), lost.value
        client.info = client.do("connect")
        again = client.call("run_python_code", {"code": "x + 1", "session_id": session})
        assert again.text == "42"


def inspect(*arguments, exit_code=0):
    cli = NODE_ROOT / "node_modules/.bin/inspector"
    process = subprocess.run(
        [NODE, cli, "--cli", *arguments], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert process.returncode == exit_code, process.stderr
    return json.loads(process.stdout)


def test_the_inspectors_command_line(gateway):
    target = [gateway.url + "/mcp", "--transport", "http"]
    tools = inspect(*target, "--method", "tools/list")["tools"]
    assert "run_python_code" in [tool["name"] for tool in tools]
    call = [*target, "--method", "tools/call", "--tool-name", "run_python_code", "--tool-arg"]
    assert inspect(*call, "code=6*7")["content"][0]["text"] == "42"
    figure = inspect(*call, "code=" + FIGURE)
    assert figure["content"][1]["mimeType"] == "image/png"
    is_error = 5  # what it ends with then
    assert inspect(*call, "code=1/0", exit_code=is_error)["isError"] is True


def test_a_call_longer_than_a_minute(long_call):
    """The client waits 20 s for a message, and progress is reported often enough."""
    result = long_call.finish()
    assert result["content"][0]["text"] == "still here\n"
    assert result["ms"] > LONG_S * 1000
    times = [news["at"] for news in result["progress"]]
    assert max(later - earlier for earlier, later in zip(times, times[1:])) < 15_000
