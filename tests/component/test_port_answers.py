# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes: what is forwarded and what is not, and hostile answers."""

import pytest
import raw_http
from kernelgate import problem
from port_servers import HELLO, echo, header

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
