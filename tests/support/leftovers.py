# SPDX-License-Identifier: Apache-2.0
"""Finds leftovers of gateways: processes, mounts, control groups, sockets, folders.

A gateway is identified by its state folder; all state folders of one test run begin with PREFIX.
Run as a program, this checks all of them, and can report as a JUnit file.
"""

import contextlib
import glob
import os
import re
import sys
from xml.sax.saxutils import escape, quoteattr

import cluster
import docker_engine

PREFIX = f"/tmp/kgt-{os.environ.get('KGT_RUN', '')}-"


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _mounts(pid, state_dir):
    # A mount's source is relative to the root of its file system, which may be /tmp.
    name = f"/{os.path.basename(state_dir)}"
    return [line for line in _read(f"/proc/{pid}/mountinfo").splitlines() if name in line]


def sandbox_pids(state_dir):
    """Sandboxes' processes: those with a mount of the state folder that this process does not have; on
    Kubernetes, the agents in the pods."""
    if docker_engine.PROVISIONER == "kubernetes":
        gateway_id = _read(f"{state_dir}/id")
        pods = cluster.Cluster().pods(gateway_id) if gateway_id else []
        names = (pod["metadata"]["name"].removeprefix("kg-") for pod in pods)
        return list(filter(None, map(cluster.agent_pid, names)))
    own = os.readlink("/proc/self/ns/mnt")
    found = []
    for pid in _pids():
        try:
            elsewhere = os.readlink(f"/proc/{pid}/ns/mnt") != own
        except OSError:
            continue
        if elsewhere and _mounts(pid, state_dir):
            found.append(pid)
    return found


def cgroups_of(pids):
    """The control groups of processes, as paths on this machine.

    Groups of this process are left out: the hook that prepares a sandbox runs there. Those of pods
    are the kubelet's.
    """
    if docker_engine.PROVISIONER == "kubernetes":
        return set()
    groups = set()
    own = _read("/proc/self/cgroup").splitlines()
    for pid in pids:
        for line in _read(f"/proc/{pid}/cgroup").splitlines():
            path = line.split(":", 2)[2]
            if path != "/" and line not in own:
                groups.update(
                    glob.glob(f"/sys/fs/cgroup{path}") + glob.glob(f"/sys/fs/cgroup/*{path}")
                )
    return groups


def find(state_dir):
    """The leftovers of the gateway with this state folder, one line each."""
    left = []
    for pid in sandbox_pids(state_dir):
        left.append(f"process {pid} in a sandbox: {_read(f'/proc/{pid}/cmdline')!r}")
    for pid in _pids():
        arguments = _read(f"/proc/{pid}/cmdline").split("\0")
        is_guard = any(argument.endswith("/guard.py") for argument in arguments)
        if pid == os.getpid() or is_guard:  # the guard ends with the run
            continue
        if any(state_dir in argument for argument in arguments):
            left.append(f"process {pid}: {arguments}")
    left += [f"mount: {line}" for line in _mounts("self", state_dir)]
    for line in _read("/proc/net/unix").splitlines():
        if state_dir in line:
            left.append(f"socket: {line}")
    left += [f"folder: {path}" for path in glob.glob(f"{state_dir}*/sb/*")]
    left += [f"folder: {path}" for path in glob.glob(f"{state_dir}/gateway/sb/*")]
    return left


def groups_of_gateway(gateway_id):
    """Control groups whose name holds the id that a gateway keeps in its state folder."""
    return [
        folder
        for folder, _, _ in os.walk("/sys/fs/cgroup")
        if re.search(rf"\b{re.escape(gateway_id)}\b", os.path.basename(folder))
    ]


def remove_empty_group(gateway_id):
    """Removes the control group that a killed gateway left, as its next start would.

    A group that still holds a sandbox's is not empty and stays.
    """
    for folder in glob.glob(f"/sys/fs/cgroup/kernelgate-{gateway_id}") + glob.glob(
        f"/sys/fs/cgroup/*/kernelgate-{gateway_id}"
    ):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def containers_of_gateway(gateway_id):
    """The gateway's containers on the Docker Engine, or its pods."""
    if docker_engine.PROVISIONER == "kubernetes":
        pods = cluster.Cluster().pods(gateway_id)
        return [f"pod: {pod['metadata']['name']} {pod['status']['phase']}" for pod in pods]
    if docker_engine.PROVISIONER != "docker":
        return []
    label = f"{docker_engine.LABEL}={gateway_id}"
    found = docker_engine.Engine().containers(label)
    return [f"container: {each['Names']} {each['Status']}" for each in found]


def main():
    left = find(PREFIX) + [f"folder: {path}" for path in glob.glob(PREFIX + "*")]
    for line in left:
        print(line)
    for argument in sys.argv[1:]:
        if argument.startswith("--junit-xml="):
            failure = f"<failure>{escape(chr(10).join(left))}</failure>" if left else ""
            with open(argument.partition("=")[2], "w", encoding="utf-8") as file:
                file.write(
                    f"<testsuites><testsuite><testcase name={quoteattr('nothing is left behind')}>"
                    f"{failure}</testcase></testsuite></testsuites>\n"
                )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
