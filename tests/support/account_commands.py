# SPDX-License-Identifier: Apache-2.0
"""The commands that change a database of accounts, as a shell runs them."""

import os
import pathlib
import sqlite3
import subprocess

from kernelgate import BINARY


def _let_through(folder):
    """The folders of a test are root's alone, and the gateway is another user."""
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)


class Accounts:
    """A database, and the commands that change it."""

    def __init__(self, path):
        # A folder of its own, which the gateway takes over.
        own = path.parent.name == "accounts"
        self.path = path if own else path.with_name("accounts") / path.name
        self.path.parent.mkdir(exist_ok=True)
        _let_through(self.path.parent)
        path = self.path
        self.flags = ("--accounts-file", str(path))

    def run(self, *words):
        command = [BINARY, *words, *self.flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def do(self, *words):
        result = self.run(*words)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    def refused(self, *words):
        result = self.run(*words)
        assert result.returncode == 1 and result.stdout == "", result
        return result.stderr.strip()

    def key(self, user, name=""):
        return self.do("key", "add", user, *([name] if name else [])).strip()

    def password(self, user, password):
        command = [BINARY, "user", "passwd", user, *self.flags]
        subprocess.run(command, input=password + "\n", text=True, check=True, timeout=60)

    def rows(self, *words):
        return [line.split("\t") for line in self.do(*words).splitlines()]

    def sql(self, text):
        database = sqlite3.connect(self.path)
        with database:
            rows = database.execute(text).fetchall()
        database.close()
        return rows
