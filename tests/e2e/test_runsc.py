# SPDX-License-Identifier: Apache-2.0
"""gVisor's runtime: its own kernel, its differences, and that it leaves nothing behind."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest
from kernelgate import BINARY, PROJECT, wait_for
from sandboxes import lives, sandbox_of
from test_commands import Commands

pytestmark = pytest.mark.only("runsc", "it is about gVisor")


def groups(sandbox):
    """The control groups of a sandbox's container."""
    return list(pathlib.Path("/sys/fs/cgroup").rglob(sandbox.container))


def host_processes(sandbox):
    """A sandbox's processes on the machine: runsc's kernel, its helper, and those inside."""
    listed = [(group / "cgroup.procs").read_text().split() for group in groups(sandbox)]
    return {int(pid) for pids in listed for pid in pids}


def test_its_kernel_is_another_one(run):
    assert run("import os; print(os.uname().release)").text().strip() != os.uname().release
    assert run("!echo from a shell").text().strip() == "from a shell"  # by a terminal, and pselect


def test_the_devices_of_the_machine_keep_their_owner(start_gateway):
    """runsc changes the owner of the files that are its stdin, stdout and stderr."""
    devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"]

    def owners():
        found = {path: os.stat(path) for path in devices}
        return {path: (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)) for path, s in found.items()}

    before = owners()
    assert before["/dev/null"] == (0, 0, 0o666)
    gateway = start_gateway("--pool-size", "0")
    session = gateway.create_session()
    assert gateway.execute("print(1)", session_id=session).text() == "1\n"
    assert Commands(gateway, session).wait("echo 2")["stdout"] == "2\n"
    assert owners() == before
    gateway.delete_session(session)
    gateway.stop()
    assert owners() == before


def test_a_session_that_ends_leaves_nothing(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("import subprocess; subprocess.Popen(['sleep', '1000'])", session_id="s")
    sandbox = sandbox_of(gateway, "s")
    processes = host_processes(sandbox)
    names = {pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] for pid in processes}
    assert {"runsc-sandbox", "runsc-gofer"} <= names and len(processes) > 3
    gateway.delete_session("s")
    wait_for(lambda: not any(lives(pid) for pid in processes))
    wait_for(lambda: not groups(sandbox))
    wait_for(lambda: not list(pathlib.Path(gateway.state_dir).glob("oci-*/*")))


def test_sandboxes_outlive_their_gateway(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("x = 42", session_id="kept")
    processes = host_processes(sandbox_of(gateway, "kept"))
    gateway.kill()
    gateway.start()
    assert gateway.execute("print(x)", session_id="kept").text() == "42\n"
    assert Commands(gateway, "kept").wait("echo there")["stdout"] == "there\n"
    gateway.delete_session("kept")
    wait_for(lambda: not any(lives(pid) for pid in processes))


def test_containers_without_a_folder_are_removed(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("1", session_id="lost")
    sandbox = sandbox_of(gateway, "lost")
    processes = host_processes(sandbox)
    gateway.kill()
    shutil.rmtree(pathlib.Path(gateway.state_dir, "sb", sandbox.id))
    gateway.start()
    wait_for(lambda: not any(lives(pid) for pid in processes))
    wait_for(lambda: not list(pathlib.Path(gateway.state_dir).glob("oci-*/*")))


def test_a_sandbox_that_is_killed(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("1", session_id="s")
    sandbox = sandbox_of(gateway, "s")
    processes = host_processes(sandbox)
    sandbox.kill_container()
    wait_for(lambda: not gateway.client.get("/api/v1/sessions").json()["total"])
    wait_for(lambda: not any(lives(pid) for pid in processes))
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"


def test_the_log_of_the_machine_is_out_of_reach(gateway, session, run):
    """Code inside can open the agent's descriptors; none of them is a file of the machine."""
    lines = run("""
import os
for name in os.listdir('/proc/1/fd'):
    try: os.write(os.open(f'/proc/1/fd/{name}', os.O_WRONLY | os.O_NONBLOCK), b'a tenant was here')
    except OSError: pass
print(sorted(os.readlink(f'/proc/1/fd/{n}') for n in '012'))
""")
    assert lines.text() == f"{['/dev/null'] * 3}\n"
    folder = pathlib.Path(gateway.state_dir, "sb", sandbox_of(gateway, session).id)
    assert not any(b"tenant" in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_signals_to_process_1_end_only_their_own_session(gateway, session):
    other = gateway.create_session()
    gateway.execute("x = 7", session_id=other)
    assert gateway.execute("import os; os.kill(1, 9)", session_id=session).status == "died"
    assert gateway.execute("print(x)", session_id=other).text() == "7\n"
    gateway.delete_session(other)


def test_nodes_of_devices_open_nothing(run):
    lines = run("""
import json, os, stat
opened = []
for kind, major, minor in ((stat.S_IFBLK, 8, 0), (stat.S_IFBLK, 254, 0), (stat.S_IFCHR, 1, 1)):
    path = f'/tmp/node-{major}-{minor}'
    try:
        os.mknod(path, kind | 0o600, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDONLY))
        opened.append(path)
    except OSError: pass
print(json.dumps(opened))
""")
    assert json.loads(lines.text()) == []


def test_nothing_inside_locks_a_file_of_the_machine(run):
    lines = run("""
import fcntl, os
file = open('/opt/kernelgate/python/bin/python')
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print('locked')
""")
    assert lines.text() == "locked\n"
    with open(PROJECT / "build/kernels/python/bin/python", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_too_much_memory_ends_only_its_own_session(gateway, session):
    other = gateway.create_session()
    gateway.execute("x = 7", session_id=other)
    lines = gateway.execute("bytes(10**10)", session_id=session, timeout=60)
    assert lines.status == "died" and lines.one("error")["ename"] == "KernelDied"
    assert gateway.execute("print(x)", session_id=other).text() == "7\n"
    gateway.delete_session(other)


def test_processes_are_bounded(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--pids", "40")
    lines = gateway.execute(
        """
import subprocess
children = []
try:
    while len(children) < 100: children.append(subprocess.Popen(['sleep', '1000']))
except OSError as error: print(type(error).__name__)
print(len(children))
""",
        session_id="s",
    )
    error, count = lines.text().split()
    assert error == "BlockingIOError" and int(count) < 40
    assert 30 < gateway.show_session("s")["usage"]["pids"] <= 40
    assert gateway.show_session("s")["usage"]["memory_bytes"] > 0


# ---- What doctor says


def doctor(runtime, **environment):
    result = subprocess.run(
        [BINARY, "doctor", "--provisioner", "oci", "--oci-runtime", runtime],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


def test_doctor_has_tried_it():
    code, text = doctor("runsc")
    assert code == 0
    assert re.search(r"^ok +oci: runsc +ran a sandbox with its own kernel$", text, re.M)


def test_doctor_says_why_it_cannot_work(tmp_path):
    assert doctor("runsc", PATH=str(tmp_path))[1].count("runsc is not installed") == 1
    broken = tmp_path / "runsc"
    broken.write_text(
        f"#!/bin/sh\nexec {shutil.which('runsc')} --platform=kvm"
        ' --platform_device_path=/no/such/device "$@"\n'
    )
    broken.chmod(0o755)
    code, text = doctor(str(broken))
    assert code != 0 and re.search(r"/no/such/device\)?: no such file or directory", text)
