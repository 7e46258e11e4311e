# SPDX-License-Identifier: Apache-2.0
"""Cells of the console as those of a notebook: edited and run again, by keys and buttons, and kept."""

import re

from console_page import put
from kernelgate import HELD, wait_for
from playwright.sync_api import expect


def run_all_of(console, *codes):
    for code in codes:
        console.until_done(console.run(code))


def expect_sources(console, *sources):
    wait_for(lambda: console.sources() == list(sources))


# ---- Editing and running


def test_a_cell_is_edited_and_run_again(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "n = 1", "n + 1")
    first, second = console.cells.nth(0), console.cells.nth(1)
    expect(second.locator(".text")).to_have_text("2")
    console.edit(first)
    console.press("Control+a")
    console.page.keyboard.type("n = 41")
    console.press("Shift+Enter")  # and to the next one
    expect(second).to_be_focused()
    expect(first.locator(".code pre")).to_have_text("n = 41")
    console.press("Control+Enter")  # and stays
    expect(second.locator(".text")).to_have_text("42")
    expect(second).to_be_focused()
    console.press("Shift+Enter")  # and to the new cell, behind the last one
    expect(console.new_cell).to_be_focused()
    expect(console.cells).to_have_count(2)
    console.press("Escape", "ArrowUp")
    expect(second).to_be_focused()
    console.press("Enter")
    expect(second.locator(".cm-content")).to_be_focused()
    console.press("Alt+Enter")  # and one is inserted below
    expect(console.cells).to_have_count(3)
    expect(console.cells.nth(2).locator(".cm-content")).to_be_focused()


def test_a_click_puts_the_cursor_where_it_is(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run("print('a')\nprint('b')\nprint('c')")
    console.until_done(cell)
    box = cell.locator(".code pre").bounding_box()
    cell.locator(".code pre").click(position={"x": 4, "y": box["height"] / 2})
    console.page.keyboard.type("# ")
    console.press("Control+Enter")
    expect(cell.locator(".text")).to_have_text("a\nc\n")


def test_the_keys_of_command_mode(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "1", "2", "3")
    console.press("Escape", "k")
    expect(console.cells.nth(2)).to_be_focused()
    console.press("ArrowUp", "k")
    expect(console.cells.nth(0)).to_be_focused()
    console.press("j", "ArrowDown", "j", "ArrowUp")
    expect(console.cells.nth(2)).to_be_focused()
    console.press("Control+Shift+ArrowUp")
    expect_sources(console, "1", "3", "2")
    expect(console.cells.nth(1)).to_be_focused()
    console.press("Control+Shift+ArrowDown", "d", "d")
    expect_sources(console, "1", "2")
    expect(console.cells.nth(1)).to_be_focused()
    console.press("d", "k", "d")  # that is not twice in a row
    console.press("z")
    expect_sources(console, "1", "2", "3")
    expect(console.cells.nth(2)).to_be_focused()
    console.press("a", "Enter")
    console.page.keyboard.type("above")
    console.press("Escape", "b", "Enter")
    console.page.keyboard.type("below")
    console.press("Escape")
    expect_sources(console, "1", "2", "above", "below", "3")
    console.press("x", "k", "k", "k", "v")
    expect_sources(console, "1", "below", "2", "above", "3")
    console.press("c", "v")
    expect_sources(console, "1", "below", "below", "2", "above", "3")
    assert console.findings() == []


def test_markdown_is_rendered(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "6 * 7")
    cell = console.cells.first
    console.press("Escape", "k", "m", "Enter")
    console.press("Control+a")
    console.page.keyboard.type("# Title\n\nmore *text*")
    console.press("Shift+Enter")
    rendered = cell.frame_locator("iframe")
    expect(rendered.locator("h1")).to_have_text("Title")
    expect(rendered.locator("em")).to_have_text("text")
    expect(cell.locator(".outputs")).to_have_count(0)
    console.press("Escape", "k", "y")
    expect(cell.locator("iframe")).to_have_count(0)
    expect_sources(console, "# Title\n\nmore *text*")
    cell.get_by_role("button", name="Make Markdown").click()
    expect(rendered.locator("h1")).to_have_text("Title")
    cell.get_by_role("button", name="Edit").click()
    expect(cell.locator(".cm-content")).to_be_focused()


def test_the_buttons_of_a_cell(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "'one'", "'two'")
    one = console.cells.filter(has_text="'one'").first
    one.hover()
    one.get_by_role("button", name="Move down").click()
    expect_sources(console, "'two'", "'one'")
    one.get_by_role("button", name="Move up").click()
    expect_sources(console, "'one'", "'two'")
    one.get_by_role("button", name="Insert below").click()
    console.page.keyboard.type("'between'")
    console.press("Escape")
    expect_sources(console, "'one'", "'between'", "'two'")
    between = console.cells.nth(1)
    between.get_by_role("button", name="Run").click()
    expect(between.locator(".text")).to_have_text("'between'")
    between.get_by_role("button", name="Delete").click()
    expect_sources(console, "'one'", "'two'")
    console.page.get_by_role("button", name="Undo", exact=True).click()
    expect_sources(console, "'one'", "'between'", "'two'")
    expect(between.locator(".text")).to_have_text("'between'")
    expect(console.page.get_by_role("button", name="Undo", exact=True)).to_have_count(0)


def test_all_cells_are_run_until_one_fails(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "n = 1", "n += 1", "assert n != 3", "print(n)")
    expect(console.cells.nth(3).locator(".text")).to_have_text("2\n")
    console.edit(console.cells.nth(0))
    console.press("Control+a")
    console.page.keyboard.type("n = 2")
    console.press("Escape")
    console.page.get_by_role("button", name="Run all").click()
    expect(console.cells.nth(2).locator(".status")).to_contain_text("failed")
    expect(console.cells.nth(3).locator(".status")).to_have_text("not run")
    expect(console.cells.nth(3)).to_contain_text("An earlier cell failed.")


def test_cells_are_interrupted_by_keys(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run("print('on', flush=True)\nwhile True: pass")
    expect(cell.locator(".text")).to_contain_text("on")
    waits = console.run("print('never')")
    console.press("Escape", "i", "i")
    expect(cell.locator(".status")).to_contain_text("interrupted")
    expect(waits.locator(".status")).to_have_text("not run")
    console.until_done(console.run("1"))


def test_what_is_cleared_comes_back(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "print('one')", "print('two')")
    console.page.get_by_role("button", name="Clear").click()
    expect(console.cells).to_have_count(0)
    expect(console.page.get_by_text("2 cells deleted")).to_be_visible()
    console.page.get_by_role("button", name="Undo", exact=True).click()
    expect_sources(console, "print('one')", "print('two')")
    expect(console.cells.nth(1).locator(".text")).to_have_text("two\n")


# ---- Kept


def test_a_reload_keeps_everything(gateway, tab, sandbox):
    """Also what the gateway no longer has; and it is all gone when one logs out."""
    console = tab()
    console.enter(sandbox)
    page = console.page
    run_all_of(console, "print('shown')", "1 / 0", "import pandas\npandas.DataFrame({'a': [5]})")
    console.press("Escape", "k", "b", "m", "Enter")
    page.keyboard.type("# Kept")
    console.press("Escape")
    console.edit(console.cells.nth(0))
    page.keyboard.type("  # edited")
    console.new_cell.click()
    page.keyboard.type("a draft")
    page.route("**/api/v1/executions/**", lambda route: route.fulfill(status=404, body="{}"))
    page.reload()
    expect(console.cells).to_have_count(4)
    expect(console.new_cell).to_have_text("a draft")
    expect(console.cells.nth(0).locator(".code pre")).to_have_text("print('shown')  # edited")
    expect(console.cells.nth(0).locator(".text")).to_have_text("shown\n")
    expect(console.cells.nth(1).get_by_role("alert")).to_contain_text("ZeroDivisionError")
    expect(console.cells.nth(2).frame_locator("iframe").locator("td")).to_have_text("5")
    expect(console.cells.nth(3).frame_locator("iframe").locator("h1")).to_have_text("Kept")
    assert not any("/executions/" in url for url in console.requests())
    kept = page.evaluate("JSON.stringify({...sessionStorage, 'kernelgate.key': ''})")
    assert "shown" in kept and gateway.key not in kept
    assert "shown" not in page.evaluate("JSON.stringify(localStorage)")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


ANOTHER = """name => {
    const kept = JSON.parse(sessionStorage.getItem(name));
    sessionStorage.setItem(name, JSON.stringify({...kept, user: "another"}));
}"""


def test_what_another_user_has_left_is_not_shown(tab, sandbox):
    """A login that has ended leads to the form, and somebody else may log in there."""
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "'mine'")
    console.page.reload()
    expect(console.cells).to_have_count(1)
    console.page.get_by_role("link", name="kernelgate").click()  # what is kept by leaving comes before this
    expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    console.page.evaluate(ANOTHER, f"kernelgate.notebook.{sandbox}")
    console.page.get_by_role("link", name=sandbox).click()
    expect(console.new_cell).to_be_visible()
    expect(console.cells).to_have_count(0)


def test_what_was_run_before_is_brought_back(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "'one'", "'two'")
    console.page.get_by_role("button", name="Clear").click()
    console.page.reload()
    editor = console.new_cell
    editor.click()
    for key, text in (
        ("ArrowUp", "'two'"),
        ("ArrowUp", "'one'"),
        ("ArrowUp", "'one'"),
        ("ArrowDown", "'two'"),
    ):
        console.press(key)
        expect(editor).to_have_text(text)
    console.press("ArrowDown")
    expect(editor).not_to_contain_text("'")
    console.page.keyboard.type("typed")
    console.press("ArrowUp")
    expect(editor).to_have_text("typed")


def test_what_is_kept_is_bounded(tab, sandbox):
    """A large output is asked of the gateway again; the newer ones are kept."""
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "print('y' * 390_000)", "'first'")
    for i in range(6):
        console.until_done(console.run(f"print('x' * 350_000 + 'end {i}')"))
    console.press("Escape")
    size = "Object.values({...sessionStorage}).join('').length"
    wait_for(lambda: "end 5" in console.page.evaluate("JSON.stringify({...sessionStorage})"))
    assert 1_000_000 < console.page.evaluate(size) < 2_000_000
    before = len(console.requests())
    console.page.reload()
    expect(console.cells).to_have_count(8)
    for i in range(6):
        expect(console.cells.nth(2 + i).locator(".text")).to_contain_text(f"end {i}")
    expect(console.cells.nth(1).locator(".text")).to_have_text("'first'")
    expect(console.cells.nth(0).locator(".text")).to_contain_text("yyy")
    joined = [url for url in console.requests()[before:] if "/executions/" in url]
    assert 1 <= len(joined) <= 5, joined


def test_a_cell_that_waited_is_kept_but_not_sent(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    first = console.run(HELD)
    expect(first.locator(".text")).to_contain_text("on")
    console.run("open('never', 'w')")
    console.page.reload()
    expect(first.locator(".status")).to_have_text("running")
    expect(console.cells.nth(1).locator(".code pre")).to_have_text("open('never', 'w')")
    put(gateway, sandbox, "go")
    console.until_done(first)
    expect(console.cells.nth(1).locator(".status")).to_have_count(0)
    listing = gateway.client.get(f"/api/v1/sessions/{sandbox}/files").json()["files"]
    assert "never" not in [entry["path"] for entry in listing]


# ---- Its place on the page


def test_a_table_that_grows_late_stays_in_view(gateway, tab, sandbox):
    console = tab(viewport={"width": 1000, "height": 600})
    console.enter(sandbox)
    for _ in range(4):
        console.until_done(console.run("print('line\\n' * 8)"))
    cell = console.run("import pandas\npandas.DataFrame({'a': range(12)})")
    frame = cell.locator("iframe")
    wait_for(lambda: (frame.bounding_box() or {"height": 0})["height"] > 200)

    def is_above_the_editor():
        table, editor = frame.bounding_box(), console.page.locator(".composer").bounding_box()
        return table["y"] + table["height"] <= editor["y"] + 16

    wait_for(is_above_the_editor)
    cell = console.run(HELD + "print('line\\n' * 60)")
    expect(cell.locator(".text")).to_contain_text("on")
    console.page.mouse.wheel(0, -10_000)  # who reads what is above is left there
    wait_for(lambda: console.page.evaluate("scrollY") == 0)
    put(gateway, sandbox, "go")
    console.until_done(cell)
    expect(cell.locator(".text")).to_contain_text("line")
    assert console.page.evaluate("scrollY") == 0


def test_the_bar_of_tabs_has_no_scrollbar(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    tabs = console.page.get_by_role("navigation", name="Sandbox")
    size = tabs.evaluate("e => [e.scrollHeight - e.clientHeight, e.offsetHeight - e.clientHeight]")
    assert size[1] <= 1
    assert tabs.evaluate("e => getComputedStyle(e).overflowY") == "hidden"
    assert re.search(r"CPU \d+\.\d s", console.page.locator(".usage").inner_text())


def test_a_name_that_is_being_typed_stays(tab, sandbox):
    """What the page asks for again and again redraws it, and not the field."""
    console = tab()
    console.enter(sandbox)
    run_all_of(console, "1")
    page = console.page
    name = page.get_by_label("Name of the notebook")
    name.click()
    console.press("Control+a")
    page.keyboard.type("half")
    for _ in range(2):
        with page.expect_response(f"**/sessions/{sandbox}"):
            pass
    expect(name).to_have_value("half")
    page.keyboard.type("-way")
    console.press("Enter")
    expect(name).to_have_value("half-way.ipynb")
