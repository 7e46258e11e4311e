# SPDX-License-Identifier: Apache-2.0
"""The console says what the limits are, and what sets them, where they apply."""

import re

import pytest
from console_page import put
from playwright.sync_api import expect


@pytest.fixture
def console(start_gateway, tab):
    gateway = start_gateway(
        *("--max-sessions", "2", "--disk-mb", "32", "--max-upload-bytes", "2000"),
        *("--max-execution-time", "7", "--max-timeout", "400", "--idle-timeout", "600"),
        *("--tool-call-timeout", "45", "--max-tool-calls", "25", "--max-tool-result", "3072"),
    )
    gateway.create_session(session_id="one")
    return tab(gateway)


def test_limits_are_shown_where_they_apply(console):
    page = console.page
    console.enter()
    count = page.get_by_role("status").filter(has_text="max-sessions")
    expect(count).to_have_text("1 of 2, from max-sessions.")
    console.gateway.create_session(session_id="two")
    expect(count).to_have_text("2 of 2, from max-sessions. End one before you start another.")
    limits = page.get_by_role("region", name="Limits")
    for text in ("Disk per sandbox32 MiBdisk-mb", "Uploaded file2 KiBmax-upload-bytes"):
        expect(limits).to_contain_text(text)
    expect(limits).to_contain_text("Longest time limit6 minmax-timeout")
    for text in (
        "Time limit of a tool call45 stool-call-timeout",
        "Tool calls per execution25max-tool-calls",
        "Tool result as a value3 KiBmax-tool-result",
    ):
        expect(limits).to_contain_text(text)
    assert console.findings() == []

    page.get_by_role("link", name="one").click()
    usage = page.locator(".usage")
    expect(usage).to_contain_text(re.compile(r"MiB of 512 MiB.* of 32 MiB on disk"))
    expect(usage).to_contain_text(re.compile(r"ends in (9|10) min without activity"))
    expect(page.get_by_label("Time limit").locator("option")).to_have_text(
        ["up to 7 s (default)", "up to 5 min"]
    )


def test_a_file_that_is_too_large_is_not_sent(console):
    page = console.page
    console.enter("one", "files")
    expect(page.get_by_text("The limit is 2 KiB per file.")).to_be_visible()
    fits = {"name": "fits.txt", "mimeType": "text/plain", "buffer": bytes(2000)}
    large = {"name": "large.txt", "mimeType": "text/plain", "buffer": bytes(5000)}
    page.get_by_label("Upload files").set_input_files([large, fits])
    said = "large.txt is 4.9 KiB. A file may be at most 2 KiB (max-upload-bytes)."
    expect(page.get_by_role("alert")).to_have_text(said)
    expect(page.get_by_role("button", name="fits.txt", exact=True)).to_be_visible()
    assert not any("large.txt" in url for url in console.requests())


def test_an_older_replica_has_no_limits_of_tools(console):
    """The others are shown as they are."""
    page = console.page

    def answer(route):
        answered = route.fetch()
        of = answered.json()
        for name in ("tool_call_timeout", "max_tool_calls", "max_tool_result"):
            of["limits"].pop(name, None)
        route.fulfill(response=answered, json=of)

    page.route("**/api/v1/limits", answer)
    console.enter()
    limits = page.get_by_role("region", name="Limits")
    expect(limits).to_contain_text("Longest time limit6 minmax-timeout")
    assert "ool " not in limits.inner_text()


def test_an_older_gateway_names_no_limits(console):
    """The page works as it did before."""
    page = console.page
    page.route("**/api/v1/limits", lambda route: route.fulfill(status=404, body="{}"))
    put(console.gateway, "one", "a.txt", b"x")
    console.enter("one", "files")
    expect(page.get_by_role("button", name="a.txt", exact=True)).to_be_visible()
    page.get_by_role("link", name="Console").click()
    expect(page.get_by_label("Time limit")).to_contain_text("default time limit")
    page.get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("link", name="one")).to_be_visible()
    expect(page.get_by_role("region", name="Limits")).to_have_count(0)
