# SPDX-License-Identifier: Apache-2.0
"""Adds up JUnit files: prints `N passed, N failed`; fails unless each has tests and all pass.

A test that was skipped or did not run counts as failed.
"""

import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        cases = []
    passed = sum(
        case.get("status", "run") == "run"
        and not any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        for case in cases
    )
    return passed, len(cases) - passed if cases else 1


def main():
    counts = [count(path) for path in sys.argv[1:]]
    passed, failed = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
