# SPDX-License-Identifier: Apache-2.0
"""What agents do with MCP: state, figures, files, progress, cancel, errors."""

import base64

import pytest
from mcp_clients import McpError

# The smallest PNG there is.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# The cells, in the languages of both kernels.
PYTHON = {
    "set": "x = 41",
    "next": "x + 1",
    "print": "print(x)",
    "figure": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()",
    "error": "1/0",
    "upper": "open('out.txt', 'w').write(open('in.csv').read().upper())",
    "held": "import os, time\nprint('tick')\nwhile not os.path.exists('go'): time.sleep(0.02)",
    "hang": "import time; print('on'); time.sleep(600)",
}
SCRIPT = {
    "set": "set x 41",
    "next": "result 42",
    "print": "get x",
    "figure": f"display image/png {PNG}",
    "error": "error ZeroDivisionError division by zero",
    "upper": "sh tr a-z A-Z <in.csv >out.txt",
    "held": "print tick\nwait go",
    "hang": "print on\nhang",
}


def lists_its_tools(client):
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


def keeps_state(client, cells):
    """Returns the arguments that name the session, and those that a call in it needs. Without an MCP
    session, the id goes from call to call, as the description says."""
    first = client.call("run_python_code", {"code": cells["set"]})
    assert not first.is_error
    session = {"session_id": first.session_id}
    named = f'session_id="{first.session_id}"' in first.text
    assert named == client.stateless, first.text
    own = session if named else {}
    assert client.call("run_python_code", {"code": cells["next"], **own}).text.startswith("42")
    assert client.call("run_code", {"code": cells["print"], **session}).text == "41\n"
    return session, own


def shows_output_and_files(client, cells, session, own):
    figure = client.call("run_python_code", {"code": cells["figure"], **own})
    assert figure.image() and base64.b64encode(figure.image()[:60]).decode() not in figure.text
    error = client.call("run_python_code", {"code": cells["error"], **own})
    assert error.is_error and "ZeroDivisionError: division by zero" in error.text
    table = {"path": "in.csv", "content": "a,b\n1,2\n", **own}
    assert not client.call("write_file", table).is_error
    client.call("run_python_code", {"code": cells["upper"], **own})
    assert client.call("read_file", {"path": "out.txt", **own}).text == "A,B\n1,2\n"
    uris = [resource["uri"] for resource in client.do("resources")["resources"]]
    uri = f"kernelgate://{session['session_id']}/out.txt"
    assert uri in uris
    (content,) = client.do("read", uri=uri)["contents"]
    assert content["text"] == "A,B\n1,2\n" and content["mimeType"] == "text/plain"


def reports_progress_and_cancels(client, cells, own):
    release = {"name": "write_file", "args": {"path": "go", "content": "", **own}}
    held = {"code": cells["held"], "timeout": 300, **own}
    told = client.call("run_python_code", held, progress=True, on_progress=release)
    values = [news["progress"] for news in told.progress]
    assert values and values == sorted(set(values))
    assert any(news["message"].startswith("tick") for news in told.progress if news.get("message"))
    # The kernel is free again long before the time is over, and has kept its state.
    hanging = {"code": cells["hang"], "timeout": 600, **own}
    with pytest.raises(McpError):
        client.call("run_python_code", hanging, on_progress="cancel")
    assert client.call("run_python_code", {"code": cells["print"], **own}).text.startswith("41")


def refuses(client):
    """Wrong arguments are reported to the model, an unknown tool to the client."""
    wrong = client.call("run_python_code", {"cod": "x"})
    assert wrong.is_error and 'unknown argument "cod"' in wrong.text
    with pytest.raises(McpError) as unknown:
        client.call("no_such_tool")
    assert unknown.value.code == -32602


def work_through(client, cells):
    """Uses everything that every client can do, over any transport."""
    lists_its_tools(client)
    session, own = keeps_state(client, cells)
    shows_output_and_files(client, cells, session, own)
    reports_progress_and_cancels(client, cells, own)
    refuses(client)
    assert not client.call("close_session", session).is_error
