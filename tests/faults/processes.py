# SPDX-License-Identifier: Apache-2.0
"""Programs that are run for a fault, and the removal of what they leave."""

import contextlib
import ctypes
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

RUN = f"faults{os.getpid()}"  # part of the names of the gateways' state folders
STATE_FOLDERS = f"/tmp/kgt-{RUN}-"
LOOK_S = 0.5
gateway_ids = set()  # whose control groups may be left


def become_reaper():
    """Processes whose parents have ended become ours, so that they can be found and ended."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def descendants():
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = pathlib.Path(path).read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.split("/")[2]))
    found, left = [], [os.getpid()]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found


def end_descendants():
    end = time.monotonic() + 10
    while (pids := descendants()) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def note_gateways():
    """A gateway's id is part of its control groups' names: those of sandboxes that run, and of
    gateways that have a state folder."""
    texts = glob.glob(f"{STATE_FOLDERS}*/id") + [f"/proc/{pid}/cgroup" for pid in descendants()]
    for path in texts:
        with contextlib.suppress(OSError):
            text = pathlib.Path(path).read_text("utf-8", "replace").strip()
            if path.endswith("/id"):
                text = f"kernelgate-{text}"
            gateway_ids.update(re.findall(r"\bkernelgate-([a-z2-7]{8})\b", text))


def remove_control_groups():
    if not gateway_ids:
        return
    for folder, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if any(f"kernelgate-{gateway_id}" in folder for gateway_id in gateway_ids):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    gateway_ids.clear()


def sweep():
    """A test that fails, or was ended, leaves what it has started."""
    note_gateways()
    end_descendants()
    remove_control_groups()
    for folder in glob.glob(f"{STATE_FOLDERS}*"):
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{folder}/") or line.split()[1] == folder:
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def wait(process, limit):
    """Returns the exit code, or None at the limit."""
    end = time.monotonic() + limit
    while process.poll() is None:
        if time.monotonic() > end:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
        note_gateways()
    return process.returncode


def run(command, cwd, limit, env=None):
    """Runs a program. Returns its exit code, or None if it had to be ended, and its output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            code = wait(process, limit)
            if code is None:
                process.send_signal(signal.SIGINT)  # pytest then ends its gateways
                wait(process, 20)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")
