# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes as an operator applies it: replicas of the gateway as pods, and nginx in front."""

import json
import os
import time
import types

import cluster
import httpx
import pytest
from kernelgate import PROJECT, wait_for
from mcp_clients import client_of as client_of_sdk

pytestmark = pytest.mark.only("kubernetes", "it is about the cluster")

KEY = "correct-horse-battery"
HEADERS = {"Authorization": f"Bearer {KEY}"}
# The sessions that are open at a time. The node has room for 100 with these limits.
SESSIONS = int(os.environ.get("KERNELGATE_CLUSTER_SESSIONS", "9"))
SMALL = {
    "MAX_SESSIONS": SESSIONS + 10,
    "MEMORY_MB": 96,
    "DISK_MB": 128,
    "CPUS": 0.5,
    "POOL_SIZE": 1,
}


def in_namespace(*arguments):
    return cluster.kubectl("-n", "kernelgate", *arguments)


def addresses(name):
    """Of a Deployment's pods, when its rollout is complete."""
    in_namespace("rollout", "status", f"deployment/{name}", "--timeout=180s")
    pods = in_namespace("get", "pods", "-l", f"app.kubernetes.io/name={name}", "-o", "json")
    return [
        pod["status"]["podIP"]
        for pod in json.loads(pods)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    ]


def client_of(address):
    return httpx.Client(base_url=f"http://{address}", headers=HEADERS, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The replicas' pods, with this work tree's images."""
    folder = tmp_path_factory.mktemp("secret")
    (folder / "link.key").write_text("a5" * 32)
    (folder / "api-keys").write_text(f"me:{KEY}\n")
    files = [f"--from-file={folder}/{name}" for name in ("link.key", "api-keys")]
    in_namespace("delete", "secret", "kernelgate", "--ignore-not-found")
    in_namespace("create", "secret", "generic", "kernelgate", *files)
    cluster.kubectl("apply", "-k", PROJECT / "tests/kubernetes/overlay")
    settings = [f"KERNELGATE_{name}={value}" for name, value in SMALL.items()]
    in_namespace("set", "env", "deployment/kernelgate", *settings)
    yield
    in_namespace("scale", "deployment", "kernelgate", "nginx", "--replicas=0")
    in_namespace("wait", "--for=delete", "pod", "--all", "--timeout=90s")
    installation = ("-l", "kernelgate/installation=kernelgate")
    cluster.kubectl("-n", cluster.NAMESPACE, "delete", "pods,leases", *installation)


@pytest.fixture(scope="module")
def nginx(deployed, tmp_path_factory):
    """The address of nginx, which knows the replicas by their pods' addresses: the cluster's Services
    have none."""
    folder = tmp_path_factory.mktemp("overlay")
    backend = (PROJECT / "deploy/nginx/backend-kubernetes.conf").read_text()
    service = "    server kernelgate:16010;\n"
    assert service in backend
    servers = "".join(f"    server {address}:16010;\n" for address in addresses("kernelgate"))
    (folder / "backend.conf").write_text(backend.replace(service, servers))
    overlay = os.path.relpath(PROJECT / "tests/kubernetes/overlay", folder)
    (folder / "kustomization.yaml").write_text(f"""
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{overlay}]
replicas: [{{name: nginx, count: 1}}]
configMapGenerator:
  - {{name: nginx, namespace: kernelgate, behavior: merge, files: [backend.conf]}}
""")
    cluster.kubectl("apply", "-k", folder)
    [address] = addresses("nginx")
    return address


def ask(client, method, path, **options):
    """Waits where nginx' limit of requests for each address says so."""
    for _ in range(40):
        response = client.request(method, path, **options)
        if response.status_code != 429:
            break
        time.sleep(float(response.headers["retry-after"]) / 4)
    return response


def run(client, code, session):
    body = {"code": code, "session_id": session}
    response = ask(client, "POST", "/api/v1/execute_sync", json=body)
    assert response.status_code == 200, response.text
    return response.json()["data"]


@pytest.mark.parametrize("overlay", ["base", "overlays/laptop", "overlays/ingress"])
def test_the_api_server_accepts(overlay):
    cluster.kubectl("apply", "--dry-run=server", "-k", PROJECT / "deploy/kubernetes" / overlay)


def test_sessions_are_used_through_any_replica(nginx):
    """nginx gives each request to the next replica, whichever holds the session."""
    sessions = [f"session-{number}" for number in range(SESSIONS)]
    with client_of(nginx) as client:
        for number, session in enumerate(sessions):
            run(client, f"x = {number}", session)
        for _ in range(3):
            for number, session in enumerate(sessions):
                texts = run(client, "print(x)", session)["texts"]
                assert "".join(texts) == f"{number}\n"
        listed = ask(client, "GET", "/api/v1/sessions").json()["sessions"]
        assert set(sessions) <= listed.keys()
        for session in sessions:
            assert ask(client, "DELETE", f"/api/v1/sessions/{session}").status_code == 200
    log = in_namespace("logs", "deployment/nginx")
    for address in addresses("kernelgate"):
        assert log.count(f" {address}:16010 200 ") > SESSIONS


def test_a_large_upload(nginx):
    data = os.urandom(1 << 20) * 50
    with client_of(nginx) as client:
        for session in "first", "second", "third":
            run(client, "1", session)
        for _ in range(3):
            path = "/api/v1/sessions/second/files/large"
            assert ask(client, "PUT", path, content=data).status_code in (200, 201)
            assert ask(client, "GET", path).content == data
        for session in "first", "second", "third":
            ask(client, "DELETE", f"/api/v1/sessions/{session}")


@pytest.mark.parametrize("sdk", ["1", "2-auto", "python-legacy", "python-auto"])
def test_mcp_clients(nginx, sdk):
    """Requests of one client reach its sessions through any replica."""
    server = types.SimpleNamespace(url=f"http://{nginx}")
    with client_of_sdk(sdk, "http", server, key=KEY) as client:
        session = client.call("run_code", {"code": "x = 41"}).session_id
        for _ in range(5):
            answer = client.call("run_code", {"code": "x + 1", "session_id": session})
            assert answer.text == "42"


def test_replicas_that_are_replaced(deployed):
    """Each replica answers for a session, and so do those that take their places."""

    def answers(address):
        """False: the session is being taken over."""
        with client_of(f"{address}:16010") as client:
            body = {"code": "print(x + 1)", "session_id": "kept"}
            answer = client.post("/api/v1/execute_sync", json=body)
        assert answer.status_code == 503 or "42" in answer.text, answer.text
        return answer.status_code == 200

    replicas = addresses("kernelgate")
    assert len(replicas) == 3
    with client_of(f"{replicas[0]}:16010") as client:
        run(client, "x = 41", "kept")
    assert all(map(answers, replicas))
    in_namespace("delete", "pod", "-l", "app.kubernetes.io/name=kernelgate")
    replicas = addresses("kernelgate")
    wait_for(lambda: all(map(answers, replicas)), timeout=60)
