# SPDX-License-Identifier: Apache-2.0
"""MCP servers behind the gateway: what they offer to whom, what they answer, and what those that hang, lie, die
or say too much do to others. tests/e2e/test_tool_servers.py has real servers and kernels."""

import concurrent.futures
import json
import os
import pathlib
import signal
import time

import pytest
from account_commands import Accounts
from kernelgate import wait_for
from mcp_stand_in import HttpServer
from tool_servers import Caller, children_of, is_alive, stdio, write_file

SECRET = "a-token-that-nobody-may-see"


@pytest.fixture(scope="module")
def server():
    """A server over HTTP, which the module's gateway calls `web`."""
    server = HttpServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def gateway_flags(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("servers")
    headers = {"Authorization": f"Bearer {SECRET}"}
    hidden = {"url": server.url, "owners": ["somebody"]}
    path = write_file(
        folder,
        web={"url": server.url, "headers": headers, "timeout": 20},
        program=stdio(env={"TOKEN": SECRET}, timeout=20),
        quick=stdio(timeout=0.7),
        own=stdio(per_session=True),
        chosen=stdio(allow=["del*"], deny=["pict*", "e*o"]),
        hidden=hidden,
    )
    return ["--mcp-servers", path, "--log-level", "debug"]


@pytest.fixture
def caller(gateway, session):
    caller = Caller(gateway, session)
    wait_for(lambda: len(caller.script("print(json.dumps(dir(tools)))")) == 10)
    for name in ("web", "program", "quick", "own", "chosen"):
        caller.wait_for_tool(f"{name}.texts")
    return caller


BOTH = pytest.mark.parametrize("name", ["web", "program"])


# ---- What is offered ------------------------------------------------------------------------


def test_tools_that_only_read_are_offered(caller):
    names = caller.names()
    assert "web.echo" in names and "program.lie" in names  # of several pages
    assert "web.write" not in names and "web.delete" not in names
    assert not [name for name in names if name.startswith("hidden.")]
    for tool in ("write", "delete", "nothing"):
        code, message = caller.failed(f"web.{tool}")
        assert code == "not_found" and f'the MCP server web offers no tool "{tool}"' in message


def test_others_are_offered_by_name(caller):
    names = [name for name in caller.names() if name.startswith("chosen.")]
    assert "chosen.delete" in names and "chosen.texts" in names
    assert "chosen.picture" not in names and "chosen.echo" not in names
    assert caller.call("chosen.delete") == "did delete"


def test_a_server_of_other_owners_is_not_there(caller):
    code, message = caller.failed("hidden.echo", value=1)
    assert (code, message) == (
        "not_found",
        'there is no tool "hidden.echo": no code that has tools runs now',
    )


def test_what_code_sees(caller):
    seen = caller.script("""
import inspect
print(json.dumps([dir(tools), dir(tools.web), repr(tools.web), str(inspect.signature(tools.web.large)),
    tools.web.large.__doc__, tools.find("picture").keys() & {"web.picture"} != set(), tools.web.echo(value=[1, {"a": None}])]))
""")  # fmt: skip
    names, own, shown, signature, document, found, echoed = seen
    assert set(names) >= {"chosen", "own", "program", "quick", "web"} and "hidden" not in names
    assert "echo" in own and shown == "<the tools of the server web>"
    assert signature == "(*, size: int = None)" and document.startswith("Does large") and found
    assert echoed == [1, {"a": None}]


def test_arguments_are_checked(caller, server):
    before = server.methods().count("tools/call")
    code, message = caller.failed("web.large", size="much")
    assert (
        code == "invalid_request" and message == "arguments.size: must be an integer, not a string"
    )
    assert server.methods().count("tools/call") == before


# ---- Results --------------------------------------------------------------------------------


@BOTH
def test_results(caller, name):
    assert caller.call(f"{name}.echo", value={"x": [1.5, "é\u2028"]}) == {"x": [1.5, "é\u2028"]}
    assert caller.call(f"{name}.texts", values=['{"a": 1}']) == '{"a": 1}'
    assert caller.call(f"{name}.texts", values=["a", "b"]) == ["a", "b"]
    assert caller.call(f"{name}.texts", values=[]) is None
    assert caller.call(f"{name}.picture") == [
        {"type": "image", "mimeType": "image/png", "data": "aGk="},
        {"type": "resource", "mimeType": "text/x", "data": "aGk=", "uri": "a:b"},
        {"type": "resource_link", "uri": "c:d", "name": "n"},
    ]


@BOTH
def test_errors_are_the_servers_own(caller, name):
    assert caller.failed(f"{name}.fail", text="no such city") == ("tool_error", "no such city")
    code, message = caller.failed(f"{name}.refuse", text="not today")
    assert (code, message) == ("tool_error", f"{name}.refuse: not today")


@BOTH
def test_a_large_result_is_a_file(caller, name):
    script = f"""
result = tools.call("{name}.large", size=3 << 20)
print(json.dumps([type(result).__name__, len(result.load())]))
"""
    assert caller.script(script) == ["ResultFile", 3 << 20]


def test_calls_side_by_side(caller):
    script = """
import asyncio
async def main():
    began = time.monotonic()
    calls = [tools.aio.program.sleep(seconds=0.2) for _ in range(60)]
    await asyncio.gather(*calls)
    return time.monotonic() - began
print(json.dumps(asyncio.run(main())))
"""
    assert caller.script(script) < 6  # one after the other: 12


# ---- Servers that are not as they should be -------------------------------------------------


@BOTH
@pytest.mark.parametrize("tool", ["deep", "lie"])
def test_strange_answers_disturb_nobody(caller, name, tool):
    if (name, tool) == ("program", "deep"):  # nothing says whose answer it is: time ends the call
        code, message = caller.failed("quick.deep")
        assert code == "timeout"
    elif tool == "deep":
        code, message = caller.failed(f"{name}.deep")
        assert (code, message) == ("internal", "the MCP server web: its answer nests deeper than 128 levels; "
                                               "it is not known whether the tool has run")  # fmt: skip
    else:
        assert caller.call(f"{name}.lie") == "did lie"
    assert caller.call(f"{name}.echo", value=1) == 1


def test_too_much_over_http(caller, gateway):
    code, message = caller.failed("web.flood")
    assert code == "internal" and "its answer is larger than 8 MiB" in message
    assert caller.call("web.echo", value=1) == 1
    assert gateway.rss_mb() < 1500


def test_too_much_over_stdio(caller):
    """The program is started again: nothing says where the next message begins."""
    code, message = caller.failed("quick.flood")
    assert code in ("server_down", "timeout")
    wait_for(lambda: caller.script("print(json.dumps(failed('quick.echo', value=1)))") == ["ok", 1])


def test_a_call_that_is_not_answered(caller, server):
    code, message = caller.failed("quick.hang")
    assert code == "timeout" and "quick.hang was not answered within 0.7 s" in message
    assert caller.call("quick.echo", value=1) == 1


def test_a_call_that_nobody_wants_any_more(gateway, session, caller, server):
    """The code that has cancelled it goes on: it is not its end that cancels the call."""
    script = """
import asyncio
async def until(name):
    while not os.path.exists(name):
        await asyncio.sleep(0.01)
async def main():
    call = asyncio.ensure_future(tools.aio.web.hang())
    await until("cancel")
    call.cancel()
    await until("go")
asyncio.run(main())
"""
    of = lambda kind: {
        (name, call) for name, each in [*server.sessions.items()] for call in getattr(each, kind)
    }
    before = of("hanging")
    url = f"/api/v1/sessions/{session}/files/cancel"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(caller.script, script)
        try:
            [call] = wait_for(lambda: of("hanging") - before)
            assert call not in of("cancelled")
            gateway.client.put(url, content=b"").raise_for_status()
            wait_for(lambda: call in of("cancelled"))
            # Not by its time, which ends it, too.
            row = 'kernelgate_mcp_server_calls_total{server="web",tool="hang",outcome="%s"}'
            metrics = gateway.client.get("/metrics").text
            assert row % "cancelled" in metrics and row % "timeout" not in metrics
            assert not running.done()
        finally:
            gateway.client.put(url, content=b"")
            gateway.release(session)
        running.result()


def test_a_program_that_dies(caller):
    first = caller.call("program.environment")["pid"]
    code, message = caller.failed("program.die")
    assert code == "server_down"
    assert message.startswith("the MCP server program is down: its process has ended")
    assert caller.call("web.echo", value=1) == 1
    wait_for(
        lambda: caller.script("print(json.dumps(failed('program.echo', value=1)))") == ["ok", 1]
    )
    assert caller.call("program.environment")["pid"] != first
    assert "program.echo" in caller.names()


def test_what_a_server_asks_is_refused(caller):
    answers = {each["id"]: each for each in caller.call("program.ask")["answers"]}
    assert answers["q0"]["result"] == {}
    assert answers["q1"]["error"]["code"] == answers["q2"]["error"]["code"] == -32601


@BOTH
def test_a_list_that_changes(caller, name):
    tool = f"new_{name}"
    caller.call(f"{name}.add_tool", name=tool)
    caller.wait_for_tool(f"{name}.{tool}")
    assert caller.call(f"{name}.{tool}") == f"did {tool}"


# ---- HTTP -----------------------------------------------------------------------------------


def test_the_protocols_headers(caller, server):
    caller.call("web.echo", value=1)
    message, headers = server.requests[-1]
    assert message["params"] == {"name": "echo", "arguments": {"value": 1}}
    assert headers["Mcp-Session-Id"] in server.sessions
    assert headers["MCP-Protocol-Version"] == "2025-11-25"
    assert headers["Accept"] == "application/json, text/event-stream"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert "notifications/initialized" in server.methods()


@pytest.mark.parametrize("mode", ["json", "cut"])
def test_ways_to_answer(caller, server, mode):
    server.mode = mode
    try:
        assert caller.call("web.echo", value=mode) == mode
    finally:
        server.mode = "events"
    if mode == "cut":
        assert server.gets[-1]["Last-Event-ID"] == "e1"


@pytest.mark.parametrize("status", [404, 400])
def test_a_session_that_the_server_has_forgotten(caller, server, status):
    server.unknown = status
    wait_for(
        lambda: time.monotonic() - server.initialized > 0.5
    )  # a session that is new is not replaced
    before = server.methods().count("initialize")
    server.forget()
    assert caller.call("web.echo", value=1) == 1
    assert server.methods().count("initialize") == before + 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (302, "a redirect, which is not followed"),
        (401, "does not take the headers"),
        (500, "it answers 500"),
    ],
)
def test_statuses(caller, server, status, words):
    server.status = status
    try:
        code, message = caller.failed("web.echo", value=1)
    finally:
        server.status = 0
    assert code == "internal" and message.startswith("the MCP server web: ") and words in message
    assert caller.call("web.echo", value=1) == 1


# ---- Credentials and processes --------------------------------------------------------------


def test_secrets_stay_with_the_gateway(caller, gateway):
    found = caller.call("program.environment")
    assert found["environment"].pop("TOKEN") == "*" * len(SECRET)  # it has it; code has not
    assert SECRET not in json.dumps(caller.call("web.echo", value=f"as I was told: {SECRET}"))
    assert set(found["environment"]) == {"PATH", "LANG", "HOME", "TMPDIR"}
    assert found["uid"] == 61101  # by its number in the file
    for name in ("web", "program"):
        for tool in ("fail", "refuse"):
            code, message = caller.failed(f"{name}.{tool}", text=f"bad token {SECRET}!")
            assert SECRET not in message and "bad token ***" in message
    assert SECRET not in gateway.log()
    assert SECRET not in gateway.client.get("/metrics").text


def test_sessions_share_a_server_or_do_not(gateway, caller):
    other = Caller(gateway, gateway.create_session())
    pids = [
        each.call(f"{name}.environment")["pid"]
        for name in ("program", "own")
        for each in (caller, other)
    ]
    assert pids[0] == pids[1] and pids[2] != pids[3]
    assert caller.call("own.environment")["pid"] == pids[2]
    gateway.delete_session(other.url.split("/")[4])
    wait_for(lambda: not is_alive(pids[3]))
    assert is_alive(pids[2])


def test_calls_are_counted_and_logged_without_arguments(caller, gateway):
    before = gateway.client.get("/metrics").text
    caller.call("web.echo", value="the-argument")
    line = 'kernelgate_mcp_server_calls_total{server="web",tool="echo",outcome="ok"} '
    count = lambda text: float(text.split(line)[1].split("\n")[0]) if line in text else 0
    text = gateway.client.get("/metrics").text
    assert count(text) == count(before) + 1
    assert 'kernelgate_mcp_server_up{server="web"} 1' in text
    assert "server=web tool=echo" in gateway.log() and "the-argument" not in gateway.log()


def test_nobody_is_there(gateway, session, caller):
    """A process that a command has left behind may not call while nothing runs."""
    script = """
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2):
        os.close(fd)
    while not os.path.exists("go"):
        time.sleep(0.01)
    with open("said", "w") as file:
        json.dump(failed("web.echo", value=1), file)
    os.rename("said", "left")
    os._exit(0)
"""
    caller.script(script)
    gateway.release(session)  # the command has been answered: nothing runs
    url = f"/api/v1/sessions/{session}/files/left"
    wait_for(lambda: gateway.client.get(url).status_code == 200)
    code, message = gateway.client.get(url).json()
    assert code == "invalid_request" and "while a cell or a command of the session runs" in message


# ---- Gateways of their own ------------------------------------------------------------------


def test_owners(start_gateway, tmp_path, server):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-a\nbob:key-b\n")
    path = write_file(
        tmp_path,
        all={"url": server.url},
        bobs={"url": server.url, "owners": ["bob"]},
        anybodys={"url": server.url, "owners": ["*"]},
    )
    gateway = start_gateway("--mcp-servers", path, "--api-keys-file", str(keys), key="key-a")
    for key, names in (("key-a", ["all", "anybodys"]), ("key-b", ["all", "anybodys", "bobs"])):
        client = gateway.client_for(key)
        caller = Caller(gateway, gateway.create_session(client), client)
        caller.wait_for_tool("all.echo")
        assert sorted({name.split(".")[0] for name in caller.names()}) == names
        if key == "key-a":
            assert caller.failed("bobs.echo", value=1)[0] == "not_found"


def test_users_of_the_database(start_gateway, tmp_path, server):
    """They are not the operator's own: the file must name them."""
    accounts = Accounts(tmp_path / "accounts.db")
    for name in ("eve", "mallory"):
        accounts.do("user", "add", name)
    path = write_file(
        tmp_path, web={"url": server.url}, named={"url": server.url, "owners": ["eve"]}
    )
    gateway = start_gateway(
        "--mcp-servers", path, *accounts.flags, "--api-key", "k" * 20, key="k" * 20
    )
    own = Caller(gateway, gateway.create_session())
    own.wait_for_tool("web.echo")
    for name, servers in (("eve", ["named"]), ("mallory", [])):
        client = gateway.client_for(accounts.key(name))
        caller = Caller(gateway, gateway.create_session(client), client)
        assert sorted({each.split(".")[0] for each in caller.names()}) == servers
        assert caller.failed("web.echo", value=1)[0] == "not_found"


def test_servers_that_are_not_there(start_gateway, tmp_path):
    path = write_file(
        tmp_path,
        gone={"url": "http://127.0.0.1:9/mcp"},
        none={"command": "/no/such/program"},
        old=stdio(env={"STAND_IN_VERSION": "1999-01-01"}),
        endless=stdio(env={"STAND_IN_LIST": "endless"}),
        works=stdio(),
    )
    gateway = start_gateway("--mcp-servers", path)
    caller = Caller(gateway, gateway.create_session())
    caller.wait_for_tool("works.echo")
    caller.wait_for_tool("endless.t0")
    assert len([name for name in caller.names() if name.startswith("endless.")]) < 100
    expected = {
        "gone": "it cannot be reached",
        "none": "its process has ended",
        "old": "protocolVersion that this client does not have",
    }
    for name, words in expected.items():
        code, message = caller.failed(f"{name}.echo", value=1)
        assert code == "server_down" and f"the MCP server {name} is down: " in message
        assert words in message and "127.0.0.1" not in message
    assert caller.call("works.echo", value=1) == 1


def test_nothing_stays(start_gateway, tmp_path):
    path = write_file(tmp_path, program=stdio())
    gateway = start_gateway("--mcp-servers", path)
    caller = Caller(gateway, gateway.create_session())
    caller.wait_for_tool("program.echo")
    found = caller.call("program.environment")
    child = caller.call("program.leave_child")["pid"]
    home = pathlib.Path(found["environment"]["HOME"])
    assert is_alive(child) and home.is_dir()
    gateway.kill()
    wait_for(lambda: not is_alive(child) and not is_alive(found["pid"]) and not home.exists())
    gateway.start()
    caller = Caller(gateway, gateway.create_session())
    caller.wait_for_tool("program.echo")
    child = caller.call("program.leave_child")["pid"]
    gateway.stop()
    wait_for(lambda: not is_alive(child))


def test_a_file_that_is_wrong(start_gateway, tmp_path):
    path = write_file(tmp_path, web={"url": "http://127.0.0.1:9/", "header": {}})
    with pytest.raises(
        AssertionError, match='setting mcp-servers: server "web": header: there is no such field'
    ):
        start_gateway("--mcp-servers", path)


def test_a_helper_that_is_killed(start_gateway, tmp_path):
    """Its programs go on; a new one is started by the next helper."""
    gateway = start_gateway("--mcp-servers", write_file(tmp_path, program=stdio()))
    caller = Caller(gateway, gateway.create_session())
    caller.wait_for_tool("program.echo")
    pid = caller.call("program.environment")["pid"]
    [helper] = [child for each in children_of(gateway.process.pid) for child in children_of(each)]
    os.kill(helper, signal.SIGKILL)
    assert caller.call("program.environment")["pid"] == pid
    assert caller.failed("program.die")[0] == "server_down"
    wait_for(
        lambda: caller.script("print(json.dumps(failed('program.echo', value=1)))") == ["ok", 1]
    )
    assert caller.call("program.environment")["pid"] != pid
