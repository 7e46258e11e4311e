# SPDX-License-Identifier: Apache-2.0
"""The way out of a sandbox: what the proxy refuses, and what it bounds."""

import shlex
import socket

import pytest
from web import Web

# Prints what the proxy answers to a head, and what then comes through a tunnel.
ASK = r"""
import socket, sys
head, then = (text.encode().decode("unicode_escape").encode() for text in (*sys.argv[1:], "")[:2])
with socket.create_connection(("127.0.0.1", 3128), timeout=60) as s:
    s.sendall(head + b"\r\n\r\n")
    answer = s.recv(65536)
    if then:
        s.sendall(then)
        while part := s.recv(65536):
            answer += part
    print(answer.decode())
"""
MANY = """
import socket, subprocess, sys
many = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(60)]
for s in many: s.close()
ask = [sys.executable, "ask.py", "GET / HTTP/1.1"]
# Until it is seen that these have gone.
while not (answer := subprocess.run(ask, capture_output=True, text=True).stdout.strip()): pass
print(answer)
"""


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--network", "egress", "--fetch-allow", "127.0.0.1"]


@pytest.fixture
def put(gateway, session):
    def put(name, text):
        url = f"/api/v1/sessions/{session}/files/{name}"
        assert gateway.client.put(url, content=text.encode()).status_code == 201

    return put


@pytest.fixture
def ask(put, run):
    put("ask.py", ASK)

    def ask(*texts):
        return run(f"sh python3 ask.py {shlex.join(texts)}", timeout=300).text().strip()

    return ask


def test_tunnels_go_through(ask):
    web = Web({"/x": (200, {"Connection": "close"}, b"from outside")})
    answer = ask(f"CONNECT 127.0.0.1:{web.port} HTTP/1.1", r"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200") and answer.endswith("from outside")
    web.close()


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))  # sends nothing
        return probe.getsockname()[0]


def test_what_is_private_is_refused(ask):
    hosts = ["127.0.0.2", "2130706434", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]"]
    for host in [*hosts, "[fd00::1]", "[::ffff:10.0.0.1]", own_address()]:
        answer = ask(f"CONNECT {host}:80 HTTP/1.1")
        assert answer.startswith("HTTP/1.1 403 "), (host, answer)
        assert "not allowed" in answer
    assert ask("GET http://10.0.0.1/ HTTP/1.1").startswith("HTTP/1.1 403 ")


def test_what_is_no_request_is_refused(ask):
    heads = ["GET / HTTP/1.1", "GET https://example.org/ HTTP/1.1", "CONNECT x HTTP/1.1", "hello"]
    for head in heads:
        assert ask(head).startswith("HTTP/1.1 400 "), head


def test_a_port_where_nobody_listens(ask):
    assert ask("CONNECT 127.0.0.1:1 HTTP/1.1").startswith("HTTP/1.1 502 ")


def test_many_connections_are_bounded_and_leave_the_session_alive(put, ask, run):
    put("many.py", MANY)
    assert run("sh python3 many.py", timeout=300).text().startswith("HTTP/1.1 400")
