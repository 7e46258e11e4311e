# SPDX-License-Identifier: Apache-2.0
"""The threads of a gateway that do slow work, held back while its loop goes on."""

import contextlib
import ctypes
import os
import pathlib
import platform

from kernelgate import wait_for

PTRACE_DETACH, PTRACE_SYSCALL = 17, 24  # linux/ptrace.h
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000  # linux/wait.h: of a thread that is traced, too
WRITE = {"x86_64": "1", "aarch64": "64"}[platform.machine()]


def _ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def _interrupt(thread):
    _ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)


def _workers_of(pid):
    threads = (int(task) for task in os.listdir(f"/proc/{pid}/task"))
    name = "/proc/{}/task/{}/comm".format
    return [it for it in threads if pathlib.Path(name(pid, it)).read_text() == "kg-worker\n"]


def _reports(thread):
    """Whether it is about to tell the loop that work is done (src/loop/work.c); it has no lock then."""
    call, *arguments = pathlib.Path(f"/proc/{thread}/syscall").read_text().split()
    if call != WRITE:
        return False
    return os.readlink(f"/proc/{thread}/fd/{int(arguments[0], 16)}") == "anon_inode:[eventfd]"


class Workers:
    def __init__(self, gateway):
        self._going = _workers_of(gateway.process.pid)
        self._held = []
        assert self._going  # the first work starts them

    def begin(self):
        for worker in self._going:
            _ptrace(PTRACE_SEIZE, worker)
            _interrupt(worker)
            _ptrace(PTRACE_SYSCALL, worker)

    def are_held(self):
        """Whether each has done some work, and is held before it says so."""
        for worker in list(self._going):
            while os.waitpid(worker, WALL | os.WNOHANG)[0]:
                if _reports(worker):
                    self._going.remove(worker)
                    self._held.append(worker)
                    break
                _ptrace(PTRACE_SYSCALL, worker)
        return not self._going

    def end(self):
        for worker in self._going:
            _interrupt(worker)
        for worker in self._going + self._held:
            _ptrace(PTRACE_DETACH, worker)


@contextlib.contextmanager
def held_workers(gateway):
    """Yields a function that waits until each worker of the gateway has done some work. From then on
    until the end of the context the gateway hears of none of it, and no more work is done. Before that, ask
    the gateway for nothing: its loop may wait for a worker, which goes on only while this function waits."""
    workers = Workers(gateway)
    workers.begin()
    try:
        yield lambda: wait_for(workers.are_held)
    finally:
        workers.end()
