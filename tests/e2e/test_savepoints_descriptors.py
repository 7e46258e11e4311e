# SPDX-License-Identifier: Apache-2.0
"""What a branch has of the descriptors of the kernel that it was forked from."""

import json

import pytest
from session_savepoints import value

OPENED = r"""
import os, pty, select, socket
pipe = os.pipe()
pair = socket.socketpair()
listener = socket.create_server(("127.0.0.1", 0))
terminal = pty.openpty()
event = os.eventfd(0)
poll = select.epoll()
os.mkfifo("/tmp/fifo"); fifo = os.open("/tmp/fifo", os.O_RDWR)
opened = [*pipe, *(each.fileno() for each in pair), listener.fileno(), *terminal, event, poll.fileno(), fifo]
file = open("/mnt/data/numbers", "w+"); file.write("0123456789"); file.flush(); file.seek(4)
tail = open("/mnt/data/log", "a"); tail.write("begin\n"); tail.flush()
removed = open("/mnt/data/removed", "w+"); removed.write("still there"); removed.flush()
os.remove("/mnt/data/removed"); removed.seek(6)
folder = os.open("/mnt/data", os.O_RDONLY | os.O_DIRECTORY)
random_ = open("/dev/urandom", "rb", buffering=0)
inherited = os.open("/mnt/data/numbers", os.O_RDONLY); os.set_inheritable(inherited, True)
"""
TARGETS = "import json, os; json.dumps([os.readlink(f'/proc/self/fd/{n}') for n in opened])"
ALL = """
import json, os
def links():
    for n in os.listdir("/proc/self/fd"):
        try: yield os.readlink(f"/proc/self/fd/{n}")
        except OSError: pass
json.dumps(sorted(links()))
"""


def texts(result):
    return json.loads(result.strip("'"))


def test_what_has_another_end_stays_with_the_parent(run, savepoints):
    run(OPENED)
    before = texts(value(run, TARGETS))
    savepoints.branch("b")
    savepoints.branch("c", branch="b")
    for branch in "b", "c":
        assert set(texts(value(run, TARGETS, branch=branch))) == {"/dev/null"}
        assert value(run, "[os.get_inheritable(n) for n in opened]", branch=branch) == str(
            [False] * len(before)
        )
        # Neither reading nor closing reaches the parent's, or what has come in its place.
        assert value(run, "os.write(pipe[1], b'x'), os.read(pipe[0], 1)", branch=branch) == "(1, b'')"
        run("pair[0].close(); poll.close(); listener.close(); [os.close(n) for n in terminal]", branch=branch)
        assert value(run, "1 + 1", branch=branch) == "2"
    assert texts(value(run, TARGETS)) == before
    assert value(run, "os.write(pipe[1], b'mine'), os.read(pipe[0], 9)") == "(4, b'mine')"
    assert value(run, "pair[0].send(b'mine'), pair[1].recv(9)") == "(4, b'mine')"
    assert value(run, "os.write(terminal[1], b'mine'), os.read(terminal[0], 9)") == "(4, b'mine')"


def test_files_have_offsets_of_their_own(run, savepoints):
    run(OPENED)
    made = savepoints.make()
    for name in "ab":
        savepoints.branch(name, **{"from": made["savepoint"]})
    for fields in {}, {"branch": "a"}, {"branch": "b"}:
        assert value(run, "file.read(2), file.tell()", **fields) == "('45', 6)"
        assert value(run, "removed.read(5)", **fields) == "'there'"
        assert value(run, "sorted(os.listdir(folder))", **fields) == "['log', 'numbers']"
        assert value(
            run, "len(random_.read(3)), os.get_inheritable(inherited), os.get_inheritable(folder)", **fields
        ) == ("(3, True, False)")
        run("tail.write('line\\n'); tail.flush()", **fields)  # at the end, wherever that is
    run("file.seek(6); file.write('!'); file.flush()", branch="a")  # one file all the same
    assert value(run, "open('/mnt/data/numbers').read()") == "'012345!789'"
    assert value(run, "open('/mnt/data/log').read().split()") == "['begin', 'line', 'line', 'line']"


KEPT = """
import asyncio, gc, logging
loop, handler = asyncio.get_running_loop(), logging.StreamHandler()
"""
USED = """
loop.call_soon_threadsafe(print)
handler.stream.write("logged\\n"); handler.flush()
del loop, handler; gc.collect()
await asyncio.sleep(0.001, "on")
"""


@pytest.mark.once
def test_the_kernels_own_are_closed(run, savepoints):
    """Those of the parent are not in the branch, and nothing grows from one fork of a fork to the next."""
    own = {each for each in texts(value(run, ALL)) if each.startswith(("socket:", "pipe:", "/tmp/"))}
    assert len(own) > 10
    counts = []
    for _ in range(20):
        run(KEPT)
        savepoints.restore(savepoints.make()["savepoint"])
        links = texts(value(run, ALL))
        assert not own & set(links) and links.count("/dev/null") <= 1
        counts.append(len(links))
        lines = run(USED)  # objects of the kernel before reach nothing of this one
        assert lines.text("stderr") == "logged\n" and lines.one("result")["text"] == "'on'"
    assert max(counts) - min(counts) <= 2
