# SPDX-License-Identifier: Apache-2.0
"""kernelgate's own MCP tools: errors, long output, ended sessions, other owners."""

import json
import re

import component
import mcp_wire
import pytest
import python_packages
from component import exact
from kernelgate import PROJECT, problem, wait_for
from mcp_clients import McpError, WireClient

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}


@pytest.fixture(scope="module")
def client(gateway):
    with WireClient(gateway) as client:
        yield client
        client.call("close_session")


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


def test_bad_packages(start_gateway, tmp_path):
    gateway = start_gateway(*python_packages.flags(tmp_path))
    with WireClient(gateway) as client:
        for packages in ([], ["--index-url=http://x"]):
            refused = client.call("install_packages", {"packages": packages})
            assert code_of(refused) == "invalid_request" and "kernelspec" not in refused.text


def test_values_as_text(client):
    """As models write them."""
    arguments = {"code": "result 1", "timeout": "20", "session_id": ""}
    assert not client.call("run_python_code", arguments).is_error
    listed = client.call("run_code", {"code": "result 1", "language": "PYTHON"})
    assert not listed.is_error, listed.text


def test_a_slash_at_the_end(gateway):
    for path in ("/mcp/", "/api/v1/sessions/"):
        assert gateway.client.get(path).status_code == gateway.client.get(path[:-1]).status_code
    assert gateway.client.post(
        "/mcp/", json=mcp_wire.initialize(), headers=mcp_wire.BOTH
    ).is_success
    problem(gateway.client.get("/api/v1/sessions//"), 404, "not_found")


def test_what_n8n_adds_is_ignored(client):
    extra = {"sessionId": "x", "action": "sendMessage", "chatInput": "hi", "toolCallId": "y"}
    assert client.call("run_python_code", {"code": "result 42", **extra}).text == "42"


def test_what_is_left_empty_counts_as_not_given(client):
    session = client.call("run_python_code", {"code": "set a 1"}).session_id
    empty = {"session_id": "", "language": ""}
    assert client.call("run_code", {"code": "get a", **empty}).session_id == session
    assert client.call("list_files", {"path": "", "after": "", "session_id": ""}).text
    assert code_of(client.call("write_file", {"path": "", "content": ""})) == "invalid_path"


@pytest.mark.threads
def test_long_output_is_cut_and_can_be_read(client):
    result = client.call("run_python_code", {"code": "repeat 20000 print line {i}"})
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
    code = f"print {exact('{20000*' + text + '}' + chr(10))}"
    output = client.call("run_python_code", {"code": code})
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
    code = r"sh printf '\200hello\n' >near; printf 'hello\303' >far"
    session = client.call("run_python_code", {"code": code}).session_id
    for name, base64 in (("near", "gGhlbGxvCg=="), ("far", "aGVsbG/D")):
        (content,) = client.do("read", uri=f"kernelgate://{session}/{name}")["contents"]
        assert content["blob"] == base64 and "text" not in content


def test_a_timeout_says_what_to_do(client):
    client.call("run_python_code", {"code": "set x 5"})
    result = client.call("run_python_code", {"code": "hang", "timeout": 1})
    assert result.is_error and "TimeoutError" in result.text and "larger timeout" in result.text
    assert client.call("run_python_code", {"code": "get x"}).text == "5\n"


def test_anothers_session_does_not_exist(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    gateway = start_gateway("--api-keys-file", str(keys))
    with (
        WireClient(gateway, key=KEYS["alice"]) as alice,
        WireClient(gateway, key=KEYS["bob"], modern=True) as bob,
    ):
        mine = alice.call("run_python_code", {"code": "write secret x"}).session_id
        for name in ("interrupt_session", "close_session"):
            assert code_of(bob.call(name, {"session_id": mine})) == "session_not_found"
        assert mine not in json.dumps(bob.call("list_sessions").value)
        with pytest.raises(McpError):
            bob.do("read", uri=f"kernelgate://{mine}/secret")
        # The same id is another session for bob.
        ours = bob.call("run_python_code", {"code": "exists secret", "session_id": mine})
        assert ours.text.startswith("False")
        assert not alice.call("read_file", {"path": "secret"}).is_error


def test_sessions_that_nobody_can_name_make_room(start_gateway):
    """A client without MCP sessions that never reuses an id can always get a new session."""
    gateway = start_gateway("--max-sessions", "2")
    with WireClient(gateway, modern=True) as client:
        kept = client.call("run_python_code", {"code": "set x 1"}).session_id
        get = {"code": "get x", "session_id": kept}
        assert client.call("run_python_code", get).text == "1\n"
        ids = [client.call("run_python_code", {"code": "result 1"}).session_id for _ in range(3)]
        assert len(set(ids)) == 3
        assert client.call("run_python_code", get).text == "1\n"
        client.call("create_session", {"session_id": "named"})
        assert code_of(client.call("run_python_code", {"code": "result 1"})) == "max_sessions"


class Leaving:
    """Clients with MCP sessions that end without a word: nothing says that they do not come back."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.clients = []

    def client(self, key=None):
        self.clients.append(WireClient(self.gateway, key=key))
        return self.clients[-1]

    def run(self, client):
        """What a client gets for code in its own session; None: there is no room."""
        result = client.call("run_python_code", {"code": "result 1"})
        assert not result.is_error or code_of(result) == "max_sessions"
        return None if result.is_error else result

    def runs(self, key=None):
        """A new client that has run code in its own session; None: there is no room."""
        client = self.client(key)
        result = self.run(client)
        client.session = result and result.session_id
        return result and client

    def comes(self, key=None):
        """The same, as soon as there is room."""
        return wait_for(lambda: self.runs(key), interval=0.1)

    def sessions(self):
        return set(self.gateway.client.get("/api/v1/sessions").json()["sessions"])

    def end(self):
        for client in self.clients:
            client.end()


@pytest.fixture
def leaving(start_gateway):
    started = []

    def start(*flags, **options):
        started.append(Leaving(start_gateway(*flags, **options)))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_sessions_of_clients_that_have_left_make_room(leaving):
    clients = leaving("--max-sessions", "2", "--mcp-evict-idle", "1")
    first, second = clients.comes(), clients.comes()
    third = clients.comes()
    assert clients.sessions() == {second.session, third.session}
    assert "session evicted for an MCP client" in clients.gateway.log()
    # A client that comes back after all has a new session, and its model is informed.
    again = wait_for(lambda: clients.run(first), interval=0.1)
    assert again.session_id == first.session
    assert "was created again: its variables, imports, packages and files are gone" in again.text
    assert "NOTE" not in clients.run(first).text
    # So do errors.
    gone = second if second.session not in clients.sessions() else third

    def reads():
        result = gone.call("read_file", {"path": "x"})
        return None if code_of(result) == "max_sessions" else result

    read = wait_for(reads, interval=0.1)
    assert code_of(read) == "not_found" and "was created again" in read.text


def test_sessions_of_clients_that_are_only_silent_stay(leaving):
    clients = leaving("--max-sessions", "2")
    first, second = clients.comes(), clients.comes()
    assert clients.runs() is None
    assert clients.sessions() == {first.session, second.session}


def test_sessions_of_clients_with_a_stream_or_a_call_stay(leaving):
    clients = leaving("--max-sessions", "3", "--mcp-evict-idle", "1")
    gateway = clients.gateway
    listening, busy = clients.comes(), clients.comes()
    clients.comes()  # leaves
    headers = {**listening.wire.headers, "Accept": "text/event-stream"}
    with gateway.client.stream("GET", "/mcp", headers=headers) as stream:
        assert stream.status_code == 200
        busy.start("call", name="run_python_code", args={"code": component.HELD})
        fourth = clients.comes()  # although those of the others were used before
        assert clients.sessions() == {listening.session, busy.session, fourth.session}
        gateway.release(busy.session)
        assert not busy.finish().get("isError")
    # Without its stream, the first one has left like others.
    wait_for(lambda: clients.runs() and listening.session not in clients.sessions(), interval=0.1)


def test_sessions_of_other_owners_make_no_room(leaving, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    flags = ("--max-sessions", "2", "--max-sessions-per-owner", "2", "--mcp-evict-idle", "1")
    clients = leaving(*flags, "--api-keys-file", str(keys), key=KEYS["alice"])
    clients.comes(KEYS["alice"])
    clients.comes(KEYS["alice"])
    clients.comes(KEYS["alice"])  # so all of alice's that are left may end
    before = clients.sessions()
    assert clients.runs(KEYS["bob"]) is None
    assert clients.sessions() == before


def test_sessions_that_clients_want_kept_are_the_last_to_end(leaving):
    clients = leaving("--max-sessions", "3", "--mcp-evict-idle", "1")
    client = clients.client()
    kept = client.call("create_session", {"idle_timeout": 1800}).structured["session_id"]
    client.call("create_session", {"session_id": "chosen"})
    made = client.call("create_session").structured["session_id"]
    second = clients.comes()
    assert clients.sessions() == {kept, "chosen", second.session}
    second.start("call", name="run_python_code", args={"code": component.HELD})
    third = clients.comes()
    assert clients.sessions() == {kept, second.session, third.session}
    clients.gateway.release(second.session)
    second.finish()
    gone = client.call("run_python_code", {"code": "result 1", "session_id": made})
    assert gone.is_error or "was created again" in gone.text


def test_a_session_whose_file_is_read_makes_no_room(start_gateway):
    gateway = start_gateway("--max-sessions", "1")
    large = f"file-size large {40 << 20}"
    with WireClient(gateway, modern=True) as client:
        unnamed = client.call("run_python_code", {"code": large}).session_id
        url = f"/api/v1/sessions/{unnamed}/files/large"
        with gateway.client.stream("GET", url) as response:
            pieces = response.iter_raw(1 << 20)
            received = len(next(pieces))
            assert code_of(client.call("run_python_code", {"code": "result 1"})) == "max_sessions"
            received += sum(map(len, pieces))
        assert received == 40 << 20
        wait_for(lambda: not client.call("run_python_code", {"code": "result 1"}).is_error)


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
    arguments = {"code": "die 1", "session_id": "logged"}
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
    gateway = start_gateway("--drain-timeout", "1", *keep)
    client = WireClient(gateway)
    session = client.call("run_python_code", {"code": "result 1"}).session_id
    client.start("call", name="run_python_code", args={"code": "hang"})
    wait_for(lambda: gateway.show_session(session)["is_busy"])
    gateway.stop()
    assert client.finish()["isError"] is True
    client.end()
    if keep:
        gateway.flags = (*component.FLAGS, "--drain-timeout", "0")
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
    with WireClient(gateway, profile.replace("kernelgate", "")) as client:
        served = {}
        for name, tool in client.tools().items():
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
