# SPDX-License-Identifier: Apache-2.0
"""The command line where it looks at the machine: doctor. The rest is in tests/component."""

import fcntl
import os
import pathlib
import re
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


def parts(*flags):
    """What doctor says of the parts of a gateway with these flags: {part: (is on, how or why not)}."""
    said = run("doctor", *flags).stdout.partition("serve has:\n")[2].partition("\n\n")[0]
    return {line[5:29].strip(): (line[:3] == "on ", line[30:]) for line in said.splitlines()}


@pytest.mark.only("oci", "no other engine has one control group for all sandboxes")
def test_the_memory_decides_how_many_sessions_there_may_be():
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usual = parts("--provisioner", "oci", "--oci-runtime", "runc")
    on, detail = usual["max sessions"]
    most = max(10, min(512, machine // 10 * 9 // (512 << 20)))
    assert on and 10 <= int(detail.partition(":")[0]) <= most, detail
    large = parts("--memory-mb", "1048576")["max sessions"][1]
    assert large.startswith("10: the least; all sandboxes together have "), large
    assert parts("--max-sessions", "3")["max sessions"][1] == "3: setting max-sessions"
    # What is kept ready costs memory all the time.
    assert usual["pool"] == parts("--max-sessions", "10")["pool"]


@pytest.mark.only("oci", "it is about runc and gVisor")
def test_doctor_says_what_is_on_and_why_not():
    on = parts("--oci-runtime", "runc", "--network", "egress", "--pypi-index-url", "http://x@y/")
    assert on["engine"] == (True, "oci")
    assert on["forked kernels"][0] and on["forked kernels"][1].startswith("python")
    assert on["network"][0] and on["jupyter api"][0] and on["console"][0]
    assert on["packages"] == (True, "from the index of setting pypi-index-url")
    off = parts(
        "--kernel-start", "exec", "--jupyter-api=false", "--console=false", "--pool-size", "0"
    )
    assert off["forked kernels"] == (
        False, "kernels start by exec: setting kernel-start is exec"
    )  # fmt: skip
    assert off["pool"] == (False, "0 with a warm kernel, 0 without: setting pool-size")
    assert off["network"][1].startswith("setting network is none")
    assert off["jupyter api"] == (False, "setting jupyter-api is false")
    assert off["console"] == (False, "setting console is false")
    if shutil.which("runsc"):
        alone = parts("--oci-runtime", "runsc")["forked kernels"]
        assert alone == (
            False, "kernels start by exec: nothing can enter the sandboxes of this OCI runtime"
        )  # fmt: skip


@pytest.mark.only("oci", "its flags are for oci")
def test_the_log_begins_with_what_doctor_says(start_gateway):
    flags = ("--max-sessions", "0", "--pool-size", "1", "--pool-bare", "0")
    flags += ("--kernel-start", "auto", "--network", "none")
    gateway = start_gateway(*flags)
    said = re.findall(
        r'what is on part="?(.*?)"? state=(on|off) detail="?(.*?)"?$', gateway.log(), re.MULTILINE
    )
    logged = {part: (state == "on", detail) for part, state, detail in said}
    expected = parts("--provisioner", "oci", *flags)
    assert logged and {part: logged[part] for part in expected} == expected
    number = logged["max sessions"][1].partition(":")[0]
    assert f"\nkernelgate_max_sessions {number}\n" in gateway.client.get("/metrics").text
