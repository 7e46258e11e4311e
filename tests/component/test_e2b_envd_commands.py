# SPDX-License-Identifier: Apache-2.0
"""Commands and terminals of E2B's sandboxes in raw HTTP: the calls of Process."""

import json
import socket
import threading

import component
import pytest
from e2b_wire import END, STREAM_TYPE, Envd, create_sandbox, encode, envelope, envelopes
from kernelgate import Gateway, wait_for

KEY = "key-of-envd-commands"
START, CONNECT = "process.Process/Start", "process.Process/Connect"


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


def listed(envd):
    return {it["pid"]: it for it in envd.process("List")["processes"]}


# ---- Start -------------------------------------------------------------------------------------


def test_a_command(envd):
    done = envd.run("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert done.end == {
        "exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3",
    }  # fmt: skip
    assert done.error is None
    assert envd.run("true").end == {"exitCode": 0, "exited": True, "status": "exit status 0"}


def test_words_reach_a_program_as_they_are(envd):
    words = ["%s|", "a b", "", "$HOME", "'\"\\", "*", "ü\n"]
    done = envd.run("", args=words, process={"cmd": "printf"})
    assert done.stdout == "".join(f"{word}|" for word in words[1:])
    done = envd.run("", args=["-c", 'printf %s "$0" "$@"', "a b", "c"], process={"cmd": "/bin/sh"})
    assert done.stdout == "a bc"


def test_environment_and_folder(envd):
    done = envd.run("echo $A $USER $HOME; pwd", process={"envs": {"A": "x y"}, "cwd": "/tmp"})
    assert done.stdout == "x y user /home/user\n/tmp\n"
    assert envd.run("pwd").stdout == "/home/user\n"
    envd.files("MakeDir", {"path": "sub"})
    assert envd.run("touch here", process={"cwd": "sub"}).end["exitCode"] == 0
    envd.files("Stat", {"path": "/home/user/sub/here"})
    envd.run("touch there", process={"cwd": "/home/user/sub"})
    envd.files("Stat", {"path": "sub/there"})


def test_login_shells(envd):
    """What they read counts, but the kernels' programs stay in front."""
    path = envd.run("echo $PATH", args=["-c", "echo $PATH"]).stdout.strip()
    assert envd.run("echo $PATH").stdout.startswith(path)
    envd.run("echo 'export FROM_PROFILE=yes' > ~/.bash_profile", process={"envs": {"HOME": "/tmp"}})
    done = envd.run("echo $FROM_PROFILE $0; false; echo $?", process={"envs": {"HOME": "/tmp"}})
    assert done.stdout == "yes /bin/bash\n1\n"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({}, "invalid_argument"),
        ({"process": {"cmd": ""}}, "invalid_argument"),
        ({"process": {"cmd": "x", "args": ["a", 1]}}, "invalid_argument"),
        ({"process": {"cmd": "x", "args": ["a"] * 300}}, "invalid_argument"),
        ({"process": {"cmd": "x", "args": ["a" * 200_000]}}, "invalid_argument"),
        ({"process": {"cmd": "x", "envs": {"A": 1}}}, "invalid_argument"),
        ({"process": {"cmd": "/none/such"}}, "invalid_argument"),
        ({"process": {"cmd": "true", "cwd": "/none"}}, "invalid_argument"),
        ({"process": {"cmd": "true"}, "tag": "t" * 200}, "invalid_argument"),
        ({"process": {"cmd": "true"}, "pty": {"size": {"cols": 0, "rows": 5}}}, "invalid_argument"),
        ({"process": {"cmd": "true"}, "pty": {}}, "invalid_argument"),
    ],
)
def test_bad_starts(envd, message, code):
    error = envd.refused_stream(START, message)
    assert error["code"] == code and error["message"]


def test_signals_as_ends(envd):
    done = envd.run("kill -SEGV $$")
    assert done.end == {
        "exitCode": -1, "exited": False, "status": "signal: segmentation fault",
        "error": "signal: segmentation fault",
    }  # fmt: skip


def test_a_deadline(envd):
    """Its end is the stream's end; the command and what it has started are killed."""
    with envd.started(
        "echo $$; sleep 1000 & wait", headers={"Connect-Timeout-Ms": "1500"}
    ) as events:
        events.rest()
        assert events.end is None and events.error["code"] == "deadline_exceeded"
    wait_for(lambda: not listed(envd))
    for wrong in "x", "-1", "12345678901", "":
        with envd.raw_stream(
            START, envelope({"process": {"cmd": "true"}}), {"Connect-Timeout-Ms": wrong}
        ) as answer:
            ((_flags, end),) = envelopes(answer.iter_raw())
        assert end["error"]["code"] == "invalid_argument"


def test_keepalives(envd):
    with envd.started("cat", headers={"Keepalive-Ping-Interval": "1"}, stdin=True) as events:
        while events.keepalives < 2:
            assert events.step()
        envd.process("CloseStdin", {"process": {"pid": events.pid}})
        assert events.rest().end["exitCode"] == 0


# ---- Commands go on ----------------------------------------------------------------------------


def test_a_command_outlives_its_client(envd):
    with envd.started("echo one; read line; echo two $line", stdin=True, tag="my tag") as events:
        events.until("one")
        pid = events.pid
    info = listed(envd)[pid]
    assert info["tag"] == "my tag"
    assert info["config"]["cmd"] == "/bin/bash"
    assert info["config"]["args"] == ["-l", "-c", "echo one; read line; echo two $line"]
    for selector in {"pid": pid}, {"pid": str(pid)}, {"tag": "my tag"}:
        with envd.joined(selector) as events:
            assert events.pid == pid
            events.until("one")
    with envd.joined({"pid": pid}) as events:
        envd.give(pid, "three\n")
        assert "two three\n" in events.rest().stdout and events.end["exitCode"] == 0
    assert pid not in listed(envd)
    # One that connects too late still learns of the end, and sees the last of the output.
    with envd.joined({"pid": pid}) as events:
        assert events.rest().stdout == "one\ntwo three\n" and events.end["exitCode"] == 0


def test_words_in_the_list(envd):
    with envd.started("", args=["1000"], process={"cmd": "sleep", "cwd": "/tmp"}) as events:
        config = listed(envd)[events.pid]["config"]
        assert (config["cmd"], config["args"], config["cwd"]) == ("sleep", ["1000"], "/tmp")
        envd.process("SendSignal", {"process": {"pid": events.pid}, "signal": "SIGNAL_SIGKILL"})


def test_the_deadline_of_a_join_is_that_of_the_stream(envd):
    with envd.started("sleep 1000") as events:
        with envd.joined({"pid": events.pid}, {"Connect-Timeout-Ms": "300"}) as joined:
            assert joined.rest().error["code"] == "deadline_exceeded"
        assert events.pid in listed(envd)
        envd.process("SendSignal", {"process": {"pid": events.pid}, "signal": 9})
        assert events.rest().end["status"] == "signal: killed"


def test_what_is_not_there(envd):
    for selector in {"pid": 4_000_000}, {"tag": "none"}:
        error = envd.refused_stream(CONNECT, {"process": selector})
        assert error["code"] == "not_found"
        for method, more in (
            ("SendSignal", {"signal": "SIGNAL_SIGTERM"}),
            ("SendInput", {"input": {"stdin": ""}}),
            ("CloseStdin", {}),
            ("Update", {"pty": {"size": {"cols": 80, "rows": 24}}}),
        ):
            envd.refused(f"process.Process/{method}", {"process": selector, **more}, "not_found")
    assert envd.refused_stream(CONNECT, {})["code"] == "invalid_argument"
    envd.refused("process.Process/SendSignal", {"process": {"pid": 1}}, "invalid_argument")


def test_a_slow_client_misses_nothing(envd):
    """It holds the command back: all of 20 MB comes, though it does not read for a while."""
    n = 20_000_000
    with envd.started(f"echo begin; head -c {n} /dev/zero | tr '\\0' x; echo; echo end") as events:
        events.until("begin")
        assert events.pid in listed(envd)  # other calls are answered meanwhile
        done = events.rest()
    assert len(done.stdout) == n + len("begin\n\nend\n") and done.end["exitCode"] == 0


def test_signals(envd):
    with envd.started("trap 'echo got; exit 5' TERM; echo on; while :; do sleep 0.05; done") as it:
        it.until("on")
        envd.process("SendSignal", {"process": {"pid": it.pid}, "signal": "SIGNAL_SIGTERM"})
        assert it.rest().stdout == "on\ngot\n" and it.end["exitCode"] == 5


# ---- Input -------------------------------------------------------------------------------------


def test_input(envd):
    with envd.started("cat", stdin=True) as events:
        envd.give(events.pid, "one\n")
        events.until("one\n")
        data = "x" * 300_000
        giving = threading.Thread(target=envd.give, args=(events.pid, data))
        giving.start()
        events.until(data)
        giving.join()
        envd.refused(
            "process.Process/SendInput",
            {"process": {"pid": events.pid}, "input": {"pty": ""}}, "invalid_argument",
        )  # fmt: skip
        envd.refused(
            "process.Process/SendInput", {"process": {"pid": events.pid}}, "invalid_argument"
        )
        envd.process("CloseStdin", {"process": {"pid": events.pid}})
        assert events.rest().end["exitCode"] == 0
    assert envd.run("cat").stdout == ""  # stdin is false: there is none


def test_input_waits_for_the_command(envd):
    """More than may wait for one that does not read yet."""
    data = "y" * 3_000_000
    with envd.started("read go; wc -c", stdin=True) as events:
        giving = threading.Thread(target=envd.give, args=(events.pid, "go\n" + data))
        giving.start()
        giving.join()
        envd.process("CloseStdin", {"process": {"pid": events.pid}})
        assert events.rest().stdout.strip() == str(len(data))


def stream_input(envd, content):
    with envd.raw_stream("process.Process/StreamInput", content) as answer:
        assert answer.status_code == 200, answer.read()
        return list(envelopes(answer.iter_raw()))


def begin(pid):
    return envelope({"start": {"process": {"pid": pid}}})


def given(text, kind="stdin"):
    return envelope({"data": {"input": {kind: encode(text)}}})


def test_a_stream_of_input(envd):
    with envd.started("cat", stdin=True) as events:
        parts = [
            begin(events.pid),
            given("a"),
            envelope({"keepalive": {}}),
            given("b\n"),
            given(""),
        ]
        assert stream_input(envd, b"".join(parts)) == [(0, {}), (END, {})]
        events.until("ab\n")
        assert stream_input(envd, begin(events.pid)) == [(0, {}), (END, {})]
        for content, code in (
            (b"", "invalid_argument"),
            (given("x"), "invalid_argument"),
            (begin(events.pid) * 2, "invalid_argument"),
            (begin(4_000_000), "not_found"),
            (begin(events.pid) + given("x", "pty"), "invalid_argument"),
            (begin(events.pid) + given("x")[:-1], "invalid_argument"),
            (begin(events.pid) + envelope(b"{"), "invalid_argument"),
            (begin(events.pid) + envelope(b"[]"), "invalid_argument"),
            (begin(events.pid) + envelope({}, 1), "unimplemented"),
            (begin(events.pid) + envelope({}, 2), "invalid_argument"),
            (begin(events.pid) + b"\0\xff\xff\xff\xff", "resource_exhausted"),
        ):
            ((flags, end),) = stream_input(envd, content)
            assert flags == END and end["error"]["code"] == code, (content, end)
        envd.process("CloseStdin", {"process": {"pid": events.pid}})
        events.rest()


def test_messages_count_as_they_come(envd):
    """The body's length is not known, and the next message is sent when the last has been seen."""
    with envd.started("cat", stdin=True) as events:
        seen = threading.Event()

        def messages():
            yield begin(events.pid)
            yield given("first\n")
            assert seen.wait(60)
            yield given("second\n")

        answers = []
        feeding = threading.Thread(target=lambda: answers.extend(stream_input(envd, messages())))
        feeding.start()
        events.until("first\n")
        seen.set()
        events.until("second\n")
        feeding.join()
        assert answers == [(0, {}), (END, {})]
        envd.process("CloseStdin", {"process": {"pid": events.pid}})
        events.rest()


# ---- Terminals ---------------------------------------------------------------------------------


def test_a_terminal(envd):
    size = {"size": {"cols": 90, "rows": 25}}
    with envd.started(
        "", args=["-i", "-l"], pty=size, process={"envs": {"TERM": "xterm", "PS1": "$ "}}
    ) as events:
        pid = events.pid
        envd.give(pid, "stty size; echo $TERM-$((40+2)); tty\n", "pty")
        events.until("25 90", "pty")
        events.until("xterm-42", "pty")
        events.until("/dev/pts/", "pty")
        envd.process("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 70, "rows": 20}}})
        envd.give(pid, "stty size\n", "pty")
        events.until("20 70", "pty")
        (info,) = envd.process("List")["processes"]
        assert info["config"]["args"] == ["-i", "-l"]
        for method, more in ("SendInput", {"input": {"stdin": ""}}), ("CloseStdin", {}):
            message = {"process": {"pid": pid}, **more}
            envd.refused(f"process.Process/{method}", message, "invalid_argument")
        assert stream_input(envd, begin(pid) + given("echo st''reamed\n", "pty"))[-1] == (END, {})
        events.until("streamed", "pty")
        with envd.joined({"pid": pid}) as other:
            envd.give(pid, "exit 4\n", "pty")
            assert other.rest().end["exitCode"] == 4
        assert events.rest().end["exitCode"] == 4 and events.stdout == ""


def test_a_command_without_a_terminal_has_no_size(envd):
    with envd.started("sleep 1000") as events:
        message = {"process": {"pid": events.pid}, "pty": {"size": {"cols": 80, "rows": 24}}}
        envd.refused("process.Process/Update", message, "invalid_argument")
        envd.process("SendSignal", {"process": {"pid": events.pid}, "signal": "SIGNAL_SIGKILL"})


# ---- The protocol ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_argument"),
        (b"\0\0\0", "invalid_argument"),
        (envelope({})[:-1], "invalid_argument"),
        (envelope({}) + b"x", "invalid_argument"),
        (envelope({}) * 2, "invalid_argument"),
        (envelope({}, 1), "unimplemented"),
        (envelope({}, 2), "invalid_argument"),
        (envelope(b"[]"), "invalid_argument"),
        (envelope(b"\xff"), "invalid_argument"),
        (b"\0\xff\xff\xff\xff{}", "resource_exhausted"),
        (envelope({"process": [{}] * 200_000}), "invalid_argument"),
    ],
    ids=range(11),
)
def test_bad_envelopes(envd, body, code):
    error = envd.refused_stream(START, body)
    assert error["code"] == code and error["message"]


def test_bad_streams(envd):
    body = envelope({"process": {"cmd": "true"}})
    for headers in (
        {"Content-Type": "application/json"},
        {"Content-Type": "application/connect+proto"},
    ):
        with envd.raw_stream(START, body, headers) as answer:
            assert answer.status_code == 415 and STREAM_TYPE in json.loads(answer.read())["message"]
    with envd.raw_stream(START, body, {"Connect-Content-Encoding": "gzip"}) as answer:
        assert answer.status_code == 501
        assert json.loads(answer.read())["code"] == "unimplemented"


def test_many_commands(envd):
    """There is a bound; beyond it a client is told, and nothing else is harmed."""
    streams, pids = [], []
    try:
        for _ in range(20):
            stream = envd.stream(START, {"process": {"cmd": "sleep", "args": ["1000"]}})
            events = stream.__enter__()
            streams.append(stream)
            flags, message = next(events)
            if flags == END:
                assert message["error"]["code"] == "resource_exhausted"
                break
            pids.append(message["event"]["start"]["pid"])
        assert 10 < len(pids) < 20 and set(pids) == set(listed(envd))
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
    for pid in pids:
        envd.process("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    wait_for(lambda: not listed(envd))


def test_a_client_that_leaves_while_its_command_is_looked_for(envd, keyed):
    """Raw sockets that are closed at once, at every kind of call: the gateway goes on."""
    host, port = keyed.url.removeprefix("http://").split(":")
    for method in START, CONNECT, "process.Process/SendInput", "filesystem.Filesystem/WatchDir":
        body = envelope({"process": {"pid": 5, "cmd": "true"}, "path": ""})
        head = "".join(f"{name}: {value}\r\n" for name, value in envd.headers.items())
        request = (
            f"POST /{method} HTTP/1.1\r\nHost: {host}:{port}\r\n{head}"
            f"Content-Type: {STREAM_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        for _ in range(5):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(request)
    assert envd.run("echo on").stdout == "on\n"


def test_a_sandbox_that_ends(envd, keyed):
    with envd.started("echo on; sleep 1000") as events:
        events.until("on")
        keyed.client_for(KEY).delete(f"/sandboxes/{envd.sandbox['sandboxID']}")
        assert events.rest().error["code"] == "unavailable"


def test_draining(start_gateway, clients):
    gateway = start_gateway()
    made = create_sandbox(gateway.client)
    envd = Envd(gateway.client, made)
    with envd.started("echo on; sleep 1000") as events:
        events.until("on")
        gateway.process.terminate()
        assert events.rest().error["code"] == "unavailable"
