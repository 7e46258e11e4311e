# SPDX-License-Identifier: Apache-2.0
"""What a kernel cannot work without, put back after code that has damaged it."""

import asyncio
import builtins
import io
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
# In these, only what can no longer be called is put back: tests replace their functions.
_MODULES = (asyncio, io, json, os, select, signal, socket, sys, threading, time)
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
            (name, value) for name, value in _functions(_members) if name not in _IPYTHONS
        ]
        self._functions = [(vars(module), _functions(vars(module))) for module in _MODULES]
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
        for members, functions in self._functions:
            for name, value in functions:
                if not _callable(members.get(name)):
                    members[name] = value
        if _get_limit() < _MIN_RECURSION:
            _set_limit(_limit)
        sys.modules = _modules
        if "sys" not in _modules or "builtins" not in _modules:
            _modules.update(self._modules)  # all were removed: nobody removes only these


def _functions(members):
    return [(name, value) for name, value in members.items() if callable(value)]
