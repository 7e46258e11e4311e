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


def because(name, reason="AssertionError", report="a"):
    return [f"{report}: failed: t {name}", f"    {reason}"]


def test_what_failed_is_counted(tmp_path):
    tests = report(tmp_path / "a.xml", PASSED, failed())
    assert summary(tests) == (1, [*because("fails"), "1 passed, 1 failed"])
    assert summary(tests, tmp_path / "missing.xml") == (
        1,
        [*because("fails"), "1 passed, 2 failed"],
    )
    assert summary(report(tmp_path / "empty.xml")) == (1, ["0 passed, 1 failed"])
    assert summary("--again", report(tmp_path / "c.xml", PASSED)) == (0, [])
    skipped = report(tmp_path / "b.xml", PASSED, failed(kind="skipped"))
    assert summary(skipped) == (1, [*because("fails", report="b"), "1 passed, 1 failed"])


def test_what_passes_at_the_second_try_is_listed_and_has_failed(tmp_path):
    tests = report(tmp_path / "a.xml", PASSED, failed("x"), failed("y"))
    assert summary("--again", tests) == (0, [str(tests)])
    report(tmp_path / "a.again.xml", '<testcase classname="t" name="x"/>', failed("y"))
    listed = "a: failed, and passed when it was run again, alone: t x"
    assert summary(tests) == (1, [*because("x"), *because("y"), listed, "1 passed, 2 failed"])


def test_a_part_that_did_not_begin_is_tried_again(tmp_path):
    assert summary("--again", tmp_path / "a.xml") == (0, [str(tmp_path / "a.xml")])
    report(tmp_path / "a.again.xml", PASSED)
    assert summary(tmp_path / "a.xml") == (1, ["0 passed, 1 failed"])


def test_many_failures_are_not_tried_again(tmp_path):
    tests = report(tmp_path / "a.xml", *(failed(f"x{i}") for i in range(6)))
    assert summary("--again", tests) == (0, [])


def test_reasons_are_the_first_lines_of_a_message_or_the_last_of_an_output(tmp_path):
    def reason(case):
        return summary(report(tmp_path / "a.xml", case))[1][1:-1]

    long = reason(failed(text="&#10;".join(["x" * 400, *(f"line {i}" for i in range(30))])))
    assert long == ["    " + "x" * 300, *(f"    line {i}" for i in range(11))]
    output = "\n".join(f"line {i}" for i in range(30))
    from_ctest = f'<failure message="Failed"/><system-out>{output}</system-out>'
    case = f'<testcase classname="t" name="fails" status="fail">{from_ctest}</testcase>'
    assert reason(case) == [f"    line {i}" for i in range(18, 30)]
    marked = output.replace("line 7\n", "[  ERROR   ] --- 1 != 2\n")
    assert reason(case.replace(output, marked)) == ["    [  ERROR   ] --- 1 != 2"]
    case = '<testcase classname="t" name="fails"><failure>of valgrind</failure></testcase>'
    assert reason(case) == ["    of valgrind"]
