# SPDX-License-Identifier: Apache-2.0
"""The debugger of Python kernels, as JupyterLab uses it over a WebSocket."""

import pytest
from debug_client import DebugClient
from jupyter_wire import Channels, of, one, text

CODE = "x = 1\ny = x + 1\nz = y + 1\nprint(z)"


@pytest.fixture(scope="module", params=["fork", "exec"])
def gateway_flags(request):
    return ["--jupyter-api", "--kernel-start", request.param]


@pytest.fixture
def channels(gateway, kernel):
    with Channels(gateway, kernel) as channels:
        yield channels


def interrupt(gateway, kernel, channels, running):
    """The cell ends where it is."""
    assert gateway.client.post(f"/api/kernels/{kernel}/interrupt").status_code == 204
    reply = one(channels.until_idle(running), "execute_reply")["content"]
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")


def run_to_the_end(debug, line):
    """Runs the cell, which stops at a line, and then on."""
    debug.channels.execute(CODE)
    thread = debug.stopped_thread()
    frames = debug.frames(thread)
    assert [frame["line"] for frame in frames] == [line], frames
    debug.ask("continue", threadId=thread)
    debug.wait_for(lambda seen: of(seen, "execute_reply"))
    debug.wait_for(lambda seen: text(seen) == "3\n")
    assert one(debug.channels.seen, "execute_reply")["content"]["status"] == "ok"
    debug.channels.seen.clear()


def test_jupyterlab_offers_it(gateway):
    specs = gateway.client.get("/api/kernelspecs").json()["kernelspecs"]
    assert specs["python3"]["spec"]["metadata"] == {"debugger": True}
    assert specs["javascript"]["spec"]["metadata"] == {}


def test_every_request_is_answered_after_an_interrupt_at_a_breakpoint(gateway, kernel, channels):
    """Whether it makes sense there or not; and the next cell stops at its breakpoint again."""
    debug = DebugClient(channels)
    cell = debug.break_at(CODE, 2)
    running = channels.execute(CODE)
    thread = debug.stopped_thread()
    frame = debug.frames(thread)[0]["id"]
    scope = debug.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
    variables = debug.ask("variables", variablesReference=scope)["variables"]
    assert [it["value"] for it in variables if it["name"] == "x"] == ["1"]
    interrupt(gateway, kernel, channels, running)
    assert debug.ask("debugInfo")["stoppedThreads"] == []
    for command, arguments in [
        ("continue", {"threadId": thread}),
        ("next", {"threadId": thread}),
        ("stepIn", {"threadId": thread}),
        ("stepOut", {"threadId": thread}),
        ("pause", {"threadId": thread}),
        ("stackTrace", {"threadId": thread}),
        ("scopes", {"frameId": frame}),
        ("variables", {"variablesReference": scope}),
        ("evaluate", {"expression": "x", "frameId": frame, "context": "repl"}),
        ("setVariable", {"name": "x", "value": "2", "variablesReference": scope}),
        ("copyToGlobals", {"srcVariableName": "x", "dstVariableName": "w", "srcFrameId": frame}),
        ("richInspectVariables", {"variableName": "x", "frameId": frame}),
        ("inspectVariables", {}),
        ("modules", {}),
        ("threads", {}),
        ("source", {"source": {"path": cell}}),
        ("setExceptionBreakpoints", {"filters": []}),
        ("no-such-command", {}),
        ("dumpCell", {}),  # without its code
    ]:
        assert isinstance(debug.reply(command, **arguments), dict), command
    # What `pause` has asked for happens at the next line.
    debug.ask("disconnect", restart=False, terminateDebuggee=False)
    assert text(channels.run("print(x)")) == "1\n"


def test_a_breakpoint_holds_again_after_an_interrupt(gateway, kernel, channels):
    debug = DebugClient(channels)
    debug.break_at(CODE, 2)
    run_to_the_end(debug, 2)
    for _ in range(2):
        running = channels.execute(CODE)
        debug.stopped_thread()
        interrupt(gateway, kernel, channels, running)
    run_to_the_end(debug, 2)
    running = channels.execute("print('on', flush=True)\nwhile True:\n    pass")
    channels.until_printed("on\n")
    interrupt(gateway, kernel, channels, running)
    run_to_the_end(debug, 2)
    debug.break_at(CODE, 3)
    run_to_the_end(debug, 3)


def test_the_debugger_is_ended_and_begun_again_after_an_interrupt(gateway, kernel, channels):
    debug = DebugClient(channels)
    debug.break_at(CODE, 2)
    running = channels.execute(CODE)
    debug.stopped_thread()
    interrupt(gateway, kernel, channels, running)
    debug.ask("disconnect", restart=False, terminateDebuggee=False)
    assert text(channels.run(CODE)) == "3\n"
    channels.seen.clear()
    again = DebugClient(channels)
    again.break_at(CODE, 3)
    run_to_the_end(again, 3)


def test_a_kernel_that_is_restarted_at_a_breakpoint(gateway, kernel, channels):
    debug = DebugClient(channels)
    debug.break_at(CODE, 2)
    channels.execute(CODE)
    debug.stopped_thread()
    assert gateway.client.post(f"/api/kernels/{kernel}/restart").status_code == 200
    assert text(channels.run(CODE)) == "3\n"
    channels.seen.clear()
    again = DebugClient(channels)
    again.break_at(CODE, 2)
    run_to_the_end(again, 2)
