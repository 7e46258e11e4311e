# SPDX-License-Identifier: Apache-2.0
"""Undoing a cell, and branches as tabs: with real kernels, by the mouse and by keys."""

import re

import pytest
from console_page import put
from kernelgate import HELD, wait_for
from playwright.sync_api import expect
from session_savepoints import Savepoints

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def console(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    return console


@pytest.fixture
def savepoints(gateway, sandbox):
    return Savepoints(gateway, sandbox)


def run_all(console, *codes):
    cells = []
    for code in codes:
        cells.append(console.run(code))
        console.until_done(cells[-1])
    return cells


def value(console, code):
    (cell,) = run_all(console, code)
    return cell.locator(".outputs").inner_text().strip()


def undo_of(cell):
    cell.hover()
    return cell.get_by_role("button", name=re.compile("^Undo cell"))


def tab_of(console, name):
    return console.page.get_by_role("tab", name=name)


def make_branch(console, name, variables=None):
    page = console.page
    page.get_by_role("button", name="New branch").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name")).to_be_focused()
    dialog.get_by_label("Name").fill(name)
    if variables:
        found = dialog.get_by_role("option", name=re.compile(variables))
        dialog.get_by_label("Variables").select_option(found.get_attribute("value"))
    dialog.get_by_role("button", name="Create branch").click()
    expect(tab_of(console, name)).to_have_attribute("aria-selected", "true")
    expect(console.new_cell).to_be_focused()


# ---- Undo


def test_a_cell_that_ruins_a_variable_is_undone(console, gateway, sandbox, savepoints):
    loads, ruins, later = run_all(
        console,
        "import pandas as pd\nframe = pd.DataFrame({'a': range(5)})",
        "frame.drop(frame.index, inplace=True)\nopen('written.txt', 'w').write('x')",
        "len(frame)",
    )
    expect(later.locator(".text")).to_have_text("0")
    undo_of(ruins).click()
    question = console.page.get_by_role("dialog")
    expect(question).to_contain_text("1 cell that ran after it is undone as well")
    expect(question).to_contain_text("Files are not restored")
    console.answer("Cancel")
    assert value(console, "len(frame)") == "0"
    undo_of(ruins).click()
    expect(question).to_contain_text("2 cells that ran after it are undone as well")
    console.answer("Undo")
    for cell in ruins, later:
        expect(cell.locator(".status")).to_have_text("undone")
        expect(undo_of(cell)).to_have_count(0)
    expect(loads.locator(".status")).not_to_have_text("undone")
    expect(ruins).to_be_focused()
    assert value(console, "len(frame)") == "5"
    assert gateway.client.get(f"/api/v1/sessions/{sandbox}/files/written.txt").text == "x"
    assert console.findings() == []
    console.page.reload()
    expect(ruins.locator(".status")).to_have_text("undone")
    console.edit(ruins)  # it may be run again, in another way
    console.press("Control+a")
    console.page.keyboard.type("frame = frame.head(2)")
    console.press("Control+Enter")
    console.until_done(ruins)
    expect(ruins.locator(".status")).not_to_have_text("undone")
    undo_of(loads).click()  # what was kept for a reload can be undone, too
    console.answer("Undo")
    assert "NameError" in value(console, "frame")
    assert len(savepoints.ids()) <= 8


def test_undo_by_keys(console):
    run_all(console, "x = 1", "x = 2")
    console.press("Escape", "ArrowUp")
    expect(console.cells.nth(1)).to_be_focused()
    console.press("u")
    expect(console.page.get_by_role("dialog")).to_contain_text("Undo cell 2?")
    console.press("Escape")
    console.press("u", "Tab", "Enter")
    expect(console.cells.nth(1).locator(".status")).to_have_text("undone")
    expect(console.cells.nth(1)).to_be_focused()
    assert value(console, "x") == "1"


def test_what_the_kernel_will_not_have_is_said(console):
    thread = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    _, cell = run_all(console, f"import threading, time\n{thread}", "x = 1")
    undo = undo_of(cell)
    expect(undo).to_be_visible()
    with console.page.expect_response("**/savepoints"):
        pass
    undo.click()
    said = "The kernel will no longer have what was running in it: 1 thread."
    expect(console.page.get_by_role("dialog")).to_contain_text(said)


def test_a_running_cell_is_stopped_by_undo(console):
    first, second = run_all(console, "x = 1", "x = 2")
    held = console.run(HELD)
    expect(held.locator(".text")).not_to_have_count(0)
    undo_of(second).click()
    expect(console.page.get_by_role("dialog")).to_contain_text("Running code is stopped.")
    console.answer("Undo")
    expect(held.locator(".status")).to_have_text("undone")
    assert value(console, "x") == "1"


@pytest.fixture
def console_with(start_gateway, tab):
    """The console of the session `s`, of a gateway with this number of savepoints."""

    def open_it(max_savepoints):
        gateway = start_gateway("--max-savepoints", str(max_savepoints))
        gateway.create_session(session_id="s")
        console = tab(gateway)
        console.enter("s")
        return console

    return open_it


def test_a_dropped_savepoint_is_told(console_with):
    console = console_with(2)
    cells = run_all(console, "x = 1", "x = 2", "x = 3", "x = 4")
    page = console.page
    expect(undo_of(cells[1])).to_have_attribute("aria-disabled", "true")
    expect(undo_of(cells[1])).to_have_attribute(
        "title", re.compile("a newer savepoint replaced it")
    )
    undo_of(cells[1]).click(force=True)
    expect(page.get_by_role("alert")).to_contain_text("savepoint from before this cell")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert console.findings() == []
    # One that another client deletes is noticed, too.
    with page.expect_response("**/savepoints"):
        pass
    savepoints = Savepoints(console.gateway, "s")
    savepoints.drop(savepoints.ids()[0])
    expect(undo_of(cells[2])).to_have_attribute("aria-disabled", "true")
    undo_of(cells[3]).click()
    console.answer("Undo")
    assert value(console, "x") == "3"


def test_a_savepoint_that_goes_meanwhile(console, savepoints):
    _, cell = run_all(console, "x = 1", "x = 2")
    undo_of(cell).click()
    savepoints.drop(savepoints.ids()[-1])
    console.answer("Undo")
    expect(console.page.get_by_role("alert")).to_contain_text("no longer has the savepoint")
    expect(undo_of(cell)).to_have_attribute("aria-disabled", "true")
    assert value(console, "x") == "2"


def test_without_savepoints_there_is_no_undo(console_with):
    console = console_with(0)
    with console.page.expect_request("**/api/v1/execute") as sent:
        cell = console.run("x = 1")
    console.until_done(cell)
    assert "savepoint" not in sent.value.post_data_json
    expect(undo_of(cell)).to_have_count(0)
    expect(console.page.get_by_role("button", name="New branch")).to_have_count(0)
    assert not any("/savepoints" in url or "/branches" in url for url in console.requests())


def test_a_busy_kernel(console, gateway, sandbox, savepoints):
    """It makes no savepoint. What is run waits, as it did without them."""
    run_all(console, "x = 1")
    page = console.page
    with gateway.stream(HELD, session_id=sandbox) as reader:
        reader.next_of("stdout")
        cell = console.run("x = 2")
        expect(cell.locator(".status")).to_have_text("running")
        page.get_by_role("button", name="New branch").click()
        page.get_by_role("button", name="Create branch").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(
            "The kernel is running code. Try again when it has finished."
        )
        page.get_by_role("button", name="Cancel").click()
        put(gateway, sandbox, "go")
        console.until_done(cell)
    expect(undo_of(cell)).to_have_attribute("title", re.compile("was running other code"))
    assert len(savepoints.ids()) == 1


def test_little_memory(console, savepoints, sandbox):
    """A savepoint keeps what is overwritten later, and code needs that memory more."""

    def use_more(route):
        answer = route.fetch()
        of = answer.json()
        of["usage"]["memory_bytes"] = 300 << 20
        route.fulfill(response=answer, json=of)

    run_all(console, "x = 1")
    console.page.route(f"**/api/v1/sessions/{sandbox}", use_more)
    expect(console.page.locator(".usage")).to_contain_text("300 MiB of 512 MiB")
    cell = run_all(console, "x = 2")[0]
    expect(undo_of(cell)).to_have_attribute("title", re.compile("more than half of its memory"))
    assert len(savepoints.ids()) == 1


def test_a_kernel_without_savepoints(console):
    console.page.get_by_label("Kernel").select_option("javascript")
    with console.page.expect_request("**/api/v1/execute") as sent:
        cell = console.run("6 * 7")
    expect(cell.locator(".text")).to_have_text("42")
    assert "savepoint" not in sent.value.post_data_json
    expect(undo_of(cell)).to_have_count(0)


def test_an_older_replica_has_none(console):
    """It refuses a field that it does not know; the cell runs without it."""

    def refuse(route):
        body = route.request.post_data_json
        if "savepoint" in body:
            detail = 'unknown field "savepoint"'
            return route.fulfill(status=400, json={"code": "invalid_request", "detail": detail})
        return route.continue_()

    console.page.route("**/api/v1/execute", refuse)
    cell = run_all(console, "6 * 7")[0]
    expect(cell.locator(".text")).to_have_text("42")
    sent = len([url for url in console.requests() if url.endswith("/execute")])
    run_all(console, "1")
    assert len([url for url in console.requests() if url.endswith("/execute")]) == sent + 1


# ---- Branches


def test_a_branch_has_variables_of_its_own(console, savepoints):
    run_all(console, "x = 1")
    make_branch(console, "try-1")
    assert console.findings() == []
    assert value(console, "x") == "1"
    run_all(console, "x = 2")
    page = console.page
    tab_of(console, "main").click()
    expect(console.cells.nth(1).locator(".outputs")).to_have_count(0)  # it has not run here
    expect(console.cells.nth(1).locator(".prompt")).to_have_text("–")
    assert value(console, "x") == "1"
    tab_of(console, "try-1").click()
    assert value(console, "x") == "2"
    expect(console.cells.nth(1).locator(".text")).to_have_text("1")
    page.reload()
    expect(tab_of(console, "try-1")).to_have_attribute("aria-selected", "true")
    expect(console.cells.nth(1).locator(".text")).to_have_text("1")
    assert value(console, "x") == "2"
    page.get_by_role("button", name="Promote").click()
    expect(page.get_by_role("dialog")).to_contain_text("in place of its own")
    console.answer("Promote")
    expect(page.get_by_role("tab")).to_have_count(0)
    expect(console.new_cell).to_be_focused()
    expect(console.cells.nth(1).locator(".text")).to_have_text("1")
    assert value(console, "x") == "2"
    assert savepoints.branches() == {}
    undo = undo_of(console.cells.nth(1))
    expect(undo).to_have_attribute("title", "This cell ran in a branch that has ended.")


def test_a_branch_from_before_a_cell(console, savepoints):
    run_all(console, "x = 1", "x = 2", "x")
    expect(undo_of(console.cells.nth(1))).to_be_visible()
    with console.page.expect_response("**/savepoints"):
        pass
    make_branch(console, "before", "before cell 2")
    expect(console.cells.nth(0).locator(".prompt")).to_have_text("1")
    for i in 1, 2:
        expect(console.cells.nth(i).locator(".prompt")).to_have_text("–")
    assert value(console, "x") == "1"
    page = console.page
    page.get_by_role("button", name="End branch").click()
    console.answer("End branch")
    expect(page.get_by_role("tab")).to_have_count(0)
    expect(console.cells.nth(2).locator(".text")).to_have_text("2")
    assert value(console, "x") == "2" and savepoints.branches() == {}


def test_memory_of_branches_and_savepoints(console, savepoints):
    """Beside the name of each branch, and of each savepoint that a branch can begin with."""
    page = console.page
    run_all(console, "x = 1")
    make_branch(console, "grows")
    run_all(console, "y = bytearray(b'x' * (100 << 20))")
    wait_for(lambda: savepoints.memory()["grows"] > 100)
    expect(tab_of(console, "grows").locator(".memory")).to_have_text(re.compile(r"^1\d\d MiB$"))
    expect(tab_of(console, "main").locator(".memory")).to_have_count(0)
    assert console.findings() == []
    tab_of(console, "main").click()
    page.get_by_role("button", name="New branch").click()
    options = page.get_by_role("dialog").get_by_label("Variables").locator("option")
    expect(options.filter(has_text=re.compile(r"^before cell 1, [\d.]+ [KM]iB$"))).to_have_count(1)


def test_undo_in_a_branch(console):
    run_all(console, "x = 1")
    make_branch(console, "b")
    (cell,) = run_all(console, "x = 2")
    expect(undo_of(console.cells.nth(0))).to_have_attribute(
        "title", re.compile("before the branch was made")
    )
    undo_of(cell).click()
    console.answer("Undo")
    expect(cell.locator(".status")).to_have_text("undone")
    assert value(console, "x") == "1"
    run_all(console, "x = 3")
    tab_of(console, "main").click()
    assert value(console, "x") == "1"


def test_two_branches_run_at_once(console, gateway, sandbox):
    page = console.page
    run_all(console, "n = 0")
    make_branch(console, "one")
    held = console.run("import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)")
    expect(held.locator(".text")).to_contain_text("on")
    tab_of(console, "main").click()
    assert value(console, "n + 1") == "1"  # while the branch is busy
    expect(tab_of(console, "one")).to_contain_text("busy")
    other = console.run("import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)")
    expect(other.locator(".text")).to_contain_text("on")
    page.get_by_role("button", name="Interrupt").click()
    expect(other.locator(".status")).to_contain_text("interrupted")
    tab_of(console, "one").click()
    expect(held.locator(".status")).to_have_text("running")
    page.reload()
    expect(held.locator(".status")).to_have_text("running")
    page.get_by_role("button", name="Promote").click()
    console.answer("Promote")
    expect(page.get_by_role("alert")).to_contain_text("The kernel is running code")
    page.get_by_role("button", name="Interrupt").click()
    expect(held.locator(".status")).to_contain_text("interrupted")
    assert value(console, "n") == "0"


def test_a_branch_that_dies(console, savepoints):
    run_all(console, "x = 1")
    make_branch(console, "fragile")
    (cell,) = run_all(console, "import os\nos._exit(3)")
    expect(cell).to_contain_text("ended with code 3")
    page = console.page
    note = page.locator(".branches").get_by_role("status")
    expect(note).to_contain_text(re.compile("variables.*(lost|are lost)"))
    assert "NameError" in value(console, "x")
    undo_of(cell).click()  # its savepoint lives on
    console.answer("Undo")
    assert value(console, "x") == "1"
    savepoints.end("fragile")  # by another client
    expect(page.get_by_role("tab")).to_have_count(0)
    expect(page.get_by_text("The branch fragile has ended.")).to_be_visible()
    assert value(console, "x") == "1"


def test_branches_of_other_clients_are_shown(console, savepoints, gateway, sandbox):
    run_all(console, "x = 1")
    savepoints.branch("by-an-agent")
    gateway.execute("x = 5", session_id=sandbox, branch="by-an-agent")
    tab_of(console, "by-an-agent").click()
    expect(console.cells.nth(0).locator(".outputs")).to_have_count(0)
    assert value(console, "x") == "5"


def test_a_name_that_is_taken(console):
    run_all(console, "x = 1")
    make_branch(console, "b")
    page = console.page
    page.get_by_role("button", name="New branch").click()
    page.get_by_role("dialog").get_by_label("Name").fill("b")
    page.get_by_role("button", name="Create branch").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text('"b"')
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_branches_by_keys(console):
    run_all(console, "x = 1")
    page, press = console.page, console.press
    make_branch(console, "one")
    make_branch(console, "two")
    tab_of(console, "two").focus()
    press("ArrowLeft")
    expect(tab_of(console, "one")).to_be_focused()
    expect(tab_of(console, "one")).to_have_attribute("aria-selected", "true")
    press("ArrowLeft")
    expect(tab_of(console, "main")).to_be_focused()
    press("ArrowLeft")
    expect(tab_of(console, "two")).to_have_attribute("aria-selected", "true")
    press("Tab")
    expect(page.get_by_role("button", name="New branch")).to_be_focused()
    press("Tab", "Tab")
    expect(page.get_by_role("button", name="End branch")).to_be_focused()
    press("Enter", "Tab", "Enter")
    expect(tab_of(console, "two")).to_have_count(0)
    expect(tab_of(console, "main")).to_have_attribute("aria-selected", "true")
    expect(console.new_cell).to_be_focused()


def test_completion_in_a_branch(console):
    run_all(console, "x = 1")
    make_branch(console, "b")
    run_all(console, "only_in_the_branch = 1")
    console.new_cell.click()
    console.page.keyboard.type("only_in")
    with console.page.expect_request("**/complete") as asked:
        console.press("Tab")
    assert asked.value.post_data_json["branch"] == "b"
    options = console.page.locator(".cm-tooltip-autocomplete li")
    expect(options.first).to_have_text("only_in_the_branch")


@pytest.mark.parametrize(
    "options",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, {**PHONE, "color_scheme": "light"}],
    ids=["light", "dark", "phone"],
)
def test_they_are_accessible(tab, sandbox, options, request):
    console = tab(**options)
    console.enter(sandbox)
    page = console.page
    name = request.node.callspec.id

    def look(view):
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, view
        assert console.findings() == [], view
        console.shoot(f"{view}-{name}")

    _, cell = run_all(console, "x = 1", "x = 2")
    cell.locator("pre").first.click()
    console.press("Escape")
    undo_of(cell).click()
    look("undo-question")
    console.answer("Undo")
    look("undone")
    page.get_by_role("button", name="New branch").click()
    look("branch-new")
    page.get_by_role("button", name="Cancel").click()
    make_branch(console, "a-branch-with-a-long-name")
    run_all(console, "import os\nos._exit(1)")
    expect(page.locator(".branches").get_by_role("status")).not_to_be_empty()
    look("branch")
    page.get_by_role("button", name="End branch").click()
    look("branch-question")


def test_notebooks_are_opened_and_saved_in_a_branch(console, gateway, sandbox):
    run_all(console, "x = 1")
    make_branch(console, "b")
    run_all(console, "x + 1")
    console.press("Control+s")
    wait_for(
        lambda: (
            gateway.client.get(f"/api/v1/sessions/{sandbox}/files/untitled.ipynb").status_code
            == 200
        )
    )
    saved = gateway.client.get(f"/api/v1/sessions/{sandbox}/files/untitled.ipynb").json()
    assert saved["cells"][1]["outputs"][0]["data"]["text/plain"] == ["2"]
