# SPDX-License-Identifier: Apache-2.0
"""A Debian machine that has nothing but certificates, as a root folder with namespaces of its own.

    build/venv/bin/python tests/support/machine.py trixie script/test

runs a command, as root, in a new machine of that release, which has the project in /kernelgate. Then the
machine is removed.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import debian
import guard
import leftovers

PROJECT = pathlib.Path(__file__).resolve().parents[2]
# The first process in the namespaces: bash, which reaps what others leave. It has this machine's network,
# control groups and /tmp, where the kernel looks for the program of core_pattern.
BOOT = """
set -e
cd "$1"
shift
mount --bind . .
cd "$PWD"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount --bind /tmp tmp
cp /etc/resolv.conf /etc/hosts etc
mkdir old
pivot_root . old
cd /kernelgate
umount -l /old
rmdir /old
status=0
"$@" || status=$?
exit $status
"""
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    **debian.network(),
}


def copy_project(folder):
    """What git knows of, and what is new, as it is in the work tree; in a repository, as people have it."""
    folder.mkdir()
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={PROJECT}", "ls-files", "-zco", "--exclude-standard"],
        cwd=PROJECT, check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    for name in listing.decode().rstrip("\0").split("\0"):
        if (PROJECT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet", folder], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["git", "-C", folder, "add", "--all"], check=True)


def make(root, release):
    """A root folder of a Debian release, with the project."""
    debian.make_root(root, release)
    # The project's scripts have pip trust the machine's authorities.
    (root / "etc/pip.conf").unlink(missing_ok=True)
    copy_project(root / "kernelgate")


def command(root, *words):
    """Runs a command there. All of its processes end with it, and when the caller ends."""
    return guard.tied([
        "unshare", "--mount", "--pid", "--fork", "--kill-child",
        "bash", "-c", BOOT, "boot", root, *words,
    ])  # fmt: skip


def main():
    release, *words = sys.argv[1:]
    build = PROJECT / "build"
    build.mkdir(exist_ok=True)
    prefix = f"{os.path.basename(leftovers.PREFIX)}fresh-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=build) as folder:
        root = pathlib.Path(folder, "root")
        make(root, release)
        return subprocess.run(command(root, *words), env=ENVIRONMENT, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    sys.exit(main())
