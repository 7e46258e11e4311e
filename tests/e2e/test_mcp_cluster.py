# SPDX-License-Identifier: Apache-2.0
"""kernelgate's own MCP tools with real kernels, also on a cluster."""

import pytest
from kernelgate import run_until_timeout, wait_for
from mcp_clients import client_of


@pytest.fixture(scope="module")
def client(gateway):
    with client_of("1", "http", gateway) as client:
        yield client
        client.call("close_session")


def test_a_link_of_a_result_can_be_read_as_a_file(client):
    create = {"session_id": "linked"}
    client.call("create_session", create)
    code = "open('ä b.txt', 'w').write('found')"
    (link,) = client.call("run_python_code", {"code": code, **create}).of("resource_link")
    assert client.call("read_file", {"path": link["uri"]}).text == "found"
    client.call("close_session", create)
    assert client.call("read_file", {"path": link["uri"]}).structured["code"] == "session_not_found"


def test_output_is_shaped_for_models(client):
    code = (
        "import sys\nprint('\\x1b[31mred\\x1b[0m')\nprint('10%\\r100%')\n"
        "print('warned', file=sys.stderr)\n'value'"
    )
    assert client.call("run_python_code", {"code": code}).text == (
        "[stdout]\nred\n100%\n\n[stderr]\nwarned\n\n[result]\n'value'"
    )
    assert "without output" in client.call("run_python_code", {"code": "x = 1"}).text


def test_long_output_is_cut_and_can_be_read(client):
    result = client.call("run_python_code", {"code": "for i in range(20000): print('line', i)"})
    assert len(result.text) < 22000
    assert result.text.startswith("line 0\n") and "line 19999\n" in result.text
    (link,) = result.of("resource_link")
    part = client.call("read_file", {"path": link["uri"], "offset": 100000, "limit": 1000}).text
    whole = "".join(f"line {i}\n" for i in range(20000))
    assert part.startswith(whole[100000:101000])
    (content,) = client.do("read", uri=link["uri"])["contents"]
    assert content["text"] == whole


def test_a_session_that_has_gone_is_made_anew_and_said_so(client, gateway):
    session = client.call("run_python_code", {"code": "x = 1"}).session_id
    gateway.delete_session(session)
    result = client.call("run_python_code", {"code": "'x' in globals()"})
    assert result.text.startswith("False") and f"session {session} did not exist" in result.text
    assert result.session_id == session
    named = client.call("run_python_code", {"code": "1", "session_id": "was-never-there"})
    assert "did not exist" in named.text
    client.call("close_session", {"session_id": "was-never-there"})
    client.call("close_session")
    assert "did not exist" not in client.call("run_python_code", {"code": "1"}).text


def test_sessions_are_listed_with_files_and_completed(client):
    client.call("create_session", {"session_id": "listed"})
    client.call("write_file", {"path": "d/ü #1.txt", "content": "x", "session_id": "listed"})
    assert "listed: python ready" in client.call("list_sessions").text
    assert "d/ü #1.txt" in client.call("list_files", {"session_id": "listed"}).text
    uris = [entry["uri"] for entry in client.do("resources")["resources"]]
    uri = "kernelgate://listed/d/%C3%BC%20%231.txt"
    assert uri in uris and client.do("read", uri=uri)["contents"][0]["text"] == "x"
    prompt = {"type": "ref/prompt", "name": "work_in_sandbox"}
    for argument, typed, expected in (
        ("session_id", "lis", ["listed"]),
        ("language", "py", ["python"]),
    ):
        params = {"ref": prompt, "argument": {"name": argument, "value": typed}}
        assert client.do("complete", params=params)["completion"]["values"] == expected
    text = client.do("prompt", name="work_in_sandbox", args={"task": "add"})["messages"][0]
    assert "add" in text["content"]["text"] and "run_python_code" in text["content"]["text"]
    client.call("close_session", {"session_id": "listed"})


def test_commands_run_beside_code(client):
    result = client.call("run_command", {"command": "echo out; echo err >&2; exit 3"})
    assert result.is_error
    assert result.text == "[stdout]\nout\n\n[stderr]\nerr\n\n[exit code 3]\n"
    assert client.call("run_command", {"command": "true"}).text == "[exit code 0, no output]\n"
    command = "echo begun; sleep 60"
    late = run_until_timeout(
        lambda timeout: client.call("run_command", {"command": command, "timeout": timeout}),
        lambda result: result.text.startswith("begun\n"),
    )
    assert late.is_error and "timed out" in late.text


def test_another_call_interrupts(gateway, client):
    session = client.call("run_python_code", {"code": "x = 7"}).session_id
    with client_of("1", "http", gateway) as other:
        other.start(
            "call",
            name="run_python_code",
            args={"code": "import time; time.sleep(60)", "session_id": session},
        )
        wait_for(lambda: gateway.show_session(session)["is_busy"])
        assert "interrupted" in client.call("interrupt_session").text
        assert "interrupted" in other.finish()["content"][0]["text"]
    assert client.call("run_python_code", {"code": "x"}).text == "7"
