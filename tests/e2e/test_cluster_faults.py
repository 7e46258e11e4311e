# SPDX-License-Identifier: Apache-2.0
"""Faults of a cluster: its API server is killed or has too much to do, a node's kubelet stops for a
while, its container runtime is killed.

KERNELGATE_FAULT_SECONDS sets how long the kubelet is stopped: by default less than a new session waits
for its sandbox; from 40 s on its refusal is seen, too.
"""

import base64
import concurrent.futures
import contextlib
import http.client
import os
import pathlib
import signal
import ssl
import time

import cluster
import httpx
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


# ---- The API server --------------------------------------------------------------------------------


def forget_events():
    """Lets etcd forget all former versions, as the API server does every five minutes."""
    encoded = base64.b64encode(b"version").decode()
    with httpx.Client(base_url="http://127.0.0.1:2379/v3/kv/", trust_env=False) as etcd:
        put = etcd.post("put", json={"key": encoded, "value": ""}).raise_for_status()
        revision = put.json()["header"]["revision"]
        etcd.post("compaction", json={"revision": revision}).raise_for_status()


def test_the_api_server_is_killed(start_gateway):
    """Watches break, and the events that follow those that were seen have gone (410)."""
    gateway = start_gateway("--pool-size", "0")
    for name in ("held", "deleted"):
        gateway.create_session(session_id=name)
    gateway.execute("x = 41", session_id="held")
    deleted = sandbox_of(gateway, "deleted").id
    api = cluster.Cluster()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with cluster.stopped("kube-apiserver"):  # the next one finds the events forgotten
            forget_events()
            before = cluster.kill("kube-apiserver")
        created = pool.submit(create, gateway, "new")
        goes_on(gateway, 1, api.answers)
        api.delete(deleted)
        goes_on(gateway, 1, created.done)
    assert cluster.pid_of("kube-apiserver") not in (0, before)
    assert created.result().status_code == 200, created.result().text
    wait_for(lambda: sorted(listed(gateway)) == ["held", "new"])
    assert "the pods are listed again" in gateway.log()
    # It follows the pods.
    api.delete(sandbox_of(gateway, "new").id)
    wait_for(lambda: list(listed(gateway)) == ["held"])
    goes_on(gateway, 0)


FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
HEADER = "x-kubernetes-pf-prioritylevel-uid"  # says which one a request had
REJECTED = """
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: rejected}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: rejected}
spec:
  priorityLevelConfiguration: {name: rejected}
  matchingPrecedence: 2
  rules:
    - subjects:
        - {kind: ServiceAccount, serviceAccount: {namespace: kernelgate, name: kernelgate}}
      resourceRules:
        - {verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], clusterScope: true}
"""


@contextlib.contextmanager
def rejected():
    """The API server answers new requests of the gateways with 429 and Retry-After: its "priority and
    fairness" has one place for them, and a request that is never completed takes it."""
    context = ssl.create_default_context(cafile=str(cluster.KEYS / "ca.crt"))
    authorization = f"Bearer {(cluster.KEYS / 'token').read_text()}"
    url = f"{cluster.SERVER}/api/v1/namespaces/{cluster.NAMESPACE}/pods"
    headers = {"Authorization": authorization}
    cluster.kubectl("apply", "-f", "-", input=REJECTED)
    level = cluster.Cluster().ask("GET", f"{FLOW_CONTROL}/prioritylevelconfigurations/rejected")
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.kubectl, "delete", "-f", "-", input=REJECTED)

        def ask():
            return httpx.get(
                url, params={"limit": 1}, headers=headers, verify=context, trust_env=False
            )

        def is_full():
            if ask().status_code == 429:
                return True
            connection = http.client.HTTPSConnection(url.split("/")[2], context=context)
            stack.callback(connection.close)
            # Its body is never sent.
            connection.request("POST", url, headers=headers | {"Content-Length": "100"})
            return False

        wait_for(lambda: ask().headers.get(HEADER) == level["metadata"]["uid"])
        wait_for(is_full, interval=0.5)
        assert ask().headers["retry-after"]
        yield


def test_the_api_server_has_too_much_to_do(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 41", session_id="held")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with rejected():
            began = time.monotonic()
            refused = pool.submit(create, gateway, "refused")
            goes_on(gateway, 0, refused.done)
            assert time.monotonic() - began < 25  # it is tried for 15 s
            accepted = pool.submit(create, gateway, "accepted")
            goes_on(gateway, 2)
            assert not accepted.done()
        goes_on(gateway, 0, accepted.done)
    assert accepted.result().status_code == 200, accepted.result().text
    detail = problem(refused.result(), 503, "provisioner_unavailable")["detail"]
    assert "(429)" in detail and int(refused.result().headers["retry-after"]) >= 1


# ---- The node --------------------------------------------------------------------------------------


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
    before = cluster.kill("containerd")
    response = create(gateway, "new")  # waits until the kubelet has tried again
    assert response.status_code == 200, response.text
    assert cluster.pid_of("containerd") not in (0, before)
    goes_on(gateway, 1)
    assert gateway.execute("print(2)", session_id="new").text() == "2\n"
    gateway.delete_session("new")
    kept = {pod_of(gateway, "held")}
    wait_for(lambda: objects(gateway) == kept, timeout=60)
