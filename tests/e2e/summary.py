# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files: prints `N passed, N failed`; fails unless each has tests and all pass.

A test that was skipped or did not run counts as failed. Where there is NAME.again.xml beside NAME.xml,
it has the tests of NAME.xml that failed and were run once more; what passed then counts as passed, and
is listed. With --again, prints instead the files whose failed tests should be run once more: none if
more than MAX_AGAIN failed, or if one found what never depends on the load: a report of a sanitizer
or valgrind, a crash, something left behind.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

MAX_AGAIN = 5
# The gateways' fixtures check exit codes and leftovers at the end of a test.
NEVER_BY_LOAD = re.compile(
    "Sanitizer|runtime error:|reported by valgrind|failed on teardown|SIGABRT|SIGSEGV|core dumped"
)


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


def outcomes(path):
    """Whether each test passed, by its name."""
    found = {}
    for case in cases_of(path):
        name = f"{case.get('classname', '')} {case.get('name')}".strip()
        found[name] = found.get(name, True) and has_passed(case)
    return found or {f"{path.stem}: no tests": False}


def is_never_by_load(path):
    failed = (case for case in cases_of(path) if not has_passed(case))
    return any(NEVER_BY_LOAD.search(ElementTree.tostring(case, "unicode")) for case in failed)


def second_try(path, first):
    """What `first` is after the second try, and prints what passed only then."""
    again = path.with_name(f"{path.stem}.again.xml")
    if not again.exists():
        return first
    second = outcomes(again)
    if f"{path.stem}: no tests" in first:  # the part failed before its first test
        print(f"{path.stem}: ran only when it was started again")
        return second
    for name in (name for name, passed in second.items() if passed and not first.get(name, True)):
        print(f"{path.stem}: passed only when it was run again: {name}")
        first[name] = True
    return first


def main():
    paths = [pathlib.Path(name) for name in sys.argv[1:] if name != "--again"]
    results = {path: outcomes(path) for path in paths}
    if "--again" in sys.argv:
        failed = {path: list(tests.values()).count(False) for path, tests in results.items()}
        if sum(failed.values()) <= MAX_AGAIN and not any(map(is_never_by_load, paths)):
            for path in (path for path, number in failed.items() if number):
                print(path)
        return 0
    results = [second_try(path, tests) for path, tests in results.items()]
    passed = sum(list(tests.values()).count(True) for tests in results)
    failed = sum(list(tests.values()).count(False) for tests in results)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
