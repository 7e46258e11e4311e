# SPDX-License-Identifier: Apache-2.0
"""Runs the tests: script/test [PART…] [--all] [--again] [arguments of pytest]

Without parts, what a change should pass, and what CI runs. With arguments of pytest, the tests that these
select: `script/test tests/browser/test_console.py` those of a file, `script/test -k timeout` those of
`component` and `e2e`, or of the parts that are named.

  --all          every part. A part that has passed on this machine with the same sources, tests and
                 tools is left out, and named
  --again        with --all: leaves nothing out
  --provisioner docker, --oci-runtime NAME
                 all end-to-end tests on that engine, or with that OCI runtime

A test that fails is run again at the end, alone and beside a busy processor. What fails again has failed.
What passes both times is listed as unsteady, with its log in build/results/unsteady. These are not
forgiven: a report of a sanitizer, a crash, something left behind, more than three unsteady tests, and a
test that was unsteady on this machine before and that nobody has explained (the file `unsteady` in the
cache folder has the list).

The last line is `N passed, N failed`; those before it say why what failed has failed."""

import dataclasses
import os
import sys

import parts as table
import run
from parts import PARTS, Pytest, engine


def usage():
    lines = [__doc__.strip(), "", "Parts (* without arguments):"]
    for option in dict.fromkeys(part.option for part in PARTS):
        part = next(part for part in PARTS if part.option == option)
        lines.append(f"  {'*' if part.by_default else ' '} --{option:<12} {part.what}")
    return "\n".join(lines)


def fail(text):
    print(f"script/test: {text}; script/test --help lists what it takes", file=sys.stderr)
    sys.exit(2)


def select(arguments):
    """The parts that a command line asks for, and whether parts may be left out."""
    options = {part.option for part in PARTS}
    names, settings, rest = [], {}, []
    everything = again = False
    words = iter(arguments)
    for word in words:
        if word in ("--help", "-h"):
            print(usage())
            sys.exit(0)
        if word == "--all":
            everything = True
        elif word == "--again":
            again = True
        elif word in ("--provisioner", "--oci-runtime"):
            value = next(words, None)
            if value is None:
                fail(f"{word} needs a name")
            settings[f"KERNELGATE_{word[2:].upper().replace('-', '_')}"] = value
        elif word.startswith("--") and word[2:] in options:
            names.append(word[2:])
        else:
            rest = [word, *words]
    if settings:
        return [on_engine(settings, rest)], False
    if everything:
        names = list(options)
    if rest and not rest[0].startswith("-") and not os.path.exists(rest[0].partition("::")[0]):
        fail(f"there is no file {rest[0]}" + (f", but --{rest[0]}" if rest[0] in options else ""))
    if not names and rest:
        paths = [word for word in rest if word.startswith("tests/")]
        names = ["component", "e2e", *(["browser", "load"] if paths else [])]
    chosen = [part for part in PARTS if (part.option in names if names else part.by_default)]
    if rest:
        chosen = [part for each in chosen if (part := with_arguments(each, rest))]
    return chosen, everything and not again


def with_arguments(part, rest):
    """The part with arguments of pytest; None if they name only files of other parts."""
    if not isinstance(part.tests, Pytest):
        fail(f"the part {part.name} takes no arguments of pytest")
    split = part.tests.tests.index("-m") if "-m" in part.tests.tests else len(part.tests.tests)
    places, options = part.tests.tests[:split], part.tests.tests[split:]
    paths = [word for word in rest if os.path.exists(word.partition("::")[0])]
    own = [path for path in paths if path.startswith(places)]
    if paths and not own:
        return None
    others = [word for word in rest if word not in paths]
    tests = (*(own or places), *options, *others)
    return dataclasses.replace(
        part, tests=dataclasses.replace(part.tests, tests=tests), may_be_empty=True
    )


def on_engine(settings, rest):
    """All end-to-end tests on another engine, or with another OCI runtime."""
    name = "docker" if settings.get("KERNELGATE_PROVISIONER") == "docker" else "e2e"
    part = next(part for part in PARTS if part.name == name)
    prepare = part.prepare
    if name == "docker":
        prepare += "; RUNLEVEL=1 install_packages podman"
    tests = Pytest(("tests/e2e", *rest), engine(**settings))
    return dataclasses.replace(part, tests=tests, prepare=prepare)


def main():
    os.chdir(table.PROJECT)
    chosen, may_leave_out = select(sys.argv[1:])
    return run.Run(chosen, may_leave_out).main()


if __name__ == "__main__":
    sys.exit(main())
