# SPDX-License-Identifier: Apache-2.0
"""HTTP: keys, origins, hosts, errors, and input that is not HTTP."""

import base64
import contextlib
import json
import socket

import component
import httpx
import pytest
from kernelgate import PROJECT, Gateway, problem

KEY = "correct-horse"


@pytest.fixture(scope="module")
def guarded():
    flags = (*component.FLAGS, "--allowed-origins", "https://app.example")
    running = Gateway(*flags, env={"API_KEY": KEY}, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def nobody(guarded):
    with httpx.Client(base_url=guarded.url, trust_env=False) as client:
        yield client


# ---- Keys


def test_no_key_is_401(nobody):
    for method, path in (
        ("GET", "/api/v1/sessions"),
        ("POST", "/api/v1/execute"),
        ("GET", "/api/v1/kernelspecs"),
        ("DELETE", "/api/v1/sessions/x"),
    ):
        response = nobody.request(method, path)
        problem(response, 401, "unauthorized")
        assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"X-API-Key": ""},
        {"X-API-Key": KEY.upper()},
    ],
    ids=str,
)
def test_wrong_keys(nobody, headers):
    problem(nobody.get("/api/v1/sessions", headers=headers), 401, "unauthorized")


@pytest.mark.parametrize(
    "headers", [{"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}], ids=str
)
def test_right_keys(nobody, headers):
    assert nobody.get("/api/v1/sessions", headers=headers).status_code == 200


def test_a_key_in_the_query_is_for_get_only(nobody, guarded):
    assert nobody.get("/api/v1/sessions", params={"api_key": KEY}).status_code == 200
    response = nobody.post("/api/v1/sessions", params={"api_key": KEY}, json={})
    problem(response, 401, "unauthorized")
    assert KEY not in guarded.log()


def test_a_key_as_a_subprotocol_is_for_get_only(nobody):
    """Pages cannot send other headers with a WebSocket."""

    def ask(offered, path="/api/v1/sessions", method="GET"):
        headers = {"Sec-WebSocket-Protocol": offered}
        return nobody.request(method, path, headers=headers).status_code

    right = "kernelgate.key." + base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("=")
    assert ask(right) == ask(f"kernelgate.terminal, {right}") == ask(f"{right},other") == 200
    assert ask(right, method="POST") == ask(right, "/api/kernels") == 401
    for wrong in (
        f"x{right}",
        right[:-2],
        right + "!",
        right + "=",
        "kernelgate.key.",
        "kernelgate.key.AA",
    ):
        assert ask(wrong) == 401, wrong


def test_health_and_readiness_need_no_key(nobody):
    for path in ("/healthz", "/readyz", "/api/v1/health"):
        assert nobody.get(path).status_code == 200, path


# ---- Origins and hosts


def test_foreign_origins(guarded):
    for origin in ("http://evil.example", "null", "https://app.example.evil", "http://app.example"):
        response = guarded.client.get("/api/v1/sessions", headers={"Origin": origin})
        problem(response, 403, "forbidden_origin")
    for origin in ("https://app.example", guarded.url):
        response = guarded.client.get("/api/v1/sessions", headers={"Origin": origin})
        assert response.status_code == 200, origin


def test_a_proxy_before_a_gateway_without_a_key(gateway, session):
    """A proxy's requests come from this machine, though its clients may be elsewhere."""
    gateway.client.put(f"/api/v1/sessions/{session}/files/secret.txt", content=b"secret")
    link = f"/files/{session}/secret.txt"
    assert gateway.client.get(link).text == "secret"
    code = {"code": "print 1"}
    for name in ("X-Forwarded-For", "X-Real-IP"):
        response = gateway.client.post("/api/v1/execute", json=code, headers={name: "192.0.2.7"})
        assert "--api-key" in problem(response, 403, "forbidden_host")["detail"]
        response = gateway.client.post("/mcp", json={}, headers={name: "192.0.2.7"})
        problem(response, 403, "forbidden_host")
        problem(gateway.client.get(link, headers={name: "192.0.2.7"}), 403, "forbidden_link")
        response = gateway.client.get("/api/v1/sessions", headers={name: "127.0.0.1"})
        assert response.status_code == 200
        assert gateway.client.get("/healthz", headers={name: "192.0.2.7"}).status_code == 200


def test_unknown_hosts(gateway):
    port = gateway.url.rsplit(":", 1)[1]
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "0x7f000001"):
        response = gateway.client.get("/api/v1/sessions", headers={"Host": host})
        problem(response, 403, "forbidden_host")
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        response = gateway.client.get("/api/v1/sessions", headers={"Host": host})
        assert response.status_code == 200, host


# ---- Routes


def test_unknown_paths(gateway):
    for path in (
        "/",
        "/api/nothing",
        "/api/v1",
        "/api/v1/nothing",
        "/api/v2/execute",
        "/api/v1/execute/x",
    ):
        problem(gateway.client.get(path), 404, "not_found")


def test_wrong_methods(gateway):
    for method, path, allowed in (
        ("GET", "/api/v1/execute", "POST"),
        ("DELETE", "/api/v1/health", "GET"),
        ("PUT", "/api/v1/sessions", "GET"),
        ("PUT", "/api/v1/sessions/x", "PATCH"),
    ):
        response = gateway.client.request(method, path)
        problem(response, 405, "method_not_allowed")
        assert allowed in response.headers["allow"]


def test_methods_and_expectations_that_nobody_knows(gateway):
    host = b"Host: localhost\r\n"
    for method in (b"TRACE", b"BREW", b"CONNECT"):
        answer = gateway.client.request(method.decode(), "/healthz")
        problem(answer, 405, "method_not_allowed")
        assert "GET" in answer.headers["allow"] and answer.headers["connection"] == "close"
    expecting = b"PUT /x HTTP/1.1\r\n" + host + b"Expect: tea\r\nContent-Length: 2\r\n\r\nhi"
    answer = raw(gateway, expecting)
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"code":"invalid_request"' in answer, answer


def test_head(gateway):
    response = gateway.client.head("/api/v1/health")
    assert response.status_code == 200 and response.content == b""


def test_health(start_gateway):
    gateway = start_gateway()
    assert gateway.execute("result 1").status == "ok"
    body = gateway.client.get("/api/v1/health").json()
    assert body["status"] and body["version"] and body["provisioner"] == "oci"
    assert body["active_sessions"] == 0
    assert set(body["pool"]) == {"ready", "target"}
    assert body["uptime"] >= 0


@pytest.mark.parametrize("max_savepoints", [8, 0])
def test_kernelspecs(start_gateway, tmp_path, max_savepoints):
    """The project's, which are not run here."""
    (tmp_path / "python").mkdir()  # an environment, as far as the gateway looks
    gateway = start_gateway(
        *("--kernelspec-dir", str(PROJECT / "kernelspec"), "--default-kernel", "python"),
        *("--kernels-dir", str(tmp_path), "--max-savepoints", str(max_savepoints)),
    )
    body = gateway.client.get("/api/v1/kernelspecs").json()
    assert body["default"] == "python"
    spec = body["kernelspecs"]["python"]
    assert spec["display_name"] == "Python 3" and spec["language"] == "python"
    able = {name for name, each in body["kernelspecs"].items() if each["savepoints"]}
    assert able == ({"python"} if max_savepoints else set())


def test_session_names_in_paths(gateway):
    for path in ("/api/v1/sessions/a%2Fb", "/api/v1/sessions/%00", "/api/v1/sessions/a%20b"):
        response = gateway.client.get(path)
        assert response.status_code in (400, 404)
        assert response.json()["code"].startswith("invalid_") or response.status_code == 404


def test_a_connection_serves_many_requests(gateway):
    with httpx.Client(
        base_url=gateway.url, trust_env=False, limits=httpx.Limits(max_connections=1)
    ) as one:
        for _ in range(3):
            assert one.get("/healthz").status_code == 200
            problem(one.get("/nothing"), 404, "not_found")
            assert one.post("/api/v1/execute", json={"code": "print 1"}).status_code == 200


# ---- Not HTTP, or too much of it


def raw(gateway, data):
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
        b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n",
        b"\0" * 100000,
        b"GET /%zz%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=lambda data: data[:20].decode("latin-1"),
)
def test_what_is_not_http(gateway, data):
    try:
        assert b"200 OK" not in raw(gateway, data) or b"evil" in data
    except TimeoutError:
        raise
    except OSError:
        pass  # as good an answer as any
    assert gateway.client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        b"Host: localhost",
        b"Content-Length: 0",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Transfer-Encoding : chunked",
        b"Content-Length : 5",
    ],
    ids=lambda header: header.decode(),
)
def test_what_a_proxy_may_read_differently(gateway, header):
    once = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    body = b"" if b"Transfer" in header else b"Content-Length: 0\r\n"
    chunks = b"0\r\n\r\n" if b"Encoding: chunked" in header else b""
    answer = raw(gateway, once + body + header + b"\r\n\r\n" + chunks + once + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"code":"invalid_request"' in answer
    assert b"200 OK" not in answer, "what follows is no request"


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE", b"OPTIONS"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_the_body_of_a_method_without_one_is_no_request(gateway, method, framing):
    hidden = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body, header = hidden, b"Content-Length: %d" % len(hidden)
    if framing == "chunks":
        body, header = hidden + b"0\r\n\r\n", b"Transfer-Encoding: chunked"
    head = method + b" /api/v1/sessions/none HTTP/1.1\r\nHost: localhost\r\n" + header
    answer = raw(gateway, head + b"\r\n\r\n" + body)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answer
    assert not answer.startswith(b"HTTP/1.1 400 ")


def test_a_body_above_every_limit(gateway):
    with contextlib.suppress(httpx.TransportError):  # it may be cut while it sends
        response = gateway.client.post("/api/v1/execute", content=bytes(80 << 20))
        assert response.status_code == 413
    assert gateway.client.get("/healthz").status_code == 200


def test_connections_that_say_nothing(gateway):
    host, port = gateway.url.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(200)]
    assert gateway.client.get("/healthz").status_code == 200
    assert gateway.execute("print 1").text() == "1\n"
    for connection in silent:
        connection.close()


def test_a_client_that_keeps_sending_during_its_stream_is_cut(gateway, session):
    host, port = gateway.url.removeprefix("http://").split(":")
    body = json.dumps({"code": "take go", "session_id": session, "timeout": 600}).encode()
    head = b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head + body)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            for _ in range(200):
                connection.send(bytes(1 << 20))
        gateway.release(session)
        connection.settimeout(60)
        with pytest.raises(ConnectionError):
            for _ in range(200):
                connection.sendall(bytes(1 << 20))
    assert gateway.client.get("/healthz").status_code == 200
