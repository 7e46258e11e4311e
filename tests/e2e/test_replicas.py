# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one installation: forwarding, taking over, fencing."""

import concurrent.futures
import contextlib
import datetime
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import uuid

import cluster
import httpx
import jupyter_wire
import mcp_wire
import pytest
from contract import OPERATIONS
from kernelgate import BINARY, HELD, gateways, problem, wait_for
from replicas import (
    TAKEOVER_S,
    adopted,
    answers,
    installation,
    leader_of,
    leases,
    listed,
    pair_of,
    pods,
    wait_until_known,
)
from port_servers import Port
from session_commands import Commands, Known, start
from terminal_wire import terminal

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")


@pytest.fixture
def pair(start_replica):
    """Two replicas of the test's own, which know each other."""
    return pair_of(start_replica)


@pytest.fixture(scope="module")
def lasting_pair(engine, quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with gateways(quick) as start_gateway, installation(start_gateway, folder) as start_replica:
        yield pair_of(start_replica)


@pytest.fixture
def shared_pair(lasting_pair):
    """Two replicas for tests that end none of them."""
    yield lasting_pair
    first, second = lasting_pair
    for session_id in listed(first):
        first.delete_session(session_id)
    wait_for(lambda: listed(first) == listed(second) == [])


def started_at(gateway):
    """By its own clock."""
    return datetime.datetime.fromisoformat(gateway.log().split()[0])


# ---- Forwarding ------------------------------------------------------------------------------------


def test_a_session_is_used_through_both(shared_pair):
    first, second = shared_pair
    first.execute("x = 41", session_id="shared")
    lines = second.execute("print(x + 1)", session_id="shared")
    assert lines.text() == "42\n" and lines.status == "ok"
    assert listed(first) == listed(second) == ["shared"]
    assert second.show_session("shared")["session_id"] == "shared"
    assert second.delete_session("shared").status_code == 200
    wait_for(lambda: listed(first) == [])
    assert problem(first.client.get("/api/v1/sessions/shared"), 404, "session_not_found")


def test_a_killed_replicas_sessions_are_taken_over(start_replica):
    """Their clocks are a minute apart, four times as long as a replica may be silent."""
    [library] = pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    fast = {
        "LD_PRELOAD": str(library),
        "FAKETIME": "+60s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "ASAN_OPTIONS": "verify_asan_link_order=0",
    }
    first, second = start_replica(), start_replica(env=fast)
    wait_until_known(start_replica.installation, 2)
    first.execute("x = 41", session_id="first")
    second.execute("x = 51", session_id="second")
    ahead = started_at(second) - started_at(first)
    assert ahead > datetime.timedelta(seconds=50)
    time.sleep(5)  # each has looked for the other one several times
    assert answers(first, "second", "print(x + 1)", "52")
    assert answers(second, "first", "print(x + 1)", "42")
    assert adopted(first) == adopted(second) == 0
    first.kill()
    killed = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):  # a client that does not wait
        second.client.get("/api/v1/sessions/first", timeout=0.5)
    wait_for(lambda: answers(second, "first", "print(x + 1)", "42"), timeout=TAKEOVER_S)
    assert time.monotonic() - killed < 20  # docs/kubernetes.md
    assert adopted(second) == 1


def test_a_replica_is_killed_under_load(pair):
    """What it ran breaks off; nobody else notices."""
    first, second = pair
    first.execute("x = 41", session_id="kept")
    second.execute("y = 0", session_id="own")
    stop = threading.Event()

    def use_own():
        for number in itertools.count(1):
            lines = second.execute("y += 1; print(y)", session_id="own")
            assert lines.text() == f"{number}\n" and lines.status == "ok", lines
            if stop.wait(0.1):
                return number

    with concurrent.futures.ThreadPoolExecutor() as pool:
        used = pool.submit(use_own)
        try:
            with second.stream(HELD, session_id="kept") as reader:
                reader.next_of("stdout")
                first.kill()
                with pytest.raises(httpx.RemoteProtocolError):
                    reader.rest()
            second.release("kept")
            wait_for(lambda: answers(second, "kept", "print(x + 1)", "42"), timeout=TAKEOVER_S)
        finally:
            stop.set()
        assert used.result() > 20


def test_streams_joins_and_links(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="held")
    with second.stream(HELD, session_id="held") as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        execution = reader.response.headers["x-execution-id"]
        other = uuid.uuid4().hex  # a session of the second, so that both have executions
        second.execute("pass", session_id=other)
        for gateway in shared_pair:  # the first one answers, the second one forwards
            url = f"/api/v1/executions/{execution}"
            with gateway.client.stream("GET", url) as joined:
                assert joined.status_code == 200
                assert '"on\\n"' in next(line for line in joined.iter_lines() if "stdout" in line)
        second.release("held")
        assert reader.rest().status == "ok"


def test_a_client_that_leaves_ends_its_execution(shared_pair):
    """The holder notices it, as if the client were its own."""
    first, second = shared_pair
    first.create_session(session_id="left")
    with second.stream("import time; print('on', flush=True); time.sleep(600)",
                       session_id="left") as reader:  # fmt: skip
        reader.next_of("stdout")
        assert first.show_session("left")["is_busy"]
    wait_for(lambda: not first.show_session("left")["is_busy"])


def test_files_go_both_ways(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="files")
    content = bytes(range(256)) * 4096 * 30  # 30 MiB
    url = "/api/v1/sessions/files/files/large.bin"
    assert second.client.put(url, content=content).status_code == 201
    assert second.client.get(url).content == content
    assert first.client.get(url).content == content
    assert second.client.head(url).headers["content-length"] == str(len(content))
    lines = second.execute("open('made.txt', 'w').write('made')", session_id="files")
    link = httpx.URL(lines.one("file")["url"]).raw_path.decode()
    for gateway in shared_pair:
        assert gateway.client.get(link).text == "made"


def test_large_code_is_forwarded(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="large")
    code = "#" + "x" * 500_000 + "\nprint(len(value))"
    lines = second.execute(code, session_id="large", variables={"value": "y" * 1_000_000})
    assert lines.text() == "1000000\n"
    assert listed(second) == ["large"]


def test_mcp_sessions_stay_with_their_replica(shared_pair):
    first, second = shared_pair
    headers = mcp_wire.Client(first).headers
    for gateway in shared_pair:
        request = mcp_wire.request("tools/list")
        tools = gateway.client.post("/mcp", json=request, headers=headers)
        assert tools.status_code == 200 and "run_python_code" in tools.text


def test_an_mcp_request_goes_to_its_session(shared_pair):
    first, second = shared_pair
    first.execute("x = 41", session_id="tools")
    arguments = {"code": "print(x + 1)", "session_id": "tools"}
    message = mcp_wire.modern("tools/call", name="run_python_code", arguments=arguments)
    answer = mcp_wire.post_modern(second, message)
    assert answer.status_code == 200 and "42" in answer.text, answer.text
    assert listed(second) == ["tools"]


def test_a_tool_reaches_a_session_of_another_replica(shared_pair):
    """From within an MCP session, whose replica is another one."""
    first, second = shared_pair
    first.execute("x = 41", session_id="tools")
    mcp = mcp_wire.Client(second)
    arguments = {"code": "print(x + 1)", "session_id": "tools"}
    answer = mcp.post(mcp_wire.call("run_python_code", **arguments))
    assert answer.status_code == 200 and "42" in answer.text, answer.text
    # A slow one streams its progress.
    arguments["code"] = (
        "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.5)\nx += 1"
    )
    with mcp.stream(message=mcp_wire.call("run_python_code", token="t", **arguments)) as stream:
        events = [json.loads(event["data"]) for event in stream.events if event.get("data")]
    assert not events[-1]["result"].get("isError"), events[-1]
    assert {event.get("method") for event in events[:-1]} == {"notifications/progress"}
    assert mcp_wire.result(mcp.post(mcp_wire.request("tools/list")))["tools"]
    assert first.execute("print(x)", session_id="tools").text() == "42\n"
    assert listed(second) == ["tools"]


def test_an_mcp_session_lives_by_what_it_does_at_another_replica(start_replica):
    first, second = start_replica("--idle-timeout", "4"), start_replica("--idle-timeout", "4")
    wait_until_known(start_replica.installation, 2)
    first.create_session(session_id="tools", idle_timeout=600)
    mcp = mcp_wire.Client(second)
    message = mcp_wire.call("run_python_code", code="print('ran')", session_id="tools")
    for _ in range(7):  # seconds
        assert "ran" in mcp.post(message).text
        time.sleep(1)
    # After its end nothing runs on its behalf.
    assert mcp.http.delete("/mcp", headers=mcp.headers).status_code == 204
    answer = mcp.post(message)
    assert answer.status_code == 404 and "ran" not in answer.text, answer.text


def test_a_tool_is_reached_by_way_of_its_mcp_session(pair, start_replica):
    """The client's request comes to one replica, its MCP session is at another one, and the tool's
    session at a third."""
    first, second = pair
    third = start_replica()
    wait_until_known(start_replica.installation, 3)
    wait_for(lambda: listed(first) == listed(second) == listed(third) == [])
    first.execute("x = 41", session_id="tools")
    mcp = mcp_wire.Client(second)
    arguments = {"code": "print(x + 1)", "session_id": "tools"}
    answer = third.client.post(
        "/mcp", json=mcp_wire.call("run_python_code", **arguments), headers=mcp.headers
    )
    assert answer.status_code == 200 and "42" in answer.text, answer.text
    assert listed(third) == ["tools"]


def test_a_tool_at_another_replica_is_cancelled(shared_pair):
    first, second = shared_pair
    first.execute("x = 41", session_id="tools")
    mcp = mcp_wire.Client(second)
    other = mcp_wire.Client(second)
    code = "import time\nfor i in range(600): print(i, flush=True); time.sleep(0.1)"
    arguments = {"code": code, "session_id": "tools"}
    message = mcp_wire.call("run_python_code", "long", token="t", **arguments)
    with mcp.stream(message=message) as stream:
        next(event for event in stream.events if event.get("data"))
        assert other.post(mcp_wire.cancelled("long")).status_code == 202  # not its call
        next(event for event in stream.events if event.get("data"))
        assert mcp.post(mcp_wire.cancelled("long")).status_code == 202
        left = [json.loads(event["data"]) for event in stream.events if event.get("data")]
    assert all(message.get("method") == "notifications/progress" for message in left)
    # It was interrupted, and its session goes on.
    assert first.execute("print(x + 1, i < 300)", session_id="tools").text() == "42 True\n"


def test_tools_list_the_sessions_of_all_replicas(shared_pair):
    first, second = shared_pair
    first.execute("pass", session_id="here")
    second.execute("pass", session_id="there")
    message = mcp_wire.modern("tools/call", name="list_sessions", arguments={})
    again = mcp_wire.modern("tools/call", name="list_active_sessions", arguments={})
    for gateway in shared_pair:
        listed_here = mcp_wire.result(mcp_wire.post_modern(gateway, message))["structuredContent"]
        assert set(listed_here["sessions"]) == {"here", "there"} and listed_here["total"] == 2
        answer = mcp_wire.post_modern(gateway, again, profile="sandbox-mcp")
        [content] = mcp_wire.result(answer)["content"]
        assert set(json.loads(content["text"])["sessions"]) == {"here", "there"}
    # Also from within an MCP session, whose requests come by way of the other replica.
    mcp = mcp_wire.Client(first)
    answer = second.client.post("/mcp", json=mcp_wire.call("list_sessions"), headers=mcp.headers)
    assert set(mcp_wire.result(answer)["structuredContent"]["sessions"]) == {"here", "there"}


def test_files_and_outputs_are_read_through_both(shared_pair):
    """By tools and as resources, whose URIs say where they are; also within an MCP session."""
    first, second = shared_pair
    code = "open('made.txt', 'w').write('made'); print('x' * 200_000 + 'end')"
    arguments = {"code": code, "session_id": "uris"}
    answer = mcp_wire.post_modern(
        first, mcp_wire.modern("tools/call", name="run_python_code", arguments=arguments)
    )
    output = re.search(r"kernelgate-output://\w+", answer.text)[0]
    asked = [
        ("resources/read", {"uri": "kernelgate://uris/made.txt"}, "made"),
        ("tools/call", {"name": "read_file", "arguments": {"path": "kernelgate://uris/made.txt"}}, "made"),
        ("tools/call", {"name": "read_file", "arguments": {"path": output, "offset": 200_000}}, "end"),
    ]  # fmt: skip
    mcp = mcp_wire.Client(second)
    for method, params, expected in asked:
        for gateway in shared_pair:
            answer = mcp_wire.post_modern(gateway, mcp_wire.modern(method, **params))
            assert answer.status_code == 200 and expected in answer.text, (params, answer.text)
            message = mcp_wire.request(method, **params)
            answer = gateway.client.post("/mcp", json=message, headers=mcp.headers)
            assert answer.status_code == 200 and expected in answer.text, (params, answer.text)


# ---- Rows of routes --------------------------------------------------------------------------------


def operations_of_sessions():
    """What docs/openapi.yaml has for a session by its id."""
    for (method, path), operation in OPERATIONS.items():
        if "/sessions/{id}" in path and "accounts" not in operation["tags"]:
            yield method, path


@pytest.mark.parametrize("method, path", operations_of_sessions())
def test_each_operation_reaches_a_session_of_the_other(shared_pair, method, path):
    first, second = shared_pair
    first.create_session(session_id="walked")
    first.client.put("/api/v1/sessions/walked/files/x", content=b"x")
    target = path.replace("{id}", "walked").replace("{path}", "x").replace("{name}", "numpy")
    bodies = {"commands": {"command": "true"}, "packages": {"packages": ["numpy"]}}
    body = bodies.get(target.rsplit("/", 1)[1]) if method == "POST" else None
    if method == "PUT":
        answer = second.client.put(target, content=b"y")
    else:
        answer = second.client.request(method, target, json=body)
    known = answer.status_code < 500 and "session_not_found" not in answer.text
    assert known, (method, target, answer.text)


def test_what_a_session_has_is_known_to_the_other(shared_pair):
    first, second = shared_pair
    path, query = "/api/v1/sessions/lent", {"metadata": '{"task":"lent"}'}
    first.create_session(session_id="lent", metadata={"task": "lent"})
    changed = second.client.patch(path, json={"max_lifetime": 3600}).json()
    assert changed["metadata"] == {"task": "lent"} and changed["ends_at"]
    made = second.client.post(f"{path}/tokens", json={"scope": ["read"]}).json()
    holders = [gateway.client_for(made["token"]) for gateway in shared_pair]
    for gateway, holder in zip(shared_pair, holders, strict=True):
        found = gateway.client.get("/api/v1/sessions", params=query).json()["sessions"]
        assert list(found) == ["lent"]
        assert holder.get(path).json()["ends_at"] == changed["ends_at"]
        problem(holder.get(f"{path}/files"), 403, "token_scope")
        problem(holder.get("/api/v1/sessions/walked"), 403, "token_scope")
        problem(holder.get("/api/v1/sessions"), 403, "token_scope")
    second.client.delete(f"{path}/tokens/{made['token_id']}").raise_for_status()
    for holder in holders:
        problem(holder.get(path), 401, "unauthorized")
        holder.close()
    first.delete_session("lent")


def test_an_upload_by_the_other_replica(shared_pair):
    """It is passed on as it comes, and a refusal arrives before its end."""
    first, second = shared_pair
    first.create_session(session_id="filled")
    url = "/api/v1/sessions/filled/files/large"
    content = os.urandom(20 << 20)
    assert second.client.put(url, content=content).status_code == 201
    assert first.client.get(url).content == content
    assert second.client.put(url, params={"overwrite": 0}, content=content).status_code == 409
    assert first.client.get(url).content == content


def test_links_that_clients_build_themselves(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="linked")
    first.client.put("/api/v1/sessions/linked/files/x", content=b"x")
    query = {"sandbox_id": "linked", "file_path": "/app/results/x"}
    for gateway in shared_pair:
        answer = gateway.client.get("/sandbox/file", params=query)
        assert answer.status_code == 302, answer.text
        link = httpx.URL(answer.headers["location"]).raw_path.decode()
        assert gateway.client.get(link).text == "x"


def test_the_old_sse_transport(shared_pair):
    """Its stream is at one replica, and its messages come to the other one."""
    first, second = shared_pair
    with first.client.stream("GET", "/sse") as stream:
        events = mcp_wire.events(stream.iter_lines())
        endpoint = next(events)["data"]
        sent = second.client.post(endpoint, json=mcp_wire.initialize("2024-11-05"))
        assert sent.status_code == 202, sent.text
        assert json.loads(next(events)["data"])["result"]["protocolVersion"] == "2024-11-05"


def test_commands_and_terminals(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="shared")
    started = start(Commands(first, "shared"), "read x; echo got $x", "work", stdin=True)
    known = Known(Commands(second, "shared"), started.name)
    assert known.show()["running"]
    with known.joined() as lines, terminal(second, "shared", id="main") as screen:
        known.give("42\n")
        assert {"type": "stdout", "text": "got 42\n"} in list(lines)
        screen.type("echo $((6*7))\n")
        screen.until(b"42\r\n")
        with terminal(first, "shared", id="main") as other:
            other.until(b"42\r\n")
            other.type("exit 3\n")
            assert screen.until_told("exit_code") == other.until_told("exit_code") == 3
    name = second.client.post("/api/terminals", json={"session_id": "shared"}).json()["name"]
    for gateway in (first, second):
        assert [each["name"] for each in gateway.client.get("/api/terminals").json()] == [name]
    assert second.client.delete(f"/api/terminals/{name}").status_code == 204


COUNTS_UPLOADS = """exec python3 -c '
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(length).encode())
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()'"""


def test_a_port_by_both(start_replica):
    """Also what is larger than a replica takes of a stranger: it knows the cookie, and not whose it is."""
    pair = (
        start_replica("--ports-domain", "ports.test"),
        start_replica("--ports-domain", "ports.test"),
    )
    pair[0].create_session(session_id="web")
    start(Commands(pair[0], "web"), COUNTS_UPLOADS, "server")
    path = "/api/v1/sessions/web/ports"
    wait_for(
        lambda: 8000 in [each["port"] for each in pair[1].client.get(path).json()["ports"]],
        timeout=30,
    )
    opened = Port(pair[1], "web", 8000)
    opened.open()
    for gateway in pair:
        port = Port(gateway, "web", 8000)
        port.host, port.cookie = opened.host, opened.cookie
        assert port.send("POST", content=b"x" * (3 << 20)).text == str(3 << 20)
        refused = port.send("POST", cookie="a=b", content=b"x" * 1000)
        assert refused.status_code == 403 and refused.json()["code"] == "port_private"


def test_kernels_of_jupyters_api(start_replica):
    first, second = start_replica("--jupyter-api"), start_replica("--jupyter-api")
    wait_until_known(start_replica.installation, 2)
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    kernel = jupyter_wire.start_kernel(first)
    assert kernel in jupyter_wire.list_kernels(second)
    with jupyter_wire.Channels(second, kernel) as channels:
        messages = channels.run("x = 41; print(x + 1)")
        assert jupyter_wire.text(messages) == "42\n"
        large = 1 << 20
        [data] = jupyter_wire.of(channels.run(f"'y' * {large}"), "execute_result")
        assert len(data["content"]["data"]["text/plain"]) == large + 2
        assert jupyter_wire.connections(second, kernel) == 1
    assert second.client.get(f"/api/kernels/{kernel}").json()["id"] == kernel
    # Files of the session.
    path = f"/api/contents/{kernel}/a.txt"
    saved = second.client.put(path, json={"type": "file", "format": "text", "content": "a"})
    assert saved.status_code in (200, 201), saved.text
    assert first.client.get(path).json()["content"] == "a"
    folders = second.client.get("/api/contents").json()["content"]
    assert [folder["name"] for folder in folders] == [kernel]
    assert second.client.post(f"/api/kernels/{kernel}/restart").status_code == 200
    assert second.client.delete(f"/api/kernels/{kernel}").status_code == 204
    wait_for(lambda: not jupyter_wire.list_kernels(first))


def test_notebooks_of_jupyters_api(start_replica):
    first, second = start_replica("--jupyter-api"), start_replica("--jupyter-api")
    wait_until_known(start_replica.installation, 2)
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    body = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    made = first.client.post("/api/sessions", json=body)
    assert made.status_code == 201, made.text
    # The other replica answers with the same session, and changes and ends it.
    again = second.client.post("/api/sessions", json=body)
    assert again.status_code == 201 and again.json()["id"] == made.json()["id"]
    url = made.headers["location"]
    assert [model["id"] for model in second.client.get("/api/sessions").json()] == [
        made.json()["id"]
    ]
    assert second.client.get(url).json()["path"] == "a.ipynb"
    assert second.client.patch(url, json={"path": "b.ipynb"}).json()["path"] == "b.ipynb"
    assert first.client.get(url).json()["path"] == "b.ipynb"
    # A session for a kernel is made where that is.
    kernel = made.json()["kernel"]["id"]
    other = {"path": "c.ipynb", "type": "notebook", "name": "c", "kernel": {"id": kernel}}
    assert second.client.post("/api/sessions", json=other).json()["kernel"]["id"] == kernel
    assert len(second.client.get("/api/kernels").json()) == 1
    assert second.client.delete(url).status_code == 204
    assert first.client.get(url).status_code == second.client.get(url).status_code == 404


def test_credentials_are_checked(start_replica, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:correct-horse-battery\nbob:wrong-horse-battery\n")
    flags = ("--api-keys-file", str(keys))
    first = start_replica(*flags, key="correct-horse-battery")
    second = start_replica(*flags, key="wrong-horse-battery")
    first.execute("x = 1", session_id="mine")
    ann = second.client_for("correct-horse-battery")
    wait_for(lambda: "mine" in ann.get("/api/v1/sessions").json().get("sessions", {}))
    assert second.execute("print(x)", client=ann, session_id="mine").text() == "1\n"
    assert problem(second.client.get("/api/v1/sessions/mine"), 404, "session_not_found")
    assert second.client_for("nobody").get("/api/v1/sessions/mine").status_code == 401
    assert listed(second) == []
    # Bob's session of that name is another one.
    second.execute("x = 2", session_id="mine")
    assert first.execute("print(x)", session_id="mine").text() == "1\n"


def test_a_killed_replica_is_missed_by_those_who_have_sessions_there(start_replica, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:correct-horse-battery\nbob:wrong-horse-battery\n")
    flags = ("--api-keys-file", str(keys))
    first = start_replica(*flags, key="correct-horse-battery")
    second = start_replica(*flags, key="wrong-horse-battery")
    wait_until_known(start_replica.installation, 2)
    first.execute("x = 41", session_id="of-ann")
    second.execute("x = 51", session_id="of-bob")
    ann = second.client_for("correct-horse-battery")
    wait_for(lambda: "of-ann" in ann.get("/api/v1/sessions").json().get("sessions", {}))
    first.kill()
    assert listed(second) == ["of-bob"]
    problem(ann.get("/api/v1/sessions"), 503, "provisioner_unavailable")
    wait_for(
        lambda: "of-ann" in ann.get("/api/v1/sessions").json().get("sessions", {}),
        timeout=TAKEOVER_S,
    )


# ---- Names -----------------------------------------------------------------------------------------


def test_of_two_creations_one_has_the_name(start_replica):
    first = start_replica("--pool-size", "2")
    second = start_replica("--pool-size", "2")
    leader_of([first, second]).fill_pool()
    for number in range(4):
        name = f"race-{number}"

        def create(gateway, name=name):
            return gateway.client.post("/api/v1/sessions", json={"session_id": name}).status_code

        with concurrent.futures.ThreadPoolExecutor() as pool:
            codes = list(pool.map(create, [first, second]))
        assert 200 in codes and set(codes) <= {200, 503}, codes
        assert first.execute("x = 7", session_id=name).status == "ok"
        assert second.execute("print(x)", session_id=name).text() == "7\n"
        assert len(leases(start_replica.installation, "session")) == 1
        first.delete_session(name)
        wait_for(lambda: not leases(start_replica.installation, "session"))


def test_a_name_can_be_used_again_at_once(shared_pair):
    first, second = shared_pair
    for number in range(3):
        shared_pair[number % 2].execute("x = 1", session_id="again")
        assert shared_pair[(number + 1) % 2].delete_session("again").status_code == 200
        lines = shared_pair[number % 2].execute("print('x' in globals())", session_id="again")
        assert lines.text() == "False\n"
        assert first.delete_session("again").status_code == 200


# ---- Limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["--max-sessions", "--max-sessions-per-owner"])
def test_a_limit_is_for_all_replicas(start_replica, limit):
    first, second = replicas = [start_replica(limit, "2") for _ in range(2)]
    first.create_session(session_id="one")
    wait_for(lambda: listed(second) == ["one"])
    second.create_session(session_id="two")
    wait_for(lambda: listed(first) == ["one", "two"])
    for gateway in replicas:  # each has its own watch of the pods
        wait_for(lambda: mcp_wire.gauge(gateway, "kernelgate_installation_sessions") == 2)
        refused = gateway.client.post("/api/v1/sessions", json={"session_id": "three"})
        assert problem(refused, 429, "max_sessions")
    first.delete_session("two")
    body = {"session_id": "three"}
    wait_for(lambda: first.client.post("/api/v1/sessions", json=body).status_code == 200)


# ---- The pool --------------------------------------------------------------------------------------


def pods_on_offer(start_replica):
    return {
        pod["metadata"]["name"]
        for pod in cluster.Cluster().pods(start_replica.installation)
        if pod["metadata"]["annotations"].get("kernelgate/ready") == "true"
    }


def test_one_replica_fills_the_pool_for_all(start_replica):
    replicas = [start_replica("--pool-size", "2") for _ in range(3)]
    leader = leader_of(replicas)
    leader.fill_pool()
    free = wait_for(lambda: len(offered := pods_on_offer(start_replica)) == 2 and offered)
    others = [gateway for gateway in replicas if gateway is not leader]
    for gateway in others:  # takes a sandbox of the leader's, with its kernel
        gateway.execute("pass", session_id=f"of-{others.index(gateway)}")
        assert listed(gateway) == listed(leader)
    assert pods(start_replica.installation, "claimed") == free
    assert not free & pods_on_offer(start_replica)  # to a third one
    wait_for(lambda: len(pods(start_replica.installation, "free")) == 2)
    leader.fill_pool()
    assert "could not be started" not in leader.log()
    leader.kill()
    leader_of(others).fill_pool()
    # It may have made some before it adopts those of the dead one; what is too many is removed.
    wait_for(lambda: len(pods(start_replica.installation, "free")) == 2)


# ---- Taking over -----------------------------------------------------------------------------------


def test_a_replica_that_was_stopped_is_overtaken(pair):
    """It drives none of its former sessions, and forwards. Its cell goes on, and is not run again."""
    first, second = pair
    first.execute("x = 41; n = 0", session_id="kept")
    with first.stream(f"n += 1\n{HELD}", session_id="kept") as reader:
        reader.next_of("stdout")
        first.signal(signal.SIGSTOP)
        try:
            second.release("kept")
            wait_for(lambda: answers(second, "kept", "x += 1; print(x)", "42"), timeout=TAKEOVER_S)
        finally:
            first.signal(signal.SIGCONT)
        assert reader.rest().status == "died"

    def runs():
        """What it accepts before it knows ends as died, and has not run."""
        body = {"session_id": "kept", "code": "x += 1"}
        response = first.client.post("/api/v1/execute_sync", json=body)
        return response.status_code == 200 and response.json()["data"]["status"] == "ok"

    wait_for(runs, timeout=TAKEOVER_S)
    for gateway in pair:
        assert gateway.execute("print(x, n)", session_id="kept").text() == "43 1\n"
    assert "another gateway has taken the sandbox over" in first.log()
    assert adopted(second) == 1 and adopted(first) == 0


def test_a_replica_that_ends_leaves_its_sessions_to_the_others(pair, start_replica):
    first, second = pair
    first.execute("x = 41", session_id="kept")
    second.execute("y = 1", session_id="own")
    first.stop()
    # Its lease is gone, so nobody waits for that to expire.
    wait_for(lambda: answers(second, "kept", "print(x + 1)", "42"), timeout=10)
    assert second.execute("print(y)", session_id="own").text() == "1\n"
    assert listed(second) == ["kept", "own"]
    assert len(leases(start_replica.installation, "replica")) == 1


def test_idle_sessions_are_handed_over_at_once(start_replica):
    """The other replica has them while a cell of the one that ends still runs."""
    first, second = start_replica("--drain-timeout", "60"), start_replica()
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    first.execute("x = 41", session_id="idle")
    first.create_session(session_id="busy")
    second.execute("y = 1", session_id="own")
    with first.stream(HELD, session_id="busy") as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        first.signal(signal.SIGTERM)
        wait_for(lambda: "draining" in first.log())
        # Requests wait for it, also those that still come to the one that ends.
        assert first.execute("print(x + 1)", session_id="idle").text() == "42\n"
        assert second.execute("print(x + 1)", session_id="idle").text() == "42\n"
        assert first.execute("print(6 * 7)").text() == "42\n"
        first.execute("z = 1", session_id="new")
        assert second.execute("print(z)", session_id="new").text() == "1\n"
        assert second.show_session("busy")["is_busy"]
        assert adopted(second) == 1
        second.release("busy")
        assert reader.rest().status == "ok"
    assert second.execute("print(1)", session_id="busy").text() == "1\n"
    assert first.wait() == 0
    assert second.execute("print(y)", session_id="own").text() == "1\n"


def test_a_replica_starts_beside_others(pair, start_replica):
    """It takes nothing from those that live."""
    first, second = pair
    first.execute("x = 41", session_id="kept")
    third = start_replica()
    assert third.execute("print(x + 1)", session_id="kept").text() == "42\n"
    assert adopted(third) == 0
    assert listed(third) == ["kept"]


class Cut:
    """Forwards connections to the API server, until it is cut."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", 6443))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()
        self._listener.close()

    def cut(self):
        self._passes.clear()

    def restore(self):
        self._passes.set()


def test_a_replica_without_the_api_server_is_overtaken(start_replica):
    """Both reach the sandbox all the time. Each cell runs once: in the order of the epochs."""
    with Cut() as way:
        server = {"KERNELGATE_KUBERNETES_SERVER": f"https://127.0.0.1:{way.port}"}
        first, second = start_replica(env=server), start_replica()
        wait_for(lambda: listed(first) is not None and listed(second) is not None)
        first.execute("ran = []", session_id="kept")
        assert second.execute("ran.append('before')", session_id="kept").status == "ok"
        way.cut()
        # It knows nothing, and goes on until the agent refuses it.
        assert first.execute("ran.append('cut')", session_id="kept").status == "ok"
        wait_for(lambda: adopted(second) == 1, timeout=TAKEOVER_S)
        assert second.execute("ran.append('over')", session_id="kept").status == "ok"
        with contextlib.suppress(httpx.HTTPError):
            first.client.post(
                "/api/v1/execute_sync",
                json={"session_id": "kept", "code": "ran.append('late')"},
                timeout=2,
            )
        # It does not know who has the session, and does not say that nobody has.
        problem(first.client.get("/api/v1/sessions/kept"), 503, "provisioner_unavailable")
        way.restore()
        wait_for(
            lambda: answers(first, "kept", "ran.append('back'); print('on')", "on"), timeout=30
        )
        expected = "['before', 'cut', 'over', 'back']\n"
        assert second.execute("print(ran)", session_id="kept").text() == expected
        assert adopted(first) == 0 and adopted(second) == 1


# ---- The API server --------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_sessions_stay_where_they_are_while_the_api_server_is_away(pair, component):
    first, second = pair
    first.execute("x = 41", session_id="kept")
    assert second.execute("print(x)", session_id="kept").text() == "41\n"
    seconds = max(25, int(os.environ.get("KERNELGATE_FAULT_SECONDS", "0")))  # 25: a lease and more
    with concurrent.futures.ThreadPoolExecutor() as pool, cluster.stopped(component):
        end = time.monotonic() + seconds
        new = pool.submit(first.client.post, "/api/v1/sessions", json={"session_id": "new"})
        while time.monotonic() < end:
            assert second.execute("print(x)", session_id="kept").text() == "41\n"
            time.sleep(1)
        refused = problem(new.result(), 503, "provisioner_unavailable")
    assert int(new.result().headers["retry-after"]) >= 1 and "API server" in refused["detail"]
    wait_for(lambda: answers(second, "kept", "print(x)", "41"), timeout=TAKEOVER_S)
    wait_for(lambda: listed(second) == ["kept"], timeout=TAKEOVER_S)
    assert adopted(first) == adopted(second) == 0


# ---- Beside them -----------------------------------------------------------------------------------


def test_doctor_of_an_installation_that_runs(pair, start_replica):
    """Its leader removes pods of the installation that have no holder."""
    wait_for(lambda: leases(start_replica.installation, "leader"))
    settings = {"PATH": os.environ["PATH"], **cluster.gateway_environment()}
    settings["KERNELGATE_KUBERNETES_INSTALLATION"] = start_replica.installation
    result = subprocess.run([BINARY, "doctor"], env=settings, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stdout
    assert "the agent runs in a pod" in result.stdout


# ---- Settings --------------------------------------------------------------------------------------


def test_replicas_need_what_can_be_taken_over(tmp_path):
    settings = {"PATH": os.environ["PATH"], **cluster.gateway_environment()}
    settings["KERNELGATE_KUBERNETES_REPLICA_ADDRESS"] = "127.0.0.1:1"
    command = [BINARY, "serve", "--state-dir", tmp_path]
    result = subprocess.run(command, env=settings, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "replicas need provisioner kubernetes, keep-sandboxes" in result.stderr
