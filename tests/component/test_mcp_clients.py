# SPDX-License-Identifier: Apache-2.0
"""Real MCP clients do what agents do, over every transport that they have."""

import json
import os
import subprocess

import component
import pytest
from kernelgate import free_port
from mcp_clients import NODE, NODE_ROOT, McpError, NodeClient, client_of
from mcp_work import SCRIPT, work_through

TAKES_LONG = True

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


@pytest.fixture(scope="module", autouse=True)
def long_call(gateway):
    """A call that takes longer than clients wait; it runs beside all other tests of this file."""
    client = NodeClient("1", "http", gateway.url + "/mcp")
    client.__enter__()
    code = f"sleep {LONG_S}\nprint still here"
    client.start(
        "call",
        name="run_python_code",
        args={"code": code, "timeout": 300},
        progress=True,
        timeout=20000,
    )
    yield client
    client.__exit__()


@pytest.mark.parametrize("sdk, transport", CLIENTS, ids=map("-".join, CLIENTS))
def test_a_client_works(gateway, own_gateway, sdk, transport):
    with client_of(sdk, transport, gateway, flags=[*own_gateway, *component.FLAGS]) as client:
        work_through(client, SCRIPT)


def test_a_gateway_that_was_restarted(start_gateway):
    """A client connects again and continues in its session."""
    gateway = start_gateway("--port", str(free_port()))
    with client_of("1", "http", gateway) as client:
        session = client.call("run_python_code", {"code": "set x 42"}).session_id
        gateway.kill()
        gateway.start()
        with pytest.raises(McpError) as lost:
            client.call("run_python_code", {"code": "get x"})
        assert "404" in str(lost.value) or lost.value.code in (404, -32001), lost.value
        client.info = client.do("connect")
        again = client.call("run_python_code", {"code": "get x", "session_id": session})
        assert again.text == "42\n"


def inspect(*arguments, exit_code=0):
    cli = NODE_ROOT / "node_modules/.bin/inspector"
    process = subprocess.run(
        [NODE, cli, "--cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
        check=False,
    )
    assert process.returncode == exit_code, process.stderr
    return json.loads(process.stdout)


def test_the_inspectors_command_line(gateway):
    target = [gateway.url + "/mcp", "--transport", "http"]
    tools = inspect(*target, "--method", "tools/list")["tools"]
    assert "run_python_code" in [tool["name"] for tool in tools]
    call = [*target, "--method", "tools/call", "--tool-name", "run_python_code", "--tool-arg"]
    assert inspect(*call, "code=result 42")["content"][0]["text"] == "42"
    figure = inspect(*call, "code=" + SCRIPT["figure"])
    assert figure["content"][1]["mimeType"] == "image/png"
    is_error = 5  # what it ends with then
    assert inspect(*call, "code=" + SCRIPT["error"], exit_code=is_error)["isError"] is True


def test_a_call_longer_than_a_minute(long_call):
    """The client waits 20 s for a message; progress is reported each 8 s."""
    result = long_call.finish()
    assert result["content"][0]["text"] == "still here\n"
    assert result["ms"] > LONG_S * 1000
    assert len(result["progress"]) >= LONG_S / 15
