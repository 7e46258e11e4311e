# SPDX-License-Identifier: Apache-2.0
"""The console shows code that it did not start: of another tab, of the API, and of the time before the
gateway was restarted."""

import contextlib
import json

import pytest
from console_page import put
from kernelgate import HELD, wait_for
from playwright.sync_api import expect
from tool_client import ToolClient


def elsewhere(console):
    return console.page.get_by_role("region", name="Code from elsewhere")


@contextlib.contextmanager
def running(gateway, session, code=HELD):
    """Code that a program runs by the API; yields when it has begun, and the lines that follow."""
    body = {"code": code, "session_id": session}
    with gateway.client.stream("POST", "/api/v1/execute", json=body) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["text"] == "on\n"
        yield lines


def test_code_of_the_api_is_shown(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    expect(console.new_cell).to_be_visible()
    with running(gateway, sandbox) as lines:
        one = elsewhere(console)
        expect(one).to_contain_text("another page or program, in the kernel python")
        expect(one.locator(".status")).to_contain_text("running for")
        expect(console.cells).to_have_count(0)
        one.get_by_role("button", name="Show output").click()
        expect(one.locator(".text")).to_have_text("on\n")
        assert console.findings() == []
        put(gateway, sandbox, "go")
        assert '"done"' in list(lines)[-1]
        expect(one.locator(".status")).to_have_text("ended")  # its output stays
        expect(one.locator(".text")).to_have_text("on\n")
        one.get_by_role("button", name="Remove").click()
        expect(one).to_have_count(0)


def test_calls_of_tools_are_shown_as_they_happen(gateway, tab, sandbox):
    def missing(**_):
        raise KeyError("no such city")

    client = ToolClient(gateway, sandbox, {"add": lambda a, b: a + b, "locate": missing})
    code = "import tools\ntools.add(a=1, b=2)\ntry:\n    tools.locate(city='X')\nexcept tools.ToolError: pass"
    console = tab()
    console.enter(sandbox)
    expect(console.new_cell).to_be_visible()
    with client.stream(code) as reader:
        execution = reader.response.headers["x-execution-id"]
        call = reader.next_of("tool_call")
        one = elsewhere(console)
        one.get_by_role("button", name="Show output").click()
        calls = one.locator(".tool-calls")
        calls.get_by_text("1 tool call: 1 waiting").click()
        expect(calls.locator("tbody tr")).to_have_text(["addwaiting"])
        assert console.findings() == []
        client.answer(execution, (call["call_id"], client.result_of(call)))
        call = reader.next_of("tool_call")
        client.answer(execution, (call["call_id"], client.result_of(call)))
        assert reader.rest().status == "ok"
    expect(calls.locator("summary")).to_have_text("2 tool calls: 1 failed")
    expect(calls.locator("tbody tr").nth(0)).to_contain_text("adddone")
    expect(calls.locator("tbody tr").nth(1)).to_contain_text("locatefailed")


def test_code_of_the_api_is_interrupted(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    with running(gateway, sandbox) as lines:
        elsewhere(console).get_by_role("button", name="Interrupt").click()
        assert json.loads(list(lines)[-1])["status"] == "interrupted"
    expect(elsewhere(console)).to_have_count(0)


def test_code_of_another_tab(gateway, tab, sandbox):
    """The tab that started it shows it once, and so it does after a reload."""
    first, second = tab(), tab()
    first.enter(sandbox)
    cell = first.run(HELD)
    expect(cell.locator(".text")).to_have_text("on\n")
    second.enter(sandbox)
    expect(elsewhere(second)).to_have_count(1)
    first.page.reload()
    expect(cell.locator(".text")).to_have_text("on\n")
    with first.page.expect_response("**/executions"):
        pass
    expect(elsewhere(first)).to_have_count(0)
    put(gateway, sandbox, "go")
    first.until_done(cell)
    expect(elsewhere(second)).to_have_count(0)


@pytest.mark.timeout(400)
def test_code_from_before_a_restart(gateway, tab, sandbox):
    """The gateway has no execution of it, but its kernel is busy."""
    console = tab()
    with contextlib.suppress(Exception), running(gateway, sandbox):
        gateway.kill()
    gateway.start()
    console.enter(sandbox)
    one = elsewhere(console)
    expect(one).to_contain_text("The kernel python is running code")
    one.get_by_role("button", name="Interrupt").click()
    expect(one).to_have_count(0)
    wait_for(lambda: not gateway.client.get(f"/api/v1/sessions/{sandbox}").json()["is_busy"])
    cell = console.run("6 * 7")
    expect(cell.locator(".text")).to_have_text("42")
