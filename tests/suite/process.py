# SPDX-License-Identifier: Apache-2.0
"""A part's process: its output goes to a file, and what is known of its tests can be read meanwhile."""

import os
import re
import signal
import subprocess
import time

import results
from parts import AS_ROOT, Ctest, Pytest

# Far beyond what a part takes: its process hangs.
LONGEST_S = 45 * 60
END_S = 90
CTEST_LINE = re.compile(r"^ *(\d+)/(\d+) Test +#\d+: (\S+) \.+ *(.*)$", re.MULTILINE)


class Process:
    """Runs the tests of a part, or with `only` some of them, until `finished()`."""

    def __init__(self, part, folder, workers, only=(), label=""):
        name = part.name + label
        self.part = part
        self.log = folder / f"{name}.log"
        self.report = folder / f"{name}.xml"
        self.events = results.Events(folder / f"{name}.events")
        for path in (self.report, self.events.path):
            path.unlink(missing_ok=True)
        os.environ["KGT_EVENTS"] = str(self.events.path)
        self.began = time.monotonic()
        self._status = None
        with open(self.log, "wb") as output:
            self._process = subprocess.Popen(
                part.tests.command(self.report, workers, only),
                cwd=part.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    @property
    def seconds(self):
        return round(time.monotonic() - self.began)

    def progress(self):
        """How many tests have ended, how many there are, and the failures that are new."""
        if isinstance(self.part.tests, Pytest):
            new = self.events.read()
            return len(self.events.outcomes), self.events.total, new
        if isinstance(self.part.tests, Ctest):
            lines = CTEST_LINE.findall(self.log.read_text("utf-8", "replace"))
            known = self.events.outcomes
            new = []
            for _, _, name, result in lines:
                if name not in known:
                    passed = result.startswith("Passed")
                    known[name] = results.Outcome(name, passed, "" if passed else f"E   {result}")
                    new += [] if passed else [known[name]]
            return len(lines), int(lines[-1][1]) if lines else 0, new
        return 0, 0, []

    def finished(self):
        if self._status is None and self.seconds > LONGEST_S:
            self.end()
            self._status = f"it was still running after {LONGEST_S} s"
        elif self._status is None:
            self._status = self._process.poll()
        return self._status is not None

    def outcomes(self):
        """Of a process that has finished. There is at least one."""
        self.progress()
        if isinstance(self.part.tests, Pytest):
            folder = self.part.tests.temporary(self.report)
            subprocess.run([*AS_ROOT, "rm", "-rf", "--", folder], check=False)
            found = self.events.outcomes
            # 1 and 2 are failures of tests and of their modules; 5: no test was selected.
            bad = self._status not in (0, 1, 2, 5) or (self._status in (1, 2) and all_passed(found))
        else:
            found = results.from_junit(self.report)
            bad = self._status != 0 and all_passed(found)
        if not found and self._status == 5 and self.part.may_be_empty:
            return found
        if bad or not found:
            tail = self.log.read_text("utf-8", "replace")[-4000:]
            log = f"{tail}\nE   it ended with status {self._status}: see {self.log}"
            found[self.part.name] = results.Outcome(self.part.name, False, log, is_test=False)
        return found

    def end(self):
        """Interrupts it as Ctrl-C does, so that tests clean up; kills what does not end then."""
        for number, wait_s in ((signal.SIGINT, END_S), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if self._process.poll() is not None:
                return
            signal_group(self._process.pid, number)
            try:
                self._process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue


def signal_group(group, number):
    """To processes that may be root's."""
    subprocess.run(
        [*AS_ROOT, "kill", f"-{int(number)}", "--", f"-{group}"], check=False, capture_output=True
    )


def all_passed(outcomes):
    return all(outcome.passed for outcome in outcomes.values())


def last_lines(path, n=15):
    return path.read_text("utf-8", "replace").splitlines()[-n:]
