# SPDX-License-Identifier: Apache-2.0
"""deploy/nginx without containers: Debian's nginx in front of a gateway with a key and a name."""

import concurrent.futures
import contextlib
import http.client
import json
import re
import socket
import threading

import component
import httpx
import pytest
from component import HELD
from kernelgate import Gateway, LineReader, problem, wait_for
from nginx import Nginx
from port_servers import Port, header, serving
from sandboxes import sandbox_of
from web import Web

KEY = "correct-horse-battery"
NAME = "kernelgate.example"


class Echo:
    """A backend that responds with the headers that it got, or delays its response."""

    def __init__(self):
        self.held, self.release = 0, threading.Event()
        self._lock = threading.Lock()
        self.web = Web({"/echo": self.echo, "/hold": self.hold})

    def echo(self, handler):
        body = json.dumps({name.lower(): value for name, value in handler.headers.items()})
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    def hold(self, handler):
        with self._lock:
            self.held += 1
        self.release.wait(600)
        self.echo(handler)

    def close(self):
        self.release.set()
        self.web.close()


@pytest.fixture(scope="module")
def gateway():
    flags = (*component.FLAGS, "--allowed-hosts", NAME, "--ports-domain", f"ports.{NAME}")
    running = Gateway(*flags, env={"API_KEY": KEY}, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def echo():
    running = Echo()
    yield running
    running.close()


@pytest.fixture(scope="module")
def backends(gateway, echo):
    """The gateway, the echo backend, and one that does not listen."""
    gateway_address, echo_address = gateway.url[len("http://") :], echo.web.url[len("http://") :]
    return f"""map $uri $kernelgate_backend {{
        default           {gateway_address};
        ~^/(echo|hold)$   {echo_address};
        ~^/away           127.0.0.1:1;
    }}"""


@pytest.fixture(scope="module")
def plain(backends):
    running = Nginx("kernelgate.conf", backends, NAME, KEY)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(scope="module")
def tls(backends):
    running = Nginx("kernelgate-tls.conf", backends, NAME, KEY)
    running.make_certificate()
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(params=["http", "https"])
def client(request):
    """A client of each nginx, with its scheme."""
    nginx = request.getfixturevalue("plain" if request.param == "http" else "tls")
    with nginx.client(scheme=request.param) as client:
        yield client


def raw(nginx, data):
    """Sends bytes that no library would send; returns the response."""
    with socket.create_connection(("127.0.0.1", nginx.port), 60) as connection:
        connection.sendall(data)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())


# ---- What passes


def test_the_first_line_comes_while_the_cell_runs(client):
    """The cell continues when the client, which has seen the first line, says so."""
    body = {"code": HELD, "session_id": f"s-{client.base_url.scheme}"}
    with client.stream("POST", "/api/v1/execute", json=body) as response:
        assert response.status_code == 200, response.read()
        reader = LineReader(response)
        assert reader.next()["text"] == "on\n"
        go = client.put(f"/api/v1/sessions/{body['session_id']}/files/go", content=b"")
        assert go.status_code == 201, go.text
        assert reader.rest().status == "ok"


def test_the_gateway_learns_who_asks_and_nobody_can_pretend(client):
    pretended = {
        "X-Forwarded-For": "10.1.2.3", "X-Real-IP": "10.1.2.3", "X-Forwarded-Proto": "gopher",
        "X-Forwarded-Host": "other.example", "Forwarded": "for=10.1.2.3",
    }  # fmt: skip
    got = client.get("/echo", headers=pretended).json()
    assert got["host"] == NAME
    assert got["x-forwarded-for"] == got["x-real-ip"] == "127.0.0.1"
    assert got["x-forwarded-proto"] == client.base_url.scheme
    assert "x-forwarded-host" not in got and "forwarded" not in got
    assert got["authorization"] == f"Bearer {KEY}"
    assert "upgrade" not in got and "connection" not in got


def test_an_upgrade_to_websocket_is_passed_on_and_no_other(client):
    upgrade = {"Connection": "Upgrade", "Sec-WebSocket-Key": "k"}
    got = client.get("/echo", headers={**upgrade, "Upgrade": "WebSocket"}).json()
    assert got["upgrade"] == "websocket" and got["connection"] == "upgrade"
    assert got["sec-websocket-key"] == "k"
    got = client.get("/echo", headers={**upgrade, "Upgrade": "h2c"}).json()
    assert "upgrade" not in got and "connection" not in got


def test_ports(client, gateway, plain, tls):
    """Hosts of ports have no limit of requests, and nothing of the gateway's paths."""

    def echo(connection, head, rest):
        answer = head.encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /metrics\r\n")
        connection.sendall(b"Content-Length: %d\r\n\r\n" % len(answer) + answer)

    scheme = client.base_url.scheme
    url = f"{scheme}://127.0.0.1:{plain.port if scheme == 'http' else tls.tls_port}"
    session = gateway.create_session(client=client)
    with serving(sandbox_of(gateway, session).agent, echo) as server:
        port = Port(gateway, session, server.port, client=client, url=url)
        assert port.link()["url"].startswith(f"{scheme}://{server.port}-")
        problem(port.send(), 403, "port_private")
        port.open()
        assert port.cookie.startswith("__Host-" if scheme == "https" else "kernelgate_")
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            paths = ["/metrics", "/healthz", *(f"/{i}" for i in range(120))]
            for path, answer in zip(paths, pool.map(lambda it: port.send(path=it), paths)):
                assert answer.text.startswith(f"GET {path} HTTP/1.1\r\n"), answer.text
        assert header(answer.text, "X-Forwarded-Proto") == [scheme]
        assert not header(answer.text, "X-Forwarded-For") and not header(answer.text, "X-Real-IP")
    client.delete(f"/api/v1/sessions/{session}").raise_for_status()


def test_a_key_is_asked_for(client):
    problem(client.get("/api/v1/sessions", headers={"Authorization": ""}), 401, "unauthorized")
    assert client.get("/api/v1/sessions").status_code == 200


def test_a_name_that_the_gateway_does_not_know(plain):
    response = raw(
        plain, b"GET /readyz HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n"
    )
    problem(response, 403, "forbidden_host")


# ---- TLS


def test_nothing_is_served_in_the_clear(tls):
    with tls.client() as client:
        for method in ("GET", "POST", "DELETE"):
            response = client.request(method, "/mcp?profile=x")
            assert response.status_code == 308
            assert response.headers["location"] == f"https://{NAME}/mcp?profile=x"
        challenges = tls.root / "var/www/html/.well-known/acme-challenge"
        challenges.mkdir(parents=True)
        (challenges / "token").write_text("proof")
        assert client.get("/.well-known/acme-challenge/token").text == "proof"


def test_http2(tls):
    with tls.client(scheme="https", http2=True) as client:
        response = client.post("/api/v1/execute", json={"code": "print hi"})
        assert response.http_version == "HTTP/2" and '"hi' in response.text


def test_every_answer_over_tls_says_to_stay_there(tls):
    """Also the responses that nginx makes itself."""
    with tls.client(scheme="https") as client, tls.client("127.0.0.9", "https") as stranger:
        for response in (
            client.get("/readyz"),
            client.get("/api/v1/sessions", headers={"X-API-Key": ""}),
            client.get("/away"),
            stranger.get("/metrics"),
        ):
            assert response.headers["strict-transport-security"] == "max-age=31536000"
            assert len(response.headers.get_list("strict-transport-security")) == 1
    with tls.client() as client:
        assert "strict-transport-security" not in client.get("/readyz").headers


# ---- What nginx answers itself: problem documents, also at paths that end like a web page


def test_a_gateway_that_is_away(client):
    response = client.get("/away/chart.html")
    problem(response, 503, "provisioner_unavailable")
    assert response.headers["retry-after"]


def test_counters_are_for_the_machine_itself(plain):
    with plain.client() as here, plain.client("127.0.0.9") as elsewhere:
        assert here.get("/metrics").status_code == 200
        problem(elsewhere.get("/metrics"), 403, "forbidden_host")


REQUEST = f"HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "request_, status, code",
    [
        (f"PUT /files/s/a.html {REQUEST}Content-Length: 70000000", 413, "upload_too_large"),
        ("GET / HTTP/1.1\r\nHost: a b", 400, "invalid_request"),
        ("nonsense", 400, "invalid_request"),
        (f"GET /%zz {REQUEST}", 400, "invalid_request"),
        (f"GET / {REQUEST}X: {'x' * 40000}", 400, "invalid_request"),
        (f"GET /{'x' * 40000} {REQUEST}", 414, "invalid_request"),
        (f"TRACE / {REQUEST}", 405, "method_not_allowed"),
        (f"GET /kernelgate-problem {REQUEST}", 404, "not_found"),
    ],
    ids=lambda value: str(value).partition(" HTTP")[0][:20],
)
def test_what_nginx_refuses(plain, request_, status, code):
    problem(raw(plain, f"{request_}\r\n\r\n".encode()), status, code)


def test_requests_a_second_are_limited_for_each_address(plain):
    """Probes have a limit of their own."""

    def many(client, path, count):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: client.get(path), range(count)))

    def until_refused(client, path):
        """Sends requests until some were refused; how many that takes depends on their pace."""
        answers = wait_for(lambda: [it for it in many(client, path, 100) if it.is_error])
        assert {each.status_code for each in answers} == {429}
        return answers

    with plain.client("127.0.0.2") as client, plain.client("127.0.0.3") as other:
        until_refused(client, "/healthz")
        assert all(each.status_code == 200 for each in many(client, "/api/v1/sessions", 30))
        refused = until_refused(client, "/api/v1/sessions")
        for response in refused:
            problem(response, 429, "rate_limited")
            assert response.headers["retry-after"] == "1"
        assert other.get("/api/v1/sessions").status_code == 200
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_requests_under_way_are_limited_for_each_address(plain, echo):
    address = "127.0.0.4"
    with contextlib.ExitStack() as stack:
        while echo.held < 64:
            before = echo.held
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", plain.port), 60, (address, 0))
            )
            connection.sendall(f"GET /hold {REQUEST}\r\n".encode())
            connection.setblocking(False)
            # Passed on, or refused by the rate limit.
            wait_for(lambda: echo.held > before or answered(connection), interval=0.002)
        with plain.client(address) as client:
            # Now refused by the limit on concurrent requests, not by the rate limit.
            too_many = rf'^{address} .*"GET /echo HTTP/1.1" 429 .* limits PASSED REJECTED '
            wait_for(
                lambda: (
                    client.get("/echo").status_code == 429
                    and re.search(too_many, plain.logs(), re.M)
                )
            )
            assert client.get("/healthz").status_code == 200
            echo.release.set()
            wait_for(lambda: client.get("/echo").status_code == 200)


def answered(connection):
    with contextlib.suppress(BlockingIOError):
        return connection.recv(1, socket.MSG_PEEK)
    return b""


# ---- Logs


def test_no_key_and_no_signature_is_logged(plain, tls):
    """Whether the request is passed on, refused or redirected."""
    for nginx, scheme in ((plain, "http"), (tls, "https")):
        with nginx.client("127.0.0.5", scheme) as client:
            done = client.post(
                "/api/v1/execute_sync",
                json={"code": "write chart.svg <svg/>", "session_id": "log"},
            ).json()
            link = next(x["url"] for x in done["data"]["outputs"] if x["type"] == "file")
            signature = re.search("signature=([^&]+)", link)[1]
            client.headers.pop("Authorization")
            assert client.get(link, headers={"Referer": f"https://{NAME}{link}"}).status_code == 200
            query = {"api_key": KEY}
            assert client.get("/api/v1/sessions", params=query).status_code == 200
            for path, status in (("/away", 503), ("/metrics", 403), ("/kernelgate-problem", 404)):
                assert client.get(path, params=query).status_code == status
            paths = [f"/echo?api_key={KEY}&{i}" for i in range(100)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                wait_for(lambda: 429 in {each.status_code for each in pool.map(client.get, paths)})
        for line in (
            f"POST /mcp?api_key={KEY} {REQUEST}Content-Length: 70000000",
            f"GET /mcp?api_key={KEY} HTTP/1.1\r\nHost: a b",
            f"GET /mcp?api_key={KEY} HTTP/x",
            f"GET http://{NAME}?api_key={KEY} HTTP/1.1\r\nConnection: close",
        ):
            raw(nginx, f"{line}\r\n\r\n".encode())
        with nginx.client() as client:
            client.get("/mcp", params=query)
        logs = nginx.logs()
        assert KEY not in logs and "api_key" not in logs
        assert signature not in logs and "signature" not in logs
        assert '"GET /api/v1/sessions HTTP/1.1" 200' in logs
        assert re.search(
            r'^127\.0\.0\.5 \[.*"GET /away HTTP/1.1" 503 .* gateway 127\S+ 502 ', logs, re.M
        )
