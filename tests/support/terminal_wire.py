# SPDX-License-Identifier: Apache-2.0
"""Clients of terminals, over WebSockets."""

import contextlib
import json
import time

import websockets.sync.client


class Screen:
    """A client of one terminal: what it was told, and what it was shown."""

    def __init__(self, socket):
        self.socket = socket
        self.told, self.shown = [], bytearray()

    def read(self, timeout=20):
        try:
            message = self.socket.recv(timeout)
        except TimeoutError:
            raise AssertionError(f"nothing more after {bytes(self.shown[-2000:])}") from None
        if isinstance(message, bytes):
            self.shown += message
        else:
            self.told.append(json.loads(message))
        return message

    def until(self, wanted):
        """Reads until it is shown, and forgets what came before."""
        seen, deadline = 0, time.monotonic() + 60
        while (at := self.shown.find(wanted, max(0, seen - len(wanted)))) < 0:
            assert time.monotonic() < deadline, self.shown[-2000:]
            seen = len(self.shown)
            self.read()
        before, self.shown = self.shown[:at], self.shown[at + len(wanted) :]
        return bytes(before)

    def until_told(self, name):
        while not (self.told and name in self.told[-1]):
            self.read()
        return self.told[-1][name]

    def type(self, text):
        self.socket.send(text.encode() if isinstance(text, str) else text)

    def resize(self, cols, rows):
        self.socket.send(json.dumps({"resize": [cols, rows]}))


@contextlib.contextmanager
def terminal(gateway, session, subprotocols=None, **query):
    query = "&".join(f"{name}={value}" for name, value in query.items())
    url = gateway.url.replace("http", "ws", 1) + f"/api/v1/sessions/{session}/terminal?{query}"
    options = {"max_size": None, "ping_interval": None, "subprotocols": subprotocols}
    with websockets.sync.client.connect(url, **options) as socket:
        screen = Screen(socket)
        screen.until_told("command_id")
        yield screen


# A program in the foreground that says when it begins, and when it goes on: what a shell has echoed says
# nothing of that.
SPEAKS = "bash -c 'trap \"echo c$((1))\" CONT; echo b$((1)); while :; do sleep 0.1; done'\n"
BEGUN, CONTINUED = b"b1\r\n", b"c1\r\n"


def check_job_control(screen):
    screen.type(SPEAKS)
    screen.until(BEGUN)
    screen.type("\x1a")
    screen.until(b"Stopped")
    screen.until(b"$ ")
    screen.type("fg\n")
    screen.until(CONTINUED)
    screen.type("\x03")
    screen.until(b"^C")
    screen.type("echo $((6*7)); exit\n")
    screen.until(b"42\r\n")
    screen.until_told("exit_code")
