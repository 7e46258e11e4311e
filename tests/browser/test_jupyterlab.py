# SPDX-License-Identifier: Apache-2.0
"""JupyterLab with `--gateway-url`, in Debian's Chromium: what people do in a notebook. And what a page
of another server may do."""

import pytest
from jupyter_wire import list_kernels
from kernelgate import wait_for
from notebook_page import expect_output
from playwright.sync_api import Error, expect

pytestmark = pytest.mark.seldom


def the_kernel(gateway):
    (kernel,) = list_kernels(gateway)
    return kernel


def test_a_figure_is_shown(open_notebook):
    notebook = open_notebook("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);")
    figure = notebook.run(0, 1).locator(".jp-RenderedImage img")
    expect(figure).to_be_visible()
    wait_for(lambda: figure.evaluate("image => image.complete && image.naturalWidth > 100"))


SLIDER = """
import ipywidgets
ipywidgets.interact(lambda x: print('twice', 2 * x), x=ipywidgets.IntSlider(3, 0, 10));
"""


def move_slider(cell):
    cell.get_by_role("slider").press("ArrowRight")


def test_a_slider_updates_an_output(open_notebook):
    cell = open_notebook(SLIDER).run(0, 1)
    expect(cell.locator(".widget-output")).to_have_text("twice 6\n")
    move_slider(cell)
    expect(cell.locator(".widget-output")).to_have_text("twice 8\n")


def test_a_slider_moved_while_a_cell_runs_that_an_interrupt_ends(open_notebook):
    """JupyterLab sends what the slider says to a subshell. ipykernel passes it on to where the slider
    was made: it is answered when the cell has ended."""
    notebook = open_notebook(SLIDER, "import time\nprint('go', flush=True)\ntime.sleep(300)")
    slider = notebook.run(0, 1)
    cell = notebook.start(1)
    expect_output(cell, "go")
    move_slider(slider)
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    notebook.press_button("interrupt")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("KeyboardInterrupt")
    expect(slider.locator(".widget-output")).to_have_text("twice 8\n")


FIGURES = """
import ipywidgets, matplotlib.pyplot as plt
@ipywidgets.interact(x=ipywidgets.IntSlider(3, 0, 10))
def draw(x):
    plt.plot([0, x])
    plt.show()
"""


def test_a_slider_draws_a_figure(open_notebook):
    cell = open_notebook(FIGURES).run(0, 1)
    figure = cell.locator(".widget-output img")
    expect(figure).to_be_visible()
    before = figure.get_attribute("src")
    move_slider(cell)
    expect(figure).not_to_have_attribute("src", before)
    expect(cell.locator("img")).to_have_count(1)


def test_input_is_answered_in_the_page(open_notebook):
    cell = open_notebook("print('hello', input('who? '))").start(0)
    expect(cell.locator(".jp-Stdin-prompt")).to_have_text("who? ")
    cell.locator(".jp-Stdin-input").fill("page")
    cell.locator(".jp-Stdin-input").press("Enter")
    expect_output(cell.locator(".jp-OutputArea-child").last, "hello page")


def test_interrupt_and_restart(open_notebook):
    notebook = open_notebook(
        "x = 1\nprint('go', flush=True)\nwhile True: pass", "print('x' in globals())"
    )
    cell = notebook.start(0)
    expect_output(cell, "go")
    notebook.press_button("interrupt")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("KeyboardInterrupt")
    expect_output(notebook.run(1, 2), "True")
    notebook.restart()
    expect_output(notebook.run(1, 1), "False")


def test_a_kernel_that_dies_is_reported_and_replaced(open_notebook):
    notebook = open_notebook("x = 1\nimport os; os._exit(1)", "print('x' in globals())")
    notebook.start(0)
    died = notebook.page.locator(".jp-Dialog", has_text="appears to have died")
    died.locator(".jp-mod-accept").click()
    notebook.until_idle()
    expect_output(notebook.run(1, 1), "False")


def test_a_kernel_that_memory_killed_shows_why(open_notebook):
    notebook = open_notebook("x = []\nwhile True: x.append(bytearray(1 << 24))", "print('here')")
    cell = notebook.start(0)
    expect(cell.locator(".jp-OutputArea")).to_contain_text("OutOfMemory")
    died = notebook.page.locator(".jp-Dialog", has_text="appears to have died")
    died.locator(".jp-mod-accept").click()
    notebook.until_idle()
    expect_output(notebook.run(1, 1), "here")


DEBUGGED = "first = 20\nsecond = first + 1\nthird = second * 2\nprint('third', third)"


def test_the_debugger_stops_shows_variables_and_goes_on_after_an_interrupt(open_notebook):
    notebook = open_notebook(DEBUGGED)
    notebook.open_debugger()
    notebook.set_breakpoint(0, 3)
    for _ in range(2):
        cell = notebook.start(0)
        notebook.expect_stop(0, "third = second * 2")
        notebook.expect_variable("second", "21")
        notebook.press_button("interrupt")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("KeyboardInterrupt")
        notebook.until_idle()
        expect(cell.locator(".jp-DebuggerEditor-highlight")).to_have_count(0)
    cell = notebook.start(0)
    notebook.expect_stop(0, "third = second * 2")
    notebook.page.locator('[data-command="debugger:continue"]').click()
    expect_output(cell, "third 42")


def test_the_kernel_survives_the_gateway(gateway, open_notebook):
    notebook = open_notebook("x = 41", "x += 1; print(x)")
    notebook.run(0, 1)
    kernel = the_kernel(gateway)
    gateway.kill()
    gateway.start()
    wait_for(lambda: is_connected(gateway, kernel), 60)
    expect_output(notebook.run(1, 2), "42")
    assert the_kernel(gateway) == kernel


def is_connected(gateway, kernel):
    response = gateway.client.get(f"/api/kernels/{kernel}")
    return response.status_code == 200 and response.json()["connections"] > 0


def test_a_second_tab_shares_the_kernel(gateway, open_notebook):
    cells = ("x = 41", "x += 1; print(x)")
    first = open_notebook(*cells)
    first.run(0, 1)
    second = open_notebook(*cells)
    wait_for(lambda: list_kernels(gateway)[the_kernel(gateway)]["connections"] == 2)
    expect_output(second.run(1, 2), "42")
    expect_output(first.run(1, 3), "43")


PAGE = """async ([url, key]) => {
    const headers = { Authorization: `token ${key}`, "Content-Type": "application/json" };
    const made = await fetch(`${url}/api/kernels`, { method: "POST", headers, body: "{}" });
    const path = `/api/kernels/${(await made.json()).id}`;
    const socket = new WebSocket(
        `${url.replace("http", "ws")}${path}/channels?token=${key}`,
        "v1.kernel.websocket.jupyter.org",
    );
    await new Promise((resolve, reject) => {
        socket.onopen = resolve;
        socket.onerror = () => reject(new Error("no WebSocket"));
    });
    const ended = await fetch(url + path, { method: "DELETE", headers });
    return [made.status, socket.protocol, ended.status];
}"""


def test_a_page_calls_the_gateway_from_an_allowed_origin_only(start_gateway, lab, chromium):
    gateway = start_gateway("--allowed-origins", lab.url)
    page = chromium.new_page()
    page.goto(f"{lab.url}/static/favicons/favicon.ico")
    protocol = "v1.kernel.websocket.jupyter.org"
    assert page.evaluate(PAGE, [gateway.url, gateway.key]) == [201, protocol, 204]
    page.goto(page.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(Error, match="Failed to fetch"):
        page.evaluate(PAGE, [gateway.url, gateway.key])
    page.close()
    assert list_kernels(gateway) == {}
