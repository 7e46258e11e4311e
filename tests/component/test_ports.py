# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes: the API, links and cookies, hosts, bounds and ends. The servers run in the test, in a
sandbox's network."""

import concurrent.futures
import socket
import time
import urllib.parse

import pytest
import raw_http
from kernelgate import free_port, problem, wait_for
from port_servers import HELLO, Port, echo, header
from port_servers import serving as serving_in
from sandboxes import sandbox_of

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
