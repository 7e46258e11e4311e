# SPDX-License-Identifier: Apache-2.0
"""Clients without a key that hold what they can get of a gateway."""

import contextlib
import json
import socket

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /api/kernels/k/channels HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
WRONG = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nX-API-Key: guessed\r\n\r\n"
LOGIN = json.dumps({"name": "alice", "password": "guessed guess"}).encode()
LOGIN = (
    b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(LOGIN), LOGIN)
)
DRIP = b"GET /healthz HTTP/1.1\r\nHost: local"
SENT = [HEALTH, DRIP, UPGRADE, WRONG, LOGIN, b""]


class Strangers:
    """Each connection sends one of these, and stays open; `drip` sends a byte on those that drip."""

    def __init__(self, gateway, n):
        self.address = tuple(gateway.url.removeprefix("http://").split(":"))
        self.connections = []
        for number in range(n):
            self.connect(SENT[number % len(SENT)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection, _ in self.connections:
            connection.close()

    def connect(self, sent):
        connection = socket.create_connection(self.address, 60)
        self.connections.append((connection, sent))
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)

    def come_back(self, n):
        """Connects anew in the place of the first ones."""
        for connection, sent in self.connections[:n]:
            connection.close()
            self.connect(sent)
        del self.connections[:n]

    def drip(self):
        for connection, sent in self.connections:
            if sent == DRIP:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"x")

    def count_open(self):
        """How many the gateway has not closed."""
        return sum(not is_closed(connection) for connection, _ in self.connections)


def is_closed(connection):
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
