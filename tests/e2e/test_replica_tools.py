# SPDX-License-Identifier: Apache-2.0
"""MCP with several gateways of one installation: clients, MCP sessions and tools at different replicas."""

import json
import re
import time

import mcp_wire
import pytest
from kernelgate import wait_for
from replicas import listed, wait_until_known

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")


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


def test_the_old_sse_transport(shared_pair):
    """Its stream is at one replica, and its messages come to the other one."""
    first, second = shared_pair
    with first.client.stream("GET", "/sse") as stream:
        events = mcp_wire.events(stream.iter_lines())
        endpoint = next(events)["data"]
        sent = second.client.post(endpoint, json=mcp_wire.initialize("2024-11-05"))
        assert sent.status_code == 202, sent.text
        assert json.loads(next(events)["data"])["result"]["protocolVersion"] == "2024-11-05"
