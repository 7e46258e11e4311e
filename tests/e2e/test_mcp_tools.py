# SPDX-License-Identifier: Apache-2.0
"""kernelgate's own MCP tools: errors, long output, ended sessions, other owners."""

import json
import re

import pytest
from kernelgate import PROJECT, run_until_timeout, wait_for
from mcp_clients import McpError, client_of

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}


@pytest.fixture(scope="module")
def client(gateway):
    with client_of("1", "http", gateway) as client:
        yield client


def code_of(result):
    """The code of an error result, whose text has it, too."""
    assert result.is_error
    assert result.text.startswith(f"Error {result.structured['code']}: ")
    return result.structured["code"]


@pytest.mark.parametrize(
    "name, arguments, code",
    [
        ("run_python_code", {}, "invalid_request"),
        ("run_python_code", {"code": 1}, "invalid_request"),
        ("run_python_code", {"code": "1", "timeout": 0}, "invalid_request"),
        ("run_python_code", {"code": "1", "timeout": 1e9}, "invalid_request"),
        ("run_python_code", {"code": "1", "session_id": "a/b"}, "invalid_session_id"),
        ("run_python_code", {"code": "1" * (1 << 20 | 1)}, "code_too_large"),
        ("run_code", {"code": "1", "language": "cobol"}, "unknown_kernel"),
        ("run_command", {"command": ["ls"]}, "invalid_request"),
        ("run_command", {"command": "ls", "cwd": "/nowhere"}, "invalid_path"),
        ("install_packages", {"packages": []}, "invalid_request"),
        ("install_packages", {"packages": ["--index-url=http://x"]}, "invalid_request"),
        ("read_file", {"path": "nothing"}, "not_found"),
        ("read_file", {"path": "../../etc/passwd"}, "invalid_path"),
        ("read_file", {"path": "/etc/passwd"}, "invalid_path"),
        ("read_file", {"path": "x", "limit": 1 << 30}, "invalid_request"),
        ("read_file", {"path": "kernelgate-output://nothing"}, "not_found"),
        ("write_file", {"path": "x", "content": "%", "encoding": "base64"}, "invalid_content"),
        ("write_file", {"path": "x", "content": "", "encoding": "latin1"}, "invalid_request"),
        ("write_file", {"path": "a/../b", "content": ""}, "invalid_path"),
        ("interrupt_session", {"session_id": "nobodys"}, "session_not_found"),
        ("close_session", {"session_id": "nobodys"}, "session_not_found"),
        ("create_session", {"session_id": "a b"}, "invalid_session_id"),
        ("create_session", {"idle_timeout": 0.5}, "invalid_request"),
    ],
)
def test_bad_arguments(client, name, arguments, code):
    assert code_of(client.call(name, arguments)) == code


def test_what_n8n_adds_is_ignored(client):
    extra = {"sessionId": "x", "action": "sendMessage", "chatInput": "hi", "toolCallId": "y"}
    assert client.call("run_python_code", {"code": "6 * 7", **extra}).text == "42"


def test_what_is_left_empty_counts_as_not_given(client):
    session = client.call("run_python_code", {"code": "a = 1"}).session_id
    empty = {"session_id": "", "language": ""}
    assert client.call("run_code", {"code": "a", **empty}).session_id == session
    assert client.call("list_files", {"path": "", "after": "", "session_id": ""}).text
    assert code_of(client.call("write_file", {"path": "", "content": ""})) == "invalid_path"


def test_a_link_of_a_result_can_be_read_as_a_file(client):
    create = {"session_id": "linked"}
    client.call("create_session", create)
    code = "open('ä b.txt', 'w').write('found')"
    (link,) = client.call("run_python_code", {"code": code, **create}).of("resource_link")
    assert client.call("read_file", {"path": link["uri"]}).text == "found"
    client.call("close_session", create)
    assert code_of(client.call("read_file", {"path": link["uri"]})) == "session_not_found"


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


def read_in_parts(client, path, limit):
    """Reads a text as a model does: each part says how to go on."""
    text, offset = "", 0
    while True:
        part = client.call("read_file", {"path": path, "offset": offset, "limit": limit}).text
        match = re.fullmatch(r"(?s)(.*)\n\[bytes (\d+) to (\d+) of \d+(; go on with .*)?\]", part)
        assert int(match[2]) == offset < int(match[3]), part
        text, offset = text + match[1], int(match[3])
        if not match[4]:
            return text


def test_parts_are_whole_characters(client):
    text = "aé☃😀\n" * 3
    client.call("write_file", {"path": "parts.txt", "content": text})
    output = client.call("run_python_code", {"code": f"print({text!r} * 20_000)"})
    (link,) = output.of("resource_link")
    for limit in (4, 5, 7):
        assert read_in_parts(client, "parts.txt", limit) == text
    assert read_in_parts(client, link["uri"], 20_000) == text * 20_000 + "\n"
    for path in ("parts.txt", link["uri"]):
        inside = client.call("read_file", {"path": path, "offset": 5, "limit": 6}).text
        assert inside.startswith("😀\n\n[bytes 6 to 11 of "), inside
        for limit in (0, 3, 20_001):
            refused = client.call("read_file", {"path": path, "limit": limit})
            assert code_of(refused) == "invalid_request" and "4 to 20000" in refused.text


def test_a_resource_that_is_nearly_text_is_bytes(client):
    code = r"open('near', 'wb').write(b'\x80hello\n'); open('far', 'wb').write(b'hello\xc3')"
    session = client.call("run_python_code", {"code": code}).session_id
    for name, base64 in (("near", "gGhlbGxvCg=="), ("far", "aGVsbG/D")):
        (content,) = client.do("read", uri=f"kernelgate://{session}/{name}")["contents"]
        assert content["blob"] == base64 and "text" not in content


def test_a_timeout_says_what_to_do(client):
    client.call("run_python_code", {"code": "x = 5"})
    code = "import time\ntime.sleep(60)"
    result = client.call("run_python_code", {"code": code, "timeout": 1})
    assert result.is_error and "TimeoutError" in result.text and "larger timeout" in result.text
    assert client.call("run_python_code", {"code": "x"}).text == "5"


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


def test_anothers_session_does_not_exist(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    gateway = start_gateway("--pool-size", "0", "--api-keys-file", str(keys))
    with (
        client_of("1", "http", gateway, key=KEYS["alice"]) as alice,
        client_of("2-auto", "http", gateway, key=KEYS["bob"]) as bob,
    ):
        mine = alice.call("run_python_code", {"code": "open('secret', 'w').write('x')"}).session_id
        for name in ("interrupt_session", "close_session"):
            assert code_of(bob.call(name, {"session_id": mine})) == "session_not_found"
        assert mine not in json.dumps(bob.call("list_sessions").value)
        with pytest.raises(McpError):
            bob.do("read", uri=f"kernelgate://{mine}/secret")
        # The same id is another session for bob.
        code = "import os; 'secret' in os.listdir()"
        ours = bob.call("run_python_code", {"code": code, "session_id": mine})
        assert ours.text.startswith("False")
        assert not alice.call("read_file", {"path": "secret"}).is_error


def test_sessions_that_nobody_can_name_make_room(start_gateway):
    """A client without MCP sessions that never reuses an id can always get a new session."""
    gateway = start_gateway("--pool-size", "0", "--max-sessions", "2")
    with client_of("2-auto", "http", gateway) as client:
        kept = client.call("run_python_code", {"code": "x = 1"}).session_id
        assert client.call("run_python_code", {"code": "x", "session_id": kept}).text == "1"
        ids = [client.call("run_python_code", {"code": "1"}).session_id for _ in range(3)]
        assert len(set(ids)) == 3
        assert client.call("run_python_code", {"code": "x", "session_id": kept}).text == "1"
        client.call("create_session", {"session_id": "named"})
        assert code_of(client.call("run_python_code", {"code": "1"})) == "max_sessions"


def test_a_session_whose_file_is_read_makes_no_room(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--max-sessions", "1")
    code = "import os; open('large', 'wb').write(os.urandom(40 << 20))"
    with client_of("2-auto", "http", gateway) as client:
        unnamed = client.call("run_python_code", {"code": code}).session_id
        url = f"/api/v1/sessions/{unnamed}/files/large"
        with gateway.client.stream("GET", url) as response:
            pieces = response.iter_raw(1 << 20)
            received = len(next(pieces))
            assert code_of(client.call("run_python_code", {"code": "1"})) == "max_sessions"
            received += sum(map(len, pieces))
        assert received == 40 << 20
        wait_for(lambda: not client.call("run_python_code", {"code": "1"}).is_error)


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


def call_with_log(gateway, tool, arguments):
    """Makes a call in revision 2026-07-28; returns its log messages and its result."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "warning",
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = gateway.client.post("/mcp", json=request, headers=headers)
    if answer.headers["content-type"] == "application/json":
        return [], answer.json()["result"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]
    said = [it["params"]["data"] for it in events if it.get("method") == "notifications/message"]
    return said, events[-1]["result"]


def test_log_messages_for_those_who_ask(gateway):
    arguments = {"code": "import os; os._exit(1)", "session_id": "logged"}
    said, result = call_with_log(gateway, "run_python_code", arguments)
    assert said == [
        "session logged was created again",
        "the kernel of session logged was restarted",
    ]
    assert result["isError"] and "the kernel was restarted" in result["content"][0]["text"]
    gateway.delete_session("logged")


def test_a_session_that_was_asked_for_is_no_news(gateway):
    said, result = call_with_log(gateway, "create_session", {"session_id": "asked-for"})
    assert said == [] and "asked-for is ready" in result["content"][0]["text"]
    gateway.delete_session("asked-for")


@pytest.mark.parametrize("keep", [[], ["--keep-sandboxes"]], ids=["ending", "keeping"])
def test_a_shutdown_in_the_middle_of_a_call(start_gateway, keep):
    gateway = start_gateway("--pool-size", "0", "--drain-timeout", "1", *keep)
    client = client_of("1", "http", gateway).__enter__()
    session = client.call("run_python_code", {"code": "1"}).session_id
    client.start("call", name="run_python_code", args={"code": "import time; time.sleep(60)"})
    wait_for(lambda: gateway.show_session(session)["is_busy"])
    gateway.stop()
    assert client.finish()["isError"] is True
    client.end()
    if keep:
        gateway.flags = ("--pool-size", "0", "--drain-timeout", "0")
        gateway.start()
        assert gateway.show_session(session)["session_id"] == session


# ---- The documentation


def documented_tools(profile):
    """{name: parameters} as docs/mcp.md has them; an optional one ends with a question mark."""
    page = (PROJECT / "docs/mcp.md").read_text()
    block = re.search(rf"<!-- tools of {profile} -->\n(.*?)<!-- end -->", page, re.DOTALL)[1]
    tools = {}
    for row in block.splitlines()[2:]:
        first, second = row.strip("| ").split(" | ")[:2]
        name, _, called_with = first.strip("`").partition("(")
        listed = called_with.rstrip(")") if "(" in first else second.replace("`", "")
        previous = tools[list(tools)[-1]] if tools else None
        same = listed == "the same"
        tools[name] = previous if same else sorted(part for part in listed.split(", ") if part)
    return tools


@pytest.mark.parametrize(
    "profile",
    ["kernelgate", "sandbox-mcp", "code-sandbox", "mcp-code-sandbox", "mcp-sandbox"],
)
def test_the_tools_are_those_of_the_documentation(gateway, profile):
    with client_of("2-legacy", "http", gateway, profile.replace("kernelgate", "")) as client:
        served = {}
        for name, tool in client.tools().items():
            # A test build also has the tools of the conformance suites.
            if name.startswith(("test_", "json_schema_")):
                continue
            schema = tool["inputSchema"]
            required = schema.get("required", [])
            optional = [f"{param}?" for param in schema["properties"] if param not in required]
            served[name] = sorted(required + optional)
            assert all(prop["description"] for prop in schema["properties"].values())
    assert served == documented_tools(profile)


def test_configurations_of_the_documentation_are_json():
    page = (PROJECT / "docs/mcp.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        servers = next(iter(json.loads(block).values()))
        for server in servers.values():
            assert "mcp" in server.get("url", "") or server["args"][0] == "mcp"
