# SPDX-License-Identifier: Apache-2.0
"""The threads of a gateway that do slow work, stopped while its loop goes on: what is handed to them then
waits for certain."""

import contextlib
import ctypes
import os
import pathlib
import platform

from kernelgate import wait_for

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207  # linux/ptrace.h
FUTEX = {"x86_64": "202", "aarch64": "98"}[platform.machine()]  # the call in which they wait
WALL = 0x40000000  # linux/wait.h: of a thread that is traced, too


def _ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def _workers_of(pid):
    threads = (int(task) for task in os.listdir(f"/proc/{pid}/task"))
    name = "/proc/{}/task/{}/comm".format
    return [it for it in threads if pathlib.Path(name(pid, it)).read_text() == "kg-worker\n"]


def _stop(thread):
    """False: it was at work, and may hold a lock, so it goes on."""
    _ptrace(PTRACE_SEIZE, thread)
    _ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
    call = pathlib.Path(f"/proc/{thread}/syscall").read_text().split()[0]
    if call == FUTEX:
        return True
    _ptrace(PTRACE_DETACH, thread)
    return False


@contextlib.contextmanager
def stopped_workers(gateway):
    """While this lasts, no worker of the gateway runs; its loop does. The gateway must have had work
    for them before, which has started them."""
    workers, stopped = _workers_of(gateway.process.pid), []
    assert workers
    try:
        for worker in workers:
            wait_for(lambda worker=worker: _stop(worker))
            stopped.append(worker)
        yield
    finally:
        for worker in stopped:
            _ptrace(PTRACE_DETACH, worker)
