# SPDX-License-Identifier: Apache-2.0
"""Locks, watches and times of files belong to inodes, but do not leave their sandbox."""

import ctypes
import fcntl
import json
import os
import pathlib
import subprocess

import docker_engine
import pytest
from kernelgate import BINARY, PROJECT

# Files of a sandbox, and the host's file that is mounted there, if any.
FILES = {
    "/": None,
    "/usr/bin/env": "/usr/bin/env",
    "/etc/passwd": None,
    "/dev/null": "/dev/null",
    "/opt/kernelgate/python/pyvenv.cfg": str(PROJECT / "build/kernels/python/pyvenv.cfg"),
}
if docker_engine.PROVISIONER == "oci":
    FILES["/etc/ld.so.cache"] = "/etc/ld.so.cache"
    FILES["/run/kg-agent"] = str(
        pathlib.Path(BINARY).parents[1] / "libexec/kernelgate/kernelgate-agent"
    )


@pytest.fixture
def two(gateway):
    """Runs code in either of two sessions and returns the JSON that it printed."""
    ids = [gateway.create_session() for _ in range(2)]

    def run(which, code):
        lines = gateway.execute("import fcntl, json, os\n" + code, session_id=ids[which])
        assert lines.status == "ok", lines
        return json.loads(lines.text())

    yield run
    for session_id in ids:
        gateway.delete_session(session_id)


@pytest.fixture
def hidden_kernels():
    """The kernels' environments in a folder that only root can enter, as below root's home."""
    folder = PROJECT / f"build/hidden-{os.getpid()}"
    folder.mkdir(mode=0o700)
    kernels = folder / "kernels"
    kernels.mkdir()
    # Hard links would change the files' times, which another job's tar notices.
    subprocess.run(["mount", "--bind", PROJECT / "build/kernels", kernels], check=True)
    yield kernels
    subprocess.run(["umount", "-l", kernels], check=True)
    kernels.rmdir()
    folder.rmdir()


def locked(paths):
    """The files that this process cannot lock."""
    found = []
    for path in paths:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(path)
    return found


def test_locks_reach_neither_a_neighbour_nor_the_host(two):
    lock = f"""
found = []
for path in {list(FILES)}:
    fd = os.open(path, os.O_RDONLY)
    try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: found.append(path)
print(json.dumps(found))
"""
    assert two(0, lock) == []
    assert two(0, lock) == list(FILES)  # they are held, by the first round
    assert two(1, lock) == []
    assert locked(filter(None, FILES.values())) == []


@pytest.mark.only("oci", "Docker's images have the environments")
def test_locks_in_environments_that_only_root_can_reach(start_gateway, hidden_kernels):
    gateway = start_gateway("--pool-size", "0", "--kernels-dir", str(hidden_kernels))
    lock = """
        import fcntl, sys
        file = open(sys.prefix + "/pyvenv.cfg")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    """
    for session in ("a", "b"):
        assert gateway.execute(lock, session_id=session).status == "ok"
    assert locked([hidden_kernels / "python/pyvenv.cfg"]) == []


def test_watches_see_nothing_of_the_host(two):
    two(0, """
import ctypes, struct
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_CLOEXEC)
names = ('/usr/bin', '/usr/lib', '/etc', '/opt/kernelgate/python')
print(json.dumps([libc.inotify_add_watch(watch, name.encode(), 0x20) for name in names]))  # opens
""")  # fmt: skip
    for path in ("/usr/bin/env", str(PROJECT / "build/kernels/python/pyvenv.cfg")):
        pathlib.Path(path).read_bytes()
    two(1, "open('/usr/bin/env').close(); open('/opt/kernelgate/python/pyvenv.cfg').close()\n"
           "print(json.dumps(None))")  # fmt: skip
    # An event of its own comes after those, and shows that the watch works.
    found = two(
        0,
        """
open('/usr/bin/printf').close()
found = []
while 'printf' not in found:
    data = os.read(watch, 65536)
    while data:
        length = struct.unpack('iIII', data[:16])[3]
        found.append(data[16:16 + length].rstrip(b'\\0').decode())
        data = data[16 + length:]
print(json.dumps(found))
""",
    )
    assert not {"env", "pyvenv.cfg"} & set(found)


def test_times_of_the_hosts_devices_cannot_be_set(two):
    before = os.stat("/dev/null")
    found = two(
        0,
        """
try: os.utime('/dev/null', (1, 1)); os.utime('/dev/null')
except OSError: pass
with open('/dev/null', 'wb') as null: null.write(b'x')
print(json.dumps((os.stat('/dev/null').st_dev, os.read(os.open('/dev/zero', os.O_RDONLY), 2).hex())))
""",
    )
    after = os.stat("/dev/null")
    assert found[0] != before.st_dev and found[1] == "0000"
    assert (after.st_mtime, after.st_atime) == (before.st_mtime, before.st_atime)


def test_instances_of_inotify_are_bounded(two):
    """The kernel counts them against the limit of the host's root, which is 128."""
    fill = """
import ctypes
libc = ctypes.CDLL(None)
fds = []
while len(fds) < 1000:
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0: break
    fds.append(fd)
print(json.dumps(len(fds)))
"""
    used = [two(which, fill) for which in range(2)]
    if docker_engine.PROVISIONER == "oci":
        assert all(0 < each <= 16 for each in used)
    else:
        assert min(used) > 0
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    os.close(fd)


@pytest.mark.only("oci", "nothing sets the limits of a Docker sandbox's own user")
@pytest.mark.not_on("runsc", "watches are its own kernel's, whose end is the session's")
def test_watches_of_inotify_are_bounded(two):
    """They too count against the host's root; 8192 is what the sandbox's user namespace allows."""
    found = two(
        0,
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
fd, n = libc.inotify_init1(os.O_CLOEXEC), 0
os.makedirs('watched')
while n < 8200:
    with open(f'watched/{n}', 'w'): pass
    if libc.inotify_add_watch(fd, f'watched/{n}'.encode(), 2) < 0: break
    n += 1
error = ctypes.get_errno()
os.close(fd)
print(json.dumps((n, os.strerror(error))))
""",
    )
    assert found == [8192, "No space left on device"]
