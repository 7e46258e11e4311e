# SPDX-License-Identifier: Apache-2.0
"""Installs and builds what parts need, one after the other, while earlier parts run."""

import os
import signal
import subprocess
import threading

from parts import PROJECT

SHELL = "set -euo pipefail; source script/common; "


class Preparation(threading.Thread):
    """`state(part)` is None until the part is prepared, then a status: 0, or
    parts.UNAVAILABLE where the distribution does not have what it needs, or that of a failure."""

    def __init__(self, parts, folder):
        super().__init__(daemon=True)
        self._parts = parts
        self._folder = folder
        self._states = {}
        self._process = None
        self.current = None

    def run(self):
        for part in self._parts:
            self.current = part.name
            with open(self.log_of(part), "wb") as output:
                self._process = subprocess.Popen(
                    ["nice", "bash", "-c", SHELL + part.prepare],
                    cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            self._states[part.name] = self._process.wait()
        self.current = None

    def log_of(self, part):
        return self._folder / f"{part.name}.prepare.log"

    def state(self, part):
        return self._states.get(part.name)

    def end(self):
        process = self._process
        if process and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
