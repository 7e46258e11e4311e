# SPDX-License-Identifier: Apache-2.0
"""The way out of a sandbox: what goes through the proxy, what it refuses, and that there is no
other one. More of what it refuses is in tests/component/test_egress.py."""

import socket

import pytest
from kernelgate import Gateway
from web import Web

# Defined in the sandbox: what the proxy answers to `head`, and what comes through a tunnel.
CLIENT = """
import os, socket, urllib.request
def ask(head, then=b""):
    with socket.create_connection(("127.0.0.1", 3128), timeout=60) as s:
        s.sendall(head.encode() + b"\\r\\n\\r\\n")
        answer = s.recv(65536)
        if then:
            s.sendall(then)
            while part := s.recv(65536):
                answer += part
        return answer.decode()
"""


@pytest.fixture(scope="module")
def web():
    server = Web({"/x": (200, {"Connection": "close"}, b"from outside")})
    yield server
    server.close()


FORK = pytest.param("fork", marks=pytest.mark.not_on("kubernetes", "kernels are started by exec"))


@pytest.fixture(scope="module", params=["exec", FORK])
def out(request, web):
    gateway = Gateway(
        *("--pool-size", "1", "--network", "egress", "--fetch-allow", "127.0.0.1"),
        *("--kernel-start", request.param),
        quick=True,
    )
    try:
        gateway.start()
        session = gateway.create_session()
        gateway.execute(CLIENT, session_id=session)

        def run(code):
            return gateway.execute(code, session_id=session, timeout=300).text().strip()

        run.gateway = gateway
        yield run
    finally:
        gateway.clean_up()


def test_requests_and_tunnels_go_through(out, web):
    request = f"opener.open('{web.url}/x').read().decode()"
    proxy = "opener = urllib.request.build_opener(urllib.request.ProxyHandler())"
    # The program does not use the proxy for names in no_proxy.
    assert out(f"os.environ['no_proxy'] = ''\n{proxy}\nprint({request})") == "from outside"
    head = f"CONNECT 127.0.0.1:{web.port} HTTP/1.1"
    answer = out(f"print(ask({head!r}, b'GET /x HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'))")
    assert answer.startswith("HTTP/1.1 200") and answer.endswith("from outside")


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))  # sends nothing
        return probe.getsockname()[0]


def test_what_is_private_is_refused(out):
    hosts = ["127.0.0.2", "2130706434", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]"]
    for host in [*hosts, "[fd00::1]", "[::ffff:10.0.0.1]", own_address()]:
        answer = out(f"print(ask('CONNECT {host}:80 HTTP/1.1'))")
        assert answer.startswith("HTTP/1.1 403 "), (host, answer)
        assert "not allowed" in answer
    answer = out("print(ask('GET http://10.0.0.1/ HTTP/1.1'))")
    assert answer.startswith("HTTP/1.1 403 ")


@pytest.mark.not_on("kubernetes", "a pod has a network, which the cluster closes")
def test_there_is_still_no_network(out):
    assert out("print(os.listdir('/sys/class/net'))") == "['lo']"
    code = "print(socket.socket().connect_ex(('203.0.113.1', 80)))"
    assert int(out(code)) > 0


def test_without_the_setting_there_is_no_way_out(gateway):
    session = gateway.create_session()
    code = """
import os, socket
print(os.environ.get("http_proxy"), socket.socket().connect_ex(("127.0.0.1", 3128)))
with socket.socket(socket.AF_UNIX) as door:
    try:
        door.connect("/run/kg/door.sock")
        door.sendall(b"KGDIAL 1\\nCONNECT 203.0.113.7:443 HTTP/1.1\\r\\n\\r\\n")
        print(door.recv(100))
    except OSError:  # or there is no such socket
        print(b"")
"""
    assert gateway.execute(code, session_id=session).text().split() == ["None", "111", "b''"]
    gateway.delete_session(session)
