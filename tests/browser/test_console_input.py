# SPDX-License-Identifier: Apache-2.0
"""Code that asks for a line: the field below its output. In most tests the gateway's part is played."""

import json

import pytest
from playwright.sync_api import expect

RUN = "**/api/v1/execute"
JOIN = "**/api/v1/executions/played?after=*"
INPUT = "**/api/v1/executions/played/input"


class Played:
    """An execution whose lines the test gives out: each request gets those that are new to it, and the
    last one waits for more."""

    def __init__(self, page):
        self.lines = []
        self.sent = None
        self.answers = []
        self.status = 202
        self.waiting = None
        page.route(RUN, self._run)
        page.route(JOIN, self._join)
        page.route(INPUT, self._answer)

    def add(self, **line):
        self.lines.append({"seq": len(self.lines) + 1, **line})
        if self.waiting:
            self._join(self.waiting)

    def done(self):
        self.add(type="done", status="ok", execution_count=1, duration_ms=5, session_id="s")

    def _run(self, route):
        self.sent = route.request.post_data_json
        self._reply(route, 0)

    def _join(self, route):
        self.waiting = None
        after = int(route.request.url.rpartition("=")[2])
        if after >= len(self.lines):
            self.waiting = route
        else:
            self._reply(route, after)

    def _reply(self, route, after):
        body = "".join(json.dumps(line) + "\n" for line in self.lines[after:])
        headers = {"X-Execution-Id": "played", "Content-Type": "application/x-ndjson"}
        route.fulfill(body=body, headers=headers)

    def _answer(self, route):
        self.answers.append(route.request.post_data_json)
        route.fulfill(status=self.status, json={"detail": "nothing is asked for"})


@pytest.fixture
def console(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    return console


def test_a_line_is_asked_for(console):
    played = Played(console.page)
    played.add(type="stdout", text="hello\n")
    played.add(type="input_request", prompt="Name: ", password=False)
    cell = console.run("input('Name: ')")
    field = cell.get_by_label("Name:")
    expect(field).to_be_focused()
    expect(field).not_to_have_attribute("type", "password")
    expect(cell.locator(".status")).to_have_text("waiting for input")
    assert played.sent["allow_stdin"] is True
    assert console.findings() == []
    console.page.keyboard.type("Ada")
    console.press("Enter")
    expect(field).to_have_count(0)
    expect(cell.locator(".text")).to_have_text("hello\nName: Ada\n")
    assert played.answers == [{"value": "Ada"}]
    played.add(type="stdout", text="Ada\n")
    played.done()
    console.until_done(cell)
    expect(cell.locator(".text")).to_have_text("hello\nName: Ada\nAda\n")


def test_a_password_is_masked(console):
    played = Played(console.page)
    played.add(type="input_request", prompt="", password=True)
    cell = console.run("import getpass; getpass.getpass('')")
    field = cell.get_by_label("Input")
    expect(field).to_have_attribute("type", "password")
    console.page.keyboard.type("hunter2")
    console.press("Enter")
    expect(field).to_have_count(0)
    assert played.answers == [{"value": "hunter2"}]
    played.done()
    console.until_done(cell)
    console.page.reload()
    expect(cell).to_be_visible()
    assert "hunter2" not in console.page.inner_text("body")
    assert "hunter2" not in console.page.evaluate("JSON.stringify({...sessionStorage})")


def test_a_reload_asks_again(console):
    played = Played(console.page)
    played.add(type="input_request", prompt="First: ", password=False)
    played.add(type="stdout", text="between\n")
    played.add(type="input_request", prompt="Second: ", password=False)
    cell = console.run("input('First: '); print('between'); input('Second: ')")
    expect(cell.get_by_label("Second:")).to_be_visible()
    console.page.reload()
    expect(cell.get_by_label("Second:")).to_be_focused()
    expect(cell.locator(".text")).to_have_text("First: \nbetween\n")
    played.add(type="stdout", text="answered elsewhere\n")
    expect(cell.get_by_label("Second:")).to_have_count(0)
    played.done()
    console.until_done(cell)


def test_nothing_is_asked_for_any_more(console):
    played = Played(console.page)
    played.add(type="input_request", prompt="? ", password=False)
    played.status = 409
    cell = console.run("input('? ')")
    expect(cell.get_by_label("?")).to_be_focused()
    console.press("Enter")
    expect(cell.get_by_label("?")).to_have_count(0)
    played.done()
    console.until_done(cell)


def test_an_answer_that_is_refused_can_be_sent_again(console):
    played = Played(console.page)
    played.add(type="input_request", prompt="? ", password=False)
    played.status = 503
    cell = console.run("input('? ')")
    expect(cell.get_by_label("?")).to_be_focused()
    console.page.keyboard.type("kept")
    console.press("Enter")
    expect(cell.get_by_role("alert")).to_contain_text("nothing is asked for")
    expect(cell.get_by_label("?")).to_have_value("kept")
    played.status = 202
    cell.get_by_role("button", name="Send").click()
    expect(cell.get_by_label("?")).to_have_count(0)
    assert played.answers == [{"value": "kept"}] * 2
    played.done()
    console.until_done(cell)


def test_a_kernel_asks(console):
    """The kernel's own input() and getpass(), also after a reload."""
    cell = console.run(
        "from getpass import getpass\nname = input('Name: ')\nsecret = getpass('Secret: ')\n"
        "print('hello', name, len(secret))"
    )
    expect(cell.get_by_label("Name:")).to_be_focused()
    console.page.keyboard.type("Ada")
    console.press("Enter")
    expect(cell.get_by_label("Secret:")).to_have_attribute("type", "password")
    console.page.reload()
    expect(cell.get_by_label("Secret:")).to_be_focused()
    console.page.keyboard.type("hunter2")
    console.press("Enter")
    expect(cell.locator(".text")).to_contain_text("hello Ada 7")
    console.until_done(cell)
    assert "hunter2" not in console.page.inner_text("body")


def test_a_kernel_that_asks_is_interrupted(console):
    cell = console.run("input('? ')")
    expect(cell.get_by_label("?")).to_be_focused()
    console.page.get_by_role("button", name="Interrupt").click()
    expect(cell.get_by_label("?")).to_have_count(0)
    expect(cell.locator(".status")).to_contain_text("interrupted")
