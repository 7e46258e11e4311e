# SPDX-License-Identifier: Apache-2.0
"""The console's first page: what it offers those who have no sandbox, and the names of sandboxes."""

import re

import pytest
from playwright.sync_api import expect


@pytest.fixture
def empty(gateway):
    """The gateway without a sandbox; those that a test starts are ended."""
    for name in gateway.client.get("/api/v1/sessions").json()["sessions"]:
        gateway.delete_session(name)
    yield gateway
    for name in gateway.client.get("/api/v1/sessions").json()["sessions"]:
        gateway.delete_session(name)


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize(
    "way, view, options",
    [
        ("Run some code", "console", {}),
        ("Work with a file", "files", {"color_scheme": "dark"}),
        ("Open a terminal", "terminal", PHONE),
    ],
)
def test_three_ways_to_begin(empty, tab, way, view, options):
    console = tab(**options)
    console.enter()
    page = console.page
    expect(page.get_by_role("heading", name="Start a sandbox")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link", name="Connect")).to_be_visible()
    expect(page.get_by_text("(max-sessions)")).to_be_visible()
    assert console.findings() == []
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    console.shoot(f"welcome-{view}")
    page.get_by_role("button", name=way).click()
    expect(page).to_have_url(re.compile(rf"#/sandboxes/[\w-]+/{view}$"))
    expect(page.get_by_role("link", name=view.title(), exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    assert len(empty.client.get("/api/v1/sessions").json()["sessions"]) == 1


def test_why_a_sandbox_does_not_start(empty, tab):
    console = tab()
    refused = {"status": 429, "body": '{"code": "max_sessions", "detail": "there are 2 already"}'}
    console.page.route(
        "**/api/v1/sessions",
        lambda route: (
            route.fulfill(**refused) if route.request.method == "POST" else route.continue_()
        ),
    )
    console.enter()
    console.page.get_by_role("button", name="Run some code").click()
    expect(console.page.get_by_role("alert")).to_have_text("there are 2 already")
    expect(console.page.get_by_role("button", name="Run some code")).to_be_enabled()


NAME = "Sales of Müller & Söhne <b>2026</b>"


def test_a_new_sandbox_may_have_any_name(empty, tab):
    console = tab()
    console.enter()
    page = console.page
    page.get_by_label("Name of the new sandbox").fill(NAME)
    page.get_by_role("button", name="New sandbox").click()
    expect(page).to_have_url(re.compile(r"#/sandboxes/sess_\w+/console$"))
    [(session, of)] = empty.client.get("/api/v1/sessions").json()["sessions"].items()
    assert of["metadata"] == {"name": NAME}
    page.get_by_role("link", name="Sandboxes").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=NAME))
    expect(row).to_contain_text(session)
    page.get_by_label("Name of the new sandbox").fill("plain-1")
    page.get_by_role("button", name="New sandbox").click()
    expect(page).to_have_url(re.compile("#/sandboxes/plain-1/console$"))


def test_a_sandbox_is_renamed(empty, tab):
    """In its place, by keyboard; other metadata stays."""
    metadata = {"task": "7", "user": "ada"}
    body = {"session_id": "demo", "metadata": metadata}
    empty.client.post("/api/v1/sessions", json=body).raise_for_status()

    def stored():
        return empty.client.get("/api/v1/sessions/demo").json()["metadata"]

    console = tab()
    console.enter("demo", "files")
    page = console.page
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("demo")
    page.get_by_role("button", name="Rename").press("Enter")
    field = page.get_by_label("Name of this sandbox")
    expect(field).to_be_focused()
    assert console.findings() == []
    page.keyboard.type("not this")
    page.keyboard.press("Escape")
    expect(heading).to_have_text("demo")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type(NAME)  # in place of the old one, which is selected
    page.keyboard.press("Enter")
    expect(heading).to_have_text(NAME)
    assert stored() == {**metadata, "name": NAME}
    page.get_by_role("button", name="Rename").click()
    page.route("**/api/v1/sessions/demo", lambda route: route.abort())
    field.fill("another")
    field.press("Enter")
    expect(page.locator("form").get_by_role("alert")).to_be_visible()
    page.unroute("**/api/v1/sessions/demo")
    field.fill("")
    field.press("Enter")
    expect(heading).to_have_text("demo")
    assert stored() == metadata
