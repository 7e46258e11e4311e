# SPDX-License-Identifier: Apache-2.0
"""The console in Debian's Chromium, against a gateway with real kernels: what people do in it, and
what a hostile notebook may not do. Pictures of every view are written to build/results."""

import contextlib
import gzip
import json
import os
import pty
import re
import select
import shutil
import statistics
import subprocess
import sys
import termios

import pytest
from console_page import DROP, put
from kernelgate import PROJECT, Gateway, wait_for
from notebook_page import lab_command
from pdf_file import pdf_file
from playwright.sync_api import expect
from session_commands import Commands, start

BUILT = PROJECT / "build/console"


# ---- What is built


def test_the_page_is_small():
    files = [path for path in BUILT.rglob("*.gz") if path.name != "licenses.txt.gz"]
    assert {"index.html.gz", "frame.html.gz"} < {path.name for path in files}
    # What shows PDF files, terminals and charts is loaded for the first one.
    later = [path for path in files if path.name.startswith(("pdf-", "screen-", "chart-"))]
    sizes = {path: path.stat().st_size for path in files}
    assert len(later) == 4
    assert sum(sizes.values()) - sum(sizes[path] for path in later) <= 350_000
    page = (BUILT / "index.html").read_text()
    assert not any(path.name.removesuffix(".gz") in page for path in later)


def test_what_others_wrote_comes_with_its_licences(gateway, tab):
    """Also what the makers of Plotly have put into their file."""
    texts = {}
    for library in ("plotly", "vega"):
        (path,) = BUILT.glob(f"assets/chart-{library}-*.gz")
        texts[library] = gzip.decompress(path.read_bytes()).decode()
    assert "Copyright (c) 2016-2024 Plotly Technologies Inc.\n\nPermission is" in texts["plotly"]
    assert "MapLibre GL JS" in texts["plotly"].split("Bundled license information")[-1]
    assert "University of Washington Interactive Data Lab" in texts["vega"]
    assert "Redistributions in binary form must reproduce" in texts["vega"]
    console = tab()
    console.enter()
    console.page.get_by_role("link", name="Licences").click()
    licences = console.page.inner_text("body")
    for name in ("plotly.js-strict-dist-min", "vega", "vega-lite", "delaunator", "pdfjs-dist"):
        text = re.search(rf"^{name} [0-9.]+ \(.*\)\n\n(.+)", licences, re.M)
        assert text and ("Copyright" in text[1] or "icense" in text[1]), name


def test_the_sources_have_no_type_errors(tmp_path):
    for path in (PROJECT / "src/face/console/page").iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "node_modules").symlink_to(PROJECT / "build/console-tools/node_modules")
    checker = PROJECT / "build/browser/node_modules/typescript/bin/tsc"
    command = [PROJECT / "build/console-tools/bin/node", checker, "--project", tmp_path]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# ---- Logging in


def test_a_key_is_kept_by_its_tab_alone(gateway, tab):
    console = tab()
    console.open()
    console.log_in("wrong")
    expect(console.page.get_by_role("alert")).to_contain_text("key")
    console.log_in()
    expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    kept = console.page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href]")
    assert not any(gateway.key in text for text in kept)
    assert console.page.context.cookies() == []
    console.page.reload()
    expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    other = console.page.context.new_page()
    other.goto(f"{gateway.url}/")
    expect(other.get_by_label("API key")).to_be_visible()
    console.page.get_by_role("button", name="Log out").click()
    expect(console.page.get_by_label("API key")).to_be_visible()
    assert console.page.evaluate("sessionStorage.getItem('kernelgate.key')") is None


def test_a_gateway_without_keys_asks_for_none(tab):
    gateway = Gateway("--pool-size", "0")
    try:
        console = tab(gateway.start())
        console.page.goto(gateway.url)
        expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
        assert console.page.url == f"{gateway.url}/console/"
        assert console.page.get_by_role("button", name="Log out").count() == 0
    finally:
        gateway.clean_up()


# ---- Sandboxes


def test_sandboxes_appear_and_end(gateway, tab):
    console = tab()
    console.enter()
    page = console.page
    gateway.create_session(session_id="from-elsewhere")
    row = page.get_by_role("row").filter(has_text="from-elsewhere")
    expect(row).to_contain_text("ready")
    expect(row).to_contain_text("MiB")
    stream = gateway.client.stream(
        "POST",
        "/api/v1/execute",
        json={"code": "while True: pass", "session_id": "from-elsewhere"},
    )
    with stream as response:
        expect(row).to_contain_text("busy")
        page.get_by_label("Select from-elsewhere").check()
        page.get_by_role("button", name="Interrupt").click()
        lines = [json.loads(line) for line in response.iter_lines()]
        assert lines[-1]["status"] == "interrupted"
    page.get_by_role("button", name="End").click()
    console.answer("Cancel")
    expect(row).to_have_count(1)
    page.get_by_role("button", name="End").click()
    console.answer("End sandbox")
    expect(row).to_have_count(0)
    assert gateway.client.get("/api/v1/sessions/from-elsewhere").status_code == 404


def test_two_sandboxes_are_chosen(gateway, tab):
    """What is done is done with both, and not with a third one."""

    def session(name):
        return gateway.client.get(f"/api/v1/sessions/{name}")

    def expiries():
        return {name: session(name).json()["expires_at"] for name in ("one", "two", "other")}

    for name in ("one", "two", "other"):
        gateway.create_session(session_id=name)
        gateway.execute("x = 1", session_id=name)
    console = tab()
    console.enter()
    page = console.page
    for name in ("one", "two"):
        page.get_by_label(f"Select {name}", exact=True).check()
    expect(page.get_by_role("status").filter(has_text="2 selected")).to_be_visible()
    before = expiries()
    page.get_by_role("button", name="Renew").click()
    wait_for(lambda: all(expiries()[name] > before[name] for name in ("one", "two")))
    assert expiries()["other"] == before["other"]
    with (
        page.expect_response("**/sessions/one/restart"),
        page.expect_response("**/sessions/two/restart"),
    ):
        page.get_by_role("button", name="Restart").click()
        console.answer("Restart kernels")
    for name, left in (("one", False), ("two", False), ("other", True)):
        assert gateway.execute("print('x' in globals())", session_id=name).text() == f"{left}\n"
    page.get_by_role("button", name="End").click()
    console.answer("End 2 sandboxes")
    expect(page.get_by_role("link", name="one")).to_have_count(0)
    expect(page.get_by_role("link", name="two")).to_have_count(0)
    expect(page.get_by_role("link", name="other")).to_be_visible()
    assert [session(name).status_code for name in ("one", "two", "other")] == [404, 404, 200]
    gateway.client.delete("/api/v1/sessions/other")


def test_what_runs_is_counted(gateway, tab, sandbox):
    """Where the gateway counts it: an older replica does not."""
    console = tab()
    page = console.page
    commands = Commands(gateway, sandbox)
    start(commands, terminal=True)
    for _ in range(2):
        start(commands, "sleep 1000")
    console.enter()
    row = page.get_by_role("row").filter(has_text=sandbox)
    expect(row).to_contain_text("1 terminal, 2 commands")
    page.get_by_role("link", name=sandbox).click()
    expect(page.locator(".usage")).to_contain_text("1 terminal, 2 commands")

    def leave_out(route):
        answer = route.fetch()
        body = answer.json()
        for of in body.get("sessions", {}).values():
            del of["commands"], of["terminals"]
        route.fulfill(response=answer, json=body)

    page.route("**/api/v1/sessions", leave_out)
    page.get_by_role("link", name="Sandboxes").click()
    expect(row).to_contain_text("python")
    expect(row).not_to_contain_text("command")


def fact(page, name):
    """What the page says of the gateway."""
    shown = (
        page.get_by_label("Gateway").locator("div").filter(has=page.get_by_text(name, exact=True))
    )
    return shown.locator("dd").first


def plot(page, name):
    """The last value and the range in a plot's label, and the number of its points."""
    image = page.get_by_role("img", name=name)
    label, line = image.get_attribute("aria-label"), image.locator("path").get_attribute("d")
    value, least, most = re.fullmatch(
        rf"{name}: (.+), (.+) to (.+) in the last \d+ min", label
    ).groups()
    return value, least, most, len(re.findall("[ML]", line))


def test_what_the_gateway_says_of_itself(gateway, tab):
    """Numbers, and plots of those that change."""
    console = tab()
    console.enter()
    page = console.page
    health = gateway.client.get("/api/v1/health").json()
    sessions = health["active_sessions"]
    metric = re.search(
        r"^kernelgate_max_sessions (\d+)$", gateway.client.get("/metrics").text, re.M
    )
    most = f" of {metric[1]} (max-sessions)"
    expect(fact(page, "Sandboxes of all owners")).to_have_text(f"{sessions}{most}")
    target = health["pool"]["target"]
    expect(fact(page, "Ready for new sandboxes")).to_have_text(re.compile(rf"\d of {target}"))
    expect(fact(page, "Memory")).to_contain_text("MiB")
    executions = "Executions in the last minute"
    expect(fact(page, executions)).to_have_text("0")
    expect(page.get_by_role("img")).to_have_count(0)  # nothing has changed
    body = {"code": "1", "session_id": "plotted"}
    assert gateway.client.post("/api/v1/execute_sync", json=body).status_code == 200
    expect(page.get_by_role("img")).to_have_count(2)
    assert plot(page, executions)[:3] == ("1", "0", "1")
    wait_for(
        lambda: (
            plot(page, "Sandboxes of all owners")[:3]
            == (f"{sessions + 1}{most}", str(sessions), str(sessions + 1))
        )
    )
    points = plot(page, executions)[3]
    assert points >= 2
    page.get_by_role("banner").get_by_role("link", name="Connect").click()
    expect(page.get_by_role("heading", name="Connect")).to_be_visible()
    expect(page.get_by_role("img")).to_have_count(0)
    page.get_by_role("banner").get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("img")).to_have_count(2)
    assert plot(page, executions)[3] >= points
    assert page.locator("[style]").count() == 0
    gateway.client.delete("/api/v1/sessions/plotted")


@pytest.mark.parametrize("status", [401, 404])
def test_what_the_gateway_does_not_tell_is_not_shown(tab, status):
    """A proxy may keep the metrics to itself; its 401 says nothing of the key."""
    console = tab()
    sent = []

    def refuse(route):
        sent.append(route.request.headers)
        route.fulfill(status=status, body="no")

    console.page.route("**/metrics", refuse)
    console.enter()
    for _ in range(2):
        with console.page.expect_response("**/metrics"):
            pass
    expect(fact(console.page, "Sandboxes of all owners")).to_have_text(re.compile(r"\d+"))
    expect(console.page.get_by_text("Executions in the last minute")).to_have_count(0)
    expect(console.page.get_by_text("Memory", exact=True)).to_have_count(0)
    assert len(sent) >= 2 and not any("authorization" in headers for headers in sent)
    expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()


# ---- The first view


def test_the_first_view_loads_what_it_needs(gateway, tab):
    console = tab()
    console.open()
    expect(console.page.get_by_label("API key")).to_be_visible()
    loaded = " ".join(console.requests())
    assert "/main-" in loaded
    later = ("session", "markdown", "pdf", "screen", "chart", "users", "keys", "connect")
    assert not any(f"/{name}-" in loaded for name in later)


PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# With the key from the beginning; notes when the list, or that it is empty, is drawn.
LISTED = """
sessionStorage.setItem("kernelgate.key", "KEY");
new MutationObserver((_, observer) => {
    if (!document.querySelector(".welcome, table.list")) return;
    observer.disconnect();
    requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => (window.listed = performance.now());
        channel.port2.postMessage(0);
    });
}).observe(document, {childList: true, subtree: true});
"""


@pytest.mark.load
def test_the_first_screen_is_there_soon(gateway, tab):
    """Each time in a browser without a cache. The best of ten, since other work delays most of them."""
    times = {"a plain text": [], "the first screen": [], "the list of sandboxes": []}
    for _ in range(10):
        page = tab().page
        page.goto(f"{gateway.url}/healthz")
        times["a plain text"].append(wait_for(lambda page=page: page.evaluate(PAINT)))
        page.close()
        page = tab().page
        page.add_init_script(LISTED.replace("KEY", gateway.key))
        page.goto(f"{gateway.url}/console/")
        times["the list of sandboxes"].append(
            wait_for(lambda page=page: page.evaluate("window.listed"))
        )
        times["the first screen"].append(wait_for(lambda page=page: page.evaluate(PAINT)))
        page.close()
    for name, of in times.items():
        print(f"{name}: median {statistics.median(of):.0f} ms, best {min(of):.0f} ms")
    plain, screen, listed = map(min, times.values())
    assert screen <= max(200, 6 * plain) and listed <= max(400, 10 * plain)


def test_the_bar_is_there_without_scripts(gateway, tab):
    """The first screen; the page's code puts the view in its place."""
    console = tab(java_script_enabled=False)
    console.open()
    expect(console.page.get_by_role("banner")).to_have_text("kernelgate")


def test_the_theme(gateway, tab):
    """It is right before the page's code runs, and a person's choice stays."""
    console = tab(color_scheme="dark")
    page = console.page
    theme = "document.documentElement.dataset.theme"
    page.route("**/main-*.js", lambda route: route.abort())
    console.open()
    expect(page.get_by_role("banner")).to_be_visible()
    assert page.evaluate(theme) == "dark"
    page.unroute("**/main-*.js")
    console.enter()
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(theme) == "light"
    page.get_by_role("button", name="Dark").click()
    page.get_by_role("button", name="Light").click()
    page.reload()
    expect(page.get_by_role("button", name="Dark")).to_be_visible()
    assert page.evaluate(theme) == "light"


def test_what_was_asked_early_is_not_shown_to_another(tab, tmp_path):
    """The list that was asked for while the page loaded is of the key that the tab had then."""
    keys = tmp_path / "keys"
    keys.write_text("a:key-of-a\nb:key-of-b\n")
    gateway = Gateway("--pool-size", "0", "--api-keys-file", str(keys), key="key-of-a")
    try:
        gateway.start()
        gateway.create_session(session_id="of-a")
        console = tab(gateway)
        page = console.page
        console.enter()
        expect(page.get_by_role("link", name="of-a")).to_be_visible()
        page.route("**/api/v1/kernelspecs", lambda route: route.fulfill(status=401, body="{}"))
        with page.expect_response("**/api/v1/sessions"):
            page.reload()
        page.unroute("**/api/v1/kernelspecs")
        console.log_in("key-of-b")
        expect(page.get_by_text("You have no sandboxes.")).to_be_visible()
        expect(page.get_by_text("of-a")).to_have_count(0)
    finally:
        gateway.clean_up()


def test_a_key_that_is_revoked_leads_to_the_form(tab, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a:key-of-a\nb:key-of-b\n")
    gateway = Gateway("--pool-size", "0", "--api-keys-file", str(keys), key="key-of-a")
    try:
        console = tab(gateway.start())
        console.enter()
        keys.write_text("b:key-of-b\n")
        expect(console.page.get_by_label("API key")).to_be_visible()
        expect(console.page.get_by_role("alert")).to_contain_text("no longer")
    finally:
        gateway.clean_up()


# ---- Files, packages, commands, connect


def test_files(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox, "files")
    page = console.page
    table = {"name": "a.csv", "mimeType": "text/csv", "buffer": b'city,n\n"Oslo, NO",1\n'}
    page.get_by_label("Upload files").set_input_files([table])
    page.get_by_role("button", name="Preview a.csv").click()
    expect(page.get_by_role("cell", name="Oslo, NO")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="a.csv", exact=True).click()
    assert download.value.suggested_filename == "a.csv"
    with open(download.value.path(), "rb") as file:
        assert file.read() == table["buffer"]
    page.evaluate(DROP, [page.locator(".files").element_handle(), "dropped.txt", "by a drop"])
    page.get_by_role("button", name="Preview dropped.txt").click()
    expect(page.locator(".preview")).to_contain_text("by a drop")
    page.get_by_role("button", name="Delete dropped.txt").click()
    console.answer("Delete file")
    expect(page.get_by_role("row").filter(has_text="dropped.txt")).to_have_count(0)
    listing = gateway.client.get(f"/api/v1/sessions/{sandbox}/files").json()["files"]
    assert [entry["path"] for entry in listing] == ["a.csv"]


def test_packages(tab, sandbox):
    console = tab()
    console.enter(sandbox, "packages")
    page = console.page
    expect(page.get_by_role("row").filter(has_text="pandas")).to_have_count(1)
    page.get_by_label("Packages to install").fill("humanize==4.11.0")
    page.keyboard.press("Enter")
    expect(page.locator(".packages .outputs")).to_contain_text("Successfully installed humanize")
    expect(page.get_by_role("row").filter(has_text="humanize")).to_contain_text("4.11.0")
    page.get_by_label("Packages to install").fill("https://example.org/x.whl")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("example.org")


def test_commands(tab, sandbox):
    console = tab()
    console.enter(sandbox, "commands")
    page = console.page
    page.get_by_label("Command", exact=True).fill("echo out; echo err >&2; exit 3")
    page.keyboard.press("Enter")
    expect(console.cells.last.locator(".text.stdout")).to_have_text("out\n")
    expect(console.cells.last.locator(".text.stderr")).to_have_text("err\n")
    expect(console.cells.last.locator(".status")).to_contain_text("exit code 3")
    page.get_by_label("Command", exact=True).fill("echo begun; sleep 1000")
    page.keyboard.press("Enter")
    expect(console.cells.last.locator(".text.stdout")).to_have_text("begun\n")
    console.cells.last.get_by_role("button", name="Stop").click()
    expect(console.cells.last.locator(".status")).to_contain_text("SIGTERM")


def read_copied(page, expected):
    text = page.evaluate("navigator.clipboard.readText()")
    return text if expected in text else None


def check_terminal(program):
    """The program in a terminal of 100 columns: what is typed goes to the sandbox's shell."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    termios.tcsetwinsize(fd, (30, 100))
    shown = b""

    def until(text):
        nonlocal shown
        while text not in shown:
            assert select.select([fd], [], [], 60)[0], shown
            shown += os.read(fd, 65536)

    try:
        until(b"$ ")
        os.write(fd, b"echo $((6*7)) $(stty size)\r")
        until(b"42 30 100")
        os.write(fd, b"exit\r")
        until(b"exit\r\n")
    finally:
        with contextlib.suppress(OSError):
            while os.read(fd, 65536):
                pass
        os.close(fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown


def test_the_snippets_work(gateway, tab):
    console = tab(permissions=["clipboard-read", "clipboard-write"])
    console.enter()
    page = console.page
    page.get_by_role("banner").get_by_role("link", name="Connect").click()
    assert gateway.key not in page.inner_text("main")
    with_clients = PROJECT / "build/venv/bin/python"
    for name, program in (
        ("curl", ["bash"]),
        ("Python", [shutil.which("python3"), "-"]),
        ("Code that calls your functions: Python", [shutil.which("python3"), "-"]),
        ("E2B: Python, with pip install e2b-code-interpreter", [with_clients, "-"]),
    ):
        page.get_by_role("button", name=f"Copy {name}").click()
        expect(page.get_by_text("Copied").first).to_be_visible()
        text = page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run(program, input=text, capture_output=True, text=True)
        assert "42" in done.stdout and done.returncode == 0, done
    page.get_by_role("button", name="Copy Background commands: curl").click()
    text = wait_for(lambda: read_copied(page, "/commands"))
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=60)
    assert "got 42" in done.stdout and '"type":"done"' in done.stdout, done
    page.get_by_role("button", name="Copy Terminal: Python").click()
    check_terminal(wait_for(lambda: read_copied(page, "/terminal")))
    gateway.client.delete("/api/v1/sessions/demo")
    page.get_by_role("button", name="Show the key").click()
    expect(page.locator("main")).to_contain_text(gateway.key)
    lab = page.get_by_label("JupyterLab", exact=True)
    assert lab.inner_text() == lab_command(gateway.url, gateway.key)


# ---- A hostile notebook


def test_no_text_becomes_html(gateway, tab):
    """Not even one of the page's own code."""
    console = tab()
    console.enter()
    attempt = "try { document.body.innerHTML = '<b>x</b>' } catch (error) { error.name }"
    assert console.page.evaluate(attempt) == "TypeError"
    assert console.page.get_by_role("banner").count() == 1
    assert len(console.faults) == 1 and "TrustedHTML" in console.faults.pop()


ATTACK = "window.pwned=1;document.title='pwned';top.location='/healthz?pwned'"
MARKUP = f"""
<script>{ATTACK}</script><img src=x onerror="{ATTACK}"><svg onload="{ATTACK}"></svg>
<img src="https://evil.example/pixel.png"><link rel=stylesheet href="https://evil.example/a.css">
<iframe src="javascript:{ATTACK}"></iframe><iframe srcdoc="<script>{ATTACK}</script>"></iframe>
<object data="/console/"></object><embed src="/console/"><base href="https://evil.example/">
<meta http-equiv=refresh content="0;url=https://evil.example/">
<style>@import "https://evil.example/b.css"; body {{ background: url(https://evil.example/c) }}</style>
<form id=form action="/api/v1/sessions" method=post><button id=submit>go</button></form>
<a id=script href="javascript:{ATTACK}" target=_self>link</a>
<a id=top href="/healthz?pwned" target=_top>link</a>
<a id=parent href="/healthz?pwned" target=_parent>link</a>
<svg width=90 height=20><a id=svg href="/healthz?tab"><text y=15>link</text></a>
<a id=xlink xlink:href="/healthz?tab"><text y=15>link</text></a>
<a id=animated href="/healthz?tab"><set attributeName=href to="/healthz?pwned" />
<set attributeName=target to=_self /><animate attributeName="xlink:href" values="/healthz?pwned" />
<text y=15>link</text></a></svg>
<map name=map><area id=area href="/healthz?tab" target="" coords=0,0,9,9></map>
<p id=end>end of it</p>
"""
SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>{ATTACK}</script></svg>'
)
# The same as text, as a name, as an exception, and in sequences for terminals.
NOTEBOOK = f"""
from IPython.display import HTML, JSON, Latex, Markdown, SVG, display
markup = {MARKUP!r}
display(HTML(markup))
display(Markdown(markup + '\\n\\n[link](javascript:{ATTACK.replace("'", "")})\\n\\n$\\\\href{{javascript:x}}{{a}}$'))
display(Latex('$\\\\href{{javascript:x}}{{a}}$ ' + markup))
display(SVG({SVG!r}))
display(JSON({{markup: [markup]}}))
print(markup)
print('\\x1b]8;;javascript:alert(1)\\x07link\\x1b]8;;\\x07 \\x1b]0;pwned\\x07 \\x1b[31' + 'm' + markup)
name = '<img src=x onerror=window.pwned=1>.html'
open(name, 'w').write(markup)
open('pwned.svg', 'w').write({SVG!r})
raise type('<b>E</b>', (Exception,), {{}})(markup)
"""

CLICK = (
    "element => element.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
)

# What a script in the frame could try, if there were a way to run one.
TRIES = """async () => {
    const results = {};
    const attempt = async (name, call) => {
        try { results[name] = String(await call()); } catch (error) { results[name] = error.name; }
    };
    await attempt("document", () => parent.document.title);
    await attempt("storage", () => sessionStorage.length);
    await attempt("cookie", () => document.cookie);
    await attempt("request", () => fetch("/api/v1/sessions"));
    await attempt("navigation", () => { top.location.href = "/healthz?pwned"; return "moved"; });
    await attempt("origin", () => origin);
    return results;
}"""


def test_a_hostile_notebook(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    page = console.page
    here = page.url
    page.on("dialog", lambda dialog: console.faults.append(f"dialog: {dialog.message}"))
    cell = console.run(NOTEBOOK)
    console.until_done(cell)
    frames = cell.locator("iframe")
    expect(frames).to_have_count(3)
    expect(frames.nth(0).content_frame.locator("#end")).to_be_visible()
    expect(frames.nth(1).content_frame.locator("#end")).to_be_visible()
    expect(cell.locator("img")).to_be_visible()
    shown = frames.nth(0).content_frame
    for link in ("#script", "#top", "#parent", "#submit"):
        shown.locator(link).evaluate(CLICK)
    for link in ("#svg", "#xlink", "#animated", "#area"):
        with page.context.expect_page() as opened:
            shown.locator(link).evaluate(CLICK)
        expect(opened.value).to_have_url(re.compile(r"/healthz\?tab$"))
        opened.value.close()
    inner = [frame for frame in page.frames if frame != page.main_frame]
    framed = [frame for frame in inner if frame.url.endswith("/console/frame.html")]
    assert len(framed) == 3
    for frame in framed:
        tried = frame.evaluate(TRIES)
        assert tried["document"] == tried["storage"] == tried["cookie"] == "SecurityError"
        assert tried["request"] == "TypeError"
        assert tried["navigation"] == "SecurityError"
        assert tried["origin"] == "null"
    for frame in [page.main_frame, *framed]:
        assert frame.evaluate("window.pwned") is None, frame.url
    assert page.title() == "kernelgate"
    assert page.url.split("#")[0] == here.split("#")[0]
    assert len(page.context.pages) == 1
    assert not any("pwned" in url and "/files/" not in url for url in console.requests())
    assert [url for url in console.requests() if "evil.example" in url] == []
    # The frames' policy refuses what the notebook tried, and says so.
    refusals = ("Content Security Policy", "sandbox", "Blocked", "Unsafe attempt", "Refused")
    assert console.faults and all(any(w in fault for w in refusals) for fault in console.faults)
    console.faults.clear()
    assert gateway.client.get(f"/api/v1/sessions/{sandbox}").status_code == 200


def test_hostile_files_are_only_shown(gateway, tab, sandbox):
    put(gateway, sandbox, "%3Cimg src=x onerror=window.pwned=1%3E.html", MARKUP.encode())
    put(gateway, sandbox, "a.svg", SVG.encode())
    console = tab()
    console.enter(sandbox, "files")
    page = console.page
    page.get_by_role("button", name="Preview <img").click()
    expect(page.locator(".preview")).to_contain_text("end of it")
    page.get_by_role("button", name="Preview a.svg").click()
    expect(page.locator(".preview img")).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.title() == "kernelgate"


def test_files_that_an_execution_wrote_open_without_the_origin(gateway, tab, sandbox):
    console = tab()
    console.enter(sandbox)
    for name, content in (("a.html", MARKUP), ("a.svg", SVG)):
        path = f"/api/v1/sessions/{sandbox}/files/{name}"
        link = gateway.client.put(path, content=content.encode()).json()["url"]
        page = console.page.context.new_page()
        page.goto(gateway.url + link)
        assert page.evaluate("[window.pwned, origin]") == [None, "null"]
        page.close()


# ---- For everybody


def test_the_keyboard_is_enough(gateway, tab):
    console = tab()
    console.open()
    keyboard = console.page.keyboard
    expect(console.page.get_by_label("API key")).to_be_focused()
    keyboard.type(gateway.key)
    keyboard.press("Enter")
    expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()

    def tab_to(locator):
        for _ in range(40):
            keyboard.press("Tab")
            if locator.evaluate("element => element.matches(':focus')"):
                return
        raise AssertionError(f"no Tab leads to {locator}")

    tab_to(console.page.get_by_label("Name of the new sandbox"))
    keyboard.type("by-keys")
    keyboard.press("Enter")
    editor = console.page.get_by_label("Code. Shift and Enter")
    expect(editor).to_be_focused()
    keyboard.type("6 * 7")
    keyboard.press("Shift+Enter")
    expect(console.cells.last.locator(".text")).to_have_text("42")
    keyboard.press("Escape")
    tab_to(console.page.get_by_label("Kernel"))
    gateway.client.delete("/api/v1/sessions/by-keys")


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESK = {"viewport": {"width": 1280, "height": 860}}
EXAMPLE = """import pandas as pd
cities = pd.DataFrame({
    "city": ["Lima", "Oslo", "Pune"],
    "rain": [6.4, 763.2, 722.0],  # mm a year
})
cities"""
FIGURE = """import matplotlib.pyplot as plt
plt.figure(figsize=(6, 2.4))
plt.bar(cities["city"], cities["rain"], color="#1f6f5c");"""


@pytest.mark.parametrize(
    "name, options",
    [
        ("light", {**DESK, "color_scheme": "light"}),
        ("dark", {**DESK, "color_scheme": "dark"}),
        ("phone", {**PHONE, "color_scheme": "light"}),
        ("phone-dark", {**PHONE, "color_scheme": "dark"}),
    ],
)
def test_every_view_is_accessible(gateway, tab, sandbox, name, options):
    console = tab(**options)
    page = console.page

    def look(view):
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, view
        assert console.findings() == [], view
        console.shoot(f"{view}-{name}")

    console.open(f"#/sandboxes/{sandbox}")
    expect(page.get_by_label("API key")).to_be_visible()
    look("login-by-key")
    console.log_in()
    cell = console.run(EXAMPLE)
    expect(cell.frame_locator("iframe").locator("td").first).to_be_visible()
    cell = console.run(FIGURE)
    expect(cell.locator("img")).to_be_visible()
    console.until_done(cell)
    cell = console.run(
        "print('\\x1b[32mgood\\x1b[0m', '\\x1b[31mbad\\x1b[0m')\nopen('cities.csv', 'w')\n1 / 0"
    )
    expect(cell.get_by_role("alert")).to_be_visible()
    console.until_done(cell)
    look("console")
    put(gateway, sandbox, "cities.csv", b"city,rain\nLima,6.4\nOslo,763.2\n")
    console.go_to("Files")
    page.get_by_role("button", name="Preview cities.csv").click()
    expect(page.get_by_role("cell", name="Oslo")).to_be_visible()
    look("files")
    put(gateway, sandbox, "hello.pdf", pdf_file(TEXT))
    show_pdf(console, "hello.pdf")
    look("pdf")
    page.get_by_role("link", name="Terminal").click()
    page.get_by_role("button", name="New terminal").click()
    expect(page.locator(".xterm-rows")).to_contain_text("$ ")
    page.keyboard.type("ls -l\n")
    expect(page.locator(".xterm-rows")).to_contain_text("cities.csv")
    look("terminal")
    page.get_by_role("link", name="Packages").click()
    expect(page.get_by_role("row").filter(has_text="pandas")).to_have_count(1)
    look("packages")
    page.get_by_role("link", name="Commands").click()
    page.get_by_label("Command", exact=True).fill("head -2 cities.csv; exit 1")
    page.keyboard.press("Enter")
    expect(console.cells.last.locator(".status")).to_contain_text("exit code 1")
    look("commands")
    start(Commands(gateway, sandbox), "exec python -m http.server 8000 --bind 127.0.0.1")
    page.get_by_role("link", name="Ports").click()
    expect(page.get_by_role("button", name="Open port 8000")).to_be_visible()
    look("ports")
    page.get_by_role("link", name="Sandboxes").click()
    expect(page.get_by_role("row").filter(has_text=sandbox)).to_have_count(1)
    page.get_by_label(f"Select {sandbox}").check()
    expect(page.get_by_text("(max-sessions)")).to_be_visible()
    look("sandboxes")
    page.get_by_role("link", name="Connect").click()
    expect(page.get_by_role("heading", name="Connect")).to_be_visible()
    look("connect")


def test_folders_are_opened_and_closed(gateway, tab, sandbox):
    for path in "a/b/deep.txt", "a/near.txt", "ab.txt":
        put(gateway, sandbox, path, b"x")
    console = tab()
    console.enter(sandbox, "files")
    page = console.page
    shown = page.locator("tbody th")
    expect(shown).to_have_text(["a/", "a/b/", "a/b/deep.txt", "a/near.txt", "ab.txt"])
    page.get_by_role("button", name="a/b/", exact=True).click()
    expect(shown).to_have_text(["a/", "a/b/", "a/near.txt", "ab.txt"])
    folder = page.get_by_role("button", name="a/", exact=True)
    folder.focus()
    page.keyboard.press("Enter")
    expect(folder).to_have_attribute("aria-expanded", "false")
    expect(shown).to_have_text(["a/", "ab.txt"])
    assert console.findings() == []
    page.keyboard.press("Enter")
    expect(shown).to_have_text(["a/", "a/b/", "a/near.txt", "ab.txt"])  # as it was left


# ---- PDF

RED = "1 0 0 rg 0 0 200 100 re f"
TEXT = "BT /F 24 Tf 20 40 Td (Hello) Tj ET"
# The share of a canvas' points that are neither white nor transparent, in thousandths.
INKED = """canvas => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let inked = 0;
    for (let i = 0; i < data.length; i += 4)
        inked += data[i + 3] > 0 && data[i] + data[i + 1] + data[i + 2] < 700;
    return Math.round(4000 * inked / data.length);
}"""


def show_pdf(console, name):
    """Returns the pages, when all are drawn."""
    page = console.page
    if page.locator(".preview").count():  # of another file
        page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name=f"Preview {name}").click()
    pages = page.locator(".preview canvas")
    expect(pages.first).to_be_visible()
    wait_for(lambda: all(pages.nth(i).evaluate(INKED) for i in range(pages.count())), 60)
    return pages


def test_a_pdf_file_is_shown(gateway, tab, sandbox):
    put(gateway, sandbox, "two.pdf", pdf_file(RED, TEXT))
    put(gateway, sandbox, "many.pdf", pdf_file(*[RED] * 25))
    put(gateway, sandbox, "broken.pdf", b"%PDF-1.7\nnothing")
    code = """
import matplotlib.pyplot as plt
plt.plot([1, 3, 2]); plt.title("a figure"); plt.savefig("figure.pdf")
"""
    assert gateway.execute(code, session_id=sandbox).status == "ok"
    console = tab(viewport={"width": 1280, "height": 800})
    console.enter(sandbox, "files")
    assert not any("/pdf-" in url for url in console.requests())  # not before it is needed
    pages = show_pdf(console, "two.pdf")
    assert pages.count() == 2 and pages.nth(0).evaluate(INKED) == 1000
    assert 1 <= pages.nth(1).evaluate(INKED) < 300
    expect(console.page.get_by_role("img", name="two.pdf, page 2 of 2")).to_be_visible()
    assert console.findings() == []
    assert show_pdf(console, "figure.pdf").nth(0).evaluate(INKED) > 3
    assert show_pdf(console, "many.pdf").count() == 20
    expect(console.page.get_by_text("The first 20 of 25 pages are shown.")).to_be_visible()
    console.page.get_by_role("button", name="Preview broken.pdf").click()
    expect(console.page.get_by_text("This file cannot be shown")).to_be_visible()
    console.page.get_by_role("button", name="Close").click()
    assert console.findings() == []


def test_a_hostile_pdf_file_does_nothing(gateway, tab, sandbox):
    """Neither its scripts, nor its links and forms; and it learns nothing of its reader."""
    script = "app.alert(1); app.launchURL('http://evil.example/', true); this.submitForm('http://evil.example/')"
    action = (
        f"<</S /JavaScript /JS ({script.replace('(', chr(92) + '(').replace(')', chr(92) + ')')})>>"
    )
    link = "<</S /URI /URI (http://evil.example/)>>"
    put(gateway, sandbox, "hostile.pdf", pdf_file(
        RED,
        catalog=f"/OpenAction {action} /AA <</WC {action}>>",
        annotations=f"<</Type /Annot /Subtype /Link /Rect [0 0 200 100] /A {link} /AA <</PO {action}>>>>",
    ))  # fmt: skip
    put(gateway, sandbox, "page.pdf", b"<script>alert(document.cookie)</script>")
    console = tab()
    page = console.page
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    console.enter(sandbox, "files")
    show_pdf(console, "hostile.pdf").nth(0).click()
    page.get_by_role("button", name="Preview page.pdf").click()
    expect(page.get_by_text("This file cannot be shown")).to_be_visible()
    assert dialogs == [] and page.url.startswith(gateway.url) and len(page.context.pages) == 1
    assert page.locator(".preview").get_by_role("link").count() == 0
