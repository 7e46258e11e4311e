# SPDX-License-Identifier: Apache-2.0
"""The console in a tab, used as a person would: keys, buttons, and what is shown."""

import re
from urllib.parse import urlsplit

from kernelgate import PROJECT
from playwright.sync_api import expect

AXE = PROJECT / "build/browser/node_modules/axe-core/axe.min.js"
SHOTS = PROJECT / "build/results"


def put(gateway, session, path, content=b""):
    response = gateway.client.put(f"/api/v1/sessions/{session}/files/{path}", content=content)
    assert response.status_code in (200, 201), response.text


def read(gateway, session, path):
    response = gateway.client.get(f"/api/v1/sessions/{session}/files/{path}")
    assert response.status_code == 200, response.text
    return response.content


# Drops a file onto an element.
DROP = """([target, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    const event = new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: data});
    target.dispatchEvent(event);
}"""


class ConsolePage:
    def __init__(self, page, gateway):
        self.page = page
        self.gateway = gateway
        self.faults = []  # what the page's own code failed with, and what its policy refused
        self._requests = []
        self.sockets = []  # the addresses of WebSockets
        self.sent = []  # what was sent over them
        page.on("websocket", self._on_socket)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._on_message)
        page.on("request", lambda request: self._requests.append(request))

    def _on_message(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _on_socket(self, socket):
        self.sockets.append(socket.url)
        socket.on("framesent", lambda payload: self.sent.append(payload))

    def describe(self):
        """For the report of a failed test."""
        fields = self.page.locator("input").evaluate_all("all => all.map((each) => each.outerHTML)")
        return "\n".join([self.page.url, self.page.inner_text("body")[-3000:], *fields])

    def open(self, path=""):
        self.page.goto(f"{self.gateway.url}/console/{path}")

    def log_in(self, key=None):
        field = self.page.get_by_label("API key")
        other = self.page.get_by_role("button", name="Log in with an API key")
        expect(field.or_(other)).to_be_visible()
        if other.is_visible():  # there are accounts
            other.click()
        field.fill(key or self.gateway.key)
        self.page.keyboard.press("Enter")

    def enter(self, session=None, tab="console"):
        """Opens a view with the gateway's key."""
        self.open(f"#/sandboxes/{session}/{tab}" if session else "")
        self.log_in()
        expect(self.page.get_by_role("navigation", name="Main")).to_be_visible()

    def go_to(self, tab):
        """Opens another tab of a sandbox. Chromium gives a click that comes right after a scroll to the
        frame of an output that was there before."""
        self.page.evaluate("scrollTo(0, 0)")
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        self.page.get_by_role("link", name=tab).click()

    def run(self, code):
        """Runs a cell; returns it at once."""
        editor = self.page.get_by_label("Code. Shift and Enter")
        editor.click()
        count = self.cells.count()
        self.page.keyboard.insert_text(code)
        self.page.keyboard.press("Shift+Enter")
        expect(self.cells).to_have_count(count + 1)
        return self.cells.nth(count)

    @property
    def cells(self):
        return self.page.get_by_role("article")

    def answer(self, button):
        """Presses this button of the question that the page asks."""
        question = self.page.get_by_role("dialog")
        expect(question.get_by_role("button", name="Cancel")).to_be_focused()
        question.get_by_role("button", name=button, exact=True).click()
        expect(question).to_have_count(0)

    @property
    def new_cell(self):
        """The editor below the cells."""
        return self.page.get_by_label("Code. Shift and Enter")

    def sources(self):
        """The texts of the cells that are not edited."""
        return self.page.locator(".cells article .code pre").all_inner_texts()

    def edit(self, cell):
        """Goes into the text of a cell; returns its editor."""
        cell.locator(".code pre").click()
        editor = cell.locator(".editor .cm-content")
        expect(editor).to_be_focused()
        return editor

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def drop(self, target, name, text):
        self.page.evaluate(DROP, [target.element_handle(), name, text])

    def until_done(self, cell):
        expect(cell.locator(".status")).not_to_have_text(re.compile("running|waiting"))

    def requests(self):
        """The URLs of what was sent: not of what the policy stopped before."""
        return [each.url for each in self._requests if each.failure != "csp"]

    def hosts(self):
        return {urlsplit(url).netloc for url in self.requests() if url.startswith("http")}

    def findings(self):
        """What axe reports of this view."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {iframes: false})")
        return [
            (each["id"], [node["html"][:200] for node in each["nodes"]])
            for each in found["violations"]
        ]

    def shoot(self, name):
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"console-{name}.png")
