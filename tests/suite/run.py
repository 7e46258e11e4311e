# SPDX-License-Identifier: Apache-2.0
"""One run of the suite: parts in their order, no more busy processes than there are processors; then a
second try for what failed; then the verdict."""

import fcntl
import os
import re
import secrets
import shutil
import signal
import subprocess
import time

import passed_before
import results
import unsteady
from cache import CACHE
from parts import AS_ROOT, PROJECT, UNAVAILABLE, VENV, WORKERS, Program
from preparation import Preparation
from process import Process, last_lines

RESULTS = PROJECT / "build/results"
PROGRESS_S = 10
# More failures than this are not tried again: they are not chance.
MAX_TRIED_AGAIN = 12
MAX_UNSTEADY = 3
POLL_S = 0.2


class Interrupted(BaseException):
    pass


class Run:
    """`folder` takes logs and reports, and `cache` has what is remembered from run to run."""

    def __init__(self, parts, may_leave_out, folder=RESULTS, cache=CACHE):
        self.parts = parts
        self.may_leave_out = may_leave_out
        self.folder = folder
        self.passed_before = passed_before.Record(cache / "passed.json")
        self.unsteady = unsteady.Record(cache / "unsteady")
        self.began = time.monotonic()
        self.last_said = self.began
        self.running = []
        self.outcomes = {}  # of each part by name
        self.seconds = {}
        self.digests = {}
        self.preparation = None
        self.busy = None
        self.guard = None

    # ---- What is said

    def say(self, text):
        self.last_said = time.monotonic()
        minutes, seconds = divmod(round(self.last_said - self.began), 60)
        print(f"{minutes:2}:{seconds:02}  {text}", flush=True)

    def say_progress(self):
        now = time.monotonic()
        if now - self.last_said < PROGRESS_S:
            return
        words = []
        for process in self.running:
            done, total, _ = process.progress()
            count = f"{done} of {total}" if total else f"{process.seconds} s"
            words.append(f"{process.part.name}: {count}")
        if self.preparation and self.preparation.current:
            words.append(f"preparing {self.preparation.current}")
        self.say(", ".join(words))

    def say_failure(self, part, outcome):
        self.say(f"FAILED {part.name}: {outcome.name}")
        for line in outcome.reason[:4]:
            print(f"         {line}", flush=True)

    # ---- The parts

    def main(self):
        lock = lock_tree(self.folder)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupt)
        os.environ["KGT_RUN"] = f"{os.getpid()}{secrets.token_hex(2)}"
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "unsteady").mkdir(parents=True)
        status = 1
        try:
            self.leave_out()
            self.run_parts()
            status = self.verdict()
        except Interrupted:
            self.say("interrupted: ending what runs")
            status = 130
        finally:
            self.end()
            lock.close()
            if status == 130:
                print("0 passed, 1 failed")
        return status

    def interrupt(self, number, _frame):
        raise Interrupted(number)

    def leave_out(self):
        if not self.may_leave_out:
            return
        left_out = [part.name for part in self.parts if self.passed_before.has(part)]
        self.parts = [part for part in self.parts if part.name not in left_out]
        for name in left_out:
            self.say(
                f"left out: {name}, which passed with the same sources, tests and tools (--again runs it)"
            )

    def run_parts(self):
        self.preparation = Preparation(self.parts, self.folder)
        self.preparation.start()
        waiting = list(self.parts)
        while waiting or self.running:
            self.start_next(waiting)
            if self.running and not self.guard:
                self.start_guard()
            time.sleep(POLL_S)
            self.look()
            self.say_progress()

    def start_next(self, waiting):
        """Starts parts in their order, but none that must wait for its preparation before others."""
        for part in list(waiting):
            state = self.preparation.state(part)
            if state is None:
                continue
            if state != 0:
                waiting.remove(part)
                self.not_prepared(part)
                continue
            taken = sum(WORKERS if process.part.wide else 1 for process in self.running)
            if taken + (WORKERS if part.wide else 1) > WORKERS:
                return
            waiting.remove(part)
            self.say(f"{part.name} begins: {part.what}")
            self.digests[part.name] = passed_before.fingerprint(part)
            self.running.append(Process(part, self.folder, part.workers))

    def not_prepared(self, part):
        log = self.preparation.log_of(part)
        if self.preparation.state(part) == UNAVAILABLE:
            self.say(f"not run: {part.name}, which this distribution does not have")
            return
        reason = "\n".join(f"E   {line}" for line in last_lines(log))
        text = f"E   {part.name} could not be prepared; all of it is in {log}:\n{reason}"
        outcome = results.Outcome(f"{part.name}: preparation", False, text, is_test=False)
        self.outcomes[part.name] = {outcome.name: outcome}
        self.say_failure(part, outcome)
        for line in outcome.reason[4:]:
            print(f"         {line}", flush=True)

    def look(self):
        for process in list(self.running):
            ended = process.finished()
            for outcome in process.progress()[2]:
                self.say_failure(process.part, outcome)
            if ended:
                self.running.remove(process)
                self.take(process)

    def take(self, process):
        part, found = process.part, process.outcomes()
        self.outcomes[part.name] = found
        self.seconds[part.name] = process.seconds
        failed = sum(not outcome.passed for outcome in found.values())
        self.say(
            f"{part.name} ended after {process.seconds} s: {len(found) - failed} passed, {failed} failed"
        )
        if not failed:
            self.passed_before.add(part.name, self.digests[part.name])
        elif isinstance(part.tests, Program):
            for outcome in found.values():
                if not outcome.passed:
                    self.say_failure(part, outcome)
        if part.after and not failed:
            self.clean_up(part)

    def clean_up(self, part):
        subprocess.run(
            ["bash", "-c", part.after], cwd=PROJECT, check=False, stdin=subprocess.DEVNULL
        )

    # ---- Second tries

    def try_again(self):
        """Runs what failed twice more. Returns the unsteady tests, which are then taken for passed."""
        failed = [
            (part, [each for each in found.values() if not each.passed])
            for part in self.parts
            if (found := self.outcomes.get(part.name)) and not isinstance(part.tests, Program)
        ]
        if sum(len(each) for _, each in failed) > MAX_TRIED_AGAIN:
            self.say(f"more than {MAX_TRIED_AGAIN} tests failed: none is tried again")
            return []
        known = self.unsteady.unexplained()
        found = []
        for part, outcomes in failed:
            mild = [each for each in outcomes if each.is_test and not each.is_grave]
            again = self.second_try(part, mild) if mild else {}
            for outcome in mild:
                if not again.get(outcome.name):
                    continue
                if outcome.name in known:
                    outcome.log += (
                        "\nE   it passed twice afterwards, but it was unsteady before on this machine, and "
                        f"nobody has explained that in {self.unsteady.path}"
                    )
                else:
                    found.append((part, outcome))
        return found

    def second_try(self, part, outcomes):
        """Whether each test passes alone and then beside a busy loop."""
        passed = {outcome.name: True for outcome in outcomes}
        names = list(passed)
        for label, busy in ((".alone", False), (".beside-load", True)):
            self.say(
                f"{part.name}: {len(names)} failed, again{' beside a busy loop' if busy else ', alone'}"
            )
            self.busy = subprocess.Popen(["sh", "-c", "while :; do :; done"]) if busy else None
            process = Process(part, self.folder, 1, names, label)
            self.running = [process]
            try:
                while not process.finished():
                    time.sleep(POLL_S)
                    process.progress()
                    self.say_progress()
            finally:
                self.end_busy_loop()
            self.running = []
            found = process.outcomes()
            for name in names:
                outcome = found.get(name)
                passed[name] = passed[name] and outcome is not None and outcome.passed
        return passed

    def end_busy_loop(self):
        if self.busy:
            self.busy.kill()
            self.busy.wait()
            self.busy = None

    # ---- The end

    def verdict(self):
        found = self.try_again()
        if not any(self.outcomes.values()):
            nothing = results.Outcome("no test was selected", False, is_test=False)
            self.outcomes["script/test"] = {nothing.name: nothing}
        for part in self.parts:
            if part.after and not all_passed(self.outcomes.get(part.name, {})):
                self.clean_up(part)
        self.check_leftovers()
        forgiven = found if len(found) <= MAX_UNSTEADY else []
        for part, outcome in forgiven:
            outcome.passed = True
        counts = {True: 0, False: 0}
        for name, outcomes in self.outcomes.items():
            for outcome in outcomes.values():
                counts[outcome.passed] += 1
                if not outcome.passed:
                    print(f"{name}: failed: {outcome.name}")
                    for line in outcome.reason:
                        print(f"    {line}")
        self.say("; ".join(f"{name} {seconds} s" for name, seconds in self.seconds.items()))
        if len(found) > MAX_UNSTEADY:
            print(f"{len(found)} tests are unsteady; more than {MAX_UNSTEADY} are not forgiven")
        for part, outcome in found:
            print(f"unsteady: {outcome.name} ({(outcome.reason or ['no reason'])[0].strip()})")
            self.unsteady.add(outcome)
            self.keep_log(part, outcome)
        print(f"{counts[True]} passed, {counts[False]} failed")
        return 1 if counts[False] or not counts[True] else 0

    def keep_log(self, part, outcome):
        name = re.sub(r"[^\w.-]+", "_", outcome.name)[:150]
        logs = [
            path.read_text("utf-8", "replace") for path in self.folder.glob(f"{part.name}.*log")
        ]
        text = "\n".join([outcome.log, *(log[-20000:] for log in logs)])
        (self.folder / "unsteady" / f"{name}.log").write_text(text, encoding="utf-8")

    def start_guard(self):
        """A process that ends what tests have started when this one ends, even if it is killed."""
        command = [*AS_ROOT, VENV, "tests/support/guard.py", f"/tmp/kgt-{os.environ['KGT_RUN']}-"]
        if (PROJECT / VENV).exists():
            self.guard = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.PIPE, start_new_session=True
            )

    def check_leftovers(self):
        report = self.folder / "leftovers.xml"
        command = [*AS_ROOT, "env", f"KGT_RUN={os.environ['KGT_RUN']}", VENV]
        if not (PROJECT / VENV).exists():
            return
        subprocess.run(
            [*command, "tests/support/leftovers.py", f"--junit-xml={report}"],
            cwd=PROJECT,
            check=False,
        )
        self.outcomes["leftovers"] = results.from_junit(report)

    def end(self):
        """Ends what still runs, whatever happened."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.end_busy_loop()
        if self.preparation:
            self.preparation.end()
        for process in self.running:
            process.end()
            if process.part.after:
                self.clean_up(process.part)
        if self.guard:
            self.guard.stdin.close()
            self.guard.wait()


def all_passed(outcomes):
    return all(outcome.passed for outcome in outcomes.values())


def lock_tree(folder):
    """One run at a time in a work tree; other trees have their own."""
    path = folder.with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(
            "another run of script/test in this work tree goes on; waiting for its end", flush=True
        )
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
