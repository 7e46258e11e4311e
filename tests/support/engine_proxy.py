# SPDX-License-Identifier: Apache-2.0
"""A proxy between a gateway and the Docker Engine: records requests, and can alter responses."""

import contextlib
import socket
import threading

import docker_engine


class EngineProxy:
    """Listens on TCP at `host`. `before(request_line)` is called before each request;
    `change(bytes)` returns the engine's response as the gateway will read it."""

    def __init__(self, before=None, change=None):
        self._before = before
        self._change = change
        self._target = docker_engine.socket_path()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self._target)
                for pair in ((client, engine, self._ask), (engine, client, self._change)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _ask(self, data):
        line = data.partition(b"\r\n")[0].decode("utf-8", "replace")
        if self._before and line.endswith("HTTP/1.1"):
            self._before(line)
        return data

    @staticmethod
    def _pump(source, target, change):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(change(data) if change else data)
            target.shutdown(socket.SHUT_WR)
