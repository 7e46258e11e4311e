# SPDX-License-Identifier: Apache-2.0
"""Previews of Markdown and tables in the console's Files, and the questions before a file is lost."""

import json

import pytest
from kernelgate import wait_for
from playwright.sync_api import expect


@pytest.fixture
def sandbox(gateway, request):
    name = request.node.name[:60]
    gateway.create_session(session_id=name)
    yield name
    gateway.client.delete(f"/api/v1/sessions/{name}")


def put(gateway, session, path, content):
    response = gateway.client.put(f"/api/v1/sessions/{session}/files/{path}", content=content)
    assert response.status_code in (200, 201), response.text


def read(gateway, session, path):
    return gateway.client.get(f"/api/v1/sessions/{session}/files/{path}").content


@pytest.fixture
def files(gateway, tab, sandbox):
    """Opens Files with these files in the sandbox."""

    def open_it(contents, **options):
        for path, content in contents.items():
            put(gateway, sandbox, path, content)
        console = tab(**options)
        console.enter(sandbox, "files")
        return console

    return open_it


def preview(console, path):
    console.page.get_by_role("button", name=f"Preview {path}", exact=True).click()
    shown = console.page.locator(".preview")
    expect(shown.get_by_role("heading", name=path)).to_be_visible()
    return shown


MARKDOWN = b"""# Report

**Rain** in $mm^2$, see [the source](https://example.org/).

| city | rain |
|------|-----:|
| Lima | 6.4  |

<script>window.pwned = 1</script><img src="https://evil.example/pixel.png">
"""


def test_markdown(files):
    console = files({"report.md": MARKDOWN, "long.md": b"word " * 11_000})
    shown = preview(console, "report.md").frame_locator("iframe")
    expect(shown.locator("h1")).to_have_text("Report")
    expect(shown.locator("td")).to_have_text(["Lima", "6.4"])
    expect(shown.locator("math msup")).to_have_count(1)
    assert console.findings() == []
    [frame] = [frame for frame in console.page.frames if frame != console.page.main_frame]
    assert frame.evaluate("window.pwned") is None
    assert not any("evil.example" in url for url in console.requests())
    console.faults.clear()  # the frame's policy says what it has refused
    expect(preview(console, "long.md").locator("pre")).to_contain_text("word word")  # as text


def test_tables(files):
    lines = [{"city": "Lima", "rain": 6.4}, {"city": "Oslo", "tags": ["wet", {"a": None}]}]
    text = "\n".join(map(json.dumps, lines)) + "\nnot JSON\n[1]\n"
    many = "n\n" + "\n".join(map(str, range(1000)))
    console = files({
        "a.jsonl": text.encode(), "b.tsv": b"a\tb\n1\t\"2\t3\"\n", "many.csv": many.encode(),
        "none.jsonl": b"nothing here\n",
    })  # fmt: skip
    shown = preview(console, "a.jsonl")
    expect(shown.locator("th")).to_have_text(["city", "rain", "tags"])
    expect(shown.locator("td")).to_have_text(["Lima", "6.4", "", "Oslo", "", '["wet",{"a":null}]'])
    expect(preview(console, "b.tsv").locator("td")).to_have_text(["1", "2\t3"])
    shown = preview(console, "many.csv")
    expect(shown.get_by_text("The first 199 rows are shown.")).to_be_visible()
    expect(shown.locator("td")).to_have_count(199)
    expect(preview(console, "none.jsonl").locator("pre")).to_have_text("nothing here\n")
    assert console.findings() == []


def upload(console, *files):
    console.page.get_by_label("Upload files").set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": content} for name, content in files]
    )


def test_a_file_is_not_replaced_without_a_question(gateway, files, sandbox):
    """Each is asked for; those that are new are uploaded."""
    console = files({"a.txt": b"old", "b.txt": b"old"})
    upload(console, ("a.txt", b"new"), ("b.txt", b"new"), ("c.txt", b"new"))
    question = console.page.get_by_role("dialog")
    expect(question).to_contain_text("Replace a.txt?")
    assert console.findings() == []
    console.page.keyboard.press("Escape")
    expect(question).to_contain_text("Replace b.txt?")
    console.answer("Replace file")
    expect(console.page.get_by_role("button", name="c.txt", exact=True)).to_be_visible()
    wait_for(lambda: read(gateway, sandbox, "b.txt") == b"new")
    assert read(gateway, sandbox, "a.txt") == b"old"


def test_nothing_is_deleted_without_a_question(gateway, files, sandbox):
    console = files({"a.txt": b"a", "folder/b.txt": b"b"})
    page = console.page
    page.get_by_role("button", name="Delete a.txt", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("It cannot be restored.")
    console.answer("Cancel")
    expect(page.get_by_role("button", name="Delete a.txt", exact=True)).to_be_focused()
    assert read(gateway, sandbox, "a.txt") == b"a"
    page.get_by_role("button", name="Delete folder", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("Everything in it is deleted, too.")
    console.answer("Delete folder")
    expect(page.get_by_role("rowheader")).to_have_text(["a.txt"])
