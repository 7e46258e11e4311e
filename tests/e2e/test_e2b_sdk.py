# SPDX-License-Identifier: Apache-2.0
"""E2B's own SDK for Python, unchanged: sandboxes, run_code, and what both share with files and commands."""

import base64
import concurrent.futures
import datetime
import threading

import e2b
import pytest
from e2b_code_interpreter import Sandbox
from kernelgate import wait_for


@pytest.fixture(scope="module")
def options(gateway):
    """By the two URLs; the gateway of these tests has no key, so any one will do."""
    return {"api_url": gateway.url, "sandbox_url": gateway.url, "api_key": "e2b_00"}


@pytest.fixture(scope="module")
def sandbox(options):
    made = Sandbox.create(timeout=600, **options)
    yield made
    made.kill()


def test_life(gateway, options):
    made = Sandbox.create(timeout=600, metadata={"user": "a b&c=d"}, envs={"OF_ALL": "one"}, **options)
    assert made.is_running()
    assert made.run_code("import os; os.environ['OF_ALL']").text == "one"
    info = made.get_info()
    assert info.metadata == {"user": "a b&c=d"} and info.state.value == "running"
    listed = e2b.Sandbox.list(query=e2b.SandboxQuery(metadata={"user": "a b&c=d"}), **options)
    assert [it.sandbox_id for it in listed.next_items()] == [made.sandbox_id] and not listed.has_next
    made.set_timeout(50)
    left = made.get_info().end_at - datetime.datetime.now(datetime.UTC)
    assert left.total_seconds() <= 51
    assert made.get_metrics()[0].mem_used > 0
    other = Sandbox.connect(made.sandbox_id, **options)
    made.run_code("shared = 5")
    assert other.run_code("shared").text == "5"
    assert made.kill() is True and made.kill() is False
    assert not other.is_running()
    with pytest.raises(e2b.TimeoutException):
        other.run_code("1")
    with pytest.raises(e2b.NotFoundException):
        Sandbox.connect(made.sandbox_id, **options)
    assert gateway.client.get(f"/api/v1/sessions/{made.sandbox_id}").status_code == 404


def test_code(sandbox):
    told = []
    run = sandbox.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\n'a' + 'b'",
        on_stdout=lambda line: told.append(("stdout", line.line)),
        on_stderr=lambda line: told.append(("stderr", line.line)),
        on_result=lambda result: told.append(("result", result.text)),
    )
    assert sorted(told) == [("result", "ab"), ("stderr", "err\n"), ("stdout", "out\n")]
    assert run.text == "ab" and run.logs.stdout == ["out\n"] and run.execution_count
    failed = sandbox.run_code("1/0").error
    assert (failed.name, failed.value) == ("ZeroDivisionError", "division by zero")
    assert "line 1" in failed.traceback
    assert sandbox.run_code("import os; os.environ['ONCE']", envs={"ONCE": "'x'"}).text == "'x'"
    assert sandbox.run_code("os.environ.get('ONCE')").text is None


def test_pictures_and_other_types(sandbox):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\n'last'"
    figure, last = sandbox.run_code(code).results
    assert base64.b64decode(figure.png).startswith(b"\x89PNG") and not figure.is_main_result
    assert last.is_main_result and last.text == "last"
    (result,) = sandbox.run_code("from IPython.display import *\nHTML('<b>x</b>')").results
    assert result.html == "<b>x</b>"
    for shown, name in ("Markdown('# x')", "markdown"), ("Latex('$x$')", "latex"), ("SVG('<svg/>')", "svg"):
        (result,) = sandbox.run_code(f"display({shown})").results
        assert getattr(result, name)
    gif = "{'image/gif': 'R0lGODlh', 'text/html': '<b>', 'x/y': 1}"
    (result,) = sandbox.run_code(f"display({gif}, raw=True)").results
    assert result.extra == {"image/gif": "R0lGODlh", "x/y": 1} and result.html == "<b>"
    (result,) = sandbox.run_code("display({'x/y': 1, 'text/plain': 'z'}, raw=True)").results
    assert result.extra == {"x/y": 1} and result.text == "z"


def test_a_table_has_its_data(sandbox):
    code = """import pandas, datetime
pandas.DataFrame({"n": [1, None], "at": [pandas.Timestamp("2026-01-02"), pandas.NaT], 3: ["a", b"b"]})"""
    (result,) = sandbox.run_code(code).results
    assert result.data == {"n": [1.0, None], "at": ["2026-01-02T00:00:00", None], "3": ["a", "b'b'"]}
    assert "<table" in result.html and result.text
    assert "data" not in sandbox.run_code("pandas.DataFrame({'x': range(200_000)})").results[0].formats()


def test_the_home_is_the_working_folder(sandbox):
    code = "import os, pathlib; os.getcwd(), str(pathlib.Path.home()), os.path.expanduser('~')"
    assert sandbox.run_code(code).text == str(("/home/user",) * 3)
    assert "".join(sandbox.run_code("!cd ~; pwd").logs.stdout).split() == ["/home/user"]
    sandbox.run_code("open('of-code.txt', 'w').write('x')")
    assert sandbox.run_code("open('/mnt/data/of-code.txt').read()").text == "x"
    code = "[Deno.cwd(), Deno.env.get('HOME')].join()"
    assert sandbox.run_code(code, language="javascript").text == "/home/user,/home/user"


def test_contexts(sandbox):
    first = sandbox.create_code_context(language="python", cwd="/tmp")
    second = sandbox.create_code_context()
    assert (first.cwd, first.language, second.cwd) == ("/tmp", "python", "/home/user")
    assert sandbox.run_code("import os; x = os.getcwd(); x", context=first).text == "/tmp"
    assert sandbox.run_code("x", context=second).error.name == "NameError"
    listed = {it.id for it in sandbox.list_code_contexts()}
    assert {first.id, second.id, "python"} <= listed
    sandbox.restart_code_context(first)
    assert sandbox.run_code("x", context=first).error.name == "NameError"
    assert sandbox.run_code("import os; os.getcwd()", context=first).text == "/tmp"
    sandbox.remove_code_context(first)
    with pytest.raises(e2b.SandboxException, match="not found"):
        sandbox.run_code("1", context=first)
    assert first.id not in {it.id for it in sandbox.list_code_contexts()}
    with pytest.raises(e2b.SandboxException):
        sandbox.create_code_context(cwd="/nowhere/at/all")
    sandbox.remove_code_context(second)


def test_contexts_run_side_by_side(sandbox):
    """One waits for what the other one does."""
    other = sandbox.create_code_context()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n'gone'"
        waiting = pool.submit(sandbox.run_code, wait)
        sandbox.run_code("open('go', 'w')", context=other)
        assert waiting.result().text == "gone"
    sandbox.remove_code_context(other)


def test_a_sandbox_that_is_killed_while_code_runs(options):
    made = Sandbox.create(timeout=600, **options)
    code = "import time\nprint('on', flush=True)\ntime.sleep(600)"
    with pytest.raises(e2b.TimeoutException):
        made.run_code(code, on_stdout=lambda _: made.kill())


def test_languages(sandbox):
    assert sandbox.run_code("[1, 2].map((x) => x * 2)", language="javascript").text == "[ 2, 4 ]"
    code = "import { sep } from 'path'\nconst typed: string = sep; typed"
    assert sandbox.run_code(code, language="ts").text == "/"
    with pytest.raises(e2b.SandboxException, match="klingon"):
        sandbox.run_code("1", language="klingon")


def test_a_client_that_leaves_interrupts(sandbox):
    """What is run next does not wait for the end of what nobody reads."""
    begun = threading.Event()
    code = "import time\nprint('on', flush=True)\ntime.sleep(600)"
    with pytest.raises(e2b.TimeoutException):
        sandbox.run_code(code, on_stdout=lambda _: begun.set(), timeout=3)
    assert begun.is_set()
    assert sandbox.run_code("6 * 7").text == "42"


def test_two_clients_of_one_sandbox(sandbox, options):
    other = Sandbox.connect(sandbox.sandbox_id, **options)
    sandbox.run_code("a = 1")
    assert other.run_code("a").text == "1"
    wait_for(lambda: other.is_running())


def test_files_commands_and_code_share_a_folder(sandbox):
    sandbox.files.write("shared/a.txt", "by files")
    assert sandbox.run_code("open('/home/user/shared/a.txt').read()").text == "by files"
    sandbox.run_code("open('/home/user/shared/b.txt', 'w').write('by code')")
    assert sandbox.files.read("shared/b.txt") == "by code"
    done = sandbox.commands.run("cat b.txt; pwd; echo $HOME; echo > c.txt", cwd="shared")
    assert done.stdout == "by code/home/user/shared\n/home/user\n"
    assert [it.name for it in sandbox.files.list("shared")] == ["a.txt", "b.txt", "c.txt"]
    assert sandbox.files.get_info("shared/c.txt").owner == "user"
    assert sandbox.files.read("/bin/sh", format="bytes")[:4] == b"\x7fELF"  # by links
    # The kernel's Python, in spite of what login shells read.
    ours = sandbox.run_code("import sys; sys.prefix").text
    assert sandbox.commands.run("python -c 'import sys; print(sys.prefix)'").stdout.strip() == ours


def test_a_terminal(sandbox):
    seen = bytearray()
    handle = sandbox.pty.create(e2b.PtySize(rows=24, cols=80))
    waiting = threading.Thread(target=lambda: handle.wait(on_pty=seen.extend))
    waiting.start()
    sandbox.pty.send_stdin(handle.pid, b"stty size; pwd; python -c 'print(6 * 7)'\n")
    wait_for(lambda: b"24 80" in seen and b"\n/home/user" in seen and b"\n42" in seen)
    sandbox.pty.send_stdin(handle.pid, b"exit\n")
    waiting.join()
