# SPDX-License-Identifier: Apache-2.0
"""Ends what a process has started as soon as that process ends, even if it was killed.

    guard.py BEGINNING [MOUNTED…]

waits for the end of its input, which is a pipe from the process that it watches. BEGINNING is the path of a
folder, or what the paths of all folders of a run begin with. Then it ends the processes whose command lines
name such a folder, with their descendants and with those in containers that have mounts of it, or of the
folders MOUNTED; it removes the containers' control groups, unmounts everything in all of these folders, and
removes those of BEGINNING.
"""

import contextlib
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import leftovers

# After SIGKILL only a hanging machine takes long.
DEADLINE_S = 60


class Guard:
    """`end()` does all that at once. Files that are given stay open, and what they lock stays locked,
    until it is done."""

    def __init__(self, beginning, *mounted, keep_open=()):
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(beginning), *map(str, mounted)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=keep_open,
            # It is not in the group that Ctrl-C or a runner of tests ends.
            start_new_session=True,
        )  # fmt: skip

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def tied(command):
    """The command as one that is killed when this process ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *command]


def parents():
    """The parent of each process."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def is_of(pid, places):
    """Whether a process names the first place, or is in a container with mounts of any. Other guards,
    of a part of this, have their own work to do."""
    process = pathlib.Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        command = process.joinpath("cmdline").read_bytes()
        if places[0].encode() in command:
            return __file__.encode() not in command
        if os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            mounts = process.joinpath("mountinfo").read_text().splitlines()
            return any(is_mount_of(line, place) for line in mounts for place in places)
    return False


def is_mount_of(line, place):
    """Whether a file of the place is mounted elsewhere. A namespace that began as a copy of another one
    has the place's own mounts, too, and no more to do with it."""
    source, point = line.split()[3:5]
    return place in f"{source}/" and not f"{point}/".startswith(place)


def victims(places):
    tree = parents()
    own = {os.getpid(), os.getppid()}
    found = {pid for pid in tree if pid not in own and is_of(pid, places)}
    while (
        more := {pid for pid, parent in tree.items() if parent in found and pid not in own} - found
    ):
        found |= more
    return found


def end_processes(places):
    """Returns the control groups that they had."""
    groups = set()
    deadline = time.monotonic() + DEADLINE_S
    while (found := victims(places)) and time.monotonic() < deadline:
        groups |= leftovers.cgroups_of(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return groups


def remove_groups(groups, beginning):
    """Those of containers, each of which has its own, and of gateways."""
    gateways = [pathlib.Path(path).read_text() for path in glob.glob(f"{beginning}*/id")]
    for group in groups:
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.05)
    for gateway in gateways:
        leftovers.remove_empty_group(gateway)
    # An engine's own group stays after its last container.
    for name in ("docker", "libpod_parent"):
        for group in (f"/sys/fs/cgroup/{name}", *glob.glob(f"/sys/fs/cgroup/*/{name}")):
            with contextlib.suppress(OSError):
                os.rmdir(group)


def unmount(places):
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    for point in reversed(points):
        if f"{point}/".startswith(tuple(places)):
            subprocess.run(["umount", "-l", point], check=False)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    beginning, *mounted = sys.argv[1:]
    places = [beginning, *(f"{os.path.realpath(folder)}/" for folder in mounted)]
    os.chdir("/")
    sys.stdin.buffer.read()
    groups = end_processes(places)
    unmount(places)
    remove_groups(groups, beginning)
    for folder in glob.glob(f"{beginning}*"):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
