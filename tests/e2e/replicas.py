# SPDX-License-Identifier: Apache-2.0
"""What tests of several gateways of one installation share; `start_replica` starts them."""

import cluster
from kernelgate import wait_for

# A replica that is killed is silent for 15 s until the others know, who look every other second.
TAKEOVER_S = 30


def leases(installation, kind):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.NAMESPACE}/leases"
    selector = f"kernelgate/installation={installation},kernelgate/kind={kind}"
    return cluster.Cluster().ask("GET", path, params={"labelSelector": selector})["items"]


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
