# SPDX-License-Identifier: Apache-2.0
"""Ports of real containers: servers of Python's library, and a gateway that starts again."""

import concurrent.futures
import socket
import urllib.parse

import pytest
import websockets.sync.client
from kernelgate import problem, wait_for
from port_servers import HANG, Port
from session_commands import Commands, start

PAGES = "mkdir www; cd www; for i in $(seq 60); do echo page $i >$i; done; {}"
FILES = PAGES.format("exec python3 -m http.server 8000 --bind 127.0.0.1")
# Python's own server for an address of IPv6 alone.
V6 = PAGES.format("exec python3 -m http.server 8006 --bind ::1")
WEBSOCKET = r"""
import base64, hashlib, socket
listener = socket.create_server(("0.0.0.0", 8765))
while True:
    connection, _ = listener.accept()
    stream = connection.makefile("rwb")
    fields = dict(line.split(": ", 1) for line in iter(lambda: stream.readline().decode().strip(), "") if ": " in line)
    key = fields["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    stream.write(("HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
    stream.flush()
    while (head := stream.read(2)) and head[0] & 15 < 8:
        n, mask = head[1] & 127, stream.read(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(stream.read(n)))
        stream.write(head[:1] + bytes([n]) + data)
        stream.flush()
    connection.close()
"""


@pytest.fixture
def command(gateway, session):
    return Commands(gateway, session)


def listening(gateway, session):
    ports = gateway.client.get(f"/api/v1/sessions/{session}/ports").json()["ports"]
    return {each["port"]: each["address"] for each in ports}


def serve(gateway, session, script, port):
    start(Commands(gateway, session), script, f"server{port}")
    wait_for(lambda: port in listening(gateway, session))
    opened = Port(gateway, session, port)
    opened.open()
    return opened


def test_a_kernel_is_no_server(gateway, session, run):
    run("import pandas, matplotlib.pyplot")
    assert listening(gateway, session) == {}


def test_files(gateway, session):
    port = serve(gateway, session, FILES, 8000)
    assert listening(gateway, session)[8000] == "127.0.0.1"
    assert '<a href="60">' in port.send().text
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        texts = pool.map(lambda i: port.send(path=f"/{i}").text, range(1, 61))
        assert list(texts) == [f"page {i}\n" for i in range(1, 61)]
    assert port.send(path="/none").status_code == 404
    assert port.send("HEAD", path="/1").headers["Content-Length"] == "7"


def test_a_server_on_v6_alone(gateway, session, command):
    if not command.wait("cat /proc/net/if_inet6 2>/dev/null")["stdout"]:
        port = Port(gateway, session, 8006)  # this engine's sandboxes have no IPv6
        port.open()
        problem(port.send(), 502, "port_closed")
        return
    port = serve(gateway, session, V6, 8006)
    assert listening(gateway, session)[8006] == "::1"
    assert port.send(path="/7").text == "page 7\n"


def test_a_websocket(gateway, session):
    gateway.client.put(f"/api/v1/sessions/{session}/files/ws.py", content=WEBSOCKET.encode())
    port = serve(gateway, session, "exec python3 ws.py", 8765)
    address = urllib.parse.urlsplit(gateway.url)
    for _ in range(2):
        with websockets.sync.client.connect(
            f"ws://{port.host}/",
            sock=socket.create_connection((address.hostname, address.port), HANG),
            origin=f"http://{port.host}",
            additional_headers={"Cookie": port.cookie},
            compression=None,
        ) as connection:
            for text in "hello", "again":
                connection.send(text)
                assert connection.recv(HANG) == text


def test_the_gateway_starts_again(start_gateway):
    """The host and its cookie stay; a port that was public is private again."""
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes")
    session = gateway.create_session()
    port = serve(gateway, session, FILES, 8000)
    port.link(public=True)
    assert port.send(path="/1", cookie="").text == "page 1\n"
    gateway.stop()
    gateway.start()
    port.url = gateway.url
    wait_for(lambda: gateway.client.get(f"/api/v1/sessions/{session}/ports").status_code == 200)
    assert port.send(path="/1").text == "page 1\n"
    problem(port.send(path="/1", cookie=""), 403, "port_private")
    gateway.delete_session(session)
