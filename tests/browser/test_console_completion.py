# SPDX-License-Identifier: Apache-2.0
"""Completion and signatures in the console's editor: by the kernel, else by the code itself."""

import uuid

import pytest
from console_page import put
from jupyter_wire import wait_until_left
from kernelgate import HELD, Gateway, wait_for
from playwright.sync_api import expect


@pytest.fixture(scope="module")
def gateway():
    """Without a key, which Jupyter's API does not take from a page."""
    running = Gateway("--pool-size", "1")
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def kernel(gateway):
    """A session that Jupyter's API has, too."""
    name = str(uuid.uuid4())
    gateway.create_session(session_id=name)
    yield name
    gateway.client.delete(f"/api/v1/sessions/{name}")


@pytest.fixture
def console(gateway, tab, kernel):
    console = tab(gateway)
    console.open(f"#/sandboxes/{kernel}/console")
    expect(console.page.get_by_text("CPU")).to_be_visible()  # what it has is known
    return console


def options(console):
    return console.page.locator(".cm-tooltip-autocomplete li")


def complete(console, key):
    """Asks again where the kernel takes too long, as it may with the first question."""

    def is_shown():
        if options(console).count():
            return True
        console.press(key)
        return False

    wait_for(is_shown, interval=1)  # a list that has just been opened takes no Enter


def channels(console):
    return [url for url in console.sockets if "/channels" in url]


def test_the_kernel_completes(gateway, console, kernel):
    console.until_done(console.run("celsius = {'oslo': 4}\nwörter = '😀'"))
    console.new_cell.click()
    assert channels(console) == []  # not before it is needed
    console.page.keyboard.insert_text("'😀'; celsius.fromk")
    complete(console, "Tab")
    expect(options(console)).to_have_text(["fromkeys"])
    console.press("Enter")
    expect(console.new_cell).to_have_text("'😀'; celsius.fromkeys")
    console.press("Control+a", "Delete")
    console.page.keyboard.insert_text("cels")
    complete(console, "Control+Space")
    expect(options(console).filter(has_text="celsius")).to_be_visible()
    console.press("Escape")
    expect(options(console)).to_have_count(0)
    expect(console.new_cell).to_be_focused()  # Escape has closed the list, and nothing else
    assert len(channels(console)) == 1
    assert gateway.client.get(f"/api/v1/sessions/{kernel}").json()["execution_count"] == 1


def test_a_signature_is_shown(console):
    console.until_done(console.run("def area(width, height=2):\n    'Of a field.'"))
    console.new_cell.click()
    console.page.keyboard.insert_text("area(")
    console.press("Shift+Tab")
    shown = console.page.locator(".cm-help")
    expect(shown).to_contain_text("area(width, height=2)")
    expect(shown).to_contain_text("Of a field.")
    console.press("Escape")
    expect(shown).to_have_count(0)
    expect(console.new_cell).to_be_focused()
    console.press("Shift+Tab")
    expect(shown).to_be_visible()
    console.page.keyboard.type("1")
    expect(shown).to_have_count(0)


def test_tab_indents_where_there_is_no_text(console):
    console.new_cell.click()
    console.press("Tab")
    console.page.keyboard.type("x")
    assert console.new_cell.inner_text() == "    x"
    console.press("Home", "Home", "Shift+Tab")
    assert console.new_cell.inner_text() == "x"


def test_a_kernel_that_is_busy_is_not_asked(gateway, console, kernel):
    cell = console.run(HELD + "secret = 1")
    expect(cell.locator(".text")).to_contain_text("on")
    console.new_cell.click()
    console.page.keyboard.insert_text("local_name = 1\nlocal_n")
    console.press("Tab")
    expect(options(console)).to_have_text(["local_name"])
    console.press("Escape")
    assert channels(console) == []
    put(gateway, kernel, "go")
    console.until_done(cell)


def test_a_kernel_that_others_keep_busy_is_not_asked(gateway, console, kernel):
    """What the WebSocket says of the kernel is enough."""
    body = {"code": HELD, "session_id": kernel}
    with gateway.client.stream("POST", "/api/v1/execute", json=body) as response:
        lines = response.iter_lines()
        assert '"on' in next(lines)
        console.new_cell.click()
        console.page.keyboard.insert_text("local_name = 1\nlocal_n")
        console.press("Tab")
        expect(options(console)).to_have_text(["local_name"])
        assert len(channels(console)) == 1 and console.sent == []
        put(gateway, kernel, "go")
        list(lines)


def test_another_language_has_its_own_names(console):
    """The kernel of Python is not asked about JavaScript."""
    console.page.get_by_label("Kernel").select_option("javascript")
    console.new_cell.click()
    console.page.keyboard.insert_text("const height = 1\nheig")
    console.press("Tab")
    expect(options(console)).to_have_text(["height"])
    assert channels(console) == []


def test_the_connection_is_given_up(gateway, console, kernel):
    """When code runs: its output would come twice."""
    console.new_cell.click()
    console.page.keyboard.insert_text("prin")
    console.press("Tab")
    expect(options(console).first).to_be_visible()
    console.press("Escape", "Control+a", "Delete")
    console.until_done(console.run("1"))
    wait_until_left(gateway, kernel)
