# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK for Python, unchanged: files, commands, terminals, watching, signed URLs."""

import asyncio
import io
import threading

import component
import e2b
import httpx
import pytest
from kernelgate import Gateway, wait_for

KEY = "e2b_0123456789abcdef"


@pytest.fixture(scope="module")
def options():
    running = Gateway(*component.FLAGS, "--api-key", KEY, key=KEY)
    try:
        running.start()
        yield {"api_url": running.url, "sandbox_url": running.url, "api_key": KEY}
    finally:
        running.clean_up()


@pytest.fixture
def sandbox(options):
    with e2b.Sandbox.create(timeout=600, **options) as made:
        yield made
        made.kill()


# ---- Files -------------------------------------------------------------------------------------


def test_write_and_read(sandbox):
    files = sandbox.files
    info = files.write("a/b.txt", "text")
    assert (info.name, info.type, info.path) == ("b.txt", e2b.FileType.FILE, "/home/user/a/b.txt")
    assert files.read("a/b.txt") == files.read("/home/user/a/b.txt") == "text"
    data = bytes(range(256)) * 10_000
    files.write("data", data)
    assert files.read("data", format="bytes") == data
    with files.read("data", format="stream") as stream:
        assert b"".join(stream) == data
    files.write("data", b"")
    assert files.read("data", format="bytes") == b""
    written = files.write_files([{"path": f"many/{i}", "data": str(i)} for i in range(5)])
    assert [it.path for it in written] == [f"/home/user/many/{i}" for i in range(5)]
    assert files.read("many/4") == "4"
    with pytest.raises(e2b.NotFoundException):
        files.read("none")
    with pytest.raises(e2b.InvalidArgumentException):
        files.read("many")
    with pytest.raises(e2b.AuthenticationException):
        files.read("a/b.txt", user="bob")
    assert files.read("a/b.txt", user="root") == "text"


def test_octet_streams(sandbox):
    data = bytes(range(256)) * 5000
    for options in {"use_octet_stream": True}, {"gzip": True}:
        sandbox.files.write("whole", data, **options)
        assert sandbox.files.read("whole", format="bytes") == data
    sandbox.files.write("parts", iter([data[:1000], data[1000:]]))
    assert sandbox.files.read("parts", format="bytes", gzip=True) == data


def test_entries(sandbox):
    files = sandbox.files
    assert files.make_dir("d/e") is True and files.make_dir("d/e") is False
    files.write("d/file", "1234")
    info = files.get_info("d/file")
    assert (info.size, info.mode, info.permissions) == (4, 0o644, "-rw-r--r--")
    assert (info.owner, info.group, info.symlink_target) == ("user", "user", None)
    assert info.modified_time.year >= 2024
    assert files.exists("d/file") and not files.exists("d/none")
    assert [it.name for it in files.list("d")] == ["e", "file"]
    sandbox.commands.run("ln -s file d/link")
    link = files.get_info("d/link")
    assert link.type == e2b.FileType.SYMLINK and link.symlink_target == "/home/user/d/file"
    assert [it.path for it in files.list("", depth=2)] == [
        f"/home/user/{path}" for path in ("d", "d/e", "d/file", "d/link")
    ]
    moved = files.rename("d/file", "d/moved")
    assert moved.path == "/home/user/d/moved" and not files.exists("d/file")
    files.remove("d")
    files.remove("d")
    assert files.list("") == []
    with pytest.raises(e2b.NotFoundException):
        files.list("none")


def test_watching(sandbox):
    handle = sandbox.files.watch_dir("", recursive=True)
    sandbox.files.write("new/file", "x")
    events = []
    kinds = e2b.FilesystemEventType
    wait_for(
        lambda: (
            events.extend(handle.get_new_events())
            or ("new/file", kinds.CREATE) in [(it.name, it.type) for it in events]
        )
    )
    handle.stop()


def test_signed_urls(sandbox):
    url = sandbox.upload_url("signed")
    assert httpx.post(url, files={"file": ("signed", b"by a link")}).status_code == 200
    for user in None, "user":
        url = sandbox.download_url("signed", user=user, use_signature_expiration=60)
        assert httpx.get(url).content == b"by a link"
    assert httpx.get(url + "0").status_code == 401


# ---- Commands ----------------------------------------------------------------------------------


def test_run(sandbox):
    seen = []
    result = sandbox.commands.run(
        "echo out; echo err >&2; echo $A; pwd",
        envs={"A": "b"},
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
    )
    assert result.exit_code == 0 and result.error is None and result.stderr == "err\n"
    assert result.stdout == "out\nb\n/home/user\n" and ("err", "err\n") in seen
    with pytest.raises(e2b.CommandExitException) as raised:
        sandbox.commands.run("echo before; exit 7")
    assert (raised.value.exit_code, raised.value.stdout) == (7, "before\n")
    with pytest.raises(e2b.TimeoutException):
        sandbox.commands.run("sleep 1000", timeout=1)
    with pytest.raises(e2b.InvalidArgumentException):
        sandbox.commands.run("true", cwd="/none")
    assert sandbox.commands.run("echo 'ü€🎉'").stdout == "ü€🎉\n"


def test_in_the_background(sandbox):
    handle = sandbox.commands.run(
        "read a; echo got $a; read b; echo $b", background=True, stdin=True
    )
    listed = {it.pid: it for it in sandbox.commands.list()}
    assert listed[handle.pid].args[-1].startswith("read a;") and listed[handle.pid].tag is None
    handle.disconnect()
    sandbox.commands.send_stdin(handle.pid, "one\n")
    other = sandbox.commands.connect(handle.pid)
    other.send_stdin("two\n")
    assert other.wait().stdout == "got one\ntwo\n"
    assert sandbox.commands.kill(handle.pid) is False
    handle = sandbox.commands.run("sleep 1000", background=True)
    assert handle.kill() is True
    with pytest.raises(e2b.CommandExitException):
        handle.wait()
    with pytest.raises(e2b.NotFoundException):
        sandbox.commands.connect(4_000_000)


def test_input(sandbox):
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    handle.send_stdin("a")
    sandbox.commands.stream_input(handle.pid, ["b", b"c\n"])
    handle.close_stdin()
    assert handle.wait().stdout == "abc\nend\n"


def test_terminals(sandbox):
    seen = bytearray()
    handle = sandbox.pty.create(e2b.PtySize(rows=24, cols=80))
    waiting = threading.Thread(target=lambda: handle.wait(on_pty=seen.extend))
    waiting.start()
    sandbox.pty.send_stdin(handle.pid, b"stty size; echo $((40+2))\n")
    wait_for(lambda: b"24 80" in seen and b"42" in seen)
    sandbox.pty.resize(handle.pid, e2b.PtySize(rows=30, cols=100))
    sandbox.pty.stream_input(handle.pid, [b"stty si", b"ze\n"])
    wait_for(lambda: b"30 100" in seen)
    sandbox.pty.send_stdin(handle.pid, b"exit\n")
    waiting.join()
    assert sandbox.pty.kill(handle.pid) is False


def test_a_sandbox_that_was_killed(sandbox):
    handle = sandbox.commands.run("sleep 1000", background=True)
    assert sandbox.is_running()
    sandbox.kill()
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxException):
        handle.wait()
    for call in lambda: sandbox.files.read("x"), lambda: sandbox.commands.run("true"):
        with pytest.raises(e2b.SandboxNotRunningException):
            call()


# ---- Beside one another ------------------------------------------------------------------------


def test_many_at_once(options):
    async def work():
        sandbox = await e2b.AsyncSandbox.create(timeout=600, **options)
        try:

            async def one(i):
                await sandbox.files.write(f"f{i}", io.BytesIO(bytes([i]) * 100_000))
                result = await sandbox.commands.run(f"wc -c < f{i}")
                return result.stdout.strip(), await sandbox.files.read(f"f{i}", format="bytes")

            return await asyncio.gather(*(one(i) for i in range(10)))
        finally:
            await sandbox.kill()

    for i, (size, data) in enumerate(asyncio.run(work())):
        assert size == "100000" and data == bytes([i]) * 100_000
