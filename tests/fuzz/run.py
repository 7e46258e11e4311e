#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets of a build for some seconds each, from the stored corpora: as many at a time
as there are processors. What makes one fail is kept in `found/` beside the targets' folder."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def run(target, seconds, found):
    """Runs one target; returns what it said where it failed."""
    name = target.name.removeprefix("fuzz_")
    with tempfile.TemporaryDirectory() as new:
        result = subprocess.run(
            [
                target, f"-max_total_time={seconds}", "-timeout=30", f"-artifact_prefix={found}/{name}-",
                new, PROJECT / "tests/fuzz/corpus" / name,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    said = result.stdout.decode("utf-8", "replace")
    runs = re.search(r"^Done (\d+) runs", said, re.MULTILINE)
    if result.returncode == 0 and runs and int(runs[1]) > 0:
        print(f"passed  {name}: {runs[1]} runs", flush=True)
        return ""
    print(f"FAILED  {name}\n{said[-8000:]}", flush=True)
    return said[-8000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="where the built targets are")
    parser.add_argument("targets", nargs="*", help="names, as in `zmtp`; all by default")
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--junit-xml", help="where to say what passed and failed")
    options = parser.parse_args()
    # By the sources, so that a target which was not built counts as failed.
    names = options.targets or sorted(
        path.stem.removeprefix("fuzz_") for path in (PROJECT / "tests/fuzz").glob("fuzz_*.c")
    )
    found = options.folder.resolve().parent / "found"
    found.mkdir(exist_ok=True)

    def attempt(name):
        try:
            return run(options.folder.resolve() / f"fuzz_{name}", options.seconds, found)
        except OSError as error:
            print(f"FAILED  {name}: {error}", flush=True)
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = dict(zip(names, pool.map(attempt, names)))
    if options.junit_xml:
        cases = ""
        for name, said in failures.items():
            # XML 1.0 has no form for most control characters.
            said = escape(re.sub(r"[^\t\n\x20-\x7e]", "?", said))
            failure = f"<failure>{said}</failure>" if said else ""
            cases += f'<testcase name="fuzz.{name}">{failure}</testcase>\n'
        pathlib.Path(options.junit_xml).write_text(
            f"<testsuites><testsuite>{cases}</testsuite></testsuites>\n", encoding="utf-8"
        )
    return 1 if any(failures.values()) else 0


sys.exit(main())
