# SPDX-License-Identifier: Apache-2.0
"""What goes over MCP's streamable HTTP, byte for byte, in both eras."""

import concurrent.futures
import json
import pathlib
import signal
import threading

import pytest
from kernelgate import wait_for
from mcp_wire import (
    BOTH,
    META,
    Client,
    call,
    cancelled,
    error,
    events,
    gauge,
    initialize,
    messages,
    modern,
    post_modern,
    request,
    result,
)

KEYS = "alice:alice-secret\nbob:bob-secret\n"


@pytest.fixture
def client(gateway):
    return Client(gateway)


# ---- Sessions


def test_a_version_is_agreed_on(gateway):
    for asked, answered in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),  # it has no initialize
        ("1999-01-01", "2025-11-25"),
    ]:
        assert Client(gateway, asked).version == answered


def test_older_revisions_get_what_they_know(gateway):
    old = Client(gateway, "2024-11-05")
    tools = {tool["name"]: tool for tool in result(old.post(request("tools/list")))["tools"]}
    assert not [name for name, tool in tools.items() if {"title", "annotations"} & set(tool)]
    assert "structuredContent" not in result(old.post(call("list_sessions")))
    assert "structuredContent" in result(Client(gateway).post(call("list_sessions")))


def test_only_the_newest_primes_its_streams(gateway):
    headers = {**BOTH, "Accept": "text/event-stream"}
    for version, primed in (("2025-06-18", False), ("2025-11-25", True)):
        answer = gateway.client.post("/mcp", json=initialize(version), headers=headers)
        sent = list(events(answer.text.split("\n")))
        assert json.loads(sent[-1]["data"])["result"]["protocolVersion"] == version
        assert len(sent) == 1 + primed, sent


def test_session_ids(gateway, client):
    without = {k: v for k, v in client.headers.items() if k != "Mcp-Session-Id"}
    ping = request("ping")
    error(client.http.post("/mcp", json=ping, headers=without), 400, -32600)
    error(client.post(ping, **{"Mcp-Session-Id": "0" * 32}), 404, -32001)
    # A client with a stale id can initialize again.
    again = client.post(initialize(), **{"Mcp-Session-Id": "0" * 32})
    assert again.status_code == 200
    assert again.headers["mcp-session-id"] != client.headers["Mcp-Session-Id"]
    assert result(client.post(ping)) == {}
    assert client.http.delete("/mcp", headers=client.headers).status_code == 204
    error(client.post(ping), 404, -32001)
    error(client.http.delete("/mcp", headers=client.headers), 404, -32001)


def test_another_owners_session_does_not_exist(start_gateway, tmp_path):
    (tmp_path / "keys").write_text(KEYS)
    gateway = start_gateway("--api-keys-file", str(tmp_path / "keys"))
    alice = Client(gateway, key="alice-secret")
    with gateway.client_for("bob-secret") as bob:
        error(bob.post("/mcp", json=request("ping"), headers=alice.headers), 404, -32001)
        error(bob.delete("/mcp", headers=alice.headers), 404, -32001)
    with gateway.client_for(None) as nobody:
        assert nobody.post("/mcp", json=initialize(), headers=BOTH).status_code == 401
        in_query = nobody.post(
            "/mcp?api_key=alice-secret", json=request("ping"), headers=alice.headers
        )
        assert result(in_query) == {}
    assert "alice-secret" not in gateway.log()


def test_calls_that_come_together_share_the_session_that_is_made(start_gateway):
    """Models call tools concurrently; the first call creates the session, which takes a while."""
    client = Client(start_gateway())
    calls = [
        call("run_python_code", 10, code="result 2"),
        call("write_file", 11, path="a.txt", content="x"),
        call("list_files", 12),
        call("run_command", 13, command="echo hi"),
    ]
    ask = lambda message: result(client.post(message, Accept="application/json"))  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor() as threads:
        answers = list(threads.map(ask, calls))
    assert not [answer for answer in answers if answer.get("isError")], answers
    assert len({answer["_meta"]["kernelgate/session_id"] for answer in answers}) == 1


# ---- What is refused


def test_wrong_headers(gateway, client):
    def post(body=None, **headers):
        headers = {**client.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return client.http.post("/mcp", json=body or request("ping"), headers=headers)

    error(post(Accept="text/html"), 406, -32600)
    error(post(Content_Type="text/plain"), 415, -32600)
    error(post(MCP_Protocol_Version="1999-01-01"), 400, -32600)
    assert post(Origin="http://evil.example").status_code == 403
    assert post(Host="evil.example").status_code == 403
    for accept in ["*/*", "application/json", "text/event-stream"]:
        assert post(Accept=accept).status_code == 200
    # Any supported version is accepted, not only the negotiated one.
    assert result(post(MCP_Protocol_Version="2025-03-26")) == {}
    assert (
        client.http.get("/mcp", headers={**client.headers, "Accept": "text/html"}).status_code
        == 405
    )
    stream = {**client.headers, "Accept": "text/event-stream"}
    assert client.http.head("/mcp", headers=stream).status_code == 405
    assert client.http.put("/mcp", headers=client.headers).status_code == 405
    unknown = gateway.client.post("/mcp?profile=nonsense", json=initialize(), headers=BOTH)
    assert "unknown profile" in error(unknown, 400, -32602)["message"]


def test_bodies_that_are_none(gateway, client):
    def post(content):
        return client.http.post("/mcp", content=content, headers=client.headers)

    for garbage in [b"", b"{", b"null", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 100_000, b'"x"']:
        assert post(garbage).status_code == 400, garbage[:20]
    nested = (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    )
    error(post(nested), 400, -32600)
    # Many small values take many times the memory of their text.
    error(post(b'{"jsonrpc":"2.0","params":{"x":[' + b"{}," * 100_000 + b"{}]}}"), 400, -32600)
    for message in [
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": "x" * 300, "method": "ping"},
        {"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "x" * 300},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
        {"jsonrpc": "2.0", "id": 1},
    ]:
        error(client.post(message), 400, -32600)
    error(post(b'{"jsonrpc":"2.0","id":' + b"9" * 400 + b',"method":"ping"}'), 400, -32700)
    assert result(client.post(request("ping"))) == {}


def test_requests_that_make_no_sense(client):
    def code(message):
        response = client.post(message)
        assert response.status_code == 200
        assert response.json()["id"] == message["id"]
        return response.json()["error"]["code"]

    assert code(request("no/such", "an id")) == -32601
    assert code(request("server/discover")) == -32601  # of another revision
    assert code(call("no_such_tool")) == -32602
    assert code(request("tools/call")) == -32602
    assert code(request("tools/call", name="list_sessions", arguments=[1])) == -32602
    assert code(request("tools/call", name="x" * 5000)) == -32602
    assert code(request("tools/list", cursor="17")) == -32602
    assert code(request("prompts/get", name="nonsense")) == -32602
    assert code(request("resources/read", uri="kernelgate://nonsense")) == -32002
    assert code(request("resources/subscribe", uri="kernelgate://s/a.txt")) == -32601
    assert code(request("logging/setLevel", level="loud")) == -32602
    assert code(request("completion/complete", ref={"type": "ref/nonsense"})) == -32602


def test_batches_are_of_one_revision(gateway, client, session):
    batch = [
        request("ping", 1),
        call("list_sessions", 2),
        cancelled(99),
        call("run_python_code", 3, code="sleep 0.05", session_id=session),
    ]
    error(client.post(batch), 400, -32600)
    older = Client(gateway, "2025-03-26")
    answers = older.post(batch).json()
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3]
    assert older.post([cancelled(99)]).status_code == 202
    error(older.post([]), 400, -32600)
    error(older.post([request("ping", n) for n in range(65)]), 400, -32600)
    error(older.post([initialize()]), 400, -32600)
    error(older.post([request("ping"), 17]), 400, -32600)


# ---- Streams


def test_a_call_that_takes_longer_becomes_a_stream(gateway, client, session):
    held = call("run_python_code", code="take go\nprint waited", session_id=session)
    with client.stream(message=held) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        gateway.release(session)
        first, last = list(response.events)
    assert first["data"] == ""
    assert int(first["retry"]) > 0
    assert first["id"]
    assert json.loads(last["data"])["result"]["content"][0]["text"] == "waited\n"
    with Client(gateway, "2025-06-18").stream(message=held) as response:
        gateway.release(session)
        assert len(list(response.events)) == 1  # priming came later
    # A client that wants no stream gets none.
    late = call("run_python_code", code="sleep 1.5", session_id=session)
    late = client.post(late, Accept="application/json")
    assert late.headers["content-type"] == "application/json"


def held(session, *identity, token=None):
    """A call that prints a line, and ends when the gateway releases its session."""
    code = "print one\ntake go"
    return call("run_python_code", *identity, token=token, code=code, session_id=session)


def test_progress_goes_to_who_asked(gateway, client, session):
    with client.stream(message=held(session, token="p")) as response:
        told = messages([next(event for event in response.events if event.get("data"))])
        gateway.release(session)
        told += messages(response.events)
    assert told[0]["params"]["message"] == "one"
    assert {m["params"]["progressToken"] for m in told[:-1]} == {"p"}
    assert told[-1]["id"] == 2


def test_log_levels(client, session):
    def logged():
        message = call("run_python_code", code="die 1", session_id=session)
        with client.stream(message=message) as response:
            if response.headers["content-type"] == "application/json":
                return []
            return [m["params"]["data"] for m in messages(response.events) if m.get("method")]

    assert logged() == [f"the kernel of session {session} was restarted"]
    assert result(client.post(request("logging/setLevel", level="error"))) == {}
    assert logged() == []


def test_a_cut_stream_is_resumed_and_nothing_is_lost(gateway, client, session):
    with client.stream(message=held(session, "first", token=1)) as response:
        first = next(response.events)  # the priming event
        assert next(response.events)["data"]  # progress; then the client is cut
    done = client.post(call("list_sessions", "between"))  # meanwhile other streams go on
    assert done.json()["id"] == "between"
    gateway.release(session)
    with client.stream("GET", Last_Event_ID=first["id"]) as response:
        replayed = list(response.events)
    told = messages(replayed)
    assert len(told) > 1 and told[0]["method"] == "notifications/progress"
    assert [m["id"] for m in told if "id" in m] == ["first"]
    assert len({event["id"] for event in replayed}) == len(told)
    # A resumed stream has exactly the events after the given one.
    with client.stream("GET", Last_Event_ID=replayed[0]["id"]) as response:
        assert messages(response.events) == told[1:]
    assert (
        client.http.get(
            "/mcp",
            headers={**client.headers, "Accept": "text/event-stream", "Last-Event-ID": "999-1"},
        ).status_code
        == 400
    )


def test_a_disconnect_is_no_cancel(gateway, client, session):
    code = "take go\nprint waited"
    message = call("run_python_code", "w", token=1, code=code, session_id=session)
    with client.stream(message=message) as response:
        first = next(response.events)
    gateway.release(session)
    with client.stream("GET", Last_Event_ID=first["id"]) as response:
        answers = [m for m in messages(response.events) if "id" in m]
    assert [m["id"] for m in answers] == ["w"]
    assert answers[0]["result"]["content"][0]["text"] == "waited\n"


def test_cancelled_ends_a_call(client, session):
    ended = []

    def wait_long():
        message = call("run_python_code", "long", code="hang", session_id=session)
        with client.stream(message=message) as response:
            ended.append(messages(response.events))

    thread = threading.Thread(target=wait_long)
    thread.start()
    # The id is in use as long as the call runs.
    wait_for(lambda: client.post(request("ping", "long")).json().get("error"))
    assert client.post(cancelled("long")).status_code == 202
    thread.join(60)
    assert ended == [[]]
    assert result(client.post(request("ping", "long"))) == {}


def test_a_session_has_one_get_stream(client):
    with client.stream("GET") as stream:
        assert stream.status_code == 200
        assert next(stream.events)["id"]
        second = client.http.get("/mcp", headers={**client.headers, "Accept": "text/event-stream"})
        assert second.status_code == 409
        assert client.post({"jsonrpc": "2.0", "id": "x", "result": {}}).status_code == 202


# ---- 2026-07-28


def test_requests_stand_alone(gateway):
    answer = result(post_modern(gateway, modern("server/discover")))
    assert answer["supportedVersions"] == ["2026-07-28"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][META + "serverInfo"]["name"] == "kernelgate"
    assert answer["ttlMs"] >= 0
    answer = result(post_modern(gateway, modern("tools/call", name="list_sessions")))
    assert "sessions" in answer["structuredContent"]
    unknown = modern("tools/call", name="list_sessions", version="2030-01-01")
    refused = error(
        post_modern(gateway, unknown, **{"MCP-Protocol-Version": "2030-01-01"}), 400, -32022
    )
    assert refused["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}
    error(post_modern(gateway, modern("ping")), 404, -32601)
    missing = error(
        post_modern(gateway, modern("resources/read", uri="kernelgate://no")), 200, -32602
    )
    assert missing["data"] == {"uri": "kernelgate://no"}


def test_headers_say_what_the_body_says(gateway):
    tool = modern("tools/call", name="list_sessions")
    for wrong in [
        {"Mcp-Name": "other"},
        {"Mcp-Name": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": None},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"MCP-Protocol-Version": None},
        {"Mcp-Name": "=?base64?!!?="},
    ]:
        error(post_modern(gateway, tool, **wrong), 400, -32020)
    encoded = {"Mcp-Name": "=?base64?bGlzdF9zZXNzaW9ucw==?="}
    assert post_modern(gateway, tool, **encoded).status_code == 200
    bare = request("server/discover")
    headers = {**BOTH, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
    error(gateway.client.post("/mcp", json=bare, headers=headers), 400, -32602)
    error(gateway.client.post("/mcp", json=initialize(), headers=headers), 400, -32020)


def test_closing_the_stream_cancels(gateway, session):
    def running():
        return gauge(gateway, "kernelgate_mcp_calls")

    headers = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "run_python_code",
    }
    arguments = {"code": "hang", "session_id": session}
    message = modern("tools/call", name="run_python_code", arguments=arguments)
    wait_for(lambda: running() == 0)  # those of other tests have ended
    with gateway.client.stream(
        "POST", "/mcp", json=message, headers={**BOTH, **headers}
    ) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert running() == 1
    wait_for(lambda: running() == 0)


def test_a_subscription_stays_open_without_news(gateway):
    wish = {"toolsListChanged": True, "resourceSubscriptions": ["kernelgate://s/a.txt"]}
    message = modern("subscriptions/listen", "sub", notifications=wish)
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0)
    with gateway.client.stream(
        "POST", "/mcp", json=message, headers={**BOTH, **headers}
    ) as response:
        stream = events(response.iter_lines())
        acknowledged = json.loads(next(stream)["data"])
        assert gauge(gateway, "kernelgate_mcp_calls") == 1
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_calls") == 0)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"] == {
        "notifications": {},
        "_meta": {META + "subscriptionId": "sub"},
    }


# ---- Bounds


def test_a_thousand_sessions_that_nobody_ends(start_gateway):
    """What they take is in tests/load/test_mcp.py."""
    gateway = start_gateway("--idle-timeout", "3")

    def sessions():
        return gauge(gateway, "kernelgate_mcp_sessions")

    for _ in range(1100):
        answer = gateway.client.post("/mcp", json=initialize(), headers=BOTH)
        assert answer.status_code == 200
    assert sessions() <= 1024
    wait_for(lambda: sessions() == 0)


def test_a_running_call_keeps_its_session(start_gateway):
    gateway = start_gateway("--idle-timeout", "1")
    client = Client(gateway)
    message = call("run_python_code", code="sleep 4\nprint waited")
    answer = client.post(message, Accept="application/json")
    assert answer.json()["result"]["content"][0]["text"] == "waited\n"
    wait_for(lambda: gauge(gateway, "kernelgate_mcp_sessions") == 0)
    assert client.post(request("ping")).status_code == 404


def test_draining(start_gateway):
    gateway = start_gateway("--drain-timeout", "300")
    client = Client(gateway)
    ended = threading.Event()
    result(client.post(call("run_python_code", code="print ready")))

    def read_news():
        with client.stream("GET") as stream:
            list(stream.events)
        ended.set()

    threading.Thread(target=read_news).start()
    got = []
    held = call("run_python_code", "slow", code="take go\nprint waited")
    slow = threading.Thread(target=lambda: got.append(client.post(held)))
    slow.start()
    wait_for(lambda: client.post(request("ping", "slow")).json().get("error"))
    folder = pathlib.Path(f"/proc/{gateway.sandbox_pids()[0]}/root/mnt/data")
    gateway.signal(signal.SIGTERM)
    assert ended.wait(60), "the stream for news keeps the gateway waiting"
    refused = error(client.post(call("list_sessions", "late")), 503, -32000)
    assert refused["data"]["code"] == "draining"
    assert not got
    (folder / "go").touch()  # it takes no requests for files any more
    slow.join(60)
    assert "waited" in got[0].text
    assert gateway.wait() == 0
