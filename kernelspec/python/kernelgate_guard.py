# SPDX-License-Identifier: Apache-2.0
"""What a kernel cannot work without, put back after code that has damaged it."""

import asyncio
import builtins
import json
import os
import select
import signal
import socket
import sys
import threading
import time

# What code may replace for good, as long as it can be called: nothing of a kernel depends on it.
_REPLACEABLE = ("print", "open", "input", "__import__", "breakpoint", "help")
_IPYTHONS = ("exit", "quit", "copyright", "credits", "license")
# Of these, what can no longer be called is put back: tests replace functions. All members would be too
# many, since looking at them copies the pages that a forked kernel shares with the zygote.
_FUNCTIONS = {
    asyncio: (
        "Event",
        "Future",
        "Lock",
        "Task",
        "create_task",
        "ensure_future",
        "get_running_loop",
    ),
    json: ("dumps", "loads"),
    os: ("close", "dup2", "fstat", "getpid", "read", "urandom", "write"),
    select: ("epoll", "poll"),
    signal: ("signal",),
    socket: ("socket",),
    threading: ("Condition", "Event", "Lock", "RLock", "Thread", "current_thread", "main_thread"),
    time: ("monotonic", "perf_counter", "sleep", "time"),
}
# Below that a kernel cannot report an exception.
_MIN_RECURSION = 200

# Looked up here: those in `builtins` may be anything.
_callable = callable
_BaseException = BaseException
_members = vars(builtins)
_system, _modules = vars(sys), sys.modules
_get_limit, _set_limit = sys.getrecursionlimit, sys.setrecursionlimit
_limit = _get_limit()


def _nothing():
    pass


class Guard:
    """Remembers what is there when it is made, before any code of the user has run."""

    def __init__(self, main):
        self._builtins = [
            (name, value)
            for name, value in _members.items()
            if callable(value) and name not in _IPYTHONS
        ]
        self._functions = [
            (vars(module), name, getattr(module, name))
            for module, names in _FUNCTIONS.items()
            for name in names
        ]
        self._modules = _modules | {"__main__": main}

    def put_back_builtins(self):
        """Also what can be called: a kernel does nothing without `isinstance`."""
        try:
            _nothing()
        except _BaseException:
            pass  # a trace function has raised it, which ends the tracing
        for name in ("stdin", "stdout", "stderr"):
            _system.setdefault(name, None)
        for name, value in self._builtins:
            now = _members.get(name)
            if now is not value and (name not in _REPLACEABLE or not _callable(now)):
                _members[name] = value

    def put_back(self):
        self.put_back_builtins()
        for members, name, value in self._functions:
            if not _callable(members.get(name)):
                members[name] = value
        if _get_limit() < _MIN_RECURSION:
            _set_limit(_limit)
        sys.modules = _modules
        if "sys" not in _modules or "builtins" not in _modules:
            _modules.update(self._modules)  # all were removed: nobody removes only these
