# SPDX-License-Identifier: Apache-2.0
"""Savepoints of a kernel: forks of it that wait, and from which kernels are forked.

A kernel is asked for one by code (`savepoint` in kernel.json), and forks when that request has been
answered, so that no cell runs. A savepoint is asked for a kernel by a socket beside its connection file:
one JSON object in a line, and one in a line as the answer. Every fork becomes a child of the sandbox's
first process, in a session of its own, so it does not end with what it was forked from.
"""

import asyncio
import atexit
import contextlib
import contextvars
import functools
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings

import kernelgate_descriptors
import kernelgate_kernel
import kernelgate_zygote
import zmq
from ipykernel import kernelapp
from IPython import get_ipython

# The number of the socket of a savepoint, after those of a kernel: see kernels.expect of the agent.
_SOCKET = 6
_MAX_REQUEST = 4096
# A lock that code's own fork handlers wait for is never released in a child.
_FORK_TIMEOUT_MS = 8000
_CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
# The first to go when the sandbox has no memory left. A kernel has what its parent had.
_OOM_SCORE = 1000

_kept = []  # what a fork must not collect: objects of ZeroMQ that have threads only in the parent


def make(text):
    """Makes a savepoint, whose connection file a JSON object names, when this request is answered."""
    plan = json.loads(text)
    kernel = get_ipython().kernel
    kernel.when_idle(functools.partial(_make, kernel, plan))


def _make(kernel, plan):
    kernel.files.flush()
    plan["lost"] = _what_is_lost(kernel)
    plan["execution_count"] = kernel.shell.execution_count - 1
    _fork(functools.partial(_be_savepoint, plan))


class Own:
    """What a kernel has that is not its code's: made before that runs."""

    def __init__(self, app):
        self.threads = set(threading.enumerate())
        self.descriptors = kernelgate_descriptors.Own([app.context, app.heartbeat.context])


# ---- A fork ---------------------------------------------------------------------------------


def _fork(run):
    """Forks twice, so that the child is not ours; returns its process id."""
    read_end, write_end = os.pipe()
    try:
        pid = _fork_once()
        if pid == 0:
            os.close(read_end)
            _be_middle(write_end, run)
        os.close(write_end)
        write_end = -1
        told = _read_in_time(read_end, pid)
        with contextlib.suppress(ChildProcessError):  # code may have waited for it
            os.waitpid(pid, 0)
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    if not told:
        raise OSError("the fork has ended at once")
    return int(told)


def _read_in_time(read_end, pid):
    """What the child in the middle says; b"" once it has been killed for its silence."""
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    if not poll.poll(_FORK_TIMEOUT_MS):
        os.kill(pid, signal.SIGKILL)
        return b""
    return os.read(read_end, 16)


def _fork_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads
        return os.fork()


def _be_middle(write_end, run):
    try:
        middle = os.getpid()
        pid = _fork_once()
        if pid == 0:
            os.close(write_end)
            _be_child(middle, run)
        os.write(write_end, str(pid).encode())
    finally:
        os._exit(0)


def _be_child(middle, run):
    status = 1
    try:
        os.setsid()
        while os.getppid() == middle:
            time.sleep(0.0002)
        signal.set_wakeup_fd(-1)
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)
        contextvars.copy_context().run(run)  # with what code has set
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        sys.__stderr__.flush()
    finally:
        os._exit(status)


def _set_standard_files():
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)
    sys.displayhook = sys.__displayhook__


def _set_oom_score(score):
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def _own_memory():
    """The bytes that no other process shares; None where Linux does not say it."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/smaps_rollup") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    return None


def _oom_score():
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj") as file:
        return int(file.read())
    return 0


# ---- What a fork does not have --------------------------------------------------------------


def _what_is_lost(kernel):
    """What a kernel from this savepoint will not have, for people."""
    sockets = set(kernelgate_descriptors.network_sockets())
    counts = {
        "thread": sum(not _is_own(thread, kernel.own.threads) for thread in threading.enumerate()),
        "task": sum(map(_is_the_users, asyncio.all_tasks())),
        "network socket": len(sockets - kernel.own.descriptors.network_sockets),
        "child process": _children(),
    }
    many = {"child process": "child processes"}
    return [
        f"{count} {name if count == 1 else many.get(name, name + 's')}"
        for name, count in counts.items()
        if count
    ]


def _is_own(thread, own):
    """Whether it is the kernel's; its debugger and its subshells start some later."""
    module = type(thread).__module__
    return thread in own or module.startswith(("ipykernel.", "_pydevd", "pydevd", "IPython."))


def _is_the_users(task):
    code = getattr(task.get_coro(), "cr_code", None)
    libraries = ("/ipykernel/", "/tornado/", "/zmq/", "/kernelgate_ipkernel.py")
    return code is not None and not any(each in code.co_filename for each in libraries)


def _children():
    """How many processes have this one as their parent. gVisor has no list of them."""
    own, count = str(os.getpid()), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            count += file.read().rpartition(")")[2].split()[1] == own
    return count


# ---- A savepoint ----------------------------------------------------------------------------


def _be_savepoint(plan):
    app = kernelapp.IPKernelApp.instance()
    score = _oom_score()
    _kept.append((app, app.kernel, app.shell))
    atexit._clear()  # what the kernel would do at its end; user code's handlers are in the kernel, too
    folder = os.path.dirname(plan["connection_file"])
    app.kernel.own.descriptors.close()
    kernelgate_descriptors.leave(f"{folder}/output")
    _set_standard_files()
    _set_oom_score(_OOM_SCORE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"{folder}/k-{_SOCKET}")
        server.listen(8)
        answer = {"pid": os.getpid(), "memory_bytes": _own_memory()}
        answer |= {name: plan[name] for name in ("lost", "execution_count")}
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(Exception):  # the savepoint is worth more
                connection.settimeout(5)
                _answer(connection, answer, score)


def _answer(connection, answer, score):
    request = json.loads(_read_line(connection) or "{}")
    if "connection_file" in request:
        answer = {"pid": _fork(functools.partial(_be_kernel, request["connection_file"], score))}
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _read_line(connection):
    line = b""
    while not line.endswith(b"\n") and len(line) < _MAX_REQUEST:
        piece = connection.recv(_MAX_REQUEST)
        if not piece:
            return ""
        line += piece
    return line


# ---- A kernel -------------------------------------------------------------------------------


class _Application(kernelapp.IPKernelApp):
    """A kernel's application around a shell that exists."""

    def take(self, old):
        self.log, self.name, self.profile_dir = old.log, old.name, old.profile_dir
        for handler in self.log.handlers:
            handler.setStream(open(2, "w", buffering=1, closefd=False))
        self.init_connection_file()
        self.init_sockets()
        self.init_heartbeat()
        self.write_connection_file()
        self._ports = {name: getattr(self, f"{name}_port") for name in _CHANNELS}
        self.init_io()
        self.init_signal()
        self.init_kernel()
        self.shell = old.shell
        self.shell.kernel = self.shell.parent = self.kernel
        self.shell.configurables.append(self)
        self.kernel.take(old.kernel)
        kernelgate_kernel.attach(self.iopub_thread)

    def patch_io(self):
        """The process that was forked has done it."""


def _be_kernel(connection_file, score):
    old, kernel, _ = _kept[-1]
    _set_oom_score(score)
    kernelgate_descriptors.close_all_with_another_end()
    kernelgate_descriptors.leave(f"{os.path.dirname(connection_file)}/output")
    _set_standard_files()
    with contextlib.suppress(Exception):  # of modules that code has changed
        kernelgate_zygote.renew_randomness()
    asyncio.set_event_loop(asyncio.new_event_loop())
    zmq.Context._instance = None
    type(old).clear_instance()
    type(kernel).clear_instance()
    app = _Application.instance(config=old.config)
    app.connection_file = connection_file
    app.take(old)
    _note_connection_file(connection_file)
    gc.collect(0)
    app.start()
    atexit._run_exitfuncs()


def _note_connection_file(path):
    for argv in (sys.argv, sys.orig_argv):
        if "-f" in argv:
            argv[argv.index("-f") + 1] = path
    kernelgate_zygote.CommandLine().set(sys.orig_argv)
