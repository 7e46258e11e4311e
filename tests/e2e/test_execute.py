# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/execute and execute_sync with real code: when lines arrive, errors, variables and env."""

import contextlib

import pytest
from kernelgate import HELD, problem, wait_for


def test_each_line_arrives_before_the_next_is_printed(gateway, session):
    """Also what is not flushed: the code waits until the client has seen each of its lines."""
    code = (
        "import os, time\n"
        "for i in range(3):\n"
        "    print(i)\n"
        "    while not os.path.exists('go'): time.sleep(0.02)\n"
        "    os.remove('go')"
    )
    with gateway.stream(code, session_id=session) as reader:
        for printed in ("0\n", "0\n1\n", "0\n1\n2\n"):
            while reader.lines.text() != printed:
                assert reader.next()["type"] == "stdout"
            gateway.release(session)
        assert reader.rest().status == "ok"


def test_result(run):
    assert run("1+1").one("result") | {"seq": 0, "data": {}} == {
        "type": "result", "text": "2", "data": {}, "execution_count": 1, "seq": 0,
    }  # fmt: skip
    assert run("'é'").one("result")["execution_count"] == 2


def test_name_error(run):
    lines = run("x")
    error = lines.one("error")
    assert error["error"] == "NameError: name 'x' is not defined"
    assert error["ename"] == "NameError"
    assert error["evalue"] == "name 'x' is not defined"
    traceback = "\n".join(error["traceback"])
    assert "NameError" in traceback and "x" in traceback
    assert "\x1b" not in traceback
    assert lines.status == "error"


@pytest.mark.parametrize(
    "code, ename",
    [
        ("def", "SyntaxError"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemError('s')", "SystemError"),
    ],
)
def test_errors(run, code, ename):
    lines = run(code)
    assert lines.one("error")["ename"] == ename
    assert lines.status == "error"


def test_an_error_does_not_stop_what_is_queued(gateway, session):
    """A kernel that has reported an error could still discard what it gets next."""
    with gateway.stream(HELD + "1/0", session_id=session) as first:
        first.next_of("stdout")
        # The second waits from its head on.
        with gateway.stream("print('second')", session_id=session) as second:
            gateway.release(session)
            assert first.rest().status == "error"
            assert second.rest().text() == "second\n"


def test_streams_are_told_apart_and_in_order(run):
    lines = run(
        "import sys\n"
        "print('out', flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "display('shown')\n"
        "'value'"
    )
    assert lines.kinds() == ["stdout", "stderr", "display", "result", "done"]
    assert lines.text("stdout") == "out\n" and lines.text("stderr") == "err\n"


def test_shell_escapes_and_top_level_await(run):
    assert run("!echo from a shell").text().strip() == "from a shell"
    assert run("import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')").text() == "awaited\n"


def test_without_a_session_id_the_session_ends_with_the_response(gateway):
    lines = gateway.execute("x = 1")
    session_id = lines.done["session_id"]
    assert session_id == lines.headers["x-session-id"]
    problem(gateway.client.get(f"/api/v1/sessions/{session_id}"), 404, "session_not_found")
    assert session_id not in gateway.client.get("/api/v1/sessions").json()["sessions"]
    assert gateway.execute("x").one("error")["ename"] == "NameError"


def test_executions_of_a_session_wait_for_one_another(gateway, session):
    count = "n = globals().get('n', 0) + 1\nprint(n)"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(gateway.stream(HELD, session_id=session))
        first.next_of("stdout")
        rest = [stack.enter_context(gateway.stream(count, session_id=session)) for _ in range(4)]
        gateway.release(session)
        assert first.rest().status == "ok"
        assert [reader.rest().text() for reader in rest] == ["1\n", "2\n", "3\n", "4\n"]


# ---- variables and env


VALUES = {
    "n": 1,
    "s": "é ☃ 😀 \" ' \\ \n",
    "l": [1, None, True, 2.5],
    "d": {"k": {"x": []}},
    "ü": 3,
}


def test_variables_are_set_before_the_code_runs(run):
    lines = run("print(repr((n, s, l, d, ü)))", variables=VALUES)
    assert eval(lines.text()) == tuple(VALUES.values())
    assert lines.done["execution_count"] == 1


def test_a_million_numbers_as_variables(gateway, session):
    """Numbers keep the client's spelling; a member's name may be written with escapes."""
    numbers = ",".join(["0.1", "2"] * 500_000)
    body = '{"code":"print(len(x), x[:2], y)","session_id":"%s","\\u0076ariables":{"y":"é"}}'
    response = gateway.client.post("/api/v1/execute", content=body % session)
    assert "name 'x' is not defined" in response.text
    body = '{"code":"print(len(x), x[:2], y)","session_id":"%s","variables": {"x":[%s]}}'
    response = gateway.client.post("/api/v1/execute", content=body % (session, numbers))
    assert '"1000000 [0.1, 2] é\\n"' in response.text


def test_variables_leave_nothing_else_behind(run):
    run("before = None\nbefore = set(globals())")
    names = run("print(sorted(set(globals()) - before))", variables={"answer": 42}).text()
    assert [name for name in eval(names) if not name.startswith("_")] == ["answer"]


def test_env_holds_for_one_execution(run):
    show = "import os\nprint(os.environ.get('KG_A'), os.environ.get('LANG'))"
    plain = run(show).text()
    assert run(show, env={"KG_A": "ä =1", "LANG": "x"}).text() == "ä =1 x\n"
    assert run(show).text() == plain


def test_env_ends_when_its_execution_fails(run):
    assert run("1/0", env={"KG_A": "1"}).status == "error"
    assert run("import os; print('KG_A' in os.environ)").text() == "False\n"


def test_env_reaches_child_processes(run):
    assert run("!echo $KG_A", env={"KG_A": "child"}).text().strip() == "child"


# ---- Interrupts and errors

BEGUN = "import asyncio, pathlib\npathlib.Path('begun').touch()\n"
# Nearly all of its time, in which Python drops exceptions.
IN_DESTRUCTORS = "class D:\n    def __del__(self):\n        for i in range(20_000): pass\n"
WAITS = (
    "await asyncio.sleep(600)",
    "await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))",
    "async with asyncio.TaskGroup() as group: group.create_task(asyncio.sleep(600))",
    "async def numbers():\n    await asyncio.sleep(600); yield 1\nasync for n in numbers(): pass",
    "await asyncio.sleep(0)\nwhile True: pass",
    "import time\ntime.sleep(600)",
    f"{IN_DESTRUCTORS}while True: D()",
    f"{IN_DESTRUCTORS}await asyncio.sleep(0)\nwhile True: D()",
)
CATCHES = (
    "try:\n"
    "    pathlib.Path('begun').touch()\n"
    "    await asyncio.sleep(600)\n"
    "except (asyncio.CancelledError, KeyboardInterrupt): pass"
)


def interrupted(gateway, session, code):
    """The exceptions that it reports when it is interrupted; the kernel lives."""
    begun = f"/api/v1/sessions/{session}/files/begun"
    gateway.client.delete(begun)
    with gateway.stream(code, session_id=session, timeout=300) as reader:
        wait_for(lambda: gateway.client.get(begun).status_code == 200)
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        lines = reader.rest()
    assert "kernel_restarted" not in lines.done, code
    return [line["ename"] for line in lines.of("error")]


def interrupts(gateway, session):
    for code in WAITS:
        assert interrupted(gateway, session, BEGUN + code) == ["KeyboardInterrupt"], code
    assert interrupted(gateway, session, f"import asyncio, pathlib\n{CATCHES}") == [
        "KeyboardInterrupt"
    ]


def test_what_waits_is_interrupted(gateway, session):
    interrupts(gateway, session)


@pytest.mark.once
def test_what_waits_is_interrupted_by_exec(start_gateway):
    gateway = start_gateway("--kernel-start", "exec")
    interrupts(gateway, gateway.create_session())


IN_A_DESTRUCTOR = """
import time
class A:
    def __del__(self):
        print("on", flush=True)
        time.sleep(600)
A()
while True: pass
"""


def test_an_interrupt_in_a_destructor(gateway, session):
    """Python forgets it there."""
    with gateway.stream(IN_A_DESTRUCTOR, session_id=session, timeout=300) as reader:
        reader.next_of("stdout")
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        lines = reader.rest()
    assert "kernel_restarted" not in lines.done
    assert lines.one("error")["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize("code", ["x = 1\n" * 16_000, "x = [" + "1, " * 300_000 + "]"])
def test_an_interrupt_while_code_is_compiled(gateway, session, code):
    """The kernel says so, and lives."""
    n_interrupted = 0
    for delay in range(8):
        lines = gateway.execute(code, session_id=session, timeout=0.01 + 0.02 * delay)
        assert "kernel_restarted" not in lines.done
        if lines.status == "timeout":
            n_interrupted += 1
            assert lines.one("error")["ename"] == "TimeoutError"
            assert "KeyboardInterrupt" in lines.text("stderr")
    assert n_interrupted
    assert gateway.execute("6 * 7", session_id=session).one("result")["text"] == "42"


ERRORS = {
    "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])": "ExceptionGroup",
    "try: raise ExceptionGroup('g', [ValueError(1)])\nexcept* ValueError: raise ExceptionGroup('h', [KeyError(1)])": "ExceptionGroup",
    "%nosuch": "UsageError",
    "%%nosuch\na": "UsageError",
    "def f(:": "SyntaxError",
    "  x = 1\n y = 2": "IndentationError",
    "return 1": "SyntaxError",
    "'\\x'": "SyntaxError",
    "compile('def', 'a', 'exec')": "SyntaxError",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise GeneratorExit": "GeneratorExit",
    "raise StopIteration": "StopIteration",
    "class E(BaseException): pass\nraise E": "E",
    "class E(Exception):\n    def __str__(self): raise self\nraise E": "E",
    "f = lambda n: f(n + 1)\nf(0)": "RecursionError",
    "try: f(0)\nexcept RecursionError as error: raise ValueError from error": "ValueError",
    "import bdb\nraise bdb.BdbQuit": "BdbQuit",
    "import asyncio\nraise asyncio.CancelledError": "CancelledError",
    "await asyncio.wait_for(asyncio.sleep(600), 0.01)": "TimeoutError",
    "class V:\n    def _repr_html_(self): 1 / 0\n    __repr__ = _repr_html_\nV()": (
        "ZeroDivisionError"
    ),
    "input()": "StdinNotImplementedError",
    "get_ipython().showtraceback = None\n1 / 0": "ZeroDivisionError",
}


def test_every_error_is_one_line(gateway, session, run):
    for code, ename in ERRORS.items():
        lines = run(code)
        error = lines.one("error")
        assert (lines.status, error["ename"]) == ("error", ename), code
        assert lines.text("stderr") == "" or "V()" in code, code
        assert sum(text.count("\n") + 1 for text in error["traceback"]) < 600, code


def test_a_long_traceback_is_cut(run):
    traceback = "\n".join(run("f = lambda n: f(n + 1)\nf(0)").one("error")["traceback"])
    assert "more frames>" in traceback and "f(0)" in traceback


HINTS = {
    "import cv2": "has the module cv2: `%pip install opencv-python-headless` adds it",
    "import nothing_of_mine": "If a package has the module nothing_of_mine, `%pip install nothing-of",
    "from polars.io import x": "If a package has the module polars, `%pip install polars` adds it",
    "import numpy.nothing": None,
    "import nothing_ of": None,
    "import urllib.request as r; r.urlopen('http://example.org')": "no network in this sandbox",
    "import pandas; pandas.read_csv('https://example.org/a.csv')": "no network in this sandbox",
    "import socket; socket.create_connection(('192.0.2.1', 80))": "no network in this sandbox",
    "import socket\ntry: socket.getaddrinfo('a.b', 1)\nexcept OSError: 1/0": None,
    "e = OSError(); e.__cause__ = e; raise e": None,
}


@pytest.mark.parametrize("code, hint", HINTS.items())
def test_errors_say_what_to_do(run, code, hint):
    error = run(code).one("error")
    said = "\n".join(error["traceback"])
    assert (hint in said) if hint else ("install" not in said and "no network" not in said), said
    assert "install" not in error["error"] and "sandbox" not in error["error"]


BUSY = """
import multiprocessing, time
def spin():
    end = time.monotonic() + 60
    while time.monotonic() < end: pass
for _ in range(4): multiprocessing.Process(target=spin, daemon=True).start()
"""


def test_what_was_flushed_survives_the_process(gateway, session):
    """Also on a busy machine, where the thread that sends it has to wait for a processor."""
    busy = gateway.create_session()
    gateway.execute(BUSY, session_id=busy)
    for i in range(12):
        end = ("os._exit(3)", "os.kill(os.getpid(), 9)")[i % 2]
        code = f"import os; print('a{i}', flush=True); {end}"
        lines = gateway.execute(code, session_id=session)
        assert (lines.text(), lines.status) == (f"a{i}\n", "died"), lines
    gateway.delete_session(busy)


def test_nobody_can_answer(run):
    for code in ("input('name? ')", "import getpass; getpass.getpass()"):
        assert "nobody can answer" in run(code).one("error")["evalue"]
    assert run("!cat; echo ended").text().strip() == "ended"


def test_somebody_can_answer(gateway, session):
    code = "import getpass\nname = input('name? ')\nword = getpass.getpass('word? ')\nprint(name, len(word))"
    with gateway.stream(code, session_id=session, allow_stdin=True) as reader:
        url = f"/api/v1/executions/{reader.response.headers['x-execution-id']}/input"
        for prompt, password, value in ("name? ", False, "Ada"), ("word? ", True, "swordfish"):
            asked = reader.next_of("input_request")
            assert (asked["prompt"], asked["password"]) == (prompt, password)
            assert gateway.client.post(url, json={"value": value}).status_code == 200
        lines = reader.rest()
    assert lines.text() == "Ada 9\n" and lines.status == "ok" and "swordfish" not in str(lines)


def test_exit_ends_the_code_and_not_the_kernel(run):
    run("kept = 1")
    for code in ("exit()", "quit()", "exit", "import sys; sys.exit()", "raise SystemExit(0)"):
        lines = run(code if code == "exit" else code + "\nprint('not reached')")
        assert (lines.status, lines.kinds()) == ("ok", ["done"]), code
    for code in (
        "sys.exit(3)",
        "exit(3)",
        "raise SystemExit('3')",
        "await asyncio.sleep(0); exit(3)",
    ):
        lines = run(f"import asyncio\n{code}\nprint('not reached')")
        assert (lines.status, lines.kinds()) == ("error", ["error", "done"]), code
        assert lines.one("error")["error"] == "SystemExit: 3", code
    assert run("kept").one("result")["text"] == "1"


def test_context_variables_are_kept(run):
    run("import asyncio, contextvars\nv = contextvars.ContextVar('v', default=0)\nv.set(1)")
    assert run("await asyncio.sleep(0)\nprint(v.get())\nv.set(2);").text() == "1\n"
    assert run("print(v.get())").text() == "2\n"
    assert run("await asyncio.sleep(0)\nv.get()").one("result")["text"] == "2"


# ---- Names of kernels


@pytest.mark.once
@pytest.mark.parametrize(
    "fields", [{"kernel": "python"}, {"language": "py"}, {"kernel": "python3"}]
)
def test_kernels_by_name_and_alias(run, fields):
    assert run("print(1)", **fields).text() == "1\n"


# ---- execute_sync


def sync(gateway, code, **fields):
    response = gateway.client.post("/api/v1/execute_sync", json={"code": code, **fields})
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["resultCode"] == 0 and body["resultMsg"] == "success"
    return body["data"]


def test_execute_sync(gateway, session):
    data = sync(
        gateway,
        "import matplotlib.pyplot as plt\nprint('text')\nplt.plot([1, 2])\n1/0",
        session_id=session,
    )
    assert "".join(data["texts"]).startswith("text\n")
    assert len(data["images"]) == 1 and data["images"][0].startswith("iVBOR")
    assert [error["error"] for error in data["errors"]] == ["ZeroDivisionError: division by zero"]
    assert "ZeroDivisionError" in "\n".join(data["errors"][0]["traceback"])
    assert {"stdout", "display", "error"} <= {line["type"] for line in data["outputs"]}
    assert data["status"] == "error" and data["execution_count"] == 1
    assert data["duration_ms"] > 0 and data["session_id"] == session
