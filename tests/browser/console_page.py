# SPDX-License-Identifier: Apache-2.0
"""The console in a tab, used as a person would: keys, buttons, and what is shown."""

import re
from urllib.parse import urlsplit

from kernelgate import PROJECT
from playwright.sync_api import expect

AXE = PROJECT / "build/browser/node_modules/axe-core/axe.min.js"
SHOTS = PROJECT / "build/results"


class ConsolePage:
    def __init__(self, page, gateway):
        self.page = page
        self.gateway = gateway
        self.faults = []  # what the page's own code failed with, and what its policy refused
        self._requests = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._on_message)
        page.on("request", lambda request: self._requests.append(request))

    def _on_message(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

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
