# SPDX-License-Identifier: Apache-2.0
"""What refused and large bodies cost others: memory, processor time, and time."""

import concurrent.futures
import contextlib
import json
import select
import socket
import threading

import httpx
import pytest
from waits import LONGEST_WAIT_MS, longest_wait_ms


@pytest.fixture
def two_owners(start_gateway, tmp_path):
    """Starts a gateway for alice, its own client, and bob."""
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")

    def start(*flags):
        return start_gateway("--api-keys-file", str(keys), *flags, key="key-of-alice")

    return start


# ---- Without a key


def send_slowly(address, head, stop):
    """Sends a body as fast as it is taken, until it is refused."""
    with socket.create_connection(address, 20) as connection:
        connection.sendall(head)
        with contextlib.suppress(ConnectionError):
            while not stop.is_set() and not select.select([connection], [], [], 0)[0]:
                connection.sendall(bytes(1 << 16))
        answer = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                answer += chunk
        return answer


def test_without_a_key_nothing_is_held(two_owners):
    """Bodies without a key are refused by their heads: they take no memory, and delay nobody."""
    gateway = two_owners("--pool-size", "0")
    session = gateway.create_session()
    before = gateway.rss_mb()
    path = f"/api/v1/sessions/{session}/files/x"
    address = tuple(gateway.url.removeprefix("http://").split(":"))
    start = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\n"
    heads = [
        start + f"Content-Length: {50 << 20}\r\n\r\n",
        start + f"X-API-Key: guessed\r\nContent-Length: {50 << 20}\r\n\r\n",
        start + "Transfer-Encoding: chunked\r\n\r\n",
        start + f"Content-Length: {50 << 20}\r\nExpect: 100-continue\r\n\r\n",
    ]
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        strangers = [
            threads.submit(send_slowly, address, heads[i % 4].encode(), stop) for i in range(20)
        ]
        put = gateway.client.put(path, content=bytes(1 << 20))
        assert put.status_code == 201
        assert gateway.execute(f"#{'x' * 200_000}\nprint(1)", session_id=session).text() == "1\n"
        answers = [stranger.result(20) for stranger in strangers]
        stop.set()
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 401 ") and b'"code":"unauthorized"' in answer, answer
    assert gateway.rss_mb() - before < 60


def test_a_refused_body_that_stops_costs_no_processor_time(two_owners):
    gateway = two_owners("--pool-size", "0")
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(
            b"PUT /api/v1/sessions/s/files/x HTTP/1.1\r\nHost: localhost\r\n"
            b"X-API-Key: guessed\r\nContent-Length: 1000000\r\n\r\n0"
        )
        assert b" 401 " in connection.recv(65536)
        # The gateway waits for the rest of the body; if it polled, this would be near 1.
        assert gateway.processor_share() < 0.3


# ---- Large bodies


@pytest.mark.parametrize(
    ("value", "n", "status"),
    [
        ("{}", 3_000_000, 400),
        ("1", 4_500_000, 400),
        ("{}", 300_000, 200),
        ("1", 1_900_000, 200),
        ('"\\u0085"', 300_000, 200),
    ],
)
def test_a_large_body_holds_nobody_up(two_owners, value, n, status):
    gateway = two_owners("--pool-size", "1")
    session = gateway.create_session()
    gateway.execute("pass", session_id=session)
    start = json.dumps({"code": "print(len(v))", "session_id": session})[:-1]
    body = f'{start},"variables":{{"v":[{",".join([value] * n)}]}}}}'.encode()

    def send():
        answer = gateway.client.post("/api/v1/execute_sync", content=body, timeout=60)
        assert answer.status_code == status, answer.text
        if status == 200:
            assert "".join(answer.json()["data"]["texts"]) == f"{n}\n"

    assert longest_wait_ms(gateway, "key-of-bob", send) <= LONGEST_WAIT_MS


def test_a_body_above_every_limit_takes_no_memory(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    before = gateway.rss_mb()
    with contextlib.suppress(httpx.TransportError):  # it may be cut while it sends
        assert gateway.client.post("/api/v1/execute", content=bytes(80 << 20)).status_code == 413
    assert gateway.rss_mb() - before < 40
