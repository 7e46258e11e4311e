# SPDX-License-Identifier: Apache-2.0
"""Nothing stays of an engine whose tests were killed (tests/support/guard.py)."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
from kernelgate import wait_for

# A process as pytest is: it has a guard, mounts something, and starts what the folder's name shows, which
# has a child in a container, and something that is alone when that ends.
WATCHED = """
import subprocess, sys, time
import guard
folder, = sys.argv[1:]
guard.Guard(folder, f"{folder}/data")
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", f"{folder}/data"], check=True)
container = "mount -t tmpfs tmpfs /mnt; mount --bind data/file /mnt; exec sleep 1000"
engine = f"unshare --mount sh -c '{container}' & echo $!; sleep 1000 & echo $!; wait; : {folder}"
open(f"{folder}/data/file", "w").close()
subprocess.Popen(["sh", "-c", engine], cwd=folder, start_new_session=True)
time.sleep(1000)
"""


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="kgt-guard-", ignore_cleanup_errors=True) as made:
        pathlib.Path(made, "data").mkdir()
        yield made


def exists(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left(folder, pids):
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    return [
        *filter(exists, pids),
        *([folder] if os.path.exists(folder) else []),
        *([mounts] if folder in mounts else []),
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_of_what_was_killed(folder, number):
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED, folder], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, start_new_session=True,
    ) as watched:  # fmt: skip
        pids = [int(watched.stdout.readline()) for _ in range(2)]
        wait_for(lambda: folder in pathlib.Path(f"/proc/{pids[0]}/mountinfo").read_text())
        assert all(map(exists, pids)) and folder in pathlib.Path("/proc/self/mountinfo").read_text()
        os.killpg(watched.pid, number)
        watched.communicate()
    wait_for(lambda: not left(folder, pids), timeout=60)


def test_others_are_left_alone(folder):
    """Also those in a namespace that began as a copy of this one, while the folder's mounts were there."""
    import guard

    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", f"{folder}/data"], check=True)
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        try:
            guard.Guard(folder, f"{folder}/data").end()
            assert not os.path.exists(folder)
            assert other.poll() is None
        finally:
            other.kill()
