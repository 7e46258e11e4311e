# SPDX-License-Identifier: Apache-2.0
"""The README's first commands on a Debian machine that has nothing but certificates: script/server
installs what it needs, and streams what code prints."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import httpx
import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests/support"))

import debian  # noqa: E402
import leftovers  # noqa: E402

# The first process in its own mount and process namespaces; it serves until its input ends. Then it
# prepares the machine once more, as if npm could not be reached.
BOOT = """
set -e
cd "$1"
mount --bind . .
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
cp /etc/resolv.conf /etc/hosts etc
cd "$1"
mkdir old
pivot_root . old
cd /kernelgate
umount -l /old
script/server --port 0 2>&1 &
read -r _ || true
kill $!
wait $!
rm -r build/console build/console-tools
npm_config_registry=http://127.0.0.1:1 npm_config_fetch_retries=0 script/setup 2>&1
test ! -e build/console
"""
LONGEST_S = 900  # beside other tests, and with slow mirrors
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
}


def copy_project(folder):
    """What git knows of, as it is in the work tree."""
    folder.mkdir()
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={PROJECT}", "ls-files", "-z"],
        cwd=PROJECT, check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    for name in listing.decode().rstrip("\0").split("\0"):
        if (PROJECT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)


@pytest.fixture
def root():
    with tempfile.TemporaryDirectory(
        prefix=f"{leftovers.PREFIX}fresh-", dir=PROJECT / "build"
    ) as folder:
        yield pathlib.Path(folder)


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_the_first_commands_work_on_a_fresh_machine(root, release):
    debian.make_root(root, release)
    copy_project(root / "kernelgate")
    machine = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", BOOT, "boot", root],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    said = []
    began = time.monotonic()
    try:
        for line in machine.stdout:
            said.append(line)
            if ready := re.match(r"kernelgate listening on (\S+)", line):
                break
        else:
            pytest.fail("script/server ended:\n" + "".join(said[-40:]))
        took = time.monotonic() - began
        print(f"script/server was ready after {took:.0f} s; three minutes are the goal")
        assert took < LONGEST_S
        page = httpx.get(f"{ready[1]}/console/")
        assert page.status_code == 200 and "<title>kernelgate</title>" in page.text
        with httpx.stream(
            "POST", f"{ready[1]}/api/v1/execute", json={"code": "print(6 * 7)"}, timeout=60
        ) as response:
            lines = [json.loads(line) for line in response.iter_lines()]
        assert [line["type"] for line in lines] == ["stdout", "done"], lines
        assert lines[0]["text"] == "42\n" and lines[1]["status"] == "ok"
    finally:
        rest, _ = machine.communicate()  # its input ends, and so does the gateway
    assert machine.returncode == 0, "".join(said[-40:]) + rest
    assert "the console was not built" in rest and "ready: start it" in rest, rest
