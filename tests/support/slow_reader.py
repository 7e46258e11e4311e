# SPDX-License-Identifier: Apache-2.0
"""A client that reads a response's head, and then nothing until it is asked to."""

import json
import socket


class SlowReader:
    """Reads a response's head; the rest only on demand."""

    def __init__(self, gateway, method, path, body=None):
        host, port = gateway.url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        content = json.dumps(body).encode() if body else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        self.socket.sendall(f"{head}Connection: close\r\n\r\n".encode() + content)
        self.file = self.socket.makefile("rb", buffering=1024)
        assert self.file.readline() == b"HTTP/1.1 200 OK\r\n"
        self.headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, value = line.decode().split(":", 1)
            self.headers[name.lower()] = value.strip()

    def chunks(self):
        """Reads chunks: here, they are of whole lines."""
        while size := int(self.file.readline(), 16):
            yield self.file.read(size)
            self.file.readline()

    def rest(self):
        """Reads the remaining lines; returns them as bytes, without line ends."""
        return b"".join(self.chunks()).splitlines()

    def close(self):
        self.file.close()
        self.socket.close()
