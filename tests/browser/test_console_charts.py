# SPDX-License-Identifier: Apache-2.0
"""Interactive charts in the console: Plotly's and Altair's as their packages show them, and hostile ones."""

import pytest
from kernelgate import wait_for
from playwright.sync_api import expect

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vega.v5+json"
VEGA_LITE = "application/vnd.vegalite.v6.json"
BLOCKED = "This chart refers to data, images or maps on the internet"


@pytest.fixture
def sandbox(gateway, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:60]
    gateway.create_session(session_id=name)
    yield name
    gateway.client.delete(f"/api/v1/sessions/{name}")


def show(console, *bundles):
    """Runs a cell that displays these MIME bundles."""
    calls = "\n".join(f"display({bundle!r}, raw=True)" for bundle in bundles)
    cell = console.run(f"from IPython.display import display\n{calls}")
    console.until_done(cell)
    return cell


def frames_of(console):
    frames = [frame for frame in console.page.frames if "/assets/chart-" in frame.url]
    assert frames
    return frames


def bars(values, **more):
    return {"mark": "bar", "data": {"values": values}, "encoding": {
        "x": {"field": "name", "type": "nominal"}, "y": {"field": "n", "type": "quantitative"}, **more,
    }}  # fmt: skip


LANGUAGES = [{"name": "C", "n": 3}, {"name": "Go", "n": 5}]


def test_charts_of_plotly_and_altair(gateway, tab, sandbox):
    """As their packages show them when nobody has set anything."""
    packages = ["plotly==7.1.0", "altair==6.3.0"]
    path = f"/api/v1/sessions/{sandbox}/packages?wait=1"
    installed = gateway.client.post(path, json={"packages": packages}, timeout=240)
    assert installed.status_code == 200, installed.text
    console = tab(viewport={"width": 1280, "height": 1600})
    console.enter(sandbox)
    console.until_done(
        console.run("import pandas as pd\ndata = pd.DataFrame({'a': ['x', 'y'], 'b': [1, 2]})")
    )
    assert not any("/chart-" in url for url in console.requests())  # not before it is needed
    cell = console.run(
        "import plotly.express as px\nfigure = px.bar(data, x='a', y='b', title='Two bars')\nfigure.show()"
    )
    chart = cell.get_by_title("Plotly chart: Two bars").content_frame
    expect(chart.locator(".bars .point")).to_have_count(2)
    expect(chart.locator(".gtitle")).to_have_text("Two bars")
    chart.locator(".nsewdrag").hover(position={"x": 200, "y": 250})
    expect(chart.locator(".hoverlayer")).to_contain_text("x")
    with console.page.expect_download() as download:
        chart.get_by_role("button", name="Download plot").click()
    with open(download.value.path(), "rb") as picture:
        assert picture.read(8) == b"\x89PNG\r\n\x1a\n"
    cell = console.run("figure")
    expect(cell.frame_locator("iframe").locator(".bars .point")).to_have_count(2)
    cell = console.run(
        "import altair as alt\nalt.Chart(data, title='Bars').mark_bar().encode(x='a', y='b')"
    )
    chart = cell.get_by_title("Vega chart: Bars").content_frame
    expect(chart.locator("svg .mark-rect.role-mark path")).to_have_count(2)
    cell = console.run(
        "alt.renderers.enable('mimetype')\nalt.Chart(data).mark_line().encode(x='a', y='b', tooltip='b')"
    )
    expect(cell.frame_locator("iframe").locator("svg .mark-line path")).to_have_count(1)
    cell = console.run(
        "from IPython.display import HTML\nHTML(figure.to_html(include_plotlyjs='cdn'))"
    )
    expect(cell).to_contain_text("This output needs scripts, which the console does not run.")
    expect(cell.locator("iframe")).to_be_hidden()
    assert console.findings() == []


def test_html_that_shows_something_has_no_note(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    html = (
        "<script>document.title = 1</script><b>bold</b>",
        "<script>1</script><img src=data:>",
        "<i></i>",
    )
    cell = show(console, *({"text/html": each} for each in html))
    expect(cell.frame_locator("iframe").first.locator("b")).to_be_visible()
    wait_for(lambda: len(console.page.frames) == 4)
    expect(cell.locator("iframe")).to_have_count(3)
    expect(cell.get_by_text("needs scripts")).to_have_count(0)
    console.faults.clear()  # the scripts were refused
    library = "<script type='text/javascript'>\nwindow.PlotlyConfig = {}; /* Plotly */</script>"
    cell = show(console, {"text/html": library})  # comes before a figure
    expect(cell.locator("iframe")).to_have_count(0)
    expect(cell.get_by_text("needs scripts")).to_have_count(0)
    cell = show(
        console,
        {"text/html": "<div id=x></div><style>x{}</style><script>document.title = 1</script>"},
    )
    expect(cell.get_by_text("needs scripts")).to_have_count(1)
    console.faults.clear()
    assert console.page.title() == "kernelgate"


def test_maps_and_what_webgl_draws(tab, sandbox):
    """Outlines of countries come with the console; no library evaluates text."""
    console = tab()
    console.enter(sandbox)
    countries = {"type": "choropleth", "locations": ["FRA", "BRA"], "z": [1, 2]}
    cell = show(console, {PLOTLY: {"data": [countries]}})
    expect(cell.frame_locator("iframe").locator(".choroplethlayer path")).to_have_count(2)
    cell = show(console, {PLOTLY: {"data": [{"type": "scattergl", "x": [1, 2], "y": [1, 2]}]}})
    expect(cell.frame_locator("iframe").locator("canvas.gl-canvas").first).to_be_attached()
    expect(cell.get_by_text("could not be drawn")).to_have_count(0)


def test_a_chart_that_changes(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    figure = {"data": [{"type": "bar", "y": [1, 2, 3]}], "layout": {"height": 300}}
    more = {"data": [{"type": "bar", "y": [1, 2, 3, 4, 5]}], "layout": {"height": 500}}
    cell = console.run(
        "import os, time\nfrom IPython.display import display\n"
        f"shown = display({ {PLOTLY: figure}!r}, raw=True, display_id=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        f"shown.update({ {PLOTLY: more}!r}, raw=True)"
    )
    chart = cell.frame_locator("iframe")
    expect(chart.locator(".bars .point")).to_have_count(3)
    wait_for(lambda: 300 <= cell.locator("iframe").bounding_box()["height"] < 330)
    response = gateway.client.put(f"/api/v1/sessions/{sandbox}/files/go", content=b"")
    assert response.status_code == 201, response.text
    expect(chart.locator(".bars .point")).to_have_count(5)
    wait_for(lambda: 500 <= cell.locator("iframe").bounding_box()["height"] < 530)


def test_charts_that_cannot_be_drawn(tab, sandbox):
    """Each says why; the others are drawn."""
    console = tab()
    console.enter(sandbox)
    cell = show(
        console,
        {PLOTLY: {"data": "none"}},
        {VEGA_LITE: {"mark": "nothing", "data": {"values": []}, "encoding": {}}},
        {
            VEGA: {
                "marks": [{"type": "rect", "encode": {"update": {"x": {"signal": "missing + 1"}}}}]
            }
        },
        {VEGA: {"data": [{"name": "a", "values": [{"x": 1}], "transform": [{"type": "nothing"}]}]}},
        {VEGA_LITE: bars(LANGUAGES)},
    )
    expect(cell.get_by_text("The chart could not be drawn: ")).to_have_count(4)
    expect(cell.frame_locator("iframe").locator("svg .mark-rect.role-mark path")).to_have_count(2)
    cell = console.run(
        "from IPython.display import display\n"
        f"display({{{PLOTLY!r}: {{'data': [{{'y': [1] * 2_000_001}}]}}}}, raw=True)"
    )
    expect(cell).to_contain_text("This chart is too large to be drawn in the browser.")
    expect(cell.locator("iframe")).to_have_count(0)


def test_a_chart_that_never_ends(tab, sandbox):
    """The page goes on, and ends it."""
    console = tab()
    console.enter(sandbox)
    force = {"type": "force", "static": True, "iterations": 1e12, "forces": []}
    endless = {"data": [{"name": "a", "values": LANGUAGES, "transform": [force]}]}
    cell = show(console, {VEGA: endless})
    expect(console.run("6 * 7").locator(".text")).to_have_text("42")
    expect(cell).to_contain_text("The chart was not drawn within 20 seconds.")
    expect(cell.locator("iframe")).to_have_count(0)


def test_many_charts_are_not_all_drawn(tab, sandbox):
    console = tab()
    console.enter(sandbox)
    cell = show(console, *[{VEGA_LITE: bars(LANGUAGES)}] * 22)
    expect(cell.locator("iframe")).to_have_count(20)
    cell.get_by_role("button", name="Show this one as well").first.click()
    expect(cell.locator("iframe")).to_have_count(21)
    console.page.get_by_role("button", name="Clear").click()
    cell = show(console, {VEGA_LITE: bars(LANGUAGES)})
    expect(cell.locator("iframe")).to_have_count(1)


# ---- Hostile charts

ATTACK = "window.pwned=1;top.location='/healthz?pwned'"
MARKUP = f'<img src=x onerror="{ATTACK}"><script>{ATTACK}</script><svg onload="{ATTACK}"></svg>'
LINKS = (
    f'<a href="javascript:{ATTACK.replace(chr(39), "")}">one</a> '
    '<a href="/healthz?pwned" target="_self">two</a> '
    '<a href="https://evil.example/" target="_top">three</a>'
)
FIGURE = {
    "data": [
        {"type": "bar", "x": [MARKUP, LINKS], "y": [1, 2], "name": MARKUP, "text": [MARKUP, LINKS],
         "hovertemplate": MARKUP},
    ],
    "layout": {
        "title": {"text": LINKS + MARKUP},
        "annotations": [{"text": LINKS, "x": 0, "y": 1, "showarrow": False, "hovertext": MARKUP}],
        "images": [{"source": "https://evil.example/pixel.png", "xref": "paper", "yref": "paper",
                    "x": 0, "y": 1, "sizex": 1, "sizey": 1}],
    },
    "config": {
        "plotlyServerURL": "https://evil.example", "showSendToCloud": True, "showLink": True,
        "showEditInChartStudio": True, "linkText": MARKUP, "topojsonURL": "https://evil.example/",
        "displayModeBar": True,
    },
}  # fmt: skip
MAP = {"data": [{"type": "scattermap", "lat": [1], "lon": [2]}], "layout": {
    "map": {"style": "https://evil.example/style.json"}}}  # fmt: skip
EXPRESSIONS = [
    "datum.constructor.constructor('return window')().pwned = 1",
    "toString.constructor('window.pwned=1')()",
    "event.view.eval('window.pwned=1')",
]


def rule(expression):
    return {"marks": [{"type": "rect", "encode": {"update": {"x": {"signal": expression}}}}]}


VEGA_LINKS = bars(
    [{**each, "link": link} for each, link in zip(LANGUAGES, ["/healthz?pwned", f"javascript:{ATTACK}"])],
    href={"field": "link"}, tooltip={"value": MARKUP},
)  # fmt: skip
VEGA_IMAGES = {
    "data": [
        {"name": "t", "url": "https://evil.example/data.json"},
        {"name": "u", "url": "/api/v1/health"},
    ],
    "marks": [
        {"type": "image", "encode": {"enter": {"url": {"value": "https://evil.example/a.png"}}}}
    ],
}
# What a script in the frame could try, if there were a way to run one.
TRIES = """async () => {
    const results = {};
    const attempt = async (name, call) => {
        try { results[name] = String(await call()); } catch (error) { results[name] = error.name; }
    };
    const tag = document.createElement("script");
    tag.textContent = "window.pwned = 1";
    document.body.append(tag);
    await new Promise((done) => setTimeout(done)); // Playwright's own call may evaluate
    await attempt("eval", () => (0, eval)("1"));
    await attempt("document", () => parent.document.title);
    await attempt("storage", () => sessionStorage.length);
    await attempt("cookie", () => document.cookie);
    await attempt("request", () => fetch("/api/v1/sessions"));
    await attempt("navigation", () => { top.location.href = "/healthz?pwned"; return "moved"; });
    await attempt("window", () => window.open("/healthz?pwned"));
    await attempt("origin", () => origin);
    return results;
}"""
CLICK = (
    "element => element.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
)


def test_hostile_charts(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    page = console.page
    page.on("dialog", lambda dialog: console.faults.append(f"dialog: {dialog.message}"))
    here = page.url
    cell = show(
        console, {PLOTLY: FIGURE}, {VEGA_LITE: VEGA_LINKS}, {VEGA: VEGA_IMAGES}, {PLOTLY: MAP}
    )
    frames = cell.locator("iframe")
    figure = frames.nth(0).content_frame
    expect(figure.locator(".bars .point")).to_have_count(2)
    expect(figure.locator("a").first).to_be_visible()
    for link in figure.locator("a").all():
        link.evaluate(CLICK)
    bar = frames.nth(1).content_frame.locator("svg .mark-rect.role-mark path")
    expect(bar).to_have_count(2)
    for each in bar.all():
        each.hover()
        each.click()
    # What is elsewhere is not asked for, and the page says so.
    expect(cell.get_by_text(BLOCKED)).to_have_count(3)
    for expression in EXPRESSIONS:
        console.until_done(show(console, {VEGA: rule(expression)}))
    shown = frames_of(console)
    assert len(shown) >= 3
    for frame in shown:
        assert frame.evaluate("window.pwned") is None, frame.url
        tried = frame.evaluate(TRIES)
        assert tried["eval"] == "EvalError", tried
        assert tried["document"] == tried["storage"] == tried["cookie"] == "SecurityError"
        assert tried["request"] == "TypeError"
        assert tried["navigation"] == "SecurityError"
        assert tried["window"] == "null"
        assert tried["origin"] == "null"
        assert frame.evaluate("window.pwned") is None, frame.url
    assert page.main_frame.evaluate("window.pwned") is None
    assert page.title() == "kernelgate" and page.url == here
    assert len(page.context.pages) == 1
    assert not any("pwned" in url or "evil.example" in url for url in console.requests())
    console.faults.clear()  # the frames' policy says what it has refused
    assert gateway.client.get(f"/api/v1/sessions/{sandbox}").status_code == 200


def test_what_is_below_does_not_jump_after_a_reload(tab, sandbox):
    """Frames have their last height before they have loaded."""
    console = tab()
    page = console.page
    console.enter(sandbox)
    table = {"text/html": "<table>" + "<tr><td>a row</td></tr>" * 6 + "</table>"}
    cell = show(console, table, {VEGA_LITE: bars(LANGUAGES)})
    frames = cell.locator("iframe")

    def heights():
        return [frames.nth(i).get_attribute("height") for i in range(2)]

    frames.nth(0).content_frame.locator("td").first.wait_for()
    frames.nth(1).content_frame.locator("svg").first.wait_for()
    wait_for(lambda: "24" not in heights() and "450" not in heights())
    before = wait_for(lambda: (now := heights()) and page.wait_for_timeout(300) or heights() == now and now)
    for kind in ("**/frame.html", "**/chart-vega-*.html"):
        page.route(kind, lambda route: route.abort())
    page.reload()
    expect(frames).to_have_count(2)
    assert heights() == before
    console.faults.clear()
