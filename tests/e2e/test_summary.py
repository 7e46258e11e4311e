# SPDX-License-Identifier: Apache-2.0
"""What script/test counts as passed and failed."""

import pathlib
import subprocess
import sys

SUMMARY = pathlib.Path(__file__).with_name("summary.py")
PASSED = '<testcase classname="t" name="passes"/>'


def report(path, *cases):
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def failed(name="fails", text="AssertionError", kind="failure"):
    return f'<testcase classname="t" name="{name}"><{kind} message="{text}"/></testcase>'


def summary(*arguments):
    command = [sys.executable, SUMMARY, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


def test_what_failed_is_counted(tmp_path):
    tests = report(tmp_path / "a.xml", PASSED, failed())
    assert summary(tests) == (1, ["1 passed, 1 failed"])
    assert summary(tests, tmp_path / "missing.xml") == (1, ["1 passed, 2 failed"])
    assert summary(report(tmp_path / "empty.xml")) == (1, ["0 passed, 1 failed"])
    assert summary("--again", report(tmp_path / "c.xml", PASSED)) == (0, [])
    skipped = report(tmp_path / "b.xml", PASSED, failed(kind="skipped"))
    assert summary(skipped) == (1, ["1 passed, 1 failed"])


def test_what_passes_at_the_second_try_is_listed_and_has_failed(tmp_path):
    tests = report(tmp_path / "a.xml", PASSED, failed("x"), failed("y"))
    assert summary("--again", tests) == (0, [str(tests)])
    report(tmp_path / "a.again.xml", '<testcase classname="t" name="x"/>', failed("y"))
    listed = "a: failed, and passed when it was run again, alone: t x"
    assert summary(tests) == (1, [listed, "1 passed, 2 failed"])


def test_a_part_that_did_not_begin_is_tried_again(tmp_path):
    assert summary("--again", tmp_path / "a.xml") == (0, [str(tmp_path / "a.xml")])
    report(tmp_path / "a.again.xml", PASSED)
    assert summary(tmp_path / "a.xml") == (1, ["0 passed, 1 failed"])


def test_many_failures_are_not_tried_again(tmp_path):
    tests = report(tmp_path / "a.xml", *(failed(f"x{i}") for i in range(6)))
    assert summary("--again", tests) == (0, [])
