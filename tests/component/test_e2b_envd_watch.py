# SPDX-License-Identifier: Apache-2.0
"""Watching folders of E2B's sandboxes in raw HTTP: the stream of WatchDir, and watchers that are asked."""

import component
import pytest
from e2b_wire import END, Envd, create_sandbox
from kernelgate import Gateway, wait_for

KEY = "key-of-envd-watch"
WATCH_DIR, CREATE = "filesystem.Filesystem/WatchDir", "filesystem.Filesystem/CreateWatcher"


@pytest.fixture(scope="module")
def keyed():
    running = Gateway(*component.FLAGS, "--api-key", KEY, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def envd(keyed, clients):
    stranger = clients(keyed, None)
    stranger.headers.pop("Authorization", None)
    owner = keyed.client_for(KEY)
    made = create_sandbox(owner)
    yield Envd(stranger, made)
    owner.delete(f"/sandboxes/{made['sandboxID']}")


def short(event):
    return event["type"].removeprefix("EVENT_TYPE_"), event["name"]


class Watched:
    """What a stream reports."""

    def __init__(self, stream):
        self.stream = stream
        assert next(stream) == (0, {"start": {}})

    def next(self):
        flags, message = next(self.stream)
        return message if flags == END else short(message["filesystem"])

    def until(self, *last):
        events = [self.next()]
        while events[-1] != last:
            events.append(self.next())
        return events


class Watcher:
    """What is asked for."""

    def __init__(self, envd, **fields):
        self.envd = envd
        self.message = envd.files("CreateWatcher", fields)
        assert list(self.message) == ["watcherId"]

    def events(self, status=200):
        answer = self.envd.files("GetWatcherEvents", self.message, status)
        return [short(event) for event in answer["events"]] if status == 200 else answer

    def until(self, *last):
        events = []
        wait_for(lambda: events.extend(self.events()) or last in events)
        return events

    def remove(self, status=200):
        return self.envd.files("RemoveWatcher", self.message, status)


WHAT_HAPPENS = "echo a > new; chmod 600 new; mv new newer; rm newer; mkdir d"
EVENTS = [
    ("CREATE", "new"), ("WRITE", "new"), ("CHMOD", "new"), ("RENAME", "new"), ("CREATE", "newer"),
    ("REMOVE", "newer"), ("CREATE", "d"),
]  # fmt: skip


@pytest.mark.parametrize("path", ["~", "sub", "/home/user/sub", "/tmp/of-a-test"])
def test_a_stream(envd, path):
    envd.files("MakeDir", {"path": "sub"})
    envd.run("mkdir -p /tmp/of-a-test; rm -rf /tmp/of-a-test/*")
    with envd.stream(WATCH_DIR, {"path": path}) as stream:
        watched = Watched(stream)
        envd.run(WHAT_HAPPENS, process={"cwd": path})
        assert watched.until("CREATE", "d") == EVENTS


def test_a_watcher(envd):
    watcher = Watcher(envd, path="")
    assert watcher.events() == []
    envd.run(WHAT_HAPPENS)
    assert watcher.until("CREATE", "d") == EVENTS
    assert watcher.events() == []
    assert watcher.remove() == {}
    assert watcher.remove(404)["code"] == watcher.events(404)["code"] == "not_found"


def test_a_file_that_a_client_writes(envd):
    watcher = Watcher(envd, path="")
    for content in b"new", b"replaced":
        answer = envd.request("POST", "/files", {"Content-Type": "application/octet-stream"},
                              params={"path": "put"}, content=content)  # fmt: skip
        assert answer.status_code == 200, answer.text
        assert watcher.until("WRITE", "put")[:2] == [("CREATE", "put"), ("WRITE", "put")]


def test_recursion(envd):
    envd.files("MakeDir", {"path": "a/b"})
    flat, deep = Watcher(envd, path="a"), Watcher(envd, path="a", recursive=True)
    with envd.stream(WATCH_DIR, {"path": "a", "recursive": True}) as stream:
        watched = Watched(stream)
        envd.run(": > b/x; mkdir -p c/d; : > last", process={"cwd": "a"})
        assert ("CREATE", "b/x") in watched.until("CREATE", "last")
    events = deep.until("CREATE", "last")
    assert ("CREATE", "b/x") in events and ("CREATE", "c") in events
    assert flat.until("CREATE", "last") == [("CREATE", "c"), ("CREATE", "last")]


def test_what_cannot_be_watched(envd):
    envd.run("touch file")
    for path, code in (
        ("none", "not_found"),
        ("file", "invalid_argument"),
        ("/proc", "invalid_argument"),
    ):
        assert envd.refused_stream(WATCH_DIR, {"path": path})["code"] == code
        envd.refused(CREATE, {"path": path}, code)
    assert envd.refused_stream(WATCH_DIR, {"path": 5})["code"] == "invalid_argument"
    envd.refused(CREATE, {"path": "", "recursive": "yes"}, "invalid_argument")


def test_a_folder_that_goes(envd):
    envd.files("MakeDir", {"path": "gone"})
    watcher = Watcher(envd, path="gone")
    with envd.stream(WATCH_DIR, {"path": "gone"}) as stream:
        watched = Watched(stream)
        envd.run(": > x; rm -r ../gone", process={"cwd": "gone"})
        assert watched.next() == ("CREATE", "x") and watched.next() == ("REMOVE", "x")
        assert watched.next() == {}
    assert watcher.until("REMOVE", "x") == [("CREATE", "x"), ("REMOVE", "x")]
    assert watcher.events() == []
    watcher.remove()


def test_a_sandbox_that_ends(envd, keyed):
    Watcher(envd, path="")
    with envd.stream(WATCH_DIR, {"path": ""}) as stream:
        watched = Watched(stream)
        keyed.client_for(KEY).delete(f"/sandboxes/{envd.sandbox['sandboxID']}")
        assert watched.next()["error"]["code"] == "unavailable"


def test_watchers_are_their_sandboxes_own(envd, keyed):
    watcher = Watcher(envd, path="")
    other = Envd(envd.client, create_sandbox(keyed.client_for(KEY)))
    for method in "GetWatcherEvents", "RemoveWatcher":
        other.refused(f"filesystem.Filesystem/{method}", watcher.message, "not_found")
        other.refused(f"filesystem.Filesystem/{method}", {}, "not_found")
    watcher.remove()


def test_a_deadline(envd):
    with envd.stream(WATCH_DIR, {"path": ""}, {"Connect-Timeout-Ms": "200"}) as stream:
        assert Watched(stream).next()["error"]["code"] == "deadline_exceeded"


def test_keepalives(envd):
    with envd.stream(WATCH_DIR, {"path": ""}, {"Keepalive-Ping-Interval": "1"}) as stream:
        assert next(stream) == (0, {"start": {}})
        assert next(stream) == (0, {"keepalive": {}})


def test_a_thousand_watchers(envd, keyed):
    """There are bounds for a sandbox; those of others still work, and places become free."""
    made = []
    for _ in range(1000):
        answer = envd.request("POST", f"/{CREATE}", json={"path": ""})
        if answer.status_code != 200:
            assert answer.json()["code"] == "resource_exhausted"
            continue
        made.append(answer.json())
    assert 1 <= len(made) <= 32
    other = Envd(envd.client, create_sandbox(keyed.client_for(KEY)))
    Watcher(other, path="").remove()
    for message in made:
        envd.files("RemoveWatcher", message)
    Watcher(envd, path="").remove()


def test_events_that_nobody_asks_for(envd):
    """They are bounded; what was lost is told, and the watcher goes on."""
    watcher = Watcher(envd, path="")
    envd.run("for i in $(seq 1 30000); do : > f$i; done; touch end")
    events = []

    def has_end():
        events.extend(watcher.events())
        return ("CREATE", "end") in events or ("UNSPECIFIED", "") in events

    wait_for(has_end)
    envd.run("touch later")
    wait_for(lambda: ("CREATE", "later") in watcher.events())
