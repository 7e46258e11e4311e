# SPDX-License-Identifier: Apache-2.0
"""A notebook in a tab of JupyterLab, used as a person would: keys, buttons, and what is shown."""

import re

from playwright.sync_api import expect

expect.set_options(timeout=60_000)

IDLE = """() => {
    const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
    return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""


def lab_command(url, key):
    """What the console's Connect shows, and `lab` of conftest.py runs."""
    return f"JUPYTER_GATEWAY_AUTH_TOKEN='{key}' jupyter lab --gateway-url {url}"


class NotebookPage:
    def __init__(self, page, url):
        self.page = page
        # JupyterLab says so while the gateway is gone, if it asks for the kernels just then.
        lost = page.locator(".jp-Dialog", has_text="Server Connection Error")
        page.add_locator_handler(lost, lambda dialog: dialog.locator(".jp-mod-accept").click())
        page.goto(url)
        self.cells = page.locator(".jp-NotebookPanel .jp-CodeCell")

    def until_idle(self):
        """Waits until the page's kernel is connected and idle; it shows `idle` before it has one."""
        self.page.wait_for_function(IDLE)

    def start(self, number):
        """Runs a cell; returns it as soon as its code has been sent."""
        cell = self.cells.nth(number)
        cell.locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Control+Enter")
        return cell

    def run(self, number, count):
        """Runs a cell to its end, with that execution count."""
        cell = self.start(number)
        expect(cell.locator(".jp-InputPrompt")).to_have_text(f"[{count}]:")
        self.until_idle()
        return cell

    def press_button(self, name):
        """Presses a button of the notebook's toolbar."""
        self.page.locator(f'.jp-NotebookPanel [data-jp-item-name="{name}"]').click()

    def open_debugger(self):
        """Turns the debugger on, which opens its side bar and gives the cells a place for breakpoints."""
        button = self.page.locator(".jp-NotebookPanel .jp-DebuggerBugButton")
        expect(button).not_to_have_class(re.compile("disabled"))
        button.click()
        expect(self.page.locator(".jp-DebuggerSidebar")).to_be_visible()
        expect(self.cells.first.locator(".cm-gutter.cm-breakpoint-gutter")).to_be_visible()

    def set_breakpoint(self, number, line):
        gutter = self.cells.nth(number).locator(".cm-breakpoint-gutter .cm-gutterElement")
        gutter.nth(line).click()  # the first one is above the lines
        expect(self.page.locator(".jp-DebuggerBreakpoint-line")).to_have_text(str(line))

    def expect_stop(self, number, line):
        stopped = self.cells.nth(number).locator(".jp-DebuggerEditor-highlight")
        expect(stopped).to_have_text(line)

    def expect_variable(self, name, value):
        """What the debugger's side bar shows of a stopped cell's variables."""
        shown = self.page.locator(".jp-DebuggerVariables-body jp-tree-item")
        expect(shown.filter(has_text=name)).to_have_text(name + value)

    def restart(self):
        self.press_button("restart")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()


def expect_output(cell, text):
    expect(cell.locator(".jp-OutputArea-output").first).to_contain_text(text)
