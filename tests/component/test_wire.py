# SPDX-License-Identifier: Apache-2.0
"""What the HTTP server says on the wire, byte for byte, and whether it then closes the connection. The cases
are files in wire/; wire_cases.py says what is in them, and how they are recorded."""

import contextlib
import difflib
import os
import re
import uuid

import component
import pytest
import wire_cases
from jupyter_wire import start_kernel
from kernelgate import Gateway
from mcp_wire import Client
from raw_http import HANG, Connection

RECORD = os.environ.get("KGT_WIRE_RECORD") == "1"
# Seconds for what is known to come. A case that is to be recorded may lack a step, so that nothing comes.
PATIENCE = 3 if RECORD else HANG
# Seconds without a byte, after which nothing more is expected, where the answer is not the recorded one.
QUIET = 0.5
GUARDED = [
    *("--api-key", "correct-horse", "--allowed-origins", "https://app.example"),
    *("--allowed-hosts", "gateway.example,[2001:db8::1]:8080", "--max-code-bytes", "1000"),
]
# Its answer, which no case has, shows that a connection is open, and that nothing else was to come.
LAST = b"GET /api HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
ANSWER_TO_LAST = b'{"version":'
MADE = re.compile("<(session|shared session|execution|kernel|mcp session)>")


@pytest.fixture(scope="module")
def guarded():
    """A gateway with a key, other names, and an origin whose pages may call it."""
    running = Gateway(*component.FLAGS, *GUARDED, key="correct-horse")
    try:
        yield running.start()
    finally:
        running.clean_up()


class Exchange:
    """One case: does its steps, and gathers what comes as lines of its file."""

    def __init__(self, case, gateway, names, connection):
        self.case, self.gateway, self.names, self.connection = case, gateway, names, connection
        self.lines = []
        self.n_answers = 0
        self.begun = None  # an answer whose chunks are still to come
        self.by_byte = False
        # The methods in the order of the requests, since the answer to HEAD has no body.
        self.methods = re.findall(r"([A-Za-z]+) (?:<[^>]+>|[^ <])+ HTTP/1", "\n".join(case.steps))

    def run(self):
        """Does the steps, and returns all lines of the case."""
        try:
            self.do_steps()
            if "close" not in self.case.steps:
                self.lines.append(self.end())
        except TimeoutError as error:
            self.lines.append(str(error))
        return self.lines

    def do_steps(self):
        written = ""
        for line in self.case.steps:
            is_step = not line.startswith((">", "#"))
            if is_step:
                self.send(written)
                written = ""
            self.lines.append(line)
            if is_step:
                self.step(line)
            elif line.startswith("> "):
                written += line[2:]
        self.send(written)

    def send(self, text):
        if not text:
            return
        data = wire_cases.unescape(text, self.names)
        for piece in [data[i : i + 1] for i in range(len(data))] if self.by_byte else [data]:
            self.connection.send(piece)
            if self.by_byte:
                self.connection.settle()
        self.by_byte = False

    def step(self, line):
        if line == "pause":
            self.connection.settle()
        elif line == "byte by byte":
            self.by_byte = True
        elif line == "half-close":
            self.connection.half_close()
        elif line == "close":
            self.connection.close()
        elif line == "read":
            self.answer()
        elif line == "read head":
            self.begin()
        elif line == "read chunk":
            self.chunk()
        else:
            self.gateway.release(self.names["session"])

    # ---- Answers

    def begin(self):
        """The next answer, without its chunks."""
        answered = self.methods[self.n_answers : self.n_answers + 1]
        answer = self.connection.begin(answered == ["HEAD"], PATIENCE)
        self.n_answers += not 0 < answer.status < 200
        self.lines += wire_cases.show(answer)
        self.begun = answer if answer.has_chunks else None

    def chunk(self):
        assert self.begun, f"{self.case}: no answer in chunks has begun"
        has_more = self.connection.chunk(self.begun, PATIENCE)
        self.lines += wire_cases.show_chunk(self.begun.pieces[-1])
        if not has_more:
            self.begun = None

    def answer(self):
        """The next answer, or the rest of the one that has begun."""
        if not self.begun:
            self.begin()
        while self.begun:
            self.chunk()

    def end(self):
        """Reads what else comes, and returns what the server does with the connection then. Where the answer
        is not the recorded one, it is at its end when nothing comes for a while."""
        *expected, end = self.case.recorded or [""]
        while (patience := self.patience(expected, end)) and self.connection.waits(patience):
            if self.connection.is_at_end:
                return "closes"
            self.answer()
        return self.ask_last()

    def patience(self, expected, end):
        """How long to wait for more; None: nothing more is expected, and the connection stays open."""
        got = [line for line in self.lines if line.startswith("<")]
        if got and (not end or got != expected[: len(got)]):
            return QUIET
        return None if got == expected and end == "stays open" else PATIENCE

    def ask_last(self):
        """Shows that the connection is open, by one more request, and that nothing else was to come."""
        n_lines = len(self.lines)
        self.connection.send(LAST)
        while self.connection.waits(PATIENCE) and not self.connection.is_at_end:
            answer = self.connection.answer(patience=PATIENCE)
            is_last = (
                answer.body.startswith(ANSWER_TO_LAST) and answer.header(b"Connection") == b"close"
            )
            if is_last and len(self.lines) == n_lines:
                return "stays open"
            self.lines += wire_cases.show(answer)
        return "waits for more: the case lacks a step, half-close for example"


@pytest.fixture(scope="module")
def shared():
    """What is made once for all cases of a gateway, by gateway and name; it ends with the other sessions."""
    return {}


def make_session(gateway):
    return gateway.create_session(session_id=f"t-{uuid.uuid4().hex[:12]}")


def make_execution(gateway):
    session = make_session(gateway)
    return gateway.execute("print a", session_id=session).headers["x-execution-id"]


def make(name, gateway, shared, stack):
    """What a case needs of the gateway."""
    if name == "session":
        made = make_session(gateway)
        stack.callback(gateway.delete_session, made)
        return made
    if name == "mcp session":
        client = Client(gateway, key=gateway.key)
        stack.callback(client.http.close)
        return client.headers["Mcp-Session-Id"]
    if (gateway, name) not in shared:
        makers = {
            "shared session": make_session,
            "execution": make_execution,
            "kernel": start_kernel,
        }
        shared[gateway, name] = makers[name](gateway)
    return shared[gateway, name]


@pytest.mark.parametrize("case", wire_cases.load(), ids=str)
def test_wire(case, request, shared):
    server = request.getfixturevalue(case.gateway)
    names = {"port": server.url.rpartition(":")[2]}
    with contextlib.ExitStack() as stack:
        for name in set(MADE.findall("\n".join(case.steps))):
            names[name] = make(name, server, shared, stack)
        connection = stack.enter_context(Connection(server.url))
        lines = Exchange(case, server, names, connection).run()
    assert server.process.poll() is None, "the gateway has ended"
    if RECORD:
        assert lines[-1] in (*wire_cases.ENDS, "close"), "\n".join(lines)
        wire_cases.record(case, lines)
    elif lines != case.lines:
        difference = difflib.unified_diff(case.lines, lines, "recorded", "now", n=99, lineterm="")
        pytest.fail("\n".join(difference), pytrace=False)
