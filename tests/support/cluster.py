# SPDX-License-Identifier: Apache-2.0
"""The cluster that gateways use if KERNELGATE_PROVISIONER is kubernetes. `script/cluster up` starts it;
the tests run in its network, by `script/cluster in`.

Gateways have the rights of the service account in deploy/kubernetes, the tests those of the cluster's
administrator.
"""

import contextlib
import os
import pathlib
import signal
import ssl
import subprocess
import time

import httpx

PROJECT = pathlib.Path(__file__).resolve().parents[2]
KEYS = PROJECT / "build/cluster/keys"
SERVER = "https://127.0.0.1:6443"
NAMESPACE = "kernelgate-sandboxes"
INSTALLATION = "kernelgate/installation"
META = "kernelgate/meta"


def gateway_environment():
    return {
        "KERNELGATE_PROVISIONER": "kubernetes",
        "KERNELGATE_KUBERNETES_SERVER": SERVER,
        "KERNELGATE_KUBERNETES_CA_FILE": str(KEYS / "ca.crt"),
        "KERNELGATE_KUBERNETES_TOKEN_FILE": str(KEYS / "token"),
        "KERNELGATE_KUBERNETES_NAMESPACE": NAMESPACE,
        "KERNELGATE_KUBERNETES_AGENT_IMAGE": "localhost/kernelgate:1",
        "KERNELGATE_UNENFORCED_NETWORK": "true",  # but for closed_network()
        "KERNELGATE_IMAGE": "localhost/kernelgate-kernel:1",
    }


def kubectl(*arguments, **options):
    command = [PROJECT / "script/cluster", "kubectl", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def prepare():
    """Makes the namespaces and the gateways' account, as an operator does."""
    kubectl("apply", "-k", PROJECT / "deploy/kubernetes/base")
    kubectl("-n", "kernelgate", "scale", "deployment", "kernelgate", "nginx", "--replicas=0")
    token = kubectl("-n", "kernelgate", "create", "token", "kernelgate", "--duration=12h")
    (KEYS / "token").write_text(token)


class Cluster:
    def __init__(self):
        context = ssl.create_default_context(cafile=str(KEYS / "ca.crt"))
        context.load_cert_chain(KEYS / "admin.crt", KEYS / "admin.key")
        self._client = httpx.Client(base_url=SERVER, verify=context, timeout=60, trust_env=False)

    def ask(self, method, path, **options):
        response = self._client.request(method, path, **options)
        assert response.status_code < 400, f"{method} {path}: {response.text}"
        return response.json()

    def answers(self):
        with contextlib.suppress(httpx.TransportError):
            return self._client.get("/readyz").status_code == 200
        return False

    def pods(self, installation=None):
        """The pods of sandboxes, except those that are being deleted."""
        selector = f"{INSTALLATION}={installation}" if installation else INSTALLATION
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        items = self.ask("GET", path, params={"labelSelector": selector})["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, sandbox_id):
        """A sandbox's pod, or None."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/kg-{sandbox_id}"
        response = self._client.get(path)
        return response.json() if response.status_code == 200 else None

    def delete(self, sandbox_id):
        self.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/kg-{sandbox_id}")


def agent_pid(sandbox_id):
    """The pid of a sandbox's agent on this machine, or 0."""
    wanted = ["--sandbox", sandbox_id]
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = pathlib.Path("/proc", name, "cmdline").read_text().split("\0")
        except OSError:
            continue
        if arguments[0].endswith("/kernelgate-agent") and wanted == arguments[3:5]:
            return int(name)
    return 0


@contextlib.contextmanager
def closed_network():
    """Pods reach nothing, which is what a network plugin makes of the NetworkPolicy."""
    drop = "-i cni0 -p tcp --syn -j DROP"
    rules = [f"INPUT {drop}", f"FORWARD {drop}"]
    pathlib.Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")
    for rule in rules:
        subprocess.run(["iptables", "-w", "-I", *rule.split()], check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-w", "-D", *rule.split()], check=True)


def pid_of(component):
    """The pid of a program of the cluster, as kube-apiserver, kubelet or containerd; 0: it has ended."""
    folder = str(PROJECT / "build/cluster")
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program = path.read_bytes().split(b"\0")[0].decode()
            if (
                program.rpartition("/")[2] == component
                and os.readlink(path.parent / "cwd") == folder
            ):
                return int(path.parent.name)
    return 0


def states_of_threads(pid):
    """The letters of proc(5), as T for a thread that is stopped; none if the process has ended."""
    states = set()
    with contextlib.suppress(FileNotFoundError):  # the process may end at any time
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # and so may a thread
                states.add(path.read_text().rpartition(")")[2].split()[0])
    return states - set("ZX")


def signal_and_wait(pid, number, states):
    """Signals are sent at once, but each thread goes on until it notices: it may still answer."""
    os.kill(pid, number)
    deadline = time.monotonic() + 30
    while not states_of_threads(pid) <= states:
        assert time.monotonic() < deadline, states_of_threads(pid)
        time.sleep(0.001)


def kill(component):
    """Returns the pid that it had."""
    pid = pid_of(component)
    signal_and_wait(pid, signal.SIGKILL, set())
    return pid


@contextlib.contextmanager
def stopped(component):
    """It does nothing meanwhile; connections to it stay. It may be killed meanwhile."""
    pid = pid_of(component)
    try:
        signal_and_wait(pid, signal.SIGSTOP, {"T"})
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
