# SPDX-License-Identifier: Apache-2.0
"""Watching a folder: what is reported, bounds, slow clients, and how a watch ends."""

import contextlib
import signal
import socket
import threading
import time
import urllib.parse

import pytest
from kernelgate import problem, wait_for
from session_files import Files
from session_watch import watch


@pytest.fixture
def files(gateway, session):
    return Files(gateway, session)


def refused(gateway, session, status, code, **params):
    url = f"/api/v1/sessions/{session}/watch"
    return problem(gateway.client.get(url, params=params), status, code)["detail"]


# ---- What is reported


def test_what_code_does(gateway, session, files, run):
    files.put("old", b"1")
    with watch(gateway, session) as watched:
        assert watched.started["folders"] == 1 and watched.started["path"] == ""
        run("sh echo a > new; chmod 600 new; mv new newer; rm newer; echo 2 >> old; mkdir d")
        assert watched.until("create", "d") == [
            ("create", "new"), ("write", "new"), ("chmod", "new"), ("rename", "new", "newer"),
            ("remove", "newer"), ("write", "old"), ("create", "d"),
        ]  # fmt: skip
        assert watched.lines[-1]["folder"] and not watched.lines[1]["folder"]
        run("sh touch d/below; touch last")  # not in the folder itself
        assert watched.until("create", "last")[0][1] in ("d", "last")


def test_a_file_that_replaces_another_one(gateway, session, files):
    files.put("x", b"1")
    with watch(gateway, session) as watched:
        files.put("x", b"2")
        assert [watched.event(), watched.event()] == [("create", "x"), ("write", "x")]


def test_what_clients_do(gateway, session, files):
    with watch(gateway, session, recursive="1") as watched:
        files.put("a/b.txt", b"x")
        watched.until("create", "a/b.txt")
        files.act("a/b.txt", "chmod", mode="600")
        # A write comes in between, unless the file was there before its new folder was watched.
        assert watched.until("chmod", "a/b.txt")[:-1] in ([], [("write", "a/b.txt")])
        files.act("a", "move", to="c")
        assert watched.event() == ("rename", "a", "c")
        files.put("c/d.txt", b"x")
        assert watched.event() == ("create", "c/d.txt")  # the new path of the folder
        files.delete("c")
        events = watched.until("remove", "c")
        assert ("remove", "c/b.txt") in events and ("remove", "c/d.txt") in events


def test_folders_that_are_made_later(gateway, session, run):
    run("sh mkdir -p a/b")
    with watch(gateway, session, path="a", recursive="1") as watched:
        assert watched.started["folders"] == 2 and watched.started["path"] == "a"
        run("sh mkdir -p a/b/c/d; touch a/b/c/d/e; touch outside")
        events = watched.until("create", "a/b/c/d/e")
        assert ("create", "a/b/c/d") in events and ("create", "outside") not in events
        run("sh echo x > a/b/c/d/f")
        watched.until("create", "a/b/c/d/f")


def test_what_comes_and_goes(gateway, session, run):
    run("sh mkdir -p in/sub out/sub; touch out/sub/file in/sub/file")
    with watch(gateway, session, path="in", recursive="1") as watched:
        run("sh mv in/sub away")
        assert watched.event() == ("remove", "in/sub")
        run("sh touch away/unseen; mv out/sub in/new; touch in/new/seen")
        events = watched.until("create", "in/new/seen")
        assert ("create", "in/new/file") in events
        assert not any("unseen" in event[-1] for event in events)
        assert ("create", "in/new") in events


def test_anywhere(gateway, session, run):
    run(f"sh mkdir /tmp/{session}")
    with watch(gateway, session, path=f"tmp/{session}", root="/") as watched:
        run(f"sh touch /tmp/{session}/a")
        assert watched.event() == ("create", f"tmp/{session}/a")
        run(f"sh mv /tmp/{session}/a /tmp/{session}/b")
        events = watched.until("rename", f"tmp/{session}/a", f"tmp/{session}/b")
        assert len(events) <= 2


def test_names_that_are_not_shown(gateway, session, files, run):
    with watch(gateway, session) as watched:
        run("sh mkdir .kg-x; touch .kg-y; touch $(printf 'bad\\377'); touch good")
        assert watched.event() == ("create", "good")


# ---- How it ends


def test_the_folder_ends(gateway, session, run):
    run("sh mkdir -p a/b")
    with watch(gateway, session, path="a", recursive="1") as watched:
        run("sh rm -r a")
        done = watched.rest()[-1]
        assert done["type"] == "done" and done["reason"] == "removed"
    run("sh mkdir c")
    with watch(gateway, session, path="c") as watched:
        run("sh mv c d")
        assert watched.rest()[-1]["reason"] == "removed"


def test_the_session_ends(gateway):
    session = gateway.create_session()
    with watch(gateway, session) as watched:
        gateway.delete_session(session)
        done = watched.rest()[-1]
        assert done["type"] == "done" and done["reason"] == "session_ended" and done["message"]


def test_a_shutdown_does_not_wait(start_gateway):
    gateway = start_gateway("--drain-timeout", "60")
    session = gateway.create_session()
    with watch(gateway, session) as watched:
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert watched.rest()[-1] == {"type": "draining"}
        assert gateway.process.wait(timeout=50) == 0
        assert time.monotonic() - began < 50


def test_a_client_leaves(gateway, session):
    for _ in range(20):
        with watch(gateway, session):
            pass


# ---- Activity


def test_only_events_keep_a_session(start_gateway):
    gateway = start_gateway()
    session = gateway.create_session(idle_timeout=60)
    with watch(gateway, session):
        before = gateway.show_session(session)["last_activity"]
        gateway.execute("print x", session_id=session)
        active = gateway.show_session(session)["last_activity"]
        assert active >= before and not gateway.show_session(session)["is_busy"]


# ---- Bounds


def test_a_session_has_eight(gateway, session):
    with contextlib.ExitStack() as stack:
        # Kept, since an iterator that is freed closes its stream.
        watches = [stack.enter_context(watch(gateway, session)) for _ in range(8)]
        assert "8 folders" in refused(gateway, session, 429, "session_busy")
        watches.clear()

    def can_watch():
        with contextlib.suppress(AssertionError), watch(gateway, session):
            return True
        return False

    wait_for(can_watch)


def test_folders_are_bounded(gateway, session, run):
    run("sh mkdir -p many; for i in $(seq 1001); do mkdir many/$i; done")
    assert "1000" in refused(gateway, session, 400, "invalid_request", recursive="1")
    with watch(gateway, session, path="many") as watched:
        assert watched.started["folders"] == 1
    run("sh rm -r many/1 many/2 many/3")
    with watch(gateway, session, path="many", recursive="1") as watched:
        assert watched.started["folders"] == 999
        run("sh mkdir -p many/x many/y many/z")
        watched.until("overflow")


def test_what_is_refused(gateway, session, files, run):
    files.put("file", b"")
    run("sh ln -s /tmp link")
    refused(gateway, session, 404, "not_found", path="none")
    refused(gateway, session, 400, "invalid_path", path="file")
    refused(gateway, session, 400, "invalid_path", path="link")
    refused(gateway, session, 400, "invalid_path", path="../x")
    refused(gateway, session, 400, "invalid_path", path="proc", root="/")
    refused(gateway, session, 400, "invalid_request", recursive="yes")
    refused(gateway, session, 400, "invalid_request", root="/tmp")
    refused(gateway, "none", 404, "session_not_found")


def test_a_client_that_does_not_read(gateway, session, run):
    """Events are lost beyond a bound, and that is said; the code does not wait for the client."""
    with watch(gateway, session) as watched:
        name = "n" * 200
        some = f"i=0; while [ $i -lt 10000 ]; do i=$((i+1)); : > {name}$i; done; rm {name}*; touch last"
        assert run(f"sh {some}", timeout=60).done["status"] == "ok"
        seen = set()
        while "overflow" not in seen and watched.lines[-1].get("path") != "last":
            seen.add(watched.event()[0])
        assert "create" in seen
        run("sh touch later")
        watched.until("create", "later")


def test_a_slow_client_of_a_deep_folder(gateway, session, files, run):
    """What it is told is much more than what the agent says: it waits at the gateway, and nothing is lost."""
    folder = "/".join(["n" * 240] * 4)
    assert files.act(folder, "mkdir").status_code == 201
    with watch(gateway, session, path=folder) as watched:
        some = f"cd {folder}; i=0; while [ $i -lt 12000 ]; do i=$((i+1)); : > $i; done"
        assert run(f"sh {some}", timeout=60).done["status"] == "ok"
        for i in range(1, 12001):
            assert watched.event() == ("create", f"{folder}/{i}")
        with watch(gateway, session, path=folder) as other:  # and one whose lines wait when it leaves
            assert run(f"sh {some.replace(': >', 'echo >')}", timeout=60).done["status"] == "ok"
            assert other.event() == ("write", f"{folder}/1")
    run("sh touch later")


def test_what_waits_for_a_client_is_bounded(gateway):
    """What it still gets when the session ends, is what the gateway and the system had kept for it."""
    session = gateway.create_session()
    folder = "/".join(["n" * 240] * 4)
    assert Files(gateway, session).act(folder, "mkdir").status_code == 201
    url = urllib.parse.urlsplit(gateway.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect((url.hostname, url.port))
        path = f"/api/v1/sessions/{session}/watch?path={folder}&recursive=1"
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(100)
        with watch(gateway, session, path=folder, recursive="1") as other:
            files = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); : > b/$i; done"
            code = f"sh mkdir b; {files}; mv b {folder}"
            body = {"session_id": session, "code": code}
            done = gateway.client.post("/api/v1/execute_sync", json=body, timeout=60).json()["data"]
            assert done["status"] == "ok"
            seen = {other.event() for _ in range(4001)}  # the gateway has been told
            assert {event for event, *_ in seen} == {"create"}
        gateway.delete_session(session)
        received = 0
        while data := client.recv(1 << 16):
            received += len(data)
    assert received < 500_000
