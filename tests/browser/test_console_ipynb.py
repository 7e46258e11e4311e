# SPDX-License-Identifier: Apache-2.0
"""Notebooks that the console opens and saves: of this computer, and of the sandbox's files."""

import json

import nbformat
import pytest
from console_page import put, read
from kernelgate import wait_for
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import expect

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def example():
    """A notebook with each kind of cell and of output."""
    outputs = [
        new_output("stream", name="stdout", text="first\nsecond\n"),
        new_output("stream", name="stderr", text="careful\n"),
        new_output("display_data", {"image/png": PNG + "\n", "text/plain": "<Figure>"}),
        new_output("display_data", {"application/json": {"a": [1]}, "text/plain": "json"}),
        new_output("execute_result", {"text/html": "<b>bold</b>", "text/plain": "bold"}, execution_count=7),
        new_output("error", ename="ValueError", evalue="no", traceback=["\x1b[31mValueError\x1b[0m: no"]),
    ]  # fmt: skip
    picture = new_markdown_cell("# Title\n\n![dot](attachment:dot.png)")
    picture.attachments = {"dot.png": {"image/png": PNG}}
    ran = new_code_cell("print('first')", outputs=outputs, execution_count=7)
    ran.metadata["tags"] = ["kept"]
    notebook = new_notebook(cells=[picture, ran, new_code_cell("6 * 7")])
    notebook.metadata.kernelspec = {
        "name": "python3", "display_name": "Python 3", "language": "python"
    }  # fmt: skip
    notebook.metadata["authors"] = [{"name": "ada"}]
    nbformat.validate(notebook)
    return notebook


def open_local(console, name, text):
    buffer = text if isinstance(text, bytes) else text.encode()
    console.page.get_by_role("button", name="Open").first.click()
    console.page.get_by_label("From this computer").set_input_files(
        [{"name": name, "mimeType": "application/json", "buffer": buffer}]
    )


def saved(gateway, sandbox, path):
    """A notebook in the sandbox, which must be valid."""
    text = read(gateway, sandbox, path).decode()
    raw = json.loads(text)
    assert (raw["nbformat"], raw["nbformat_minor"]) == (4, 5)
    nbformat.validate(raw)
    return nbformat.reads(text, 4)


def test_a_notebook_is_opened_and_shown(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    open_local(console, "example.ipynb", nbformat.writes(example()))
    expect(console.cells).to_have_count(3)
    title, ran, _ = console.cells.all()
    expect(title.frame_locator("iframe").locator("h1")).to_have_text("Title")
    dot = title.frame_locator("iframe").get_by_role("img", name="dot")
    wait_for(lambda: dot.evaluate("image => image.naturalWidth") == 1)
    expect(ran.locator(".text.stdout")).to_have_text("first\nsecond\n")
    expect(ran.locator(".text.stderr").first).to_have_text("careful\n")
    expect(ran.locator("img")).to_be_visible()
    expect(ran.locator(".json")).to_contain_text("a: [1]")
    expect(ran.frame_locator("iframe").locator("b")).to_have_text("bold")
    expect(ran.get_by_role("alert")).to_contain_text("ValueError: no")
    expect(ran.locator(".prompt")).to_have_text("7")
    expect(console.page.get_by_label("Name of the notebook")).to_have_value("example.ipynb")
    assert console.findings() == []


def test_what_is_saved_is_what_was_opened(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    before = example()
    open_local(console, "example.ipynb", nbformat.writes(before))
    expect(console.cells).to_have_count(3)
    console.page.get_by_role("button", name="Save").click()
    expect(console.page.get_by_text("Saved as /mnt/data/example.ipynb")).to_be_visible()
    after = saved(gateway, sandbox, "example.ipynb")
    before.cells[1].outputs[2].data["image/png"] = PNG
    assert [dict(cell) for cell in after.cells] == [dict(cell) for cell in before.cells]
    assert after.metadata["authors"] == before.metadata["authors"]
    assert after.metadata.kernelspec.name == "python3"


def test_what_was_run_is_saved(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    for code in (
        "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')",
        "import matplotlib.pyplot as plt\nplt.plot([1, 4]);",
        "import pandas\npandas.DataFrame({'a': [1]})",
        "1 / 0",
    ):
        console.until_done(console.run(code))
    console.page.get_by_label("Kernel").select_option("javascript")
    console.until_done(console.run("'from Deno'"))
    console.press("Escape", "k", "b", "m", "Enter")
    console.page.keyboard.type("# End")
    console.page.get_by_label("Name of the notebook").fill("made/here")
    console.press("Control+s")
    expect(console.page.get_by_text("Saved as /mnt/data/made/here.ipynb")).to_be_visible()
    notebook = saved(gateway, sandbox, "made/here.ipynb")
    assert [cell.cell_type for cell in notebook.cells] == ["code"] * 5 + ["markdown"]
    printed, figure, table, failed, other, _ = notebook.cells
    texts = [(output.name, output.text) for output in printed.outputs]
    assert "".join(text for name, text in texts if name == "stdout") == "a\nc\n"
    assert ("stderr", "b\n") in texts
    assert "image/png" in figure.outputs[-1].data
    result = table.outputs[0]
    assert result.output_type == "execute_result" and result.execution_count == table.execution_count
    assert "<table" in result.data["text/html"] and "text/plain" in result.data
    assert failed.outputs[0].ename == "ZeroDivisionError" and failed.outputs[0].traceback
    assert other.metadata.kernelgate.kernel == "javascript"
    # And opened again, it is the same.
    console.page.get_by_role("button", name="Open").click()
    console.page.get_by_role("button", name="made/here.ipynb").click()
    expect(console.cells.nth(4).locator(".text")).to_contain_text("from Deno")
    expect(console.cells.nth(3).get_by_role("alert")).to_contain_text("ZeroDivisionError")
    console.cells.nth(4).hover()
    console.cells.nth(4).get_by_role("button", name="Run").click()
    expect(console.cells.nth(4).locator(".status")).to_contain_text("s")
    expect(console.cells.nth(4).locator(".text")).to_contain_text("from Deno")


def test_a_notebook_is_downloaded(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    console.until_done(console.run("print('here')"))
    with console.page.expect_download() as download:
        console.page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "untitled.ipynb"
    notebook = nbformat.read(download.value.path(), 4)
    nbformat.validate(notebook)
    assert notebook.cells[0].outputs[0].text == "here\n"


def test_a_notebook_is_dropped(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    target = console.page.locator(".console")
    console.drop(target, "dropped.ipynb", nbformat.writes(example()))
    expect(console.cells).to_have_count(3)
    console.drop(target, "picture.png", "none")
    expect(console.page.locator(".composer").get_by_role("alert")).to_contain_text("not a notebook")
    expect(console.cells).to_have_count(3)


def test_nothing_is_replaced_without_a_question(gateway, tab, sandbox):
    put(gateway, sandbox, "untitled.ipynb", b"mine")
    console = tab()
    console.enter(sandbox)
    page = console.page
    question = page.get_by_role("dialog")
    console.until_done(console.run("print('one')"))
    page.get_by_role("button", name="Save").click()
    expect(question).to_contain_text("Replace untitled.ipynb?")
    assert console.findings() == []
    console.press("Escape")
    expect(question).to_have_count(0)
    assert read(gateway, sandbox, "untitled.ipynb") == b"mine"
    page.get_by_role("button", name="Save").click()
    question.get_by_role("button", name="Replace").click()
    expect(page.get_by_text("Saved as")).to_be_visible()
    assert saved(gateway, sandbox, "untitled.ipynb").cells[0].source == "print('one')"
    # What this page has saved it replaces at once, until somebody else has changed it.
    console.until_done(console.run("print('two')"))
    page.get_by_role("button", name="Save").click()
    wait_for(lambda: len(saved(gateway, sandbox, "untitled.ipynb").cells) == 2)
    put(gateway, sandbox, "untitled.ipynb", b"changed")
    page.get_by_role("button", name="Save").click()
    expect(question).to_contain_text("has changed since")
    question.get_by_role("button", name="Cancel").click()
    assert read(gateway, sandbox, "untitled.ipynb") == b"changed"
    # Nor are cells that are not saved.
    console.until_done(console.run("print('three')"))
    open_local(console, "example.ipynb", nbformat.writes(example()))
    expect(question).to_contain_text("unsaved changes")
    question.get_by_role("button", name="Cancel").click()
    expect(console.cells).to_have_count(3)
    assert console.sources()[2] == "print('three')"
    open_local(console, "example.ipynb", nbformat.writes(example()))
    question.get_by_role("button", name="Open").click()
    expect(page.get_by_label("Name of the notebook")).to_have_value("example.ipynb")


MANY = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{}] * 1001}


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "it is not JSON"),
        ("[1]", "it has no nbformat"),
        ('{"nbformat": 3, "worksheets": []}', "has format 3"),
        ('{"nbformat": 4}', "no list of cells"),
        (json.dumps(MANY), "1001 cells"),
    ],
    ids=["no-json", "a-list", "old", "no-cells", "too-many"],
)
def test_what_is_no_notebook(tab, sandbox, text, says):
    console = tab()
    console.enter(sandbox)
    console.until_done(console.run("'kept'"))
    console.drop(console.page.locator(".console"), "bad.ipynb", text)
    expect(console.page.get_by_role("alert")).to_contain_text(says)
    assert console.sources() == ["'kept'"]


def test_old_and_odd_notebooks(gateway, tab, sandbox):
    """Without ids, or with the same twice; what is not as the format says is left out."""
    cells = [
        {"cell_type": "code", "source": ["a = 1\n", "a"], "metadata": {}, "outputs": [], "execution_count": None},
        {"cell_type": "code", "id": "same", "source": "2", "outputs": [None, 5, {"output_type": "new"}]},
        {"cell_type": "code", "id": "same", "source": None, "outputs": {}, "metadata": "x"},
        {"cell_type": "heading", "id": "not valid!", "source": "3", "metadata": {}},
        None,
    ]  # fmt: skip
    console = tab()
    console.enter(sandbox)
    notebook = {"nbformat": 4, "nbformat_minor": 2, "metadata": [], "cells": cells}
    console.drop(console.page.locator(".console"), "odd.ipynb", json.dumps(notebook))
    expect(console.cells).to_have_count(5)
    console.press("Control+s")
    expect(console.page.get_by_text("Saved as")).to_be_visible()
    sources = [cell.source for cell in saved(gateway, sandbox, "odd.ipynb").cells]
    assert sources == ["a = 1\na", "2", "", "3", ""]


ATTACK = "window.pwned=1;parent.pwned=1;top.pwned=1"
HOSTILE = f"""<img src=x onerror="{ATTACK}"><script>{ATTACK}</script>
<iframe srcdoc="<script>{ATTACK}</script>"></iframe><a href="javascript:{ATTACK}" target=_self>l</a>
<img src="https://evil.example/a.png"><p class=end>the end</p>"""
SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>{ATTACK}</script></svg>'
)


def test_a_hostile_notebook_that_is_opened(tab, sandbox):
    """It runs nothing: not its outputs, nor its texts, nor its names."""
    outputs = [
        new_output("display_data", {"text/html": HOSTILE}),
        new_output("display_data", {"text/markdown": HOSTILE}),
        new_output("display_data", {"image/svg+xml": SVG}),
        new_output("display_data", {"image/png": f'"><script>{ATTACK}</script>'}),
        new_output("display_data", {"application/javascript": ATTACK, "text/plain": HOSTILE}),
        new_output("stream", name="stdout", text=HOSTILE),
        new_output("error", ename=HOSTILE, evalue=HOSTILE, traceback=[HOSTILE]),
    ]
    picture = new_markdown_cell(HOSTILE + "\n\n![x](attachment:a.svg)")
    picture.attachments = {"a.svg": {'image/svg+xml"><script>': SVG}}
    notebook = new_notebook(cells=[picture, new_code_cell(HOSTILE, outputs=outputs)])
    notebook.metadata.kernelspec = {"name": HOSTILE, "display_name": HOSTILE, "language": HOSTILE}
    console = tab()
    console.enter(sandbox)
    page = console.page
    page.on("dialog", lambda dialog: console.faults.append(f"dialog: {dialog.message}"))
    console.drop(page.locator(".console"), f"{HOSTILE[:40]}.ipynb", json.dumps(notebook))
    frames = page.locator("article iframe")
    expect(frames).to_have_count(3)
    for i in range(3):
        expect(frames.nth(i).content_frame.locator(".end")).to_be_visible()
        frames.nth(i).content_frame.locator("a[href]").evaluate_all("all => all.map(a => a.click())")
    for frame in page.frames:
        assert frame.evaluate("window.pwned") is None, frame.url
    assert page.title() == "kernelgate" and len(page.context.pages) == 1
    assert not any("evil.example" in url for url in console.requests())
    # The frames' policy refuses what the notebook tried, and says so.
    refusals = ("Content Security Policy", "sandbox", "Blocked", "Unsafe attempt", "Refused")
    assert console.faults and all(any(w in fault for w in refusals) for fault in console.faults)
    console.faults.clear()
