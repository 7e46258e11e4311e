# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one installation: taking over the sessions of one that is gone, and fencing."""

import concurrent.futures
import contextlib
import datetime
import itertools
import os
import pathlib
import signal
import socket
import threading
import time

import cluster
import httpx
import pytest
from kernelgate import HELD, problem, wait_for
from replicas import TAKEOVER_S, adopted, answers, leases, listed, wait_until_known

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")


def started_at(gateway):
    """By its own clock."""
    return datetime.datetime.fromisoformat(gateway.log().split()[0])


# ---- Killed --------------------------------------------------------------------------------------


def test_a_killed_replicas_sessions_are_taken_over(start_replica):
    """Their clocks are a minute apart, four times as long as a replica may be silent."""
    [library] = pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    fast = {
        "LD_PRELOAD": str(library),
        "FAKETIME": "+60s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "ASAN_OPTIONS": "verify_asan_link_order=0",
    }
    first, second = start_replica(), start_replica(env=fast)
    wait_until_known(start_replica.installation, 2)
    first.execute("x = 41", session_id="first")
    second.execute("x = 51", session_id="second")
    ahead = started_at(second) - started_at(first)
    assert ahead > datetime.timedelta(seconds=50)
    time.sleep(5)  # each has looked for the other one several times
    assert answers(first, "second", "print(x + 1)", "52")
    assert answers(second, "first", "print(x + 1)", "42")
    assert adopted(first) == adopted(second) == 0
    first.kill()
    killed = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):  # a client that does not wait
        second.client.get("/api/v1/sessions/first", timeout=0.5)
    wait_for(lambda: answers(second, "first", "print(x + 1)", "42"), timeout=TAKEOVER_S)
    assert time.monotonic() - killed < 20  # docs/kubernetes.md
    assert adopted(second) == 1


def test_a_replica_is_killed_under_load(pair):
    """What it ran breaks off; nobody else notices."""
    first, second = pair
    first.execute("x = 41", session_id="kept")
    second.execute("y = 0", session_id="own")
    stop = threading.Event()

    def use_own():
        for number in itertools.count(1):
            lines = second.execute("y += 1; print(y)", session_id="own")
            assert lines.text() == f"{number}\n" and lines.status == "ok", lines
            if stop.wait(0.1):
                return number

    with concurrent.futures.ThreadPoolExecutor() as pool:
        used = pool.submit(use_own)
        try:
            with second.stream(HELD, session_id="kept") as reader:
                reader.next_of("stdout")
                first.kill()
                with pytest.raises(httpx.RemoteProtocolError):
                    reader.rest()
            second.release("kept")
            wait_for(lambda: answers(second, "kept", "print(x + 1)", "42"), timeout=TAKEOVER_S)
        finally:
            stop.set()
        assert used.result() > 20


def test_a_killed_replica_is_missed_by_those_who_have_sessions_there(start_replica, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:correct-horse-battery\nbob:wrong-horse-battery\n")
    flags = ("--api-keys-file", str(keys))
    first = start_replica(*flags, key="correct-horse-battery")
    second = start_replica(*flags, key="wrong-horse-battery")
    wait_until_known(start_replica.installation, 2)
    first.execute("x = 41", session_id="of-ann")
    second.execute("x = 51", session_id="of-bob")
    ann = second.client_for("correct-horse-battery")
    wait_for(lambda: "of-ann" in ann.get("/api/v1/sessions").json().get("sessions", {}))
    first.kill()
    assert listed(second) == ["of-bob"]
    problem(ann.get("/api/v1/sessions"), 503, "provisioner_unavailable")
    wait_for(
        lambda: "of-ann" in ann.get("/api/v1/sessions").json().get("sessions", {}),
        timeout=TAKEOVER_S,
    )


# ---- Stopped, ended, cut off ---------------------------------------------------------------------


def test_a_replica_that_was_stopped_is_overtaken(pair):
    """It drives none of its former sessions, and forwards. Its cell goes on, and is not run again."""
    first, second = pair
    first.execute("x = 41; n = 0", session_id="kept")
    with first.stream(f"n += 1\n{HELD}", session_id="kept") as reader:
        reader.next_of("stdout")
        first.signal(signal.SIGSTOP)
        try:
            second.release("kept")
            wait_for(lambda: answers(second, "kept", "x += 1; print(x)", "42"), timeout=TAKEOVER_S)
        finally:
            first.signal(signal.SIGCONT)
        assert reader.rest().status == "died"

    def runs():
        """What it accepts before it knows ends as died, and has not run."""
        body = {"session_id": "kept", "code": "x += 1"}
        response = first.client.post("/api/v1/execute_sync", json=body)
        return response.status_code == 200 and response.json()["data"]["status"] == "ok"

    wait_for(runs, timeout=TAKEOVER_S)
    for gateway in pair:
        assert gateway.execute("print(x, n)", session_id="kept").text() == "43 1\n"
    assert "another gateway has taken the sandbox over" in first.log()
    assert adopted(second) == 1 and adopted(first) == 0


def test_a_replica_that_ends_leaves_its_sessions_to_the_others(pair, start_replica):
    first, second = pair
    first.execute("x = 41", session_id="kept")
    second.execute("y = 1", session_id="own")
    first.stop()
    # Its lease is gone, so nobody waits for that to expire.
    wait_for(lambda: answers(second, "kept", "print(x + 1)", "42"), timeout=10)
    assert second.execute("print(y)", session_id="own").text() == "1\n"
    assert listed(second) == ["kept", "own"]
    assert len(leases(start_replica.installation, "replica")) == 1


def test_idle_sessions_are_handed_over_at_once(start_replica):
    """The other replica has them while a cell of the one that ends still runs."""
    first, second = start_replica("--drain-timeout", "60"), start_replica()
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    first.execute("x = 41", session_id="idle")
    first.create_session(session_id="busy")
    second.execute("y = 1", session_id="own")
    with first.stream(HELD, session_id="busy") as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        first.signal(signal.SIGTERM)
        wait_for(lambda: "draining" in first.log())
        # Requests wait for it, also those that still come to the one that ends.
        assert first.execute("print(x + 1)", session_id="idle").text() == "42\n"
        assert second.execute("print(x + 1)", session_id="idle").text() == "42\n"
        assert first.execute("print(6 * 7)").text() == "42\n"
        first.execute("z = 1", session_id="new")
        assert second.execute("print(z)", session_id="new").text() == "1\n"
        assert second.show_session("busy")["is_busy"]
        assert adopted(second) == 1
        second.release("busy")
        assert reader.rest().status == "ok"
    assert second.execute("print(1)", session_id="busy").text() == "1\n"
    assert first.wait() == 0
    assert second.execute("print(y)", session_id="own").text() == "1\n"


def test_a_replica_starts_beside_others(pair, start_replica):
    """It takes nothing from those that live."""
    first, second = pair
    first.execute("x = 41", session_id="kept")
    third = start_replica()
    assert third.execute("print(x + 1)", session_id="kept").text() == "42\n"
    assert adopted(third) == 0
    assert listed(third) == ["kept"]


class Cut:
    """Forwards connections to the API server, until it is cut."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", 6443))
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()
        self._listener.close()

    def cut(self):
        self._passes.clear()

    def restore(self):
        self._passes.set()


def test_a_replica_without_the_api_server_is_overtaken(start_replica):
    """Both reach the sandbox all the time. Each cell runs once: in the order of the epochs."""
    with Cut() as way:
        server = {"KERNELGATE_KUBERNETES_SERVER": f"https://127.0.0.1:{way.port}"}
        first, second = start_replica(env=server), start_replica()
        wait_for(lambda: listed(first) is not None and listed(second) is not None)
        first.execute("ran = []", session_id="kept")
        assert second.execute("ran.append('before')", session_id="kept").status == "ok"
        way.cut()
        # It knows nothing, and goes on until the agent refuses it.
        assert first.execute("ran.append('cut')", session_id="kept").status == "ok"
        wait_for(lambda: adopted(second) == 1, timeout=TAKEOVER_S)
        assert second.execute("ran.append('over')", session_id="kept").status == "ok"
        with contextlib.suppress(httpx.HTTPError):
            first.client.post(
                "/api/v1/execute_sync",
                json={"session_id": "kept", "code": "ran.append('late')"},
                timeout=2,
            )
        # It does not know who has the session, and does not say that nobody has.
        problem(first.client.get("/api/v1/sessions/kept"), 503, "provisioner_unavailable")
        way.restore()
        wait_for(
            lambda: answers(first, "kept", "ran.append('back'); print('on')", "on"), timeout=30
        )
        expected = "['before', 'cut', 'over', 'back']\n"
        assert second.execute("print(ran)", session_id="kept").text() == expected
        assert adopted(first) == 0 and adopted(second) == 1


# ---- The API server --------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_sessions_stay_where_they_are_while_the_api_server_is_away(pair, component):
    first, second = pair
    first.execute("x = 41", session_id="kept")
    assert second.execute("print(x)", session_id="kept").text() == "41\n"
    seconds = max(25, int(os.environ.get("KERNELGATE_FAULT_SECONDS", "0")))  # 25: a lease and more
    with concurrent.futures.ThreadPoolExecutor() as pool, cluster.stopped(component):
        end = time.monotonic() + seconds
        new = pool.submit(first.client.post, "/api/v1/sessions", json={"session_id": "new"})
        while time.monotonic() < end:
            assert second.execute("print(x)", session_id="kept").text() == "41\n"
            time.sleep(1)
        refused = problem(new.result(), 503, "provisioner_unavailable")
    assert int(new.result().headers["retry-after"]) >= 1 and "API server" in refused["detail"]
    wait_for(lambda: answers(second, "kept", "print(x)", "41"), timeout=TAKEOVER_S)
    wait_for(lambda: listed(second) == ["kept"], timeout=TAKEOVER_S)
    assert adopted(first) == adopted(second) == 0
