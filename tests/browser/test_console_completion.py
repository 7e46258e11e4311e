# SPDX-License-Identifier: Apache-2.0
"""Completion and signatures in the console's editor: by the kernel, else by the code itself."""

import pytest
from console_page import put
from kernelgate import HELD, wait_for
from playwright.sync_api import expect


@pytest.fixture
def console(tab, sandbox):
    console = tab()
    console.enter(sandbox)
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


@pytest.fixture
def asked(console):
    """The questions to the gateway."""
    seen = []
    ends = "/complete", "/inspect"
    console.page.on(
        "request", lambda request: seen.append(request.url) if request.url.endswith(ends) else None
    )
    return seen


def test_the_kernel_completes(gateway, console, sandbox, asked):
    console.until_done(console.run("celsius = {'oslo': 4}\nwörter = '😀'"))
    console.new_cell.click()
    assert asked == []  # not before it is needed
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
    assert asked and gateway.show_session(sandbox)["execution_count"] == 1


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


def test_a_kernel_that_is_busy_is_not_asked(gateway, console, sandbox, asked):
    cell = console.run(HELD + "secret = 1")
    expect(cell.locator(".text")).to_contain_text("on")
    console.new_cell.click()
    console.page.keyboard.insert_text("local_name = 1\nlocal_n")
    console.press("Tab")
    expect(options(console)).to_have_text(["local_name"])
    console.press("Escape")
    assert asked == []
    put(gateway, sandbox, "go")
    console.until_done(cell)


def test_a_kernel_that_others_keep_busy_refuses(gateway, console, sandbox):
    """Then the names are those of the code."""
    console.until_done(console.run("1"))
    body = {"code": HELD, "session_id": sandbox}
    with gateway.client.stream("POST", "/api/v1/execute", json=body) as response:
        lines = response.iter_lines()
        assert '"on' in next(lines)
        console.new_cell.click()
        console.page.keyboard.insert_text("local_name = 1\nlocal_n")
        console.press("Tab")
        expect(options(console)).to_have_text(["local_name"])
        put(gateway, sandbox, "go")
        list(lines)


def test_another_language_has_its_own_names(console, asked):
    """The kernel of Python is not asked about JavaScript."""
    console.page.get_by_label("Kernel").select_option("javascript")
    console.new_cell.click()
    console.page.keyboard.insert_text("const height = 1\nheig")
    console.press("Tab")
    expect(options(console)).to_have_text(["height"])
    assert asked == []
