# SPDX-License-Identifier: Apache-2.0
"""sys.stdout and sys.stderr as files: their attributes and descriptors, and who writes to them."""

import pytest
from kernelgate import HELD

# By what it is: the code, and what it prints to stdout.
PRINTS = {
    "a character that crosses a read": (
        "os.system(\"printf 'x%.0s' $(seq 999); printf 'é\\n'\");",
        "x" * 999 + "é\n",
    ),
    "halves of a character": ("os.write(1, b'\\xc3'); os.write(1, b'\\xa9\\n');", "é\n"),
    "not UTF-8": ("os.write(1, b'<\\xff\\xfe>\\n');", "<\ufffd\ufffd>\n"),
    "a child and prints": ("print('a'); os.system('echo b'); print('c')", "a\nb\nc\n"),
    "children and prints": (
        "for i in range(50): print(i); subprocess.run(['echo', f'{i}'], stdout=sys.stdout)",
        "".join(f"{i}\n{i}\n" for i in range(50)),
    ),
    "the descriptor and prints": (
        "for i in range(1000): print('p'); _ = os.write(1, b'w\\n')",
        "p\nw\n" * 1000,
    ),
    "a child's stderr into stdout": (
        "subprocess.run('echo o; echo e >&2', shell=True, stderr=sys.stdout.fileno());",
        "o\ne\n",
    ),
    "its path": ("os.system('echo a > /dev/stdout'); print('b')", "a\nb\n"),
    "its buffer": (
        "sys.stdout.write('a'); sys.stdout.buffer.write(b'\\xc3'); sys.stdout.buffer.write(b'\\xa9\\n');",
        "aé\n",
    ),
    "a wrapper of its buffer": (
        "import io\n"
        "for i in range(3):\n"
        "    file = io.TextIOWrapper(sys.stdout.buffer, 'utf-8', line_buffering=True)\n"
        "    file.write('é\\n'); del file\n"
        "print('z')",
        "é\né\né\nz\n",
    ),
    "a detached buffer": ("sys.stdout.detach().write(b'a\\n'); print('b')", "a\nb\n"),
    "a writer of a codec": ("import codecs\ncodecs.getwriter('utf-8')(sys.stdout.buffer).write('é')", "é"),
    "writelines": ("sys.stdout.writelines(f'{i}' for i in range(3))", "012"),
    "a print that is flushed": ("print('a', end='', flush=True); print('b')", "ab\n"),
    "a number of characters": ("assert sys.stdout.write('é☃') == 2", "é☃"),
    "a redirection": (
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()) as text: print('b')\n"
        "print('a' + text.getvalue(), end='')",
        "ab\n",
    ),
    "threads": (
        "import threading\n"
        "threads = [threading.Thread(target=print, args=('t',)) for _ in range(20)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()",
        None,
    ),
    "a fork": (
        "print('a', end='')\n"
        "if os.fork() == 0: print('b', end='', flush=True); os._exit(0)\n"
        "os.wait(); print('c')",
        "abc\n",
    ),
    "a pool of processes": (
        "import multiprocessing\n"
        "def f(n): print(f'{n:0999}')\n"
        "with multiprocessing.Pool(4) as pool: pool.map(f, range(200), 1);",
        None,
    ),
    "much in a child": ("os.system('head -c 3000000 /dev/zero | tr \"\\\\0\" x');", "x" * 3_000_000),
    "much that holds the lock": (
        "import ctypes\nassert ctypes.PyDLL(None).write(1, b'x' * 900_000, 900_000) == 900_000",
        "x" * 900_000,
    ),
    "C's own stdout": ("import ctypes\nlibc = ctypes.CDLL(None); libc.puts(b'a'); libc.fflush(None);", "a\n"),
    "a dump": ("import faulthandler\nfaulthandler.dump_traceback(sys.stdout)", None),
    "a shell's command": ("!echo a; echo b >&2", None),
    # The last one, since it stays.
    "Python's first stdout": (
        "print('a'); sys.stdout = sys.__stdout__; print('b')",
        "a\nb\n",
    ),
}  # fmt: skip
IMPORTS = "import os, subprocess, sys\n"


def all_of(gateway, session):
    for name, (code, text) in PRINTS.items():
        # What writes to the descriptor is taken over by the end of the execution, without a wait.
        lines = gateway.execute(IMPORTS + code, session_id=session)
        assert lines.status == "ok", f"{name}: {lines}"
        printed = lines.text()
        assert text is None or printed == text, f"{name}: {printed[:200]!r} {printed[-200:]!r}"
        if name == "threads":
            assert sorted(printed) == sorted("t\n" * 20)
        if name == "a pool of processes":
            assert sorted(map(int, printed.split())) == list(range(200))
        if name == "a dump":
            assert "most recent call first" in printed
        if name == "a shell's command":
            assert printed.split() == ["a", "b"]


def test_all_that_is_printed_arrives_in_order(gateway, session):
    all_of(gateway, session)


@pytest.mark.once
def test_all_that_is_printed_arrives_in_order_by_exec(start_gateway):
    gateway = start_gateway("--kernel-start", "exec")
    all_of(gateway, gateway.create_session())


def test_they_are_text_files(run):
    code = (
        "import sys\n"
        "for number, file in ((1, sys.stdout), (2, sys.stderr)):\n"
        "    file.reconfigure(encoding='utf-8', errors='replace', line_buffering=True)\n"
        "    assert file.line_buffering and file.writable() and not file.readable()\n"
        "    assert (file.encoding, file.errors, file.isatty()) == ('utf-8', 'replace', False)\n"
        "    assert file.fileno() == file.buffer.fileno() == number and not file.closed\n"
        "    file.reconfigure(line_buffering=False)\n"
        "for wrong in (b'bytes', 1, None):\n"
        "    try: sys.stdout.write(wrong)\n"
        "    except TypeError: pass\n"
        "    else: raise AssertionError(wrong)"
    )
    lines = run(code)
    assert lines.status == "ok", lines


def test_stderr_of_children(run):
    lines = run(
        "import subprocess, sys; subprocess.run('echo é >&2', shell=True, stderr=sys.stderr);"
    )
    assert (lines.text("stderr"), lines.text()) == ("é\n", "")


def test_a_replacement_stays(run):
    """It has what is printed later, too, and the kernel's own messages arrive all the same."""
    run("import io, sys; sys.stdout = text = io.StringIO()")
    assert run("print('a'); 1").kinds() == ["result", "done"]
    assert run("1 / 0").one("error")["ename"] == "ZeroDivisionError"
    assert run("text.getvalue()").one("result")["text"] == r"'a\n'"
    assert run("sys.stdout = sys.__stdout__\nprint('b')").text() == "b\n"
    assert run("print('c')").text() == "c\n"


def test_a_python_child_prints_at_once(gateway, session):
    """Its stdout is a pipe, which Python would buffer."""
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])"
    with gateway.stream(child, session_id=session) as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        gateway.release(session)
        assert reader.rest().status == "ok"


CHILD = HELD.replace(", flush=True", "")


def test_json_has_no_nan(run):
    lines = run(
        "import numpy\n"
        "values = [float('nan'), float('inf'), -float('inf'), numpy.float32('nan'), 1.5, 2]\n"
        "display({'application/json': {'values': values}, 'text/plain': ''}, raw=True)"
    )
    assert lines.one("display")["data"]["application/json"]["values"] == [None] * 4 + [1.5, 2]


def test_errors_of_the_kernels_loop_are_not_the_users(run):
    lines = run(
        "import logging\n"
        "logging.basicConfig(force=True); logging.warning('of the user')\n"
        "logging.getLogger('tornado.general').error('of the kernel')"
    )
    assert lines.text("stderr") == "WARNING:root:of the user\n"
