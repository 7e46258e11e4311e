# SPDX-License-Identifier: Apache-2.0
"""What script/test makes of tests that fail: those here are small ones, run by the real runner."""

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

SUITE = pathlib.Path(__file__).resolve().parent
SUPPORT = SUITE.parent / "support"
# Runs parts that are given as Python.
DRIVER = """
import pathlib, sys
sys.path.insert(0, {suite!r})
import run
run.PROGRESS_S = 0.5
from parts import Ctest, Part, Program, Pytest
folder = pathlib.Path({folder!r})
settings = (("PYTHONPATH", {support!r}), ("PYTEST_ADDOPTS", "-p events"), ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"))
def pytest_part(name, arguments=(), **options):
    tests = Pytest((str(folder / f"test_{{name}}.py"), *arguments), settings, sys.executable)
    options = {{"prepare": "true", "inputs": ("pytest.ini",), "folder": folder, **options}}
    return Part(name, "tests", tests, **options)
def program(text, **options):
    return Part("program", "a program", Program(("sh", "-c", text, "sh", "{{report}}")), "true", ("pytest.ini",))
runner = run.Run([{parts}], {leave_out}, folder / "results", folder / "cache")
runner.check_leftovers = lambda: None
sys.exit(runner.main())
"""


@pytest.fixture
def suite(tmp_path):
    """Runs parts, whose tests are the texts; returns the status and what was printed."""

    def run(parts, leave_out=False, **files):
        for name, text in files.items():
            (tmp_path / f"test_{name}.py").write_text(textwrap.dedent(text))
        driver = DRIVER.format(
            suite=str(SUITE),
            folder=str(tmp_path),
            support=str(SUPPORT),
            parts=parts,
            leave_out=leave_out,
        )
        result = subprocess.run(
            [sys.executable, "-c", driver], capture_output=True, text=True, check=False, timeout=300
        )
        print(result.stdout)
        assert not result.stderr, result.stderr
        return result.returncode, result.stdout.splitlines()

    return run


# Fails `times` times, as a file counts.
SOMETIMES = """
import pathlib
def test_sometimes():
    tries = pathlib.Path(__file__).with_suffix(".tries")
    n = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (n + 1))
    assert n >= {times}, "{why}"
"""


def sometimes(times, why="a clock"):
    return SOMETIMES.format(times=times, why=why)


def test_what_passes_is_counted(suite):
    status, lines = suite(
        "pytest_part('a'), pytest_part('b')",
        a="def test_1(): pass\ndef test_2(): pass",
        b="def test_3(): pass",
    )
    assert (status, lines[-1]) == (0, "3 passed, 0 failed")


def test_each_part_has_a_folder_of_its_own(suite, tmp_path):
    """Whose rights no other run of pytest changes; it goes with the part."""
    text = """
import pathlib
def test_1(tmp_path):
    tmp_path.parent.chmod(0o711)
    pathlib.Path(__file__).with_suffix(".folder").write_text(str(tmp_path))
"""
    suite("pytest_part('a'), pytest_part('b')", a=text, b=text)
    folders = [pathlib.Path((tmp_path / f"test_{name}.folder").read_text()) for name in "ab"]
    assert len({folder.parent for folder in folders}) == 2
    assert not any("pytest-of-" in str(folder) or folder.parent.exists() for folder in folders)


def test_a_failure_is_shown_as_it_happens_and_at_the_end(suite):
    status, lines = suite("pytest_part('a')", a="def test_1(): assert 1 == 2\ndef test_2(): pass")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    shown = [n for n, line in enumerate(lines) if "FAILED a: " in line and "test_1" in line]
    ended = [n for n, line in enumerate(lines) if "a ended after" in line]
    assert shown and shown[0] < ended[0]
    assert any(line.startswith("a: failed: ") for line in lines)
    assert any(re.match(r" +E +assert 1 == 2", line) for line in lines)


def test_what_does_not_come_back_is_unsteady(suite, tmp_path):
    status, lines = suite("pytest_part('a')", a=sometimes(1))
    assert (status, lines[-1]) == (0, "1 passed, 0 failed")
    (line,) = [line for line in lines if line.startswith("unsteady: ")]
    assert "test_sometimes" in line and "a clock" in line
    (log,) = (tmp_path / "results/unsteady").iterdir()
    assert "a clock" in log.read_text()
    assert any("again, alone" in line for line in lines)
    assert any("again beside a busy loop" in line for line in lines)


@pytest.mark.parametrize("times", [2, 3], ids=["alone", "in-both-tries"])
def test_what_fails_again_has_failed(suite, times):
    assert suite("pytest_part('a')", a=sometimes(times))[1][-1] == "0 passed, 1 failed"


@pytest.mark.parametrize(
    "why",
    [
        "==1==ERROR: AddressSanitizer: heap-use-after-free",
        "x.c:1:2: runtime error: signed integer overflow",
        "exit code -6",
        "kernelgate: x.c:1: f: Assertion `a' failed.",
        "left behind: process 1",
    ],
)
def test_some_failures_are_never_forgiven(suite, why):
    status, lines = suite("pytest_part('a')", a=sometimes(1, why))
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert not any("again, alone" in line for line in lines)


def test_more_than_three_unsteady_tests_are_a_failure(suite):
    names = "abcd"
    parts = ", ".join(f"pytest_part('{name}')" for name in names)
    status, lines = suite(parts, **{name: sometimes(1) for name in names})
    assert (status, lines[-1]) == (1, "0 passed, 4 failed")
    assert len([line for line in lines if line.startswith("unsteady: ")]) == 4


def test_an_unsteady_test_is_forgiven_again_only_when_it_was_explained(suite, tmp_path):
    assert suite("pytest_part('a')", a=sometimes(1))[0] == 0
    (tmp_path / "test_a.tries").unlink()
    status, lines = suite("pytest_part('a')")
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert any("nobody has explained" in line for line in lines)
    record = tmp_path / "cache/unsteady"
    record.write_text(record.read_text().replace("explained:", "explained: the clock was too fast"))
    (tmp_path / "test_a.tries").unlink()
    assert suite("pytest_part('a')")[0] == 0


def test_a_part_without_tests_or_that_breaks_off_has_failed(suite):
    assert suite("pytest_part('a')", a="")[1][-1] == "0 passed, 1 failed"
    breaks_off = "import os\ndef test_1(): pass\ndef test_2(): os._exit(3)\n"
    assert suite("pytest_part('a')", a=breaks_off)[1][-1] == "1 passed, 1 failed"
    assert suite("pytest_part('a')", a="import nothing_of_that_name")[1][-1] == "0 passed, 1 failed"


def test_arguments_that_select_nothing_are_a_failure(suite):
    text = "def test_1(): pass"
    parts = "pytest_part('a', may_be_empty=True, arguments=('-k', 'x')), pytest_part('b')"
    assert suite(parts, a=text, b=text)[1][-1] == "1 passed, 0 failed"
    status, lines = suite(parts.partition(", pytest_part('b')")[0])
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert "script/test: failed: no test was selected" in lines


def test_skipped_tests_have_failed(suite):
    skips = "import pytest\ndef test_1(): pytest.skip('no reason')\n"
    status, lines = suite("pytest_part('a')", a=skips)
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")


def test_a_failed_teardown_counts(suite):
    text = """
        import pytest
        @pytest.fixture
        def thing():
            yield
            assert False, "not in order"
        def test_1(thing): pass
    """
    status, lines = suite("pytest_part('a')", a=text)
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert any("not in order" in line for line in lines)


def test_a_preparation_that_fails_says_why(suite):
    status, lines = suite(
        "pytest_part('a', prepare='echo no such mirror >&2; false')", a="def test_1(): pass"
    )
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert any("no such mirror" in line for line in lines)


def test_what_the_distribution_lacks_is_not_run_and_said(suite):
    parts = "pytest_part('a', prepare='exit 77'), pytest_part('b')"
    status, lines = suite(parts, a="def test_1(): assert 0", b="def test_2(): pass")
    assert (status, lines[-1]) == (0, "1 passed, 0 failed")
    assert any("not run: a" in line for line in lines)


def test_a_part_that_passed_is_left_out_until_its_inputs_change(suite):
    files = {"a": "def test_1(): pass", "b": "def test_2(): assert 0"}
    parts = "pytest_part('a'), pytest_part('b')"
    assert suite(parts, leave_out=True, **files)[1][-1] == "1 passed, 1 failed"
    lines = suite(parts, leave_out=True)[1]
    assert any("left out: a" in line for line in lines)
    assert lines[-1] == "0 passed, 1 failed"
    assert suite(parts, leave_out=False)[1][-1] == "1 passed, 1 failed"
    other = parts.replace("'a'", "'a', inputs=('pytest.ini', 'LICENSE')")
    assert suite(other, leave_out=True)[1][-1] == "1 passed, 1 failed"


def test_what_a_program_finds_has_no_second_try(suite):
    cases = '<testsuite><testcase name="x"/><testcase name="y"><failure message="bad"/></testcase></testsuite>'
    status, lines = suite(f"program('printf \\'%s\\' \\'{cases}\\' >$1; exit 1')")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert any("program: failed: y" in line for line in lines)
    assert not any("again" in line for line in lines)


def test_progress_is_said_while_a_part_runs(suite):
    slow = "import time\ndef test_1(): pass\ndef test_2(): time.sleep(3)\n"
    lines = suite("pytest_part('a')", a=slow)[1]
    assert any(line.endswith("a: 1 of 2") for line in lines)
