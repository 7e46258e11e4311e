# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: its kubelet stops for a while, its container runtime ends and starts again.

KERNELGATE_FAULT_SECONDS sets how long the kubelet is stopped: by default less than a new session waits
for its sandbox; from 40 s on its refusal is seen, too.
"""

import concurrent.futures
import os
import pathlib
import signal
import time

import cluster
import pytest
from kernelgate import HELD, problem, wait_for
from sandboxes import sandbox_of

pytestmark = pytest.mark.only("kubernetes", "it is about the cluster")

SECONDS = int(os.environ.get("KERNELGATE_FAULT_SECONDS", "4"))
START_TIMEOUT_S = 30


def objects(gateway):
    """The names of its pods, also of those that are being deleted."""
    installation = pathlib.Path(gateway.state_dir, "id").read_text()
    path = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods"
    selector = f"{cluster.INSTALLATION}={installation}"
    items = cluster.Cluster().ask("GET", path, params={"labelSelector": selector})["items"]
    return {pod["metadata"]["name"] for pod in items}


def pod_of(gateway, session):
    return f"kg-{sandbox_of(gateway, session).id}"


def listed(gateway):
    return gateway.client.get("/api/v1/sessions").json()["sessions"]


def create(gateway, session):
    return gateway.client.post("/api/v1/sessions", json={"session_id": session})


def goes_on(gateway, seconds, condition=lambda: True):
    """The session `held` answers all that time, and until the condition holds."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds or not condition():
        assert time.monotonic() < begin + seconds + 30, condition
        assert gateway.execute("print(x)", session_id="held").text() == "41\n"
        time.sleep(0.2)


def test_the_kubelet_stops_for_a_while(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        made = pool.map(lambda name: create(gateway, name), ("held", "deleted", "ends"))
        assert [response.status_code for response in made] == [200] * 3
        gateway.execute("x = 41", session_id="held")
        with cluster.stopped("kubelet"):
            created = pool.submit(create, gateway, "new")
            # What needs no kubelet is done: a session's end, and a sandbox that ends by itself.
            assert gateway.delete_session("deleted").status_code == 200
            with gateway.stream(HELD, session_id="ends") as reader:
                reader.next_of("stdout")
                os.kill(sandbox_of(gateway, "ends").agent, signal.SIGKILL)
                lines = pool.submit(reader.rest)
                goes_on(gateway, SECONDS, lines.done)
                assert lines.result().of("error")[-1]["ename"] == "KernelDied"
                assert lines.result().status == "died"
            assert "ends" not in listed(gateway)
        response = created.result(60)
    if SECONDS > START_TIMEOUT_S:
        refusal = problem(response, 503, "provisioner_unavailable")
        assert "the sandbox's pod has not started yet" in refusal["detail"]
        assert int(response.headers["retry-after"]) >= 1
    else:
        assert response.status_code == 200, response.text
        gateway.delete_session("new")
    # Afterwards all is as if nothing had happened, and nothing is left of the others.
    gateway.execute("y = 1", session_id="next")
    assert gateway.execute("print(x)", session_id="held").text() == "41\n"
    kept = {pod_of(gateway, "held"), pod_of(gateway, "next")}
    wait_for(lambda: objects(gateway) == kept, timeout=60)


def test_the_container_runtime_starts_again(start_gateway):
    """Containers outlive it; what it was about to do is done later."""
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 41", session_id="held")
    before = cluster.pid_of("containerd")
    os.kill(before, signal.SIGKILL)
    response = create(gateway, "new")  # waits until the kubelet has tried again
    assert response.status_code == 200, response.text
    assert cluster.pid_of("containerd") not in (0, before)
    goes_on(gateway, 1)
    assert gateway.execute("print(2)", session_id="new").text() == "2\n"
    gateway.delete_session("new")
    kept = {pod_of(gateway, "held")}
    wait_for(lambda: objects(gateway) == kept, timeout=60)
