# SPDX-License-Identifier: Apache-2.0
"""Admission: limits on sessions, requests and connections, and refusals beyond them."""

import concurrent.futures
import contextlib
import json
import re
import select
import socket
import threading
import time

import httpx
import mcp_wire
import pytest
from component import HELD, cell
from kernelgate import problem, wait_for
from sandboxes import sandboxes
from strangers import Strangers

HOLD = cell("print on", "hang")


@pytest.fixture
def two_owners(start_gateway, tmp_path):
    """Starts a gateway for alice (its own client) and bob; returns it and a client of bob."""
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    clients = []

    def start(*flags):
        gateway = start_gateway("--api-keys-file", str(keys), *flags, key="key-of-alice")
        clients.append(gateway.client_for("key-of-bob"))
        return gateway, clients[-1]

    yield start
    for client in clients:
        client.close()


def ids(gateway, client=None):
    return set((client or gateway.client).get("/api/v1/sessions").json()["sessions"])


def refused(response, code, status=429):
    """Asserts that a request was refused, with a time after which to try again."""
    problem(response, status, code)
    assert 1 <= int(response.headers["retry-after"]) <= 60


# ---- How many sessions


def test_max_sessions(start_gateway):
    gateway = start_gateway("--max-sessions", "2", "--pool-size", "1")
    gateway.create_session(session_id="a")
    gateway.create_session(session_id="b")
    for path, body in (
        ("sessions", {"session_id": "c"}),
        ("execute", {"code": "result 1"}),
        ("execute_sync", {"code": "result 1", "session_id": "c"}),
    ):
        refused(gateway.client.post(f"/api/v1/{path}", json=body), "max_sessions")
    # Existing sessions keep working, and each that ends makes room for another.
    assert gateway.create_session(session_id="a") == "a"
    assert gateway.execute("print 1", session_id="b").text() == "1\n"
    gateway.delete_session("a")
    assert gateway.create_session(session_id="c") == "c"
    response = gateway.client.post("/api/v1/sessions", json={})
    refused(response, "max_sessions")
    assert response.json()["detail"].startswith(
        "the gateway already has 2 sessions (setting max-sessions); "
    )
    assert ids(gateway) == {"b", "c"}


def test_sessions_that_are_asked_for_at_once_are_counted(start_gateway):
    gateway = start_gateway("--max-sessions", "3")
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        answers = list(
            threads.map(lambda _: gateway.client.post("/api/v1/sessions", json={}), range(12))
        )
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 9
    assert len(ids(gateway)) == 3


def test_max_sessions_per_owner(two_owners):
    gateway, bob = two_owners("--max-sessions-per-owner", "2", "--max-sessions", "3")
    gateway.create_session(session_id="a")
    gateway.create_session(session_id="b")
    response = gateway.client.post("/api/v1/sessions", json={"session_id": "c"})
    refused(response, "max_sessions")
    assert response.json()["detail"].startswith(
        "this key already has 2 sessions (setting max-sessions-per-owner); "
    )
    # Another owner has a limit of its own, within the gateway's.
    gateway.create_session(bob, session_id="a")
    refused(bob.post("/api/v1/sessions", json={"session_id": "b"}), "max_sessions")
    gateway.delete_session("a")
    gateway.create_session(bob, session_id="b")
    assert ids(gateway) == {"b"} and ids(gateway, bob) == {"a", "b"}


def test_the_share_of_an_owner_is_said(two_owners):
    gateway, _ = two_owners("--max-sessions", "3")
    gateway.create_session()
    gateway.create_session()
    response = gateway.client.post("/api/v1/sessions", json={})
    refused(response, "max_sessions")
    said = "this key already has 2 sessions (half of setting max-sessions, while there are several "
    assert response.json()["detail"].startswith(said)


# ---- Eviction


def test_evict_ends_the_longest_idle_session(start_gateway):
    gateway = start_gateway("--max-sessions", "3", "--evict", "idle", "--pool-size", "1")
    for name in ("first", "second", "third"):
        gateway.create_session(session_id=name)
    gateway.execute("result 1", session_id="first")
    gateway.client.post("/api/v1/sessions/second/touch")
    gateway.create_session(session_id="fourth")
    assert ids(gateway) == {"first", "second", "fourth"}
    gateway.create_session(session_id="fifth")
    assert ids(gateway) == {"second", "fourth", "fifth"}
    wait_for(lambda: {s.session for s in sandboxes(gateway)} - {None} == ids(gateway))


def test_evict_spares_what_is_busy(start_gateway):
    gateway = start_gateway("--max-sessions", "2", "--evict", "idle")
    with gateway.stream(HOLD, session_id="oldest", timeout=600) as oldest:
        oldest.next_of("stdout")
        gateway.create_session(session_id="idle")
        gateway.create_session(session_id="new")
        assert ids(gateway) == {"oldest", "new"}
        with gateway.stream(HOLD, session_id="new", timeout=600) as new:
            new.next_of("stdout")
            refused(gateway.client.post("/api/v1/sessions", json={}), "max_sessions")
            assert ids(gateway) == {"oldest", "new"}
        gateway.client.post("/api/v1/sessions/oldest/interrupt")
        assert oldest.rest().status == "interrupted"


def test_evict_within_an_owner(two_owners):
    flags = ("--max-sessions-per-owner", "1", "--evict", "idle")
    gateway, bob = two_owners(*flags)
    gateway.create_session(bob, session_id="of-bob")
    gateway.create_session(session_id="a")
    gateway.create_session(session_id="b")
    assert ids(gateway) == {"b"} and ids(gateway, bob) == {"of-bob"}


# ---- How many executions


def test_sixteen_executions_wait_in_order(gateway, session):
    with contextlib.ExitStack() as streams:
        first = streams.enter_context(gateway.stream(HOLD, session_id=session, timeout=600))
        first.next_of("stdout")
        # A response's head is sent when its execution waits, so this is their order.
        waiting = [
            streams.enter_context(gateway.stream(f"append order {i}", session_id=session))
            for i in range(16)
        ]
        body = {"code": "append order too many", "session_id": session}
        for path in ("execute", "execute_sync"):
            response = gateway.client.post(f"/api/v1/{path}", json=body)
            problem(response, 429, "session_busy")
        running = first.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{running}/interrupt")
        assert first.rest().status == "interrupted"
        assert [reader.rest().status for reader in waiting] == ["ok"] * 16
    lines = gateway.execute("read order", session_id=session)
    assert lines.text() == "".join(f"{i}\n" for i in range(16))


# ---- How many requests


def burst(gateway, n, client=None):
    client = client or gateway.client
    return [client.get("/api/v1/sessions").status_code for _ in range(n)]


def test_max_requests_per_second(two_owners):
    gateway, bob = two_owners("--max-requests-per-second", "5")
    # Two seconds' worth at once, and then as they come in.
    statuses = burst(gateway, 30)
    assert statuses[:10] == [200] * 10 and 429 in statuses
    response = wait_for(
        lambda: next((r for r in [gateway.client.get("/api/v1/sessions")] if r.is_error), None),
        interval=0,
    )
    refused(response, "rate_limited")
    # Neither another owner nor the probes pay for it.
    assert bob.get("/api/v1/sessions").status_code == 200
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/health"):
        assert {gateway.client.get(path).status_code for _ in range(20)} == {200}
    # There is room again, and not for more than what has come in.
    wait_for(lambda: gateway.client.get("/api/v1/sessions").status_code == 429, interval=0)
    empty, taken = time.monotonic(), 0
    while taken < 4:
        taken += wait_for(lambda: burst(gateway, 1) == [200], interval=0)
        assert taken <= 1 + 5 * (time.monotonic() - empty)
    # An MCP batch counts as the number of its requests.
    older = mcp_wire.Client(gateway, "2025-03-26", key="key-of-bob")
    answers = older.post([mcp_wire.request("ping", n) for n in range(60)]).json()
    refusals = [answer["error"] for answer in answers if "error" in answer]
    assert len(answers) == 60 and 40 < len(refusals) < 59
    assert refusals[0]["code"] == -32000 and refusals[0]["data"] == {"code": "rate_limited"}


def test_a_rate_below_one(start_gateway):
    gateway = start_gateway("--max-requests-per-second", "0.01")
    assert burst(gateway, 3) == [200, 429, 429]


# ---- Without a key


def send_slowly(address, head, stop):
    """Sends a body as fast as it is taken, until it is refused."""
    with socket.create_connection(address, 60) as connection:
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
    """Bodies without a key are refused by their heads. What that costs is in tests/load."""
    gateway, _ = two_owners()
    session = gateway.create_session()
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
        assert gateway.execute(f"#{'x' * 200_000}\nprint 1", session_id=session).text() == "1\n"
        answers = [stranger.result(60) for stranger in strangers]
        stop.set()
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 401 ") and b'"code":"unauthorized"' in answer, answer
    # The client's address is logged once; the key never is.
    line = r"a request came with a wrong key.*127\.0\.0\.1"
    assert len(re.findall(line, gateway.log())) == 1
    assert "guessed" not in gateway.log()


# ---- Large bodies


@pytest.mark.parametrize(
    ("value", "n", "status"),
    [
        ("{}", 3_000_000, 400),
        ("1", 4_500_000, 400),
        ('"\\u0085"', 30_000, 200),
    ],
)
def test_a_large_body(gateway, session, value, n, status):
    """Whether it delays others, and which are just taken, is in tests/load."""
    start = json.dumps({"code": "get v", "session_id": session})[:-1]
    values = f"[{','.join([value] * n)}]"
    body = f'{start},"variables":{{"v":{values}}}}}'.encode()
    answer = gateway.client.post("/api/v1/execute_sync", content=body)
    assert answer.status_code == status, answer.text
    if status == 200:
        assert json.loads("".join(answer.json()["data"]["texts"])) == json.loads(values)


def test_clients_that_leave_while_their_body_is_read(two_owners):
    gateway, _ = two_owners()
    address = tuple(gateway.url.removeprefix("http://").split(":"))
    body = b'{"code":"result 1","variables":{"v":[' + b"1," * 500_000 + b"1]}}"
    for path in ("execute", "sessions", "execute_sync") * 3:
        head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: key-of-alice\r\n"
        with socket.create_connection(address) as connection:
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    wait_for(lambda: not ids(gateway))
    assert gateway.client.get("/healthz").status_code == 200


# ---- How many connections


def answers(connection):
    connection.settimeout(60)
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(4096).startswith(b"HTTP/1.1 200")
    return False


def test_max_connections(start_gateway):
    """Without keys: for a new client the one that has been idle longest goes."""
    gateway = start_gateway("--max-connections", "16")
    address = gateway.url.removeprefix("http://").split(":")
    connections = [socket.create_connection(address) for _ in range(40)]
    try:
        served = [answers(connection) for connection in connections]
        assert served[-8:] == [True] * 8 and not any(served[:24])
    finally:
        for connection in connections:
            connection.close()
    wait_for(lambda: gateway.client.get("/healthz").status_code == 200)


def test_no_connection_that_is_busy_makes_room(start_gateway):
    gateway = start_gateway("--max-connections", "16")
    address = gateway.url.removeprefix("http://").split(":")
    session = gateway.create_session()

    def stream(code):
        return gateway.stream(code, session_id=session)

    def has_room():
        with contextlib.suppress(httpx.TransportError):
            return gateway.client.get("/healthz").status_code == 200
        return False

    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(stream(HELD))]
        streams[0].next()
        streams += [stack.enter_context(stream("print next")) for _ in range(14)]
        with stream("print last"):
            refused = stack.enter_context(socket.create_connection(address))
            refused.settimeout(60)
            with contextlib.suppress(ConnectionError):
                assert refused.recv(1) == b""
        wait_for(has_room)  # the gateway notices a little later that the last stream was closed
        gateway.release(session)
        assert [stream.rest().status for stream in streams] == ["ok"] * 15


def test_strangers_leave_room_for_those_who_have_a_key(two_owners):
    gateway, bob = two_owners("--max-connections", "16")
    session = gateway.create_session()
    with gateway.stream(HELD, session_id=session) as stream:
        stream.next()
        with Strangers(gateway, 60) as strangers:
            for _ in range(20):
                assert bob.get("/api/v1/sessions").status_code == 200
                with contextlib.closing(gateway.client_for("key-of-alice")) as client:
                    assert client.get("/api/v1/sessions").status_code == 200
                strangers.drip()
            assert 0 < strangers.count_open() <= 8
        gateway.release(session)
        assert stream.rest().status == "ok"
