# SPDX-License-Identifier: Apache-2.0
"""Clients of a soak: what they know of the killed processes, and how they judge answers."""

import collections
import contextlib
import dataclasses
import itertools
import threading
import time

import httpx
from kernelgate import LineReader

SESSIONS_EACH = 3


class Cut(Exception):
    """The gateway was killed while the request ran."""


@dataclasses.dataclass
class Kill:
    kind: str
    time: float


class Soak:
    """What all threads know: who was killed, and when."""

    def __init__(self, gateway, cells):
        self.gateway = gateway
        self.cells = cells  # soak_cells.Python or soak_cells.Script
        # Held while something is killed, and while an answer is judged.
        self.lock = threading.Lock()
        self.harmed = collections.defaultdict(list)  # kills by the name of the session
        self.unclaimed = []  # times of kills of sandboxes that had no session then
        self.generation = 0  # of the gateway
        self.is_down = False
        self.end = 0
        self.missing = set()  # kinds of which nothing was killed yet
        self.counts = collections.Counter()

    def goes_on(self):
        late = time.monotonic() - self.end
        assert late < 120 or not self.missing, f"nothing to kill: {self.missing}"
        return late < 0 or bool(self.missing)

    def kills_of(self, prefix, begun):
        """The kills in sessions whose names begin so, and in sandboxes that such a session may have
        got if it began then. The lock is held."""
        named = [kills for name, kills in self.harmed.items() if name.startswith(prefix)]
        kills = [each for each in itertools.chain(*named) if each.time >= begun - 1]
        return kills + self.unclaimed_since(begun)

    def unclaimed_since(self, begun):
        """The kills in sandboxes that a session may have got if it began then. The lock is held."""
        return [each for each in self.unclaimed if each.time >= begun - 1]

    def stop(self):
        self.end = 0
        self.missing = set()

    def history(self, name):
        """What the log says of a session, and its last lines."""
        log = self.gateway.log().splitlines()
        return "\n".join([*[line for line in log if name in line][-60:], "…", *log[-60:]])

    @contextlib.contextmanager
    def may_be_cut(self):
        """A request; a connection may only break when the gateway is killed."""
        with self.lock:
            generation, was_down = self.generation, self.is_down
        try:
            yield
        except httpx.TransportError as error:
            time.sleep(0.05)
            with self.lock:
                if was_down or generation != self.generation:
                    raise Cut from error
            raise


# ---- The clients


class Answer:
    """The answer to an execution: its lines, or a problem document."""

    def __init__(self):
        self.lines = self.problem = self.session_id = None
        self.begun = time.monotonic()

    def __str__(self):
        return str(self.problem or self.lines)

    def is_ok(self, cell):
        """Whether it is complete and as expected."""
        if self.problem or not self.lines or self.lines[-1].get("status") != "ok":
            return False
        if [line["seq"] for line in self.lines] != list(range(1, len(self.lines) + 1)):
            return False
        results = [line["text"] for line in self.lines.of("result")]
        return (cell.text is None or self.lines.text() == cell.text) and (
            cell.result is None or results == [cell.result]
        )


class Client:
    def __init__(self, soak, number, rng):
        self.soak, self.rng = soak, rng
        self.http = soak.gateway.client_for(None)
        self.sessions = []
        self.names = (f"soak-{number}-{n}" for n in itertools.count(soak.counts["sessions"]))

    def run(self):
        with self.http:
            while self.soak.goes_on():
                self.act()
                time.sleep(self.rng.uniform(0, 0.03))
            for session in self.sessions:
                session.delete()

    def act(self):
        if len(self.sessions) < SESSIONS_EACH and self.rng.random() < 0.3:
            self.sessions.append(Session(self, next(self.names)))
            return
        if not self.sessions or self.rng.random() < 0.05:
            self.run_once()
            return
        session = self.rng.choice(self.sessions)
        if self.rng.random() < 0.05:
            self.sessions.remove(session)
            session.delete()
        else:
            act = (session.run_cell, session.run_command, session.show)
            self.rng.choices(act, (8, 1, 1))[0]()

    def execute(self, code, joins=False, **fields):
        """Runs code; `joins`: disconnects after the first line, and joins the execution again."""
        answer = Answer()
        fields |= {"code": code, "timeout": 120}
        if joins:
            fields["on_disconnect"] = "continue"
        with self.soak.may_be_cut():
            try:
                self.read(answer, joins, fields)
                if joins and answer.lines and answer.lines[-1]["type"] != "done":
                    self.join_execution(answer)
            except httpx.TransportError as error:
                error.has_begun = bool(answer.lines)
                raise
        self.soak.counts["executions"] += 1
        return answer

    def read(self, answer, joins, fields):
        with self.http.stream("POST", "/api/v1/execute", json=fields) as response:
            answer.session_id = response.headers.get("x-session-id")
            if response.status_code != 200:
                response.read()
                answer.problem = response.json()
                return
            reader = LineReader(response)
            answer.lines = reader.lines
            if joins:
                reader.next()
            else:
                reader.rest()

    def join_execution(self, answer):
        seq = answer.lines[-1]["seq"]
        url = f"/api/v1/executions/{answer.lines.headers['x-execution-id']}?after={seq}"
        self.soak.counts["joins"] += 1
        with self.http.stream("GET", url) as response:
            if response.status_code == 404:  # the next gateway does not know it
                raise httpx.ReadError("the execution does not exist")
            assert response.status_code == 200, response.read()
            reader = LineReader(response)
            reader.rest()
            answer.lines += reader.lines

    def run_once(self):
        """Runs code in a session that ends with it."""
        cell = self.soak.cells.once(self.rng.randrange(1000))
        begun = time.monotonic()
        with contextlib.suppress(Cut):
            answer = self.execute(cell.code)
            if answer.is_ok(cell):
                return
            with self.soak.lock:
                kills = self.soak.kills_of(answer.session_id or "sess_", begun)
            name = str(answer.session_id)
            assert kills, f"one-shot: {answer}\n{self.soak.history(name)}"
            check_documented(answer, {each.kind for each in kills}, begins=True)


def check_documented(answer, kinds, begins=False):
    """Asserts that a session that was hit answers as docs/api.md says."""
    ends = begins or kinds != {"kernel"}  # the session may have ended
    if answer.problem:
        codes = {"session_not_found", "provisioner_unavailable", "session_busy"}
        if begins:
            codes.add("kernel_start_timeout")
        assert ends and answer.problem["code"] in codes, (kinds, answer.problem)
        return
    error = answer.lines.of("error")[-1:]
    assert error, (kinds, answer.lines)
    if answer.lines.status == "error":  # a new kernel
        assert error[0]["error"].startswith("NameError: name 'ran' "), (kinds, answer.lines)
        return
    assert answer.lines.status == "died" and error[0]["ename"] == "KernelDied", answer.lines
    if not ends:
        assert answer.lines.done.get("kernel_restarted") is True, answer.lines


class Session:
    """A session with a counter: how often its cells have run."""

    def __init__(self, client, name):
        self.client, self.soak, self.name = client, client.soak, name
        self.rng = client.rng
        self.soak.counts["sessions"] += 1
        self.created_at = None
        self.opened = self.begun = None  # when its first code was sent, and when it had run
        self.was_used = False  # None: not known
        self.begin()

    def execute(self, code, **options):
        return self.client.execute(code, session_id=self.name, **options)

    def kills(self):
        """The kills that this session may not have answered to yet. The lock is held."""
        kills = list(self.soak.harmed[self.name])
        if self.begun is None:  # it may get a sandbox that was hit before
            kills += self.soak.unclaimed_since(self.opened)
        return kills

    def was_opened_again(self, kills):
        """Whether it may have got another sandbox since, and that one have been hit as well."""
        ends = [each for each in kills if each.kind != "kernel"]
        return bool(ends) and (len(ends) > 1 or bool(self.soak.unclaimed_since(ends[0].time)))

    def fail(self, what):
        raise AssertionError(
            f"{self.name}: {what}; kills: {self.kills()}\n{self.soak.history(self.name)}"
        )

    def judge(self, answer, is_right):
        """Whether the answer is right; if not, asserts that the session was hit."""
        with self.soak.lock:
            kills = self.kills()
            before = [each for each in kills if each.time < answer.begun]
            if is_right:
                # A kill since the session has begun must have been noticed.
                if any(self.begun and each.time > self.begun for each in before):
                    self.fail(f"was hit, and answers {answer}")
                self.soak.harmed[self.name] = [each for each in kills if each not in before]
                return True
            if not kills:
                self.fail(f"was not hit, and answers {answer}")
            begins = self.begun is None or self.was_opened_again(kills)
        kinds = {each.kind for each in kills}
        try:
            check_documented(answer, kinds, begins)
        except AssertionError as error:
            self.fail(f"not as documented: {error}")
        # Kills before that may have had their effect before it.
        certain = self.begun and all(each.time > self.begun for each in kills)
        self.was_used = (kinds == {"kernel"}) if certain and len(kinds) == 1 else None
        return False

    def begin(self):
        """Runs the first code, again if the session is hit meanwhile, and starts to count."""
        self.opened, self.begun = time.monotonic(), None
        cell = self.soak.cells.begin(self.name)
        while True:
            with self.soak.lock:
                known = list(self.soak.harmed[self.name])
            try:
                answer = self.execute(cell.code)
            except Cut:
                self.was_used = None
                continue
            if answer.is_ok(cell):
                break
            self.judge(answer, False)
            self.was_used = None
        used = answer.lines.text()
        if self.was_used is not None and used != f"{self.was_used}\n":
            self.fail(f"was used before: expected {self.was_used}: {answer}")
        with self.soak.lock:
            self.soak.harmed[self.name] = [
                each for each in self.soak.harmed[self.name] if each not in known
            ]
            self.begun = time.monotonic()
        self.count = 0
        self.created_at = None

    def run_cell(self):
        number = self.count + 1
        pause = self.rng.choice((0, 0, 0.02, 0.3))
        cell = self.soak.cells.count(number, pause)
        try:
            answer = self.execute(cell.code, joins=self.rng.random() < 0.2)
        except Cut as cut:
            self.look(number, cut.__cause__.has_begun)
            return
        if self.judge(answer, answer.is_ok(cell)):
            self.count = number
        else:
            self.begin()

    def look(self, number, had_begun):
        """Finds out whether a cell, whose gateway was killed, has run; never twice."""
        while True:
            try:
                answer = self.execute(self.soak.cells.look(number).code)
            except Cut:
                continue
            break
        has_run = answer.is_ok(self.soak.cells.look(number))
        has_not = not had_begun and answer.is_ok(self.soak.cells.look(number - 1))
        if self.judge(answer, has_run or has_not):
            self.soak.counts["cells cut, run" if has_run else "cells cut, not run"] += 1
            self.count = number if has_run else number - 1
        else:
            self.begin()

    def request(self, method, path="", **options):
        """A request other than to execute, and whether an earlier try of it was cut."""
        url, was_cut = f"/api/v1/sessions/{self.name}{path}", False
        while True:
            try:
                with self.soak.may_be_cut():
                    return self.client.http.request(method, url, **options), was_cut
            except Cut:
                was_cut = True

    def may_have_ended(self):
        with self.soak.lock:
            return any(each.kind != "kernel" for each in self.kills())

    def run_command(self):
        """Commands do not depend on kernels."""
        options = {"params": {"wait": 1}, "json": {"command": "cat kept", "timeout": 120}}
        response, _ = self.request("POST", "/commands", **options)
        if response.status_code == 200 and response.json()["stdout"] == self.name:
            return
        if not self.may_have_ended():
            self.fail(f"a command: {response.status_code} {response.text}")
        if response.status_code == 200:
            assert response.json()["status"] == "died", response.text
        else:
            assert response.status_code in (404, 429, 503), response.text

    def show(self):
        response, _ = self.request("GET")
        if response.status_code == 200:
            created_at = response.json()["created_at"]
            if self.created_at in (None, created_at):
                self.created_at = created_at
                return
        if not self.may_have_ended():
            self.fail(f"{response.status_code} {response.text}; created at {self.created_at}")
        assert response.status_code in (200, 404), response.text

    def delete(self):
        response, was_cut = self.request("DELETE")
        if response.status_code == 404 and (was_cut or self.may_have_ended()):
            return
        if response.status_code != 200:
            self.fail(f"{response.status_code} {response.text}")
