# SPDX-License-Identifier: Apache-2.0
"""The cases of test_wire.py: their files in wire/, and what of an answer is compared.

A file has one group of cases; lines that begin with # are comments. Before the first case, `gateway NAME`
says to which of the gateways of test_wire.py the group is sent. A case is

    === its name
    > bytes that are sent
    < bytes that are expected
    closes                      or `stays open`: what the server does with the connection then

Bytes are text with the escapes \\r \\n \\t \\\\ and \\xNN. Each line of text has one line of bytes, so it
ends with \\n where they do. `>` lines below one another are one write, unless a step is between them:

    pause                       until the server has read what was sent
    byte by byte                the next write is one for each byte, with such a pause behind it
    half-close                  the client says that it sends nothing more
    close                       the client closes; this ends the case
    read                        one answer, which is expected here; the others are expected at the end
    read head                   the same, but only up to the end of the head
    read chunk                  the next chunk of that answer
    release NAME                writes a file into <session>, for which a cell waits

What differs by nature has a name in angle brackets, on both sides. In what is sent, <session> and
<mcp session> are made for the case, <shared session>, <kernel> and <execution> (which has ended) for all
cases, <port> is the gateway's, and <1000*a> is a thousand a. In answers, DIFFERS has all that is replaced.

To list what a change does to the wire, record the answers again, and look at the difference:

    KGT_WIRE_RECORD=1 build/venv/bin/python -m pytest tests/component/test_wire.py
    git diff tests/component/wire

A new case is written without the lines of its answer, and recorded so. Only cases that run are recorded, and
only those whose answers are complete."""

import dataclasses
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent / "wire"
STEPS = re.compile(r"pause|byte by byte|half-close|close|read|read head|read chunk|release \w+")
ENDS = "closes", "stays open"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

# What differs from run to run, by its name, as a regular expression.
DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
DIFFERS = {
    "date": rf"(?<=\nDate: ){DATE}|(?<=\nLast-Modified: ){DATE}",
    "time": r'(?<="mtime":")[\d-]{10}T[\d:.]{12}Z(?=")',
    "request id": r"(?<=\nX-Request-Id: )[a-z2-7]{20}(?=\r)",
    "session": r"\b(?:t-[0-9a-f]{12}|sess_[a-z2-7]{16})\b",
    "execution": r"(?:(?<=\nX-Execution-Id: )|(?<=Execution ))[a-z2-7]{24}\b",
    "mcp session": r"(?:(?<=\nMcp-Session-Id: )|(?<=session_id=))[0-9a-f]{32}\b",
    "kernel": UUID,
    "expiry": r"(?<=&expires=)\d{10}\b",
    "signature": r"(?<=&signature=)[0-9a-f]{64}\b",
}
# The same; its length differs, too. Then the length before it is only compared with what has come.
DIFFERS_IN_LENGTH = {
    "duration": r'(?<="duration_ms":)\d+(?:\.\d+)?',
    "etag": r'(?<=")[0-9a-f]+-[0-9a-f]+-[0-9a-f]{16}(?=\\?")',
    "version": r'(?<="version":)"\d[^"]*"',
    "uptime": r'(?<="uptime":)\d+(?:\.\d+)?',
    "port": r"(?<=127\.0\.0\.1:)\d{4,5}\b",
}


def _named(patterns):
    groups = (f"(?P<{name.replace(' ', '_')}>{text})" for name, text in patterns.items())
    return re.compile("|".join(groups))


DIFFERING = _named(DIFFERS | DIFFERS_IN_LENGTH)
DIFFERING_IN_LENGTH = _named(DIFFERS_IN_LENGTH)


# ---- Bytes as text

ESCAPES = {"\r": "\\r", "\n": "\\n", "\t": "\\t", "\\": "\\\\", "<": "\\x3c"}
CONTROLS = {"r": b"\r", "n": b"\n", "t": b"\t", "\\": b"\\"}


def escape(text):
    """Latin-1 text as it is in a file."""
    shown = "".join(ESCAPES.get(c) or (c if " " <= c <= "~" else f"\\x{ord(c):02x}") for c in text)
    return re.sub(
        r"([^\\<>]{1,2}?)\1{199,}", lambda run: f"<{len(run[0]) // len(run[1])}*{run[1]}>", shown
    )


def unescape(text, names):
    """The bytes that a text in a file stands for."""
    data = b""
    for escaped, named, plain in re.findall(r"\\(x[0-9a-f]{2}|[rnt\\])|<([^<>]+)>|([^\\<]+)", text):
        if escaped:
            data += bytes.fromhex(escaped[1:]) if escaped[0] == "x" else CONTROLS[escaped]
        elif times := re.fullmatch(r"(\d+)\*(.+)", named):
            data += int(times[1]) * unescape(times[2], {})
        else:
            data += names[named].encode() if named else plain.encode("ascii")
    return data


def normalise(data):
    """Bytes as text in which all that differs has a name, and whether a length among it differs."""
    text, shown, at = data.decode("latin-1"), "", 0
    for match in DIFFERING.finditer(text):
        shown += escape(text[at : match.start()]) + f"<{match.lastgroup.replace('_', ' ')}>"
        at = match.end()
    return shown + escape(text[at:]), bool(DIFFERING_IN_LENGTH.search(text))


def show_piece(piece):
    """A piece of a body, and whether its length differs: the client has compared that with what has come."""
    size, data, end = piece
    text, differs = normalise(data)
    size = "<size>\\r\\n" if size and differs else escape(size.decode("latin-1"))
    return size + text + escape(end.decode("latin-1")), differs


def show(answer):
    """An answer as lines of a file."""
    head, _ = normalise(answer.head)
    pieces = [show_piece(piece) for piece in answer.pieces]
    if any(differs for _, differs in pieces):
        head = re.sub(r"(\\nContent-Length: )\d+", r"\1<length>", head)
    return lines_of(head + "".join(text for text, _ in pieces))


def lines_of(text):
    r"""Splits a text behind each \n that is an escape."""
    return ["< " + line for line in re.findall(r"(?:\\.|[^\\])*?(?:\\n|$)", text) if line]


def show_chunk(piece):
    return lines_of(show_piece(piece)[0])


# ---- Files


@dataclasses.dataclass
class Case:
    group: str
    gateway: str
    name: str
    lines: list  # as in the file

    @property
    def steps(self):
        """What the client does: the lines without what is recorded."""
        return [line for line in self.lines if not is_recorded(line)]

    @property
    def recorded(self):
        return [line for line in self.lines if is_recorded(line)]

    def __str__(self):
        return f"{self.group}-{self.name}"


def is_recorded(line):
    return line.startswith("<") or line in ENDS


def check(case):
    for line in case.lines:
        known = line.startswith((">", "#")) or is_recorded(line) or STEPS.fullmatch(line)
        assert known, f"{case}: there is no step {line!r}"


def parse(path):
    """The comment before the first case, the gateway's name, and the cases."""
    first, *texts = re.split(r"^=== ", path.read_text("ascii"), flags=re.MULTILINE)
    gateway = re.search(r"^gateway (\w+)$", first, re.MULTILINE)[1]
    cases = []
    for text in texts:
        name, *lines = text.splitlines()
        cases.append(Case(path.stem, gateway, name, [line for line in lines if line]))
        check(cases[-1])
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), f"{path.name} has a name twice"
    return first, cases


def load():
    return [case for path in sorted(FOLDER.glob("*.txt")) for case in parse(path)[1]]


def record(case, lines):
    """Writes a case to its file again, with other lines."""
    path = FOLDER / f"{case.group}.txt"
    first, cases = parse(path)
    for each in cases:
        if each.name == case.name:
            each.lines = lines
    texts = ("\n".join([f"=== {each.name}", *each.lines, ""]) for each in cases)
    path.write_text(first.rstrip("\n") + "\n\n" + "\n".join(texts), "ascii")
