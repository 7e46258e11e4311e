# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes: the API, links and cookies, what is forwarded and what is not, hostile answers. The
servers run in the test, in a sandbox's network."""

import concurrent.futures
import socket
import time
import urllib.parse

import pytest
import raw_http
import websockets
import websockets.sync.client
import websockets.sync.server
from kernelgate import free_port, problem, wait_for
from port_servers import HANG, Port, header, listen
from port_servers import serving as serving_in
from sandboxes import sandbox_of

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


def echo(connection, head, rest):
    """Answers with the request, as it came."""
    length = int((header(head, "Content-Length") or ["0"])[0])
    while len(rest) < length:
        rest += connection.recv(1 << 16)
    body = head.encode("latin-1") + b"\r\n\r\n" + rest
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@pytest.fixture
def serving(gateway, session):
    """Runs a server in the network of the test's session."""
    return lambda serve, **options: serving_in(sandbox_of(gateway, session).agent, serve, **options)


@pytest.fixture
def open_port(gateway, session):
    """Opens a port: the client has its cookie."""

    def open_(port):
        opened = Port(gateway, session, port)
        opened.open()
        return opened

    return open_


# ---- The API -----------------------------------------------------------------------------------


def test_a_list(gateway, session, serving):
    with serving(HELLO) as server, serving(HELLO, family=socket.AF_INET6) as other:
        listed = gateway.client.get(f"/api/v1/sessions/{session}/ports").json()["ports"]
        by_port = {each["port"]: each for each in listed}
        one, six = by_port[server.port], by_port[other.port]
        assert (one["address"], one["public"]) == ("127.0.0.1", False)
        assert six["address"] == "::1"
        url = urllib.parse.urlsplit(one["url"])
        assert url.hostname.startswith(f"{server.port}-") and url.hostname.endswith(".localhost")
        assert url.port == urllib.parse.urlsplit(gateway.url).port


def test_bad_requests(gateway, session):
    url = f"/api/v1/sessions/{session}/ports"
    for port in "0", "65536", "x", "80x", "-1":
        problem(gateway.client.post(f"{url}/{port}"), 400, "invalid_request")
    for body in {"public": 1}, {"open": True}, []:
        problem(gateway.client.post(f"{url}/80", json=body), 400, "invalid_request")
    problem(gateway.client.get("/api/v1/sessions/none/ports"), 404, "session_not_found")
    problem(gateway.client.post("/api/v1/sessions/none/ports/80"), 404, "session_not_found")


def test_public_ports_are_bounded(gateway, session):
    url = f"/api/v1/sessions/{session}/ports"
    for port in range(1, 65):
        assert gateway.client.post(f"{url}/{port}", json={"public": True}).json()["public"]
    problem(gateway.client.post(f"{url}/65", json={"public": True}), 400, "invalid_request")
    assert not gateway.client.post(f"{url}/1", json={"public": False}).json()["public"]
    assert gateway.client.post(f"{url}/65", json={"public": True}).json()["public"]


# ---- Who gets in -------------------------------------------------------------------------------


def test_a_link_is_exchanged_once(gateway, session, serving):
    with serving(echo) as server:
        port = Port(gateway, session, server.port)
        link = port.link()
        path = link["url"].partition(port.host)[2]
        response = port.send(path=path.replace("/?", "/a/b?x=1&") + "&y=%20")
        assert response.status_code == 302 and response.content == b""
        assert response.headers["Location"] == f"http://{port.host}/a/b?x=1&y=%20"
        cookie = response.headers["Set-Cookie"]
        assert "; HttpOnly; SameSite=Lax; " in cookie and "Domain" not in cookie
        problem(port.send(path=path), 403, "port_private")  # a second time
        port.cookie = cookie.partition(";")[0]
        assert port.send(path="/a/b?x=1").text.startswith("GET /a/b?x=1 HTTP/1.1\r\n")
        assert port.send(path=path).status_code == 302  # whoever is in may open it again


def test_behind_tls(gateway, session, serving):
    """The cookie has a name that no other host can set, and is sent by TLS only."""
    with serving(echo) as server:
        port = Port(gateway, session, server.port)
        path = port.link()["url"].partition(port.host)[2]
        https = {"X-Forwarded-Proto": "https"}
        response = port.send(path=path, headers=https)
        assert response.headers["Location"].startswith("https://")
        cookie = response.headers["Set-Cookie"]
        assert cookie.startswith("__Host-kernelgate_port=") and cookie.endswith("; Secure")
        port.cookie = cookie.partition(";")[0]
        assert header(port.send(headers=https).text, "X-Forwarded-Proto") == ["https"]
        problem(port.send(), 403, "port_private")  # that name does not count without TLS


def test_cookies_of_others(gateway, session, open_port, serving):
    with serving(HELLO) as server, serving(HELLO) as other:
        mine, its = open_port(server.port), open_port(other.port)
        assert mine.send().text == "hello"
        problem(mine.send(cookie=its.cookie), 403, "port_private")
        problem(mine.send(cookie=""), 403, "port_private")
        name, _, value = mine.cookie.partition("=")
        expires, _, signature = value.partition(".")
        for forged in (
            f"{int(expires) + 1}.{signature}",
            f"{expires}.{'0' * 64}",
            expires,
            "",
            ".",
        ):
            problem(mine.send(cookie=f"{name}={forged}"), 403, "port_private")
        # A page of another host may have set one of the same name.
        assert mine.send(cookie=f"{its.cookie}; {mine.cookie}").text == "hello"
        # A session of the same server in another sandbox.
        second = gateway.create_session()
        port = Port(gateway, second, server.port)
        port.link()
        problem(port.send(cookie=mine.cookie), 403, "port_private")
        gateway.delete_session(second)


@pytest.fixture
def owners(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:key-of-ann\nbob:key-of-bob\n")
    return start_gateway("--api-keys-file", str(keys))


def test_another_owners_port(owners):
    ann, bob = owners.client_for("key-of-ann"), owners.client_for("key-of-bob")
    session = owners.create_session(client=ann)
    with serving_in(sandbox_of(owners, session).agent, echo) as server:
        path = f"/api/v1/sessions/{session}/ports/{server.port}"
        problem(bob.post(path, json={"public": True}), 404, "session_not_found")
        problem(bob.get(f"/api/v1/sessions/{session}/ports"), 404, "session_not_found")
        port = Port(owners, session, server.port, client=ann)
        port.link()
        # Neither key opens it: a port is not the API.
        for key in "key-of-ann", "key-of-bob":
            problem(port.send(headers={"X-API-Key": key}), 403, "port_private")
        port.open()
        assert port.send().status_code == 200
        assert port.link(public=True)["url"] == f"http://{port.host}/"
        assert port.send(cookie="").status_code == 200
        port.link(public=False)
        problem(port.send(cookie=""), 403, "port_private")
    owners.delete_session(session, client=ann)
    problem(port.send(), 404, "not_found")


def test_pages_of_other_hosts(gateway, session, open_port, serving):
    with serving(HELLO) as server:
        port = open_port(server.port)
        own = f"http://{port.host}"
        for origin in gateway.url, "http://1-x.localhost", "null":
            response = port.send("POST", headers={"Origin": origin})
            problem(response, 403, "forbidden_origin")
        assert port.send("POST", headers={"Origin": own}).status_code == 200
        for site in "cross-site", "same-site":
            fetch = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
            problem(port.send(headers=fetch), 403, "forbidden_origin")
            navigation = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
            assert port.send(headers=navigation).status_code == 200
            problem(port.send("POST", headers=navigation), 403, "forbidden_origin")
        for site in "same-origin", "none":
            fetch = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors"}
            assert port.send(headers=fetch).status_code == 200
        port.link(public=True)  # its own matter now
        assert port.send("POST", headers={"Origin": "http://a.example"}).status_code == 200


def test_strangers_send_little_to_a_public_port(gateway, session, serving):
    """Its owner, who has the cookie, sends as much as to a private one."""
    large = b"x" * 3_000_000
    with serving(echo) as server:
        port = Port(gateway, session, server.port)
        port.open()
        assert len(port.send("POST", content=large).content) > len(large)
        port.link(public=True)
        assert len(port.send("POST", content=large).content) > len(large)
        for stranger in (
            {"cookie": ""},
            {"cookie": port.cookie[:-1]},
            {"headers": {"Origin": "http://a.example"}},  # a page that sends the owner's cookie
            {"headers": {"Sec-Fetch-Site": "same-site"}},
        ):
            assert port.send("POST", content=b"x" * 65536, **stranger).status_code == 200
            too_large = port.send("POST", content=b"x" * 65537, **stranger)
            problem(too_large, 413, "upload_too_large")


# ---- Hosts -------------------------------------------------------------------------------------


def test_hosts_that_look_like_ports(gateway, session, serving):
    with serving(HELLO) as server:
        port = Port(gateway, session, server.port)
        port.open()
        label, _, domain = port.host.partition(".")
        number, _, id_ = label.partition("-")
        hosts = [
            *(
                f"0{label}.{domain}",
                f"99999-{id_}.{domain}",
                f"0-{id_}.{domain}",
                f"{number}-.{domain}",
            ),
            *(f"a.{label}.{domain}", f"{label}.localhost.", f"{number}-{'a' * 16}.{domain}"),
            *(f"{number}-{id_}-x.{domain}", f"{number}-{id_}_x.{domain}", f"1-2.3-4.{domain}"),
        ]
        for host in hosts:
            for path in "/", "/api/v1/health", "/console/", "/metrics":
                response = port.send(path=path, headers={"Host": host})
                problem(response, 404, "not_found")
        # Upper case is the same host; other names are none of the gateway's.
        assert port.send(headers={"Host": port.host.upper()}).text == "hello"
        problem(port.send(headers={"Host": f"x.{domain}"}), 403, "forbidden_host")


def test_no_route_is_reached(gateway, session, open_port, serving):
    with serving(echo) as server:
        port = open_port(server.port)
        for path in (
            "/api/v1/health",
            "/api/v1/sessions",
            "/console/",
            "/metrics",
            "//x",
            "/%zz",
            "/\xff",
        ):
            with raw_http.Connection(gateway.url) as connection:
                port.raw(connection, f"GET {path} HTTP/1.1\nConnection: close")
                answer = connection.answer()
                assert answer.status == 200
                assert answer.body.startswith(f"GET {path} HTTP/1.1\r\n".encode("latin-1"))
        # A target with a host of its own counts as that host.
        with raw_http.Connection(gateway.url) as connection:
            connection.send(
                f"GET http://{port.host}/x HTTP/1.1\r\nHost: localhost\r\nCookie: {port.cookie}\r\n\r\n".encode()
            )
            assert connection.answer().body.startswith(b"GET /x HTTP/1.1\r\n")


def test_no_ports_at_all(start_gateway):
    gateway = start_gateway("--ports-domain", "")
    session = gateway.create_session()
    listed = gateway.client.get(f"/api/v1/sessions/{session}/ports").json()["ports"]
    assert all(each["url"] is None for each in listed)
    problem(gateway.client.post(f"/api/v1/sessions/{session}/ports/80"), 403, "port_forbidden")


def test_a_domain_of_its_own(start_gateway):
    gateway = start_gateway("--ports-domain", "ports.example")
    session = gateway.create_session()
    with serving_in(sandbox_of(gateway, session).agent, HELLO) as server:
        port = Port(gateway, session, server.port)
        port.open()
        assert ".ports.example:" in port.host
        assert port.send().text == "hello"
        local = port.host.replace("ports.example", "localhost")
        problem(port.send(headers={"Host": local}), 403, "forbidden_host")


# ---- What is forwarded -------------------------------------------------------------------------


def test_what_the_server_gets(gateway, session, open_port, serving):
    with serving(echo) as server:
        port = open_port(server.port)
        sent = {
            "Cookie": f"a=1; {port.cookie}; kernelgate_login=x; __Host-kernelgate_login=y; b=2; =kernelgate_x=3",
            "Authorization": "Bearer secret",
            "X-API-Key": "secret",
            "X-Forwarded-For": "10.1.1.1",
            "X-Forwarded-Host": "elsewhere",
            "X-Real-IP": "10.1.1.1",
            "Forwarded": "for=10.1.1.1",
            "X-Kernelgate-Forwarded": "secret",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "secret",
            "Keep-Alive": "timeout=5",
            "TE": "trailers",
            "X-Own": "yes",
        }
        head = port.send(headers=sent).text
        assert header(head, "Cookie") == ["a=1; b=2"]
        assert header(head, "Host") == [port.host]
        assert header(head, "X-Own") == ["yes"]
        assert header(head, "Connection") == ["close"]
        assert header(head, "X-Forwarded-Proto") == ["http"]
        gone = sent.keys() - {"Cookie", "Connection", "X-Own"}
        assert not [name for name in gone if header(head, name)]
        assert "secret" not in head and "10.1.1.1" not in head
        basic = {"Authorization": "Basic YTpi"}  # none of the gateway's
        assert header(port.send(headers=basic).text, "Authorization") == ["Basic YTpi"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_methods(open_port, method, serving):
    with serving(echo) as server:
        port = open_port(server.port)
        body = b"a body" if method in ("POST", "PUT", "PATCH") else None
        text = port.send(method, "/p?q=%2F", content=body).text
        assert text.startswith(f"{method} /p?q=%2F HTTP/1.1\r\n")
        assert text.endswith("\r\n\r\n" + ("a body" if body else ""))


def test_a_chunked_body(gateway, open_port, serving):
    with serving(echo) as server, raw_http.Connection(gateway.url) as connection:
        port = open_port(server.port)
        port.raw(
            connection,
            "POST / HTTP/1.1\nTransfer-Encoding: chunked",
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
        text = connection.answer().body.decode()
        assert header(text, "Content-Length") == ["5"] and not header(text, "Transfer-Encoding")
        assert text.endswith("\r\n\r\nabcde")


def test_what_the_client_gets(gateway, open_port, serving):
    answer = (
        b"HTTP/1.1 201 Fine\r\nContent-Type: text/x\r\nX-Two: 1\r\nX-Two: 2\r\nX-Hop: no\r\n"
        b"Connection: X-Hop\r\nKeep-Alive: timeout=9\r\nAlt-Svc: h3=':1'\r\nX-Accel-Redirect: /private\r\n"
        b"X-Sendfile: /etc/passwd\r\nX-Sendfile2: /etc/passwd 0-\r\nX-LiteSpeed-Location: /private\r\n"
        b'Clear-Site-Data: "cookies"\r\n'
        b"Set-Cookie: own=1; Path=/\r\nSet-Cookie: wide=1; domain=localhost\r\n"
        b"Set-Cookie: kernelgate_login=evil\r\nSet-Cookie: __Host-Kernelgate_port=evil\r\n"
        b"Set-Cookie: =kernelgate_port=evil\r\nSet-Cookie: last=1; Domain\r\nCache-Control: max-age=5\r\n"
        b"Content-Length: 2\r\n\r\nok"
    )
    with serving(answer) as server, raw_http.Connection(gateway.url) as connection:
        port = open_port(server.port)
        for _ in range(2):  # the client's connection goes on
            port.raw(connection, "GET / HTTP/1.1")
            got = connection.answer()
            assert (got.status, got.body) == (201, b"ok")
            head = got.head.decode()
            assert header(head, "Set-Cookie") == ["own=1; Path=/"]
            assert header(head, "X-Two") == ["1", "2"]
            assert header(head, "Cache-Control") == ["max-age=5"]
            for name in (
                "X-Hop",
                "Keep-Alive",
                "Alt-Svc",
                "X-Accel-Redirect",
                "X-Sendfile",
                "X-Sendfile2",
                "X-LiteSpeed-Location",
                "Clear-Site-Data",
                "Connection",
            ):
                assert not header(head, name)


FRAMINGS = {
    "length": (b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    "close": (b"\r\nhello", b"hello"),
    "empty": (b"Content-Length: 0\r\n\r\n", b""),
    "more than its length": (b"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n", b"hello"),
    "more than its chunks": (
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"",
    ),
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_framings(gateway, open_port, framing, serving):
    said, body = FRAMINGS[framing]
    with serving(b"HTTP/1.1 200 OK\r\n" + said) as server:
        port = open_port(server.port)
        with raw_http.Connection(gateway.url) as connection:
            for _ in range(2):  # nothing of the first answer is left for the second
                port.raw(connection, "GET / HTTP/1.1")
                answer = connection.answer()
                assert (answer.status, answer.body) == (200, body)
            port.raw(connection, "HEAD / HTTP/1.1")
            head = connection.answer(is_head=True)
            assert head.status == 200
            port.raw(connection, "GET / HTTP/1.1\nConnection: close")
            assert connection.answer().body == body and connection.rest() == b""
        with raw_http.Connection(gateway.url) as connection:
            port.raw(connection, "GET / HTTP/1.0")
            answer = connection.answer()
            assert answer.body == body and not answer.has_chunks


def test_answers_without_a_body(gateway, open_port, serving):
    for status in 204, 304:
        said = b"HTTP/1.1 %d X\r\nETag: x\r\nContent-Length: 7\r\n\r\nsmuggle" % status
        with serving(said) as server, raw_http.Connection(gateway.url) as connection:
            port = open_port(server.port)
            for _ in range(2):
                port.raw(connection, "GET / HTTP/1.1")
                answer = connection.answer()
                assert (answer.status, answer.body) == (status, b"")
                assert answer.header(b"ETag") == b"x"


def test_interim_answers(gateway, open_port, serving):
    said = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + HELLO
    with serving(said) as server:
        assert open_port(server.port).send().text == "hello"
    with serving(b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + HELLO) as server:
        problem(open_port(server.port).send(), 502, "port_answer")


# ---- Hostile answers ---------------------------------------------------------------------------

HOSTILE = {
    "nothing": b"",
    "not HTTP": b"hello\r\n\r\n",
    "another version": b"HTTP/2 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status of 600": b"HTTP/1.1 600 OK\r\n\r\n",
    "a status of 099": b"HTTP/1.1 099 OK\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
    "a length with a sign": b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
    "a length that is too large": b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\nhello",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "two encodings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks of HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
    "a line without a colon": b"HTTP/1.1 200 OK\r\nX-A\r\n\r\n",
    "a NUL": b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\n\r\n",
    "a control character": b"HTTP/1.1 200 OK\r\nX-A: b\x1bc\r\n\r\n",
    "a bare CR": b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c=d\r\n\r\n",
    "a bare LF": b"HTTP/1.1 200 OK\r\nX-A: b\nSet-Cookie: c=d\r\n\r\n",
    "lines that end with LF": b"HTTP/1.1 200 OK\nX-A: b\n\n",
    "too large": b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70000 + b"\r\n\r\n",
    "an upgrade that was not asked for": b"HTTP/1.1 101 Go\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    "a body of 1xx": b"HTTP/1.1 103 Early\r\nContent-Length: 5\r\n\r\nhello" + HELLO,
    "half a head": b"HTTP/1.1 200 OK\r\nX-A: ",
}


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_heads(gateway, open_port, said, serving):
    with serving(HOSTILE[said]) as server, raw_http.Connection(gateway.url) as connection:
        port = open_port(server.port)
        port.raw(connection, "GET / HTTP/1.1")
        answer = connection.answer()
        assert answer.status == 502 and b'"code":"port_answer"' in answer.body
        assert not answer.header(b"Set-Cookie")
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")  # it is not confused
        assert connection.answer().status == 200


TORN = {
    "a length": b"Content-Length: 9\r\n\r\nhello",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "a chunk": b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello",
    "a wrong size": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
    "an extension": b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "a trailer": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
    "a chunk that is too long": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloHTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("said", TORN)
def test_bodies_that_end_early(gateway, open_port, said, serving):
    """The client sees that, since its connection ends without the answer's end."""
    with (
        serving(b"HTTP/1.1 200 OK\r\n" + TORN[said]) as server,
        raw_http.Connection(gateway.url) as connection,
    ):
        open_port(server.port).raw(connection, "GET / HTTP/1.1")
        answer = connection.begin()
        body = answer.body + connection.rest()
        assert b"HTTP/1.1 200" not in body and not body.endswith(b"0\r\n\r\n")


# ---- Ports -------------------------------------------------------------------------------------


def test_nothing_listens(open_port):
    problem(open_port(free_port()).send(), 502, "port_closed")


def test_a_server_on_v6_alone(open_port, serving):
    with serving(HELLO, family=socket.AF_INET6) as server:
        assert open_port(server.port).send().text == "hello"


def test_a_page_with_many_assets(open_port, serving):
    with serving(echo) as server:
        port = open_port(server.port)
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            answers = pool.map(lambda i: port.send(path=f"/{i}").text, range(100))
            for i, text in enumerate(answers):
                assert text.startswith(f"GET /{i} HTTP/1.1\r\n")


def test_connections_are_bounded(gateway, session, open_port, serving):
    """64 at a time; others wait for one of these, and so does what comes after."""

    def hold(connection, head, rest):
        if "/held" in head:
            connection.recv(1)  # until its client leaves
        connection.sendall(HELLO)

    with serving(hold) as server:
        port = open_port(server.port)
        held = [raw_http.Connection(gateway.url) for _ in range(64)]
        for connection in held:
            port.raw(connection, "GET /held HTTP/1.1")
        wait_for(lambda: len(server.heads) == 64)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: port.send(path="/next").text)
            time.sleep(0.3)
            assert len(server.heads) == 64 and not waiting.done()
            assert gateway.client.get(f"/api/v1/sessions/{session}").status_code == 200
            held[0].close()
            assert waiting.result() == "hello"
        for connection in held[1:]:
            connection.close()


def test_the_session_ends(gateway):
    """So do its connections, those that wait too."""
    session = gateway.create_session()

    def begin(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nbegin" if "/begin" in head else b"")
        connection.recv(1)

    with serving_in(sandbox_of(gateway, session).agent, begin) as server:
        port = Port(gateway, session, server.port)
        port.open()
        with raw_http.Connection(gateway.url) as one, raw_http.Connection(gateway.url) as other:
            port.raw(one, "GET /begin HTTP/1.1")
            port.raw(other, "GET /silent HTTP/1.1")
            assert one.begin().status == 200
            wait_for(lambda: len(server.heads) == 2)
            gateway.delete_session(session)
            one.rest()
            assert one.ended
            assert other.answer().status == 404


def test_a_client_that_leaves(gateway, open_port, serving):
    """The server sees its end."""
    ended = []

    def watch(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nbegin")
        ended.append(connection.recv(1))

    with serving(watch) as server:
        port = open_port(server.port)
        with raw_http.Connection(gateway.url) as connection:
            port.raw(connection, "GET / HTTP/1.1")
            connection.begin()
        wait_for(lambda: ended == [b""])


def test_a_slow_reader(gateway, open_port, serving):
    """Holds the server back, and gets everything."""
    total, sent = 64 << 20, []

    def flood(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total >> 16):
            connection.sendall(b"x" * (1 << 16))
            sent.append(1)

    with serving(flood) as server, raw_http.Connection(gateway.url) as connection:
        open_port(server.port).raw(connection, "GET / HTTP/1.1")
        wait_for(lambda: len(sent) > 0)
        before = -1
        while before != len(sent):  # until nothing moves
            before = len(sent)
            time.sleep(0.5)
        assert len(sent) < total >> 17
        answer = connection.answer()
        assert len(answer.body) == total


def test_an_upload_is_held_back(gateway, open_port, serving):
    """A server that reads slowly gets all of a body."""

    def slow(connection, head, rest):
        n = len(rest)
        while n < 8 << 20:
            n += len(connection.recv(1 << 20))
            time.sleep(0.01)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n%d" % n)

    with serving(slow) as server:
        response = open_port(server.port).send("POST", content=b"x" * (8 << 20))
        assert response.text == str(8 << 20)


def test_bytes_keep_the_session(start_gateway):
    gateway = start_gateway("--idle-timeout", "2")
    session = gateway.create_session()

    def tick(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(40):
            connection.sendall(b"tick")
            time.sleep(0.1)

    with serving_in(sandbox_of(gateway, session).agent, tick) as server:
        port = Port(gateway, session, server.port)
        port.open()
        assert port.send().text == "tick" * 40
        assert gateway.client.get(f"/api/v1/sessions/{session}").status_code == 200
        wait_for(lambda: gateway.client.get(f"/api/v1/sessions/{session}").status_code == 404)


# ---- WebSockets --------------------------------------------------------------------------------


class Echo:
    """A WebSocket server that repeats what it is told."""

    def __init__(self, pid):
        self.listener = listen(socket.AF_INET, pid)

    def __enter__(self):
        def repeat(socket_):
            for message in socket_:
                socket_.send(message)

        self.server = websockets.sync.server.serve(repeat, sock=self.listener, max_size=None)
        self.port = self.server.socket.getsockname()[1]
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.pool.submit(self.server.serve_forever)
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.pool.shutdown()


def connect(port, origin, **headers):
    address = urllib.parse.urlsplit(port.gateway.url)
    return websockets.sync.client.connect(
        f"ws://{port.host}/socket",
        sock=socket.create_connection((address.hostname, address.port), HANG),
        origin=origin,
        additional_headers={"Cookie": port.cookie or "none=1", **headers},
        max_size=None,
    )


def test_websockets(gateway, session, open_port):
    with Echo(sandbox_of(gateway, session).agent) as server:
        port = open_port(server.port)
        with connect(port, f"http://{port.host}") as socket_, connect(port, None) as other:
            for message in "text", b"bytes", b"x" * 3_000_000, "":
                socket_.send(message)
                assert socket_.recv(HANG) == message
            other.send("other")
            assert other.recv(HANG) == "other"
        for origin in gateway.url, "http://1-x.localhost", "null":
            with pytest.raises(websockets.InvalidStatus) as refused:
                connect(port, origin)
            assert refused.value.response.status_code == 403
        port.cookie = None
        with pytest.raises(websockets.InvalidStatus) as refused:
            connect(port, f"http://{port.host}")
        assert refused.value.response.status_code == 403
        port.link(public=True)
        with pytest.raises(websockets.InvalidStatus) as refused:
            connect(port, gateway.url)
        assert refused.value.response.status_code == 403
        with connect(port, f"http://{port.host}") as socket_:
            socket_.send("hello")
            assert socket_.recv(HANG) == "hello"


def test_other_upgrades(gateway, open_port, serving):
    """Only WebSockets: h2c, say, is another protocol inside a connection that was checked once."""
    with serving(echo) as server, raw_http.Connection(gateway.url) as connection:
        port = open_port(server.port)
        port.raw(connection, "GET / HTTP/1.1\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c")
        text = connection.answer().body.decode()
        assert header(text, "Connection") == ["close"] and not header(text, "Upgrade")


def test_a_websocket_that_is_refused(gateway, open_port, serving):
    with serving(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno") as server:
        port = open_port(server.port)
        with pytest.raises(websockets.InvalidStatus) as refused:
            connect(port, f"http://{port.host}")
        assert refused.value.response.status_code == 400
        assert refused.value.response.body == b"no"


def test_websockets_end_with_the_session(gateway):
    session = gateway.create_session()
    with Echo(sandbox_of(gateway, session).agent) as server:
        port = Port(gateway, session, server.port)
        port.open()
        with connect(port, f"http://{port.host}") as socket_:
            socket_.send("hello")
            assert socket_.recv(HANG) == "hello"
            gateway.delete_session(session)
            with pytest.raises(websockets.ConnectionClosed):
                socket_.recv(HANG)
