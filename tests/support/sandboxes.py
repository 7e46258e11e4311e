# SPDX-License-Identifier: Apache-2.0
"""A gateway's sandboxes, found in its state folder and /proc, for tests that kill them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess

import cluster
import docker_engine
from kernelgate import wait_for


def _text(path):
    try:
        return pathlib.Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def lives(pid):
    """Whether the process exists and is not a zombie."""
    status = _text(f"/proc/{pid}/stat")
    return bool(status) and status.rpartition(")")[2].split()[0] != "Z"


def kill(pid):
    """Sends SIGKILL, and returns when the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not lives(pid))


def annotation(pod, name):
    """An annotation of a pod, which may be None; "" if it does not exist."""
    return pod["metadata"]["annotations"].get(name, "") if pod else ""


class Sandbox:
    def __init__(self, gateway, folder):
        self.id = folder.name
        self._state_dir = pathlib.Path(gateway.state_dir)
        self._flags = gateway.flags
        pod = cluster.Cluster().pod(self.id) if docker_engine.PROVISIONER == "kubernetes" else None
        record = self._state_dir / "gateway/sb" / self.id / "meta.json"
        meta = _text(record) or _text(folder / "meta.json") or annotation(pod, cluster.META)
        self.session = json.loads(meta).get("session_id") if meta else None
        # The engine's name of its container.
        self.container = f"kg-{_text(self._state_dir / 'id')}-{self.id}"
        if docker_engine.PROVISIONER == "docker":
            self.agent = docker_engine.Engine().pid(self.container)
        elif docker_engine.PROVISIONER == "kubernetes":
            self.agent = cluster.agent_pid(self.id)
        else:
            self.agent = int(_text(folder / "init.pid") or 0)

    def pids(self):
        """All processes inside, including the agent."""
        if not lives(self.agent):
            return []
        namespace = os.readlink(f"/proc/{self.agent}/ns/pid")
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == namespace and lives(name):
                    found.append(int(name))
        return found

    def kernel(self):
        """The pid of its one kernel, whose code has forked nothing."""
        programs = "ipykernel_launcher", "script-kernel"
        [kernel] = [
            pid
            for pid in self.pids()
            if any(program in _text(f"/proc/{pid}/cmdline") for program in programs)
        ]
        return kernel

    def kill_container(self):
        """Kills the container by means of the engine, as an operator would."""
        if docker_engine.PROVISIONER == "docker":
            docker_engine.Engine().kill(self.container)
            return
        if docker_engine.PROVISIONER == "kubernetes":
            cluster.Cluster().delete(self.id)
            return
        [root] = self._state_dir.glob("oci-*")
        runtime = root.name.removeprefix("oci-")
        if "--oci-runtime" in self._flags:  # which may be a path
            runtime = self._flags[self._flags.index("--oci-runtime") + 1]
        subprocess.run([runtime, "--root", root, "kill", self.container, "KILL"], check=True)

    def wait_until_ended(self):
        """Returns when the engine reports the container's end; a kubelet does so after a moment."""

        def ended():
            pod = cluster.Cluster().pod(self.id)
            return not pod or pod["status"]["phase"] in ("Failed", "Succeeded")

        if docker_engine.PROVISIONER == "kubernetes":
            wait_for(ended)


def folders_of_sandboxes(gateway):
    """Also of sandboxes that are being made, but not of zygotes."""
    state_dir = pathlib.Path(gateway.state_dir)
    if docker_engine.PROVISIONER == "docker":  # otherwise a helper makes the containers
        state_dir /= "gateway"
    folders = (state_dir / "sb").glob("*")
    return [path for path in folders if not (path / "zygote").exists()]


def sandboxes(gateway):
    """The sandboxes whose container was started."""
    found = (Sandbox(gateway, path) for path in folders_of_sandboxes(gateway))
    return [sandbox for sandbox in found if sandbox.agent]


def sandbox_of(gateway, session_id):
    [found] = [
        sandbox
        for sandbox in sandboxes(gateway)
        if sandbox.session == session_id and lives(sandbox.agent)
    ]
    return found


def pooled(gateway):
    """The sandboxes without a session."""
    return [
        sandbox
        for sandbox in sandboxes(gateway)
        if sandbox.session is None and lives(sandbox.agent)
    ]
