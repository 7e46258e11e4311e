# SPDX-License-Identifier: Apache-2.0
"""The packages that the gateway gives to all sessions, in the process that kernels are forked from."""

import importlib.metadata
import json
import os
import re

SHARED = "/opt/kernelgate/packages"


def modules():
    """Yields the names of the modules of what was asked for, without what that depends on."""
    try:
        with open(f"{SHARED}/all.json", encoding="utf-8") as file:
            wanted = set(json.load(file))
    except OSError:
        return
    for distribution in importlib.metadata.distributions(path=[f"{SHARED}/all"]):
        if re.sub("[-_.]+", "-", distribution.metadata["Name"]).lower() not in wanted:
            continue
        for file in distribution.files or ():
            if len(file.parts) == 2 and file.name == "__init__.py":
                yield file.parts[0]
            elif len(file.parts) == 1 and file.suffix == ".py":
                yield file.stem


def _can_be_forked(name, end_threads):
    """Whether its import, tried in a child, succeeds and leaves no threads: a fork would lose them."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            __import__(name)
            end_threads()
            code = 0 if len(os.listdir("/proc/self/task")) == 1 else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def import_all(end_threads):
    """Imports those that can be forked; `end_threads()` ends threads that start again when needed."""
    for name in modules():
        if _can_be_forked(name, end_threads):
            __import__(name)
