# SPDX-License-Identifier: Apache-2.0
"""A mixed load on one gateway while its kernels and containers are killed and its clients leave.

Twenty users have a session each. What a user was answered must be what the code says, in order and
once; where the user's own sandbox was hit meanwhile, the answer may be an error, and nothing else.
At the end nothing may have been lost, and nothing be left.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import sys
import threading
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests/support"))

from kernelgate import Gateway, wait_for  # noqa: E402
from sandboxes import kill, sandboxes  # noqa: E402

USERS = 20
KILL_EVERY_S = 2
LOOK_EVERY_S = 1
MINUTE_S = 60
FLATNESS = 1.05
FLAGS = (
    "--pool-size", "2", "--max-sessions", str(USERS + 10), "--memory-mb", "256",
    "--disk-mb", "16", "--log-level", "warning",
)  # fmt: skip


class User(threading.Thread):
    """Uses one session until the end, and counts what came of it."""

    def __init__(self, gateway, number, until):
        super().__init__()
        self.gateway, self.session, self.until = gateway, f"user-{number}", until
        self.random = random.Random(number)
        self.client = gateway.client_for(None)
        self.counts = collections.Counter()
        self.complaints = []
        self.steps = 0
        self.harms = 0  # counted by the killer, before and after it strikes
        self.harms_known = 0  # those that came before the state was last seen to be whole

    def run(self):
        actions = [self.step] * 6 + [self.print_much, self.leave, self.time_out, self.start_again]
        with self.client:
            while time.monotonic() < self.until:
                action, harms = self.random.choice(actions), self.harms
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - whatever it is, it was not the answer
                    self.on_failure(action.__name__, error)
                    continue
                self.counts[action.__name__] += 1
                if action == self.step:
                    self.harms_known = harms

    def on_failure(self, action, error):
        if self.harms > self.harms_known:
            self.counts["harmed"] += 1
        else:
            self.counts["lost"] += 1
            what = f"{self.session} {action}: {type(error).__name__}: {error}"
            self.complaints.append(what[:400])
        self.steps = 0
        self.harms_known = self.harms

    def execute(self, code, **fields):
        return self.gateway.execute(code, self.client, session_id=self.session, **fields)

    def expect(self, lines, text, status="ok"):
        assert lines.status == status, lines[-2:]
        assert lines.text() == text, f"{len(lines.text())} characters: {lines.text()[:100]!r}"

    # ---- What users do

    def step(self):
        """State persists, unless the sandbox was hit: then it is all gone, never half."""
        self.steps += 1
        code = "steps = globals().get('steps', 0) + 1; print(steps)"
        if self.steps == 1:
            code = "steps = 1; print(steps)"
        self.expect(self.execute(code), f"{self.steps}\n")

    def print_much(self):
        size, n = 1000, self.random.randrange(100, 2000)
        code = f"for i in range({n}): print(str(i).zfill({size}))"
        self.expect(self.execute(code), "".join(f"{i:0{size}}\n" for i in range(n)))

    def leave(self):
        """A client that goes away in the middle, and comes back for the rest where it said so."""
        comes_back = self.random.random() < 0.5
        fields = {"on_disconnect": "continue"} if comes_back else {}
        code = "import time\nfor i in range(5): print(i, flush=True); time.sleep(0.1)"
        with self.gateway.stream(code, self.client, session_id=self.session, **fields) as reader:
            line = reader.next_of("stdout")
            execution = reader.response.headers["x-execution-id"]
        if comes_back:
            path = f"/api/v1/executions/{execution}?after={line['seq']}"
            rest = [json.loads(text) for text in self.client.get(path).text.splitlines()]
            text = "".join(each["text"] for each in (line, *rest) if each["type"] == "stdout")
            assert text == "0\n1\n2\n3\n4\n" and rest[-1]["status"] == "ok", rest

    def time_out(self):
        lines = self.execute("import time; time.sleep(60)", timeout=0.3)
        assert lines.status == "timeout", lines[-2:]

    def start_again(self):
        self.steps = 0
        response = self.gateway.delete_session(self.session, self.client)
        assert response.status_code in (200, 404), response.text


class Killer(threading.Thread):
    """Kills a kernel or a container of a random user now and then, and says so to the user."""

    def __init__(self, gateway, users, until):
        super().__init__()
        self.gateway, self.until = gateway, until
        self.users = {user.session: user for user in users}
        self.counts = collections.Counter()

    def run(self):
        chance = random.Random(0)
        while time.monotonic() < self.until:
            time.sleep(KILL_EVERY_S)
            found = [box for box in sandboxes(self.gateway) if box.session in self.users]
            if not found:
                continue
            box = chance.choice(found)
            what = chance.choice(["kernel", "container"])
            # It may end by itself at this very moment; then there is nothing to kill.
            with contextlib.suppress(OSError, ValueError):
                pid = box.kernel() if what == "kernel" else box.agent
                user = self.users[box.session]
                user.harms += 1
                kill(pid)
                user.harms += 1
                self.counts[what] += 1


def look(gateway, until):
    """(seconds since the start, MiB) of the gateway's memory, until the end."""
    started, samples = time.monotonic(), []
    while time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        samples.append((time.monotonic() - started, gateway.rss_mb()))
    return samples


def mean_between(samples, begin, end):
    values = [mb for second, mb in samples if begin <= second < end]
    return sum(values) / len(values) if values else None


def settle(gateway):
    """Ends every session, and waits until only the pool is there."""
    for session in gateway.client.get("/api/v1/sessions").json()["sessions"]:
        gateway.delete_session(session)
    wait_for(
        lambda: gateway.client.get("/api/v1/health").json()["pool"] == {"ready": 2, "target": 2},
        timeout=60,
    )
    wait_for(lambda: len(sandboxes(gateway)) == 2, timeout=60)
    return gateway.open_files(), len(os.listdir(f"/proc/{gateway.process.pid}/task"))


def judge(seconds, users, samples, before, after):
    """Everything that must hold, as (what, measured, whether it does)."""
    lost = sum(user.counts["lost"] for user in users)
    yield "results of unharmed sessions that were lost", lost, lost == 0
    done = sum(user.counts[name] for user in users for name in ("step", "print_much", "leave"))
    yield "actions that worked", done, done > seconds
    second = mean_between(samples, MINUTE_S, 2 * MINUTE_S)
    last = mean_between(samples, seconds - MINUTE_S, seconds)
    if seconds >= 3 * MINUTE_S:
        text = f"{second:.1f} MiB, {last:.1f} MiB"
        yield "memory in the second minute and the last", text, last <= second * FLATNESS
    yield "descriptors before and after", f"{before[0]}, {after[0]}", after[0] <= before[0]
    yield "threads before and after", f"{before[1]}, {after[1]}", after[1] <= before[1]


def main(seconds):
    gateway = Gateway(*FLAGS, binary=str(PROJECT / "build/release/bin/kernelgate"))
    users, verdicts = [], []
    try:
        gateway.start()
        before = settle(gateway)
        until = time.monotonic() + seconds
        users = [User(gateway, number, until) for number in range(USERS)]
        killer = Killer(gateway, users, until)
        for thread in (*users, killer):
            thread.start()
        samples = look(gateway, until)
        for thread in (*users, killer):
            thread.join()
        verdicts += judge(seconds, users, samples, before, settle(gateway))
        print("done  ", dict(sum((user.counts for user in users), collections.Counter())))
        print("killed", dict(killer.counts))
        print("memory", " ".join(f"{mb:.0f}" for _, mb in samples[:: max(1, len(samples) // 20)]))
    finally:
        left = "nothing"
        try:
            gateway.clean_up()
        except AssertionError as error:
            left = str(error)
    verdicts.append(("processes, mounts, sockets, cgroups left", left, left == "nothing"))
    for complaint in [each for user in users for each in user.complaints][:20]:
        print("lost  ", complaint)
    for what, measured, holds in verdicts:
        print(f"{'ok    ' if holds else 'FAILED'}  {what}: {measured}")
    return 0 if all(holds for _, _, holds in verdicts) else 1
