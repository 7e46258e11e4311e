# SPDX-License-Identifier: Apache-2.0
"""Cells of the console: their output, and what happens to them when something else ends."""

from console_page import put
from kernelgate import wait_for
from playwright.sync_api import expect


def test_output_streams_into_the_page(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run(
        "import os, time\nprint('\\x1b[31mred\\x1b[0m plain', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\nprint('50%\\r100%\\nend')"
    )
    expect(cell.locator(".text")).to_have_text("red plain\n")
    expect(cell.locator(".c1")).to_have_text("red")
    expect(cell.locator(".status")).to_have_text("running")
    put(gateway, sandbox, "go")
    expect(cell.locator(".text")).to_have_text("red plain\n100%\nend\n")
    console.until_done(cell)


def test_figures_tables_and_errors(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);")
    figure = cell.locator("img")
    expect(figure).to_be_visible()
    wait_for(lambda: figure.evaluate("image => image.complete && image.naturalWidth > 100"))
    cell = console.run("import pandas\npandas.DataFrame({'a': [1, 2]}, index=['x', 'y'])")
    frame = cell.frame_locator("iframe")
    expect(frame.locator("td")).to_have_text(["1", "2"])
    wait_for(lambda: cell.locator("iframe").bounding_box()["height"] > 60)
    cell = console.run("def f(): return 1 / 0\nf()")
    expect(cell.get_by_role("alert")).to_contain_text("ZeroDivisionError: division by zero")
    cell.get_by_text("Traceback", exact=True).click()
    expect(cell.locator(".failure .text")).to_contain_text("def f(): return 1 / 0")


def test_markdown_formulas_and_json(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run(
        "from IPython.display import JSON, Latex, Markdown, display\n"
        "display(Markdown('# Title\\n\\n$x^2$ and *more*'))\n"
        "display(Latex(r'$\\frac{1}{2}$'))\ndisplay(JSON({'a': [1, {'b': None}]}))"
    )
    expect(cell.frame_locator("iframe").nth(0).locator("h1")).to_have_text("Title")
    expect(cell.frame_locator("iframe").nth(0).locator("math msup")).to_have_count(1)
    expect(cell.frame_locator("iframe").nth(1).locator("mfrac")).to_have_count(1)
    tree = cell.locator(".json")
    tree.get_by_text("a: [2]").click()
    expect(tree.locator(".json-leaf")).to_have_text(["0: 1"])


def test_interrupt_and_a_second_language(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    first = console.run("print('on', flush=True)\nwhile True: pass")
    second = console.run("print('never')")
    expect(first.locator(".text")).to_contain_text("on")
    expect(second.locator(".status")).to_have_text("waiting")
    console.page.get_by_role("button", name="Interrupt").click()
    expect(first.locator(".status")).to_contain_text("interrupted")
    expect(second.locator(".status")).to_have_text("not run")
    console.page.get_by_label("Kernel").select_option("javascript")
    cell = console.run("const text: string = 'from Deno'; text")
    expect(cell.locator(".text")).to_contain_text("from Deno")


def test_the_controls_of_the_console(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    page = console.page
    console.until_done(console.run("x = 41"))
    editor = page.get_by_label("Code. Shift and Enter")
    expect(editor).not_to_contain_text("x = 41")
    editor.press("ArrowUp")
    expect(editor).to_have_text("x = 41")
    page.get_by_label("Time limit").select_option("up to 5 min")
    with page.expect_request("**/api/v1/execute") as sent:
        editor.press("Shift+Enter")
    assert sent.value.post_data_json["timeout"] == 300
    console.until_done(console.cells.last)
    page.get_by_role("button", name="Restart kernels").click()
    console.answer("Cancel")
    expect(console.run("x").locator(".text")).to_have_text("41")
    page.get_by_role("button", name="Restart kernels").click()
    expect(page.get_by_role("dialog")).to_contain_text("All variables are lost")
    with page.expect_response("**/restart") as restarted:
        console.answer("Restart kernels")
    assert restarted.value.ok
    expect(console.run("'x' in globals()").locator(".text")).to_have_text("False")
    page.get_by_role("button", name="Clear").click()
    expect(console.cells).to_have_count(0)
    page.reload()
    expect(editor).to_be_visible()
    expect(console.cells).to_have_count(0)


def test_a_reload_in_the_middle_of_a_stream(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = console.run(
        "import os, time\ni = 0\nwhile not os.path.exists('go'):\n"
        "    print(i, flush=True); i += 1; time.sleep(0.02)\nprint('end', i)"
    )
    expect(cell.locator(".text")).to_contain_text("\n9\n")
    console.page.reload()
    expect(cell.locator(".text")).to_contain_text("0\n1\n2\n")
    expect(cell.locator(".status")).to_have_text("running")
    before = len(cell.locator(".text").inner_text())
    wait_for(lambda: len(cell.locator(".text").inner_text()) > before)
    put(gateway, sandbox, "go")
    console.until_done(cell)
    *numbers, end = cell.locator(".text").inner_text().split("\n")[:-1]
    assert numbers == [str(i) for i in range(len(numbers))]
    assert end == f"end {len(numbers)}"
    console.page.reload()
    expect(cell.locator(".text")).to_contain_text(end)
    assert len(gateway.client.get(f"/api/v1/sessions/{sandbox}").json()["kernels"]) == 1


def test_the_page_survives_the_gateway(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    console.until_done(console.run("x = 41"))
    gateway.kill()
    expect(console.page.get_by_role("alert").first).to_contain_text("is not responding")
    gateway.start()
    expect(console.page.get_by_role("alert")).to_have_count(0)
    cell = console.run("x + 1")
    expect(cell.locator(".text")).to_have_text("42")


def test_a_sandbox_that_expires_while_it_is_open(gateway, tab, sandbox):
    gateway.client.delete(f"/api/v1/sessions/{sandbox}").raise_for_status()
    gateway.client.post(
        "/api/v1/sessions", json={"session_id": sandbox, "idle_timeout": 3}
    ).raise_for_status()
    wait = {"command": "echo waits; while [ ! -e go ]; do sleep 0.1; done"}
    path = f"/api/v1/sessions/{sandbox}/commands"
    # It does not expire before that command ends, however long the page takes to load.
    with gateway.client.stream("POST", path, json=wait) as running:
        lines = running.iter_lines()
        assert any("waits" in line for line in lines)
        console = tab()
        console.enter(sandbox)  # to look at it does not renew it
        console.until_done(console.run("x = 41"))
        put(gateway, sandbox, "go")
        assert any('"done"' in line for line in lines)
    alert = console.page.get_by_role("alert")
    expect(alert).to_contain_text("There is no sandbox with this name")
    expect(console.cells.first).to_contain_text("x = 41")
    cell = console.run("'x' in globals()")
    expect(cell.locator(".text")).to_have_text("False")
    expect(alert).to_have_count(0)
