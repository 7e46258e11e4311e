# SPDX-License-Identifier: Apache-2.0
"""Clients of Jupyter kernels that do not read: the effect on them, on others and on the gateway."""

import concurrent.futures
import signal
import time

import pytest
from component import cell
from jupyter_wire import (
    Channels,
    connect_without_reading,
    connections,
    list_kernels,
    one,
    start_bounded_gateway,
    start_kernel,
    text,
    wait_until_left,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


def test_connections_that_do_not_read(start_gateway):
    """31 of each of three kernels, all of which print 8 MB; the 32nd client reads. tests/load has ten
    times as many, and looks at the memory."""
    gateway = start_gateway("--jupyter-api", "--max-buffered-bytes", str(8 << 20))
    kernels = [start_kernel(gateway) for _ in range(3)]
    gateway.execute("set x 1", session_id="other")
    with Channels(gateway, kernels[0]) as reader:  # so that what large messages need is there
        reader.run("flood 128 65537")
    wait_until_left(gateway, kernels[0])
    files = gateway.open_files()
    clients = [connect_without_reading(gateway, kernel) for kernel in kernels for _ in range(31)]
    wait_for(lambda: sum(it["connections"] for it in list_kernels(gateway).values()) == 93)
    for kernel in kernels:
        with Channels(gateway, kernel, timeout=120) as reader:
            messages = reader.run(cell("flood 128 65537", "print end"))
            assert text(messages).endswith("end\n")
        assert gateway.execute("get x", session_id="other").text() == "1\n"
    for client in clients:
        client.sock.close()
    wait_for(lambda: gateway.open_files() <= files)
    assert all(it["connections"] == 0 for it in list_kernels(gateway).values())


@pytest.mark.parametrize("pauses", [False, True], ids=["", "busy-machine"])
@pytest.mark.parametrize("query", ["", "?session_id=slow-{}"], ids=["unnamed", "named"])
def test_a_client_whose_unsent_output_crowds_out_the_others_is_cut(start_gateway, query, pauses):
    """For each of five clients a message waits that can be neither sent nor dropped: one too many.
    Only one is cut, also if the gateway notices all of them at the same time."""
    gateway = start_gateway("--jupyter-api", "--max-buffered-bytes", str(16 << 20))
    kernel = start_kernel(gateway)
    stuck = []
    with Channels(gateway, kernel) as reader:
        for number in range(5):
            stuck.append(connect_without_reading(gateway, kernel, query.format(number)))
            messages = reader.run("display text/plain {3900000*z}")
            assert one(messages, "display_data")
        if pauses:
            gateway.signal(signal.SIGSTOP)
            time.sleep(1)  # as long as all its timers run; longer does not matter
            gateway.signal(signal.SIGCONT)
        wait_for(lambda: connections(gateway, kernel) == 5)
        assert text(reader.run("print 1")) == "1\n"
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
        reader.run("result 1")
        idle.run("result 1")
        messages = reader.run(cell("flood 1000 65537", "print the end"))
        assert text(messages).endswith("the end\n")
        rest = idle.until(lambda message: message["content"].get("text", "").endswith("the end\n"))
        assert "kernelgate dropped" in text(rest, "stderr")
        idle.until(lambda message: message["content"].get("execution_state") == "idle")
        assert text(idle.run("print 3")) == "3\n"


def test_many_connections_that_do_not_read(gateway):
    """Each kernel's 32, all at once, while the kernel publishes; then they leave without a word."""
    kernel = start_kernel(gateway)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: Channels(gateway, kernel), range(31)))
    with Channels(gateway, kernel) as reader:
        assert text(reader.run("flood 200 65536")) == "x" * (200 << 16)
    for client in clients:
        client.ws.sock.close()
    wait_until_left(gateway, kernel)
    assert gateway.execute("print 1", session_id=kernel).text() == "1\n"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_pings_of_a_client_that_reads_nothing(gateway):
    """The answers would take memory without bound, if it were read on."""
    kernel = start_kernel(gateway)
    client = Channels(gateway, kernel)
    client.run("result 1")
    client.ws.sock.setblocking(False)
    pings = memoryview((b"\x89\xfd" + b"\0\0\0\0" + b"p" * 125) * 1000)
    sent = 0

    def is_read():
        """Whether there was room for more after the gateway has answered another client."""
        nonlocal sent
        assert gateway.client.get("/api/kernels").status_code == 200
        try:
            n = client.ws.sock.send(pings[sent:])
        except BlockingIOError:
            return False
        sent = (sent + n) % len(pings)
        return True

    wait_for(lambda: not any(is_read() for _ in range(10)))
    client.ws.sock.close()
    client.ws.sock = None
    gateway.client.delete(f"/api/kernels/{kernel}")
