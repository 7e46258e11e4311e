# SPDX-License-Identifier: Apache-2.0
"""The command line where it looks at the machine: doctor. The rest is in tests/component."""

import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest
from kernelgate import BINARY


def run(*arguments, env=None, cwd="/", timeout=60):
    return subprocess.run(
        [BINARY, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={"PATH": os.environ["PATH"], **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_doctor():
    result = run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "runc" in result.stdout


def test_doctor_says_what_the_machine_leaves_open():
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as pattern:
        fcntl.flock(pattern, fcntl.LOCK_SH)  # test_isolation.py sets it, maybe in another run
        piped = pattern.read().startswith("|")
        lines = run("doctor", "--provisioner", "oci", "--max-sessions", "3").stdout.splitlines()

    def finding(what):
        [line] = [line for line in lines if line[5:].startswith(f"{what} ")]  # said once
        return line.split(maxsplit=1)[0] == "ok", line

    ok, line = finding("oci: core dumps")
    assert ok and ("is not a pipe" in line) == (not piped)
    assert len([line for line in lines if "core_pattern" in line]) == 1
    assert len([line for line in lines if "inotify" in line]) == 1
    have = int(pathlib.Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    ok, line = finding("oci: inotify")
    assert ok == (have >= 128 + 16 * 3) and (ok or "max_user_instances=176" in line)
    alone = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    assert ("version 1" in finding("oci: control groups")[1]) == (not alone)
    runtimes = [name for name in ("runc", "crun") if shutil.which(name)]
    for name in runtimes:
        version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        assert version.splitlines()[0] in finding(f"version of {name}")[1]
