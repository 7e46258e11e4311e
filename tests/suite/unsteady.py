# SPDX-License-Identifier: Apache-2.0
"""The tests that once failed and then passed twice, on this machine: a file in the user's cache folder.

Each entry is a line with a date and the test's name, and indented lines below it:

    2026-11-27 tests/e2e/test_pool.py::test_refill
        failed: AssertionError: …
        explained:

A test is forgiven once. When somebody has found out why it failed and has written it behind
`explained:`, it is forgiven again."""

import datetime


class Record:
    def __init__(self, path):
        self.path = path

    def unexplained(self):
        """The names of tests that will not be forgiven again."""
        names, name = set(), None
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return names
        for line in lines:
            if line and not line[0].isspace():
                name = line.partition(" ")[2]
                names.add(name)
            elif line.strip().startswith("explained:") and line.partition(":")[2].strip():
                names.discard(name)
        return names

    def add(self, outcome):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        reason = " ".join(outcome.reason)[:300]
        with open(self.path, "a", encoding="utf-8") as file:
            today = datetime.date.today().isoformat()
            file.write(f"{today} {outcome.name}\n    failed: {reason}\n    explained:\n")
