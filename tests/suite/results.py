# SPDX-License-Identifier: Apache-2.0
"""What the tests of a part did: read from JUnit files, or from the events that tests/conftest.py writes."""

import dataclasses
import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

REASON_LINES = 12
REASON_WIDTH = 300
# Lines of cmocka's and of sanitizers' output that say why a program failed.
FAULT = re.compile(r"\[ +(ERROR|LINE|FAILED) |Sanitizer|runtime error|Assertion")
# What no second try forgives: a sanitizer's report, a crash, something left behind.
GRAVE = re.compile(
    r"(ERROR|WARNING): \w+Sanitizer|runtime error:|Assertion [`'].*failed|\bexit code -\d|SIGSEGV|SEGFAULT"
    r"|SegFault|Subprocess aborted|left behind:|worker 'gw\d+' crashed"
)
# A cmocka test that fails jumps out of its function, and so leaks what that had allocated.
LEAK = re.compile(r"ERROR: LeakSanitizer")


@dataclasses.dataclass
class Outcome:
    """Of one test, or of a part that ended before its tests did. `log` is all that is known of a failure,
    and empty if the test passed."""

    name: str
    passed: bool
    log: str = ""
    is_test: bool = True

    @property
    def reason(self):
        """The lines that say why it failed."""
        lines = self.log.strip().splitlines()
        marked = [line for line in lines if line.startswith("E  ") or FAULT.search(line)]
        return [line[:REASON_WIDTH] for line in marked[:REASON_LINES] or lines[-REASON_LINES:]]

    @property
    def is_grave(self):
        text = self.log
        if re.search(r"\[  FAILED  \]", text):
            text = LEAK.sub("", text)
        return not self.passed and bool(GRAVE.search(text))


def from_junit(path):
    """The outcomes in a JUnit file by name; a test that was skipped, or did not run, has failed."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        return {
            path.stem: Outcome(path.stem, False, f"no report of its tests: {error}", is_test=False)
        }
    found = {}
    for case in cases:
        name = f"{case.get('classname', '')} {case.get('name')}".strip()
        name = case.get("name") if case.get("classname") == case.get("name") else name
        bad = [case.find(kind) for kind in ("failure", "error", "skipped")]
        bad = [each for each in bad if each is not None]
        passed = case.get("status", "run") == "run" and not bad
        said = [each.get("message") or "" for each in bad] + [each.text or "" for each in bad]
        log = "\n".join([*said, case.findtext("system-out") or ""]).strip()
        before = found.get(name)
        if not before or before.passed:
            found[name] = Outcome(name, passed, "" if passed else log or "it did not run")
    return found


class Events:
    """Reads a file of events while pytest writes it. After `read()`, `outcomes` are those known so far,
    and `total` is how many tests there are, once that is known."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.total = 0
        self.outcomes = {}
        self._offset = 0

    def read(self):
        """Returns the failures that are new."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = []
        for line in whole.splitlines():
            event = json.loads(line)
            if "total" in event:
                self.total = event["total"]
                continue
            outcome = Outcome(event["test"], event["outcome"] == "passed", event.get("log", ""))
            before = self.outcomes.get(outcome.name)
            if before and not before.passed:
                before.log += "\n" + outcome.log  # of a later phase
                continue
            self.outcomes[outcome.name] = outcome
            if not outcome.passed:
                new.append(outcome)
        return new
