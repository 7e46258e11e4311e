# SPDX-License-Identifier: Apache-2.0
"""Servers as code in a sandbox starts them, and their clients through the gateway."""

import concurrent.futures
import contextlib
import ctypes
import os
import re
import socket
import threading
import urllib.parse

import httpx

HANG = 20  # seconds, for what is known to come
HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


def listen(family, pid):
    """A socket that listens on loopback in the network of a process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def inside():  # in a thread of its own, which ends there
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        if libc.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen(128)
        return listener

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(inside).result()


class Server:
    """Gives each connection to a function of its own, in a thread, once its request's head has come."""

    def __init__(self, serve, pid, family=socket.AF_INET):
        self._serve = serve
        self.heads = []
        self._listener = listen(family, pid)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with connection, contextlib.suppress(OSError):
            connection.settimeout(HANG)
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(1 << 16)
                if not data:
                    return
                head += data
            head, _, rest = head.partition(b"\r\n\r\n")
            self.heads.append(head.decode("latin-1"))
            self._serve(connection, head.decode("latin-1"), rest)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def serving(pid, serve, **options):
    """A server in the network of a process whose connections are served by a function, or that says the same bytes to all."""
    said = serve
    if isinstance(serve, bytes):
        serve = lambda connection, head, rest: connection.sendall(said)  # noqa: E731
    server = Server(serve, pid, **options)
    try:
        yield server
    finally:
        server.close()


def header(head, name):
    """The values of a header in a head."""
    return re.findall(rf"(?mi)^{re.escape(name)}: *(.*?)\r?$", head)


def echo(connection, head, rest):
    """Answers with the request, as it came."""
    length = int((header(head, "Content-Length") or ["0"])[0])
    while len(rest) < length:
        rest += connection.recv(1 << 16)
    body = head.encode("latin-1") + b"\r\n\r\n" + rest
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


class Port:
    """One port of a session, as a browser reaches it. Cookies are kept by hand: the client connects to the
    gateway's address, whatever the host is called."""

    def __init__(self, gateway, session, port, client=None, url=None):
        self.gateway, self.api = gateway, client or gateway.client
        self.url = url or gateway.url  # of what the client connects to
        self.path = f"/api/v1/sessions/{session}/ports/{port}"
        self.cookie = None

    def link(self, **body):
        response = self.api.post(self.path, json=body or None)
        assert response.status_code == 200, response.text
        link = response.json()
        self.host = urllib.parse.urlsplit(link["url"]).netloc
        return link

    def send(self, method="GET", path="/", cookie=None, headers=None, **more):
        cookie = self.cookie if cookie is None else cookie
        fields = {"Host": self.host, **({"Cookie": cookie} if cookie else {}), **(headers or {})}
        return httpx.request(
            method, self.url + path, headers=fields, timeout=HANG, trust_env=False,
            verify=False, **more,
        )  # fmt: skip

    def open(self, **body):
        """Follows a new link."""
        url = self.link(**body)["url"]
        response = self.send(path=url.partition(self.host)[2], cookie="")
        assert response.status_code == 302, response.text
        self.cookie = response.headers["Set-Cookie"].partition(";")[0]
        return response

    def raw(self, connection, head, body=b""):
        """Sends a request as bytes: its first line, and lines besides Host and the cookie."""
        first, *lines = head.split("\n")
        lines = [first, f"Host: {self.host}", f"Cookie: {self.cookie}", *lines, "", ""]
        connection.send("\r\n".join(lines).encode("latin-1") + body)
