# SPDX-License-Identifier: Apache-2.0
"""An hour of a person's work in the console, in one story."""

import nbformat
import pytest
from kernelgate import wait_for
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect

NOTEBOOK = new_notebook(
    cells=[
        new_markdown_cell("# Rain in three cities"),
        new_code_cell("import pandas as pd\nrain = pd.read_csv('rain.csv')\nrain"),
        new_code_cell("rain['mm'].summ()"),
        new_code_cell(
            "import matplotlib.pyplot as plt\nplt.bar(rain['city'], rain['mm'])\nplt.savefig('rain.pdf')"
        ),
    ]
)
# What Plotly displays, without Plotly.
PLOT = """
display({"application/vnd.plotly.v1+json": {
    "data": [{"type": "bar", "x": list(rain["city"]), "y": [int(mm) for mm in rain["mm"]]}], "layout": {},
}}, raw=True)
"""
CSV = "city,mm\nLima,6\nOslo,763\nPune,722\n"


@pytest.mark.timeout(600)
def test_an_hour_in_the_console(tab, sandbox, tmp_path):
    console = tab()
    console.enter(sandbox)
    page = console.page

    # A file by drag and drop, and a notebook of this computer.
    page.get_by_role("link", name="Files").click()
    expect(page.get_by_text("Upload files")).to_be_visible()
    console.drop(page.locator(".files"), "rain.csv", CSV)
    expect(page.get_by_role("button", name="rain.csv", exact=True)).to_be_visible()
    page.get_by_role("link", name="Console").click()
    nbformat.write(NOTEBOOK, tmp_path / "rain.ipynb")
    page.get_by_role("button", name="Open a notebook").click()
    page.get_by_label("From this computer").set_input_files(tmp_path / "rain.ipynb")
    title, table, total, figure = (console.cells.nth(i) for i in range(4))
    expect(title.frame_locator("iframe").locator("h1")).to_have_text("Rain in three cities")

    # Run it; a cell is wrong, and those behind it are not run.
    page.get_by_role("button", name="Run all").click()
    expect(total.get_by_role("alert")).to_contain_text("has no attribute 'summ'")
    expect(figure.locator(".status")).to_have_text("not run")
    expect(table.frame_locator("iframe").get_by_text("Oslo")).to_be_visible()

    # Fix it in place, and go on.
    console.edit(total)
    console.press("Control+a")
    page.keyboard.type("rain['mm'].sum()")
    console.press("Shift+Enter")
    expect(total.locator(".text")).to_contain_text("1491")
    expect(figure).to_be_focused()
    console.press("Shift+Enter")
    image = figure.locator("img")
    expect(image).to_be_visible()
    wait_for(lambda: image.evaluate("image => image.complete && image.naturalWidth > 100"))
    expect(figure.get_by_role("button", name="rain.pdf")).to_be_visible()
    expect(console.new_cell).to_be_focused()

    # A chart of Plotly.
    plot = console.run(PLOT)
    expect(plot.frame_locator("iframe").locator("svg").first).to_be_visible()
    console.until_done(plot)

    # A package.
    installed = console.run(
        "%pip install humanize==4.11.0\nimport humanize\nhumanize.intcomma(1491)"
    )
    expect(installed.locator(".text").last).to_have_text("'1,491'")

    # Something that takes too long.
    endless = console.run("print('begun', flush=True)\nwhile True: pass")
    expect(endless.locator(".text")).to_contain_text("begun")
    page.get_by_role("button", name="Interrupt").click()
    expect(endless.locator(".status")).to_contain_text("interrupted")
    console.press("Escape", "k", "d", "d")
    expect(console.cells).to_have_count(6)

    # A reload changes nothing.
    before = console.sources()
    page.reload()
    expect(console.cells).to_have_count(6)
    assert console.sources() == before
    for cell, text in (title, "Rain in three cities"), (table, "Oslo"):
        cell.scroll_into_view_if_needed()  # frames are loaded when they come into view, and grow then
        expect(cell.frame_locator("iframe").get_by_text(text)).to_be_visible()
    expect(figure.locator("img")).to_be_visible()
    expect(total.locator(".text")).to_contain_text("1491")
    expect(console.run("rain['mm'].max()").locator(".text")).to_contain_text("763")

    # Take it home.
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    notebook = nbformat.read(download.value.path(), 4)
    nbformat.validate(notebook)
    assert download.value.suggested_filename == "rain.ipynb"
    assert [cell.source for cell in notebook.cells[:3]] == [
        "# Rain in three cities", NOTEBOOK.cells[1].source, "rain['mm'].sum()"
    ]  # fmt: skip
    assert any("image/png" in output.get("data", {}) for output in notebook.cells[3].outputs)
    with page.expect_download() as download:
        # By the keyboard: frames above, which load as they come into view, move what is below them.
        figure.get_by_role("button", name="rain.pdf").press("Enter")
    with open(download.value.path(), "rb") as file:
        assert file.read(5) == b"%PDF-"
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved as /mnt/data/rain.ipynb")).to_be_visible()
    page.get_by_role("link", name="Files").click()
    expect(page.get_by_role("button", name="rain.ipynb", exact=True)).to_be_visible()
