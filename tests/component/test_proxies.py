# SPDX-License-Identifier: Apache-2.0
"""deploy/caddy and deploy/traefik: what a proxy must do, in front of a gateway with a key and a name."""

import contextlib
import json
import socket
import threading

import component
import httpx
import pytest
import websockets.sync.client
from component import HELD
from kernelgate import Gateway, LineReader, problem, wait_for
from port_servers import header, serving
from proxies import NAME, PORTS_DOMAIN, Caddy, Traefik
from sandboxes import sandbox_of
from terminal_wire import Screen
from web import Web

KEY = "correct-horse-battery"


@pytest.fixture(scope="module")
def gateway():
    flags = (*component.FLAGS, "--allowed-hosts", NAME, "--ports-domain", PORTS_DOMAIN)
    running = Gateway(*flags, env={"API_KEY": KEY}, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module", params=[Caddy, Traefik], ids=["caddy", "traefik"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def proxy(kind, gateway):
    running = kind(gateway.url.removeprefix("http://"))
    try:
        yield running.start()
    finally:
        running.stop()


@contextlib.contextmanager
def in_front_of(kind, backend):
    running = kind(backend)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def client(request, proxy):
    with proxy.client(KEY, http2=request.param) as client:
        yield client


def test_the_first_line_comes_while_the_cell_runs(client, session):
    """The cell continues when the client, which has seen the first line, says so."""
    body = {"code": HELD, "session_id": session}
    with client.stream("POST", "/api/v1/execute", json=body) as response:
        assert response.status_code == 200, response.read()
        reader = LineReader(response)
        assert reader.next()["text"] == "on\n"
        go = client.put(f"/api/v1/sessions/{session}/files/go", content=b"")
        assert go.status_code == 201, go.text
        assert reader.rest().status == "ok"


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_the_code_of_a_client_that_leaves_is_interrupted(proxy, gateway, session, http2):
    body = {"code": HELD, "session_id": session}
    with proxy.client(
        KEY, http2=http2
    ) as client:  # httpx tells nobody that it leaves a stream of HTTP/2
        with client.stream("POST", "/api/v1/execute", json=body) as response:
            assert LineReader(response).next()["text"] == "on\n"
    path = f"/api/v1/sessions/{session}"
    wait_for(lambda: not gateway.client.get(path).json()["is_busy"])
    executions = gateway.client.get(f"{path}/executions").json()["executions"]
    assert executions[0]["status"] == "interrupted"


def test_a_body_is_passed_on_as_it_comes(kind):
    """As E2B's clients send input to a command, which has no end that a proxy could wait for."""
    begun = threading.Event()

    def read(handler):
        begun.set()
        while handler.rfile.readline() != b"0\r\n":  # the last chunk
            pass
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def parts():
        yield b"a"
        assert begun.wait(60)
        yield b"b"

    web = Web({"/process.Process/StreamInput": read})
    try:
        web.server.RequestHandlerClass.do_POST = web.server.RequestHandlerClass.do_GET
        with (
            in_front_of(kind, web.url.removeprefix("http://")) as proxy,
            proxy.client(KEY) as client,
        ):
            response = client.post("/process.Process/StreamInput", content=parts())
            assert response.status_code == 200
    finally:
        web.close()


def test_the_gateway_learns_who_asks_and_nobody_can_pretend(kind):
    def echo(handler):
        body = json.dumps({name.lower(): value for name, value in handler.headers.items()}).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    pretended = {
        "X-Forwarded-For": "10.1.2.3", "X-Real-IP": "10.1.2.3", "X-Forwarded-Proto": "gopher",
        "X-Forwarded-Host": "other.example", "Forwarded": "for=10.1.2.3",
    }  # fmt: skip
    web = Web({"/echo": echo})
    try:
        with (
            in_front_of(kind, web.url.removeprefix("http://")) as proxy,
            proxy.client(KEY) as client,
        ):
            got = client.get("/echo", headers=pretended).json()
    finally:
        web.close()
    assert got["host"] == NAME
    assert got["x-forwarded-for"] == got["x-real-ip"] == "127.0.0.1"
    assert got["x-forwarded-proto"] == "https"
    assert "forwarded" not in got and got.get("x-forwarded-host") in (None, NAME)
    assert got["authorization"] == f"Bearer {KEY}"


def test_a_key_is_asked_for(client):
    problem(client.get("/api/v1/sessions", headers={"Authorization": ""}), 401, "unauthorized")
    response = client.get("/api/v1/sessions")
    assert response.status_code == 200
    assert response.headers["strict-transport-security"] == "max-age=31536000"


def test_names_of_files_arrive_as_they_are(client, session):
    for name in ("a%23b%3Fc%25d%3Be.txt", "%E6%97%A5%E6%9C%AC%20x.txt", "a%5Cb.txt"):
        url = f"/api/v1/sessions/{session}/files/{name}"
        assert client.put(url, content=name.encode()).status_code == 201
        assert client.get(url).content == name.encode()


def test_a_terminal(proxy, session):
    url = f"wss://{NAME}:{proxy.tls_port}/api/v1/sessions/{session}/terminal"
    connection = socket.create_connection(("127.0.0.1", proxy.tls_port))
    options = {"ssl": proxy.trust(), "additional_headers": {"Authorization": f"Bearer {KEY}"}}
    with websockets.sync.client.connect(url, sock=connection, **options) as opened:
        screen = Screen(opened)
        screen.until_told("command_id")
        screen.type("echo 6$((6))6\n")
        screen.until(b"666")


def test_ports(proxy, gateway, session):
    with (
        proxy.client(KEY) as client,
        serving(sandbox_of(gateway, session).agent, echo_head) as server,
    ):
        link = client.post(f"/api/v1/sessions/{session}/ports/{server.port}").json()
        url = httpx.URL(link["url"])
        assert url.scheme == "https" and url.host.endswith(f".{PORTS_DOMAIN}")
        with proxy.client(None, name=url.host) as visitor:
            problem(visitor.get("/"), 403, "port_private")
            entered = visitor.get(url.raw_path.decode())
            cookie = entered.headers["set-cookie"].split(";")[0]
            assert entered.is_redirect and cookie.startswith("__Host-")
            answer = visitor.get("/metrics", headers={"Cookie": cookie})
        assert answer.text.startswith("GET /metrics HTTP/1.1\r\n"), answer.text
        assert header(answer.text, "X-Forwarded-Proto") == ["https"]
        assert not header(answer.text, "X-Forwarded-For") and not header(answer.text, "X-Real-IP")


def echo_head(connection, head, rest):
    answer = head.encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


def test_metrics_are_for_the_machine_itself(client):
    assert client.get("/metrics").status_code in (403, 404)
    assert client.get("/readyz").status_code == 200


def test_nothing_is_served_in_the_clear(proxy):
    with proxy.client(KEY, scheme="http") as client:
        response = client.post("/mcp?profile=x")
        assert response.status_code == 308
        assert response.headers["location"].startswith("https://")


def test_a_gateway_that_is_away(kind):
    with in_front_of(kind, "127.0.0.1:1") as proxy, proxy.client(KEY) as client:
        response = client.get("/api/v1/sessions")
        if kind is Caddy:
            problem(response, 503, "provisioner_unavailable")
            assert response.headers["retry-after"] == "2"
        else:
            assert response.status_code == 502


def test_no_key_is_logged(kind):
    with (
        in_front_of(kind, "127.0.0.1:1") as proxy,
        proxy.client(KEY, name=f"80-a.{PORTS_DOMAIN}") as client,
    ):
        response = client.get("/a?api_key=secret-in-query", headers={"X-API-Key": "secret-in-head"})
        assert response.status_code == 502
        if (
            kind is Caddy
        ):  # which is asked to log all that it can; Traefik logs nothing about requests
            wait_for(lambda: '"uri":"/a"' in proxy.log())
        assert "secret-in" not in proxy.log() and KEY not in proxy.log()
