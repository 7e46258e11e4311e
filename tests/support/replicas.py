# SPDX-License-Identifier: Apache-2.0
"""What tests of several gateways of one installation share; `start_replica` starts them."""

import contextlib
import pathlib
import shutil
import subprocess
import uuid

import cluster
from kernelgate import free_port, wait_for

# A replica that is killed is silent for 15 s until the others know, who look every second.
TAKEOVER_S = 30


@contextlib.contextmanager
def installation(start_gateway, folder):
    """Yields a function that starts replicas of one installation; removes its pods and leases."""
    name = f"replicas-{uuid.uuid4().hex[:8]}"
    key = folder / "link.key"
    key.write_text("5a" * 32 + "\n")
    started = []

    def start(*flags, **options):
        port = free_port()
        replica = start_gateway(
            *("--pool-size", "0", "--keep-sandboxes"),
            *("--link-key-file", str(key), "--kubernetes-installation", name),
            *("--kubernetes-replica-address", f"127.0.0.1:{port}", *flags),
            port=port,
            **options,
        )
        started.append(replica)
        return replica

    start.installation = name
    start.started = started
    yield start
    for replica in started:
        if replica.process.poll() is None:
            replica.stop()
        shutil.rmtree(pathlib.Path(replica.state_dir, "sb"), True)  # of pods that are kept
    selector = f"kernelgate/installation={name}"
    cluster.kubectl("-n", cluster.NAMESPACE, "delete", "pods,leases", "-l", selector)


def describe(start):
    """The pods of the installation."""
    selector = f"kernelgate/installation={start.installation}"
    try:
        return cluster.kubectl("-n", cluster.NAMESPACE, "get", "pods", "-o", "yaml", "-l", selector)
    except subprocess.CalledProcessError as error:
        return str(error)


def pair_of(start_replica):
    """Two replicas that know each other."""
    first, second = start_replica(), start_replica()
    wait_until_known(start_replica.installation, 2)
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    return first, second


def leases(installation, kind):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.NAMESPACE}/leases"
    selector = f"kernelgate/installation={installation},kernelgate/kind={kind}"
    return cluster.Cluster().ask("GET", path, params={"labelSelector": selector})["items"]


def wait_until_known(installation, number):
    """Returns when so many replicas have told the others of themselves."""
    wait_for(lambda: len(leases(installation, "replica")) == number)


def listed(gateway):
    response = gateway.client.get("/api/v1/sessions")
    return sorted(response.json()["sessions"]) if response.status_code == 200 else None


def pods(installation, state):
    found = cluster.Cluster().pods(installation)
    return {
        pod["metadata"]["name"]
        for pod in found
        if pod["metadata"]["labels"]["kernelgate/state"] == state
    }


def leader_of(replicas):
    """The one that fills the pool."""
    wait_for(lambda: any(gateway.pool()["target"] for gateway in replicas), timeout=TAKEOVER_S)
    [leader] = [gateway for gateway in replicas if gateway.pool()["target"]]
    return leader


def adopted(gateway):
    return gateway.log().count("session adopted")


def answers(gateway, session_id, code, expected):
    """Whether code in that session prints what is expected; while it is being taken over, it does not
    run."""
    body = {"session_id": session_id, "code": code}
    response = gateway.client.post("/api/v1/execute_sync", json=body)
    if response.status_code == 503:
        assert int(response.headers["retry-after"]) >= 1
        return False
    assert response.status_code == 200, response.text
    assert expected in response.text, response.text
    return True
