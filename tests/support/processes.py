# SPDX-License-Identifier: Apache-2.0
"""The processes of one gateway, and what they may do."""

import os
import pathlib

CAPABILITIES = (  # of the helper; linux/capability.h
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_ADMIN"),
    *("SYS_CHROOT", "SYS_PTRACE", "SYS_ADMIN", "MKNOD", "SETFCAP"),
)
NUMBERS = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "SETPCAP": 8, "NET_ADMIN": 12, "SYS_CHROOT": 18, "SYS_PTRACE": 19, "SYS_ADMIN": 21,
    "MKNOD": 27, "SETFCAP": 31,
}


def status(pid):
    """The fields of /proc/<pid>/status."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        text = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
        found += [int(child) for child in text.split()]
    return found


def _child(pid, name):
    for child in _children(pid):
        if status(child)["Name"] == name:
            return child
    return None


def starter_of(gateway):
    return _child(gateway.process.pid, "kg-starter")


def helper_of(gateway):
    """None: there is none at the moment."""
    return _child(starter_of(gateway), "kg-helper")


def listens(pid):
    """Whether the process has a TCP socket that listens; it may be in a network of its own."""
    inodes = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        except OSError:
            continue
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                return True
    return False
