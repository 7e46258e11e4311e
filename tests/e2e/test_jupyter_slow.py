# SPDX-License-Identifier: Apache-2.0
"""Clients of Jupyter kernels that do not read: the effect on them, on others and on the gateway."""

import concurrent.futures
import resource
import socket

import pytest
import websocket
from jupyter_wire import (
    V1,
    Channels,
    connections,
    list_kernels,
    one,
    start_bounded_gateway,
    start_kernel,
    text,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


def connect(gateway, kernel, query=""):
    """A connection that will not read, with the smallest buffer."""
    url = gateway.url.replace("http", "ws", 1) + f"/api/kernels/{kernel}/channels{query}"
    smallest = ((socket.SOL_SOCKET, socket.SO_RCVBUF, 4096),)
    return websocket.create_connection(url, subprotocols=[V1], sockopt=smallest, timeout=60)


@pytest.fixture
def many_files():
    """This process may have two thousand open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_that_do_not_read(start_gateway, many_files):
    """31 of each of 33 kernels, all of which print 8 MB; the 32nd client reads."""
    gateway = start_gateway(
        "--jupyter-api", "--pool-size", "0", "--max-sessions", "34",
        "--max-buffered-bytes", str(8 << 20), "--kernel-start-timeout", "300",
        env={"ASAN_OPTIONS": "quarantine_size_mb=1"},  # what was freed is not memory in use
    )  # fmt: skip
    kernels = [start_kernel(gateway) for _ in range(33)]
    gateway.execute("x = 1", session_id="other")
    files, memory = gateway.open_files(), gateway.rss_mb()
    clients = [connect(gateway, kernel) for kernel in kernels for _ in range(31)]
    assert len(clients) == 1023
    wait_for(lambda: sum(it["connections"] for it in list_kernels(gateway).values()) == 1023)
    for kernel in kernels:
        with Channels(gateway, kernel, timeout=120) as reader:
            messages = reader.run("for i in range(128): print('y' * 65536)\nprint('end')")
            assert text(messages).endswith("end\n")
        assert gateway.execute("print(x)", session_id="other").text() == "1\n"
        assert gateway.rss_mb() - memory < 200  # the kernels print 270 MB
    for client in clients:
        client.sock.close()
    wait_for(lambda: gateway.open_files() <= files, timeout=60)
    assert all(it["connections"] == 0 for it in list_kernels(gateway).values())


@pytest.mark.parametrize("query", ["", "?session_id=slow-{}"], ids=["unnamed", "named"])
def test_a_client_whose_unsent_output_crowds_out_the_others_is_cut(start_gateway, query):
    """For each of five clients a message waits that can be neither sent nor dropped: one too many."""
    gateway = start_gateway(
        "--jupyter-api", "--pool-size", "0", "--max-buffered-bytes", str(16 << 20)
    )
    kernel = start_kernel(gateway)
    stuck = []
    with Channels(gateway, kernel) as reader:
        for number in range(5):
            stuck.append(connect(gateway, kernel, query.format(number)))
            messages = reader.run("display({'text/plain': 'z' * 3_900_000}, raw=True)")
            assert one(messages, "display_data")
        wait_for(lambda: connections(gateway, kernel) == 5)
        assert text(reader.run("print(1)")) == "1\n"
        assert connections(gateway, kernel) == 5
    for client in stuck:
        client.sock.close()


def test_a_client_that_does_not_read_is_bounded(start_gateway):
    """It loses output, others do not wait for it, and what is kept for it is bounded."""
    gateway = start_bounded_gateway(start_gateway, 4)
    kernel = start_kernel(gateway)
    with (
        Channels(gateway, kernel, v1=False) as idle,
        Channels(gateway, kernel) as reader,
    ):
        reader.run("1")
        idle.run("1")
        code = "for i in range(1000):\n    print('x' * 65536)\nprint('the end')"
        messages = reader.run(code)
        assert text(messages).endswith("the end\n")
        rest = idle.until(lambda message: message["content"].get("text", "").endswith("the end\n"))
        assert "kernelgate dropped" in text(rest, "stderr")
        idle.until(lambda message: message["content"].get("execution_state") == "idle")
        assert text(idle.run("print(3)")) == "3\n"


def test_many_connections_that_do_not_read(gateway):
    """Each kernel's 32, all at once, while the kernel publishes; then they leave without a word."""
    kernel = start_kernel(gateway)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: Channels(gateway, kernel), range(31)))
    with Channels(gateway, kernel) as reader:
        assert text(reader.run("for i in range(200): print('y' * 65536)")).count("y") == 200 << 16
    for client in clients:
        client.ws.sock.close()
    wait_for(lambda: connections(gateway, kernel) == 0)
    assert gateway.execute("print(1)", session_id=kernel).text() == "1\n"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_pings_of_a_client_that_reads_nothing(gateway):
    """The answers would take memory without bound, if it were read on."""
    kernel = start_kernel(gateway)
    client = Channels(gateway, kernel)
    client.run("1")
    client.ws.sock.settimeout(1)
    ping = b"\x89\xfd" + b"\0\0\0\0" + b"p" * 125
    with pytest.raises((TimeoutError, websocket.WebSocketTimeoutException)):
        for _ in range(1000):
            client.ws.sock.sendall(ping * 1000)
    assert gateway.client.get("/api/kernels").status_code == 200
    client.ws.sock.close()
    client.ws.sock = None
    gateway.client.delete(f"/api/kernels/{kernel}")
