# SPDX-License-Identifier: Apache-2.0
"""Ports of sandboxes: WebSockets and other upgrades."""

import concurrent.futures
import socket
import urllib.parse

import pytest
import raw_http
import websockets
import websockets.sync.client
import websockets.sync.server
from port_servers import HANG, Port, echo, header, listen
from sandboxes import sandbox_of


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
