# SPDX-License-Identifier: Apache-2.0
"""The commands that change a database of accounts, as a shell runs them."""

import sqlite3
import subprocess

from kernelgate import BINARY


class Accounts:
    """A database, and the commands that change it."""

    def __init__(self, path):
        self.path = path
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
