# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files: prints `N passed, N failed`; fails unless each has tests and all pass. Before that
line, it prints why each failed test failed, so that the end of a long output tells.

A test that was skipped or did not run counts as failed. Where there is NAME.again.xml beside NAME.xml,
it has the tests of NAME.xml that failed and were run once more, alone; what passed then is listed, and
counts as failed. With --again, prints instead the files whose failed tests should be run once more: none
if there are more than MAX_AGAIN, which would take long.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

MAX_AGAIN = 5
REASON_LINES = 12
REASON_WIDTH = 300
FAULT = re.compile(r"\[ +(ERROR|LINE|FAILED) |Sanitizer|runtime error|Assertion")


def cases_of(path):
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return []


def has_passed(case):
    kinds = ("failure", "error", "skipped")
    return case.get("status", "run") == "run" and not any(
        case.find(kind) is not None for kind in kinds
    )


def report_reasons(path):
    for case in cases_of(path):
        if has_passed(case):
            continue
        name = f"{case.get('classname', '')} {case.get('name')}".strip()
        print(f"{path.stem}: failed: {name}")
        for line in reason_of(case):
            print(f"    {line[:REASON_WIDTH]}")


def reason_of(case):
    """The lines of a message, as pytest writes it; else of what the test has printed, as ctest writes it:
    those of cmocka and of sanitizers, or the last ones."""
    found = [case.find(kind) for kind in ("failure", "error", "skipped")]
    messages = [each.get("message") or each.text or "" for each in found if each is not None]
    lines = "\n".join(messages).strip().splitlines()
    if lines and lines != ["Failed"]:  # what ctest says of every failure
        return lines[:REASON_LINES]
    output = (case.findtext("system-out") or "").strip().splitlines()
    return [line for line in output if FAULT.search(line)][:REASON_LINES] or output[-REASON_LINES:]


def outcomes(path):
    """Whether each test passed, by its name."""
    found = {}
    for case in cases_of(path):
        name = f"{case.get('classname', '')} {case.get('name')}".strip()
        found[name] = found.get(name, True) and has_passed(case)
    return found or {f"{path.stem}: no tests": False}


def report_second_try(path, first):
    """Prints which of the failed tests passed when they were run again."""
    again = path.with_name(f"{path.stem}.again.xml")
    if again.exists():
        for name, passed in outcomes(again).items():
            if passed and not first.get(name, True):
                print(f"{path.stem}: failed, and passed when it was run again, alone: {name}")


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:] if name != "--again"]
    results = {path: outcomes(path) for path in paths}
    if "--again" in sys.argv:
        failed = {path: list(tests.values()).count(False) for path, tests in results.items()}
        if sum(failed.values()) <= MAX_AGAIN:
            for path in (path for path, number in failed.items() if number):
                print(path)
        return 0
    for path, tests in results.items():
        report_reasons(path)
        report_second_try(path, tests)
    passed = sum(list(tests.values()).count(True) for tests in results.values())
    failed = sum(list(tests.values()).count(False) for tests in results.values())
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
