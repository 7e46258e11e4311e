# SPDX-License-Identifier: Apache-2.0
"""E2B's SDK for Python, in whichever version this environment has. It finds the gateway by E2B_API_URL and
E2B_SANDBOX_URL, or by E2B_DOMAIN."""

import importlib.metadata
import threading

from e2b import AuthenticationException, CommandExitException, NotFoundException, PtySize
from e2b_code_interpreter import Sandbox

IS_OLD = importlib.metadata.version("e2b").startswith("2.45.")


def life():
    sandbox = Sandbox.create(timeout=60, metadata={"user": "old"}, envs={"OF_ALL": "one"})
    assert sandbox.is_running()
    assert sandbox.run_code("import os; os.environ['OF_ALL']").text == "one"
    sandbox.set_timeout(600)
    assert sandbox.get_info().metadata == {"user": "old"}
    assert Sandbox.connect(sandbox.sandbox_id).sandbox_id == sandbox.sandbox_id
    assert sandbox.kill() is True and sandbox.kill() is False
    assert not sandbox.is_running()


def keys():
    """Old versions look at a key's form themselves; a wrong key is refused with all."""
    try:
        Sandbox.create(api_key="not-of-e2b")
    except AuthenticationException as error:
        assert ("e2b_" in str(error)) == IS_OLD, error
        return
    raise AssertionError("any key opens a sandbox")


def code(sandbox):
    told = []
    run = sandbox.run_code("print('out')\n'a' + 'b'", on_stdout=lambda it: told.append(it.line))
    assert told == run.logs.stdout == ["out\n"] and run.text == "ab"
    assert sandbox.run_code("1/0").error.name == "ZeroDivisionError"


def files(sandbox):
    sandbox.files.write("notes/one.txt", "grüße")
    assert sandbox.files.read("notes/one.txt") == "grüße"
    sandbox.files.write("two.bin", bytes(range(256)))
    assert bytes(sandbox.files.read("two.bin", format="bytes")) == bytes(range(256))
    assert {it.name for it in sandbox.files.list("/home/user")} >= {"notes", "two.bin"}
    assert sandbox.files.make_dir("new") is True and sandbox.files.make_dir("new") is False
    assert sandbox.files.rename("two.bin", "new/two.bin").path == "/home/user/new/two.bin"
    assert sandbox.files.get_info("new/two.bin").size == 256
    sandbox.files.remove("new")
    assert not sandbox.files.exists("new")
    watch = sandbox.files.watch_dir("notes")
    sandbox.commands.run("echo > notes/seen.txt")
    seen = []
    while "seen.txt" not in seen:
        seen += [it.name for it in watch.get_new_events()]
    watch.stop()
    try:
        sandbox.files.read("missing")
    except NotFoundException:
        return
    raise AssertionError("a file was read that is not there")


def commands(sandbox):
    run = sandbox.commands.run("echo out; echo err >&2; exit 0", cwd="/tmp")
    assert (run.stdout, run.stderr, run.exit_code) == ("out\n", "err\n", 0)
    try:
        sandbox.commands.run("exit 3")
    except CommandExitException as error:
        assert error.exit_code == 3
    sorting = sandbox.commands.run("sort", background=True, stdin=True)
    sandbox.commands.send_stdin(sorting.pid, "b\na\n")
    sandbox.commands.close_stdin(sorting.pid)
    assert sorting.wait().stdout == "a\nb\n"
    endless = sandbox.commands.run("sleep 1000", background=True)
    assert endless.pid in [it.pid for it in sandbox.commands.list()]
    assert endless.kill() is True


def terminal(sandbox):
    opened = sandbox.pty.create(size=PtySize(cols=80, rows=24))
    shown, all_shown = bytearray(), threading.Event()

    def read():
        for _, _, data in opened:
            shown.extend(data or b"")
            if b"answer-42" in shown:
                all_shown.set()

    reader = threading.Thread(target=read)
    reader.start()
    sandbox.pty.send_stdin(opened.pid, b"echo answer-$((6 * 7))\n")
    assert all_shown.wait(60), bytes(shown)
    assert sandbox.pty.kill(opened.pid) is True
    reader.join()


def contexts(sandbox):
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    sandbox.remove_code_context(context)


life()
keys()
with Sandbox.create(timeout=600) as made:
    for test in (contexts, code, files, commands, terminal):
        test(made)
print("done")
