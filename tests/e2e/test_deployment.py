# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes as an operator applies it: replicas of the gateway as pods, and nginx in front."""

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import threading
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
# How often all replicas are replaced under load, and by how many clients.
ROLLOUTS = int(os.environ.get("KERNELGATE_ROLLOUTS", "1"))
CLIENTS = 4
SMALL = {
    "MAX_SESSIONS": SESSIONS + 10,
    "MEMORY_MB": 96,
    "DISK_MB": 128,
    "CPUS": 0.5,
    "POOL_SIZE": 1,
}


NODE = "10.77.0.1"  # as pods reach it


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


class Service:
    """What kube-proxy does, which the cluster does not have: each connection to the Service's address
    goes to the next one of its endpoints that are ready."""

    def __init__(self, name):
        self._path = "/apis/discovery.k8s.io/v1/namespaces/kernelgate/endpointslices"
        self._selector = {"labelSelector": f"kubernetes.io/service-name={name}"}
        self.connections = collections.Counter()
        self._turns = itertools.count()
        self.ready = []
        self._stop = threading.Event()
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=128)
        self.address = f"{NODE}:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=run) for run in (self._follow, self._accept)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        wait_for(lambda: self.ready)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _follow(self):
        api = cluster.Cluster()
        while not self._stop.wait(0.1):
            try:
                slices = api.ask("GET", self._path, params=self._selector)["items"]
            except (AssertionError, httpx.HTTPError):
                continue  # what is known stays
            endpoints = [endpoint for each in slices for endpoint in each["endpoints"] or []]
            self.ready = sorted(
                endpoint["addresses"][0]
                for endpoint in endpoints
                if endpoint["conditions"]["ready"]
            )

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client):
        with contextlib.closing(client), contextlib.suppress(OSError):
            if not (ready := self.ready):
                return
            address = ready[next(self._turns) % len(ready)]
            self.connections[address] += 1
            with socket.create_connection((address, 16010), timeout=5) as server:
                server.settimeout(None)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()


def _pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def service(deployed):
    addresses("kernelgate")
    with Service("kernelgate") as running:
        yield running


@pytest.fixture(scope="module")
def nginx(service, tmp_path_factory):
    """The address of nginx, which knows the replicas by their Service."""
    folder = tmp_path_factory.mktemp("overlay")
    backend = (PROJECT / "deploy/nginx/backend-kubernetes.conf").read_text()
    server = "    server kernelgate:16010;\n"
    assert server in backend
    (folder / "backend.conf").write_text(
        backend.replace(server, f"    server {service.address};\n")
    )
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


def test_sessions_are_used_through_any_replica(nginx, service):
    """Each request goes to the next replica, whichever holds the session."""
    service.connections.clear()
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
    for address in addresses("kernelgate"):
        assert service.connections[address] > SESSIONS


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


def test_a_new_replica_gets_requests_when_it_is_ready_or_after_a_minute(deployed, tmp_path):
    deployment = json.loads(in_namespace("get", "deployment", "kernelgate", "-o", "json"))
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    command = [part.replace("/tmp/", f"{tmp_path}/") for part in probe["exec"]["command"]]
    curl = tmp_path / "curl"

    def passes(answer):
        """If that is what /readyz answers."""
        curl.write_text(f'#!/bin/sh\ncase "$*" in */readyz) exit {22 * (answer != 200)};; esac\n')
        curl.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        return subprocess.run(command, env={"PATH": path}).returncode == 0

    assert passes(200)
    n_refused = next(n for n in itertools.count() if passes(503))
    assert 50 <= n_refused * probe["periodSeconds"] <= 60
    assert n_refused < probe["failureThreshold"]


def test_executions_end_within_the_grace_period(deployed):
    """What the gateway does after `drain-timeout` takes less than 10 seconds."""
    deployment = json.loads(in_namespace("get", "deployment", "kernelgate", "-o", "json"))
    pod = deployment["spec"]["template"]["spec"]
    [_, seconds] = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    settings = (PROJECT / "docs/settings.md").read_text()
    drain = re.search(r"`drain-timeout` \(s\) \| (\d+) ", settings)[1]
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + int(drain) + 10


# ---- A rolling update ------------------------------------------------------------------------------


class Load:
    """Clients that send short requests all the time, through nginx. None may fail."""

    def __init__(self, nginx):
        self.nginx = nginx
        self.stop = threading.Event()
        self.requests = collections.Counter()
        self.in_use = set()
        self.longest = 0

    def _ask(self, client, method, path, **options):
        began = time.monotonic()
        answer = ask(client, method, path, **options)
        self.longest = max(self.longest, time.monotonic() - began)
        self.requests[f"{method} {path.split('/')[3]}"] += 1
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.text}"
        return answer

    def _run(self, client, code, **fields):
        answer = self._ask(client, "POST", "/api/v1/execute_sync", json={"code": code, **fields})
        result = answer.json()["data"]
        assert result["status"] == "ok", result
        return "".join(result["texts"]).strip()

    def use_session(self, session):
        """Each cell runs once, in the same kernel."""
        with client_of(self.nginx) as client:
            self._run(client, "x = 0", session_id=session)
            self.in_use.add(session)
            for number in itertools.count(1):
                assert self._run(client, "x += 1; print(x)", session_id=session) == str(number)
                path = f"/api/v1/sessions/{session}"
                self._ask(client, "PUT", f"{path}/files/number", content=str(number).encode())
                read = self._ask(client, "GET", f"{path}/files/number")
                assert read.text == str(number)
                assert self._ask(client, "GET", path).json()["session_id"] == session
                if self.stop.wait(0.5):
                    break
            self._ask(client, "DELETE", path)
            return number

    def make_sessions(self):
        with client_of(self.nginx) as client:
            while not self.stop.wait(1):
                assert self._run(client, "print(6 * 7)") == "42"


def test_a_rolling_update_under_load(nginx, service):
    load = Load(nginx)
    before = set(addresses("kernelgate"))
    wait_for(lambda: set(service.ready) == before, timeout=60)  # others were just deleted
    with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        clients = [pool.submit(load.use_session, f"rolling-{n}") for n in range(CLIENTS)]
        clients.append(pool.submit(load.make_sessions))
        try:
            wait_for(
                lambda: len(load.in_use) == CLIENTS or any(client.done() for client in clients),
                timeout=60,
            )
            for client in clients:
                if client.done():
                    client.result()  # raises what went wrong
            for _ in range(ROLLOUTS):
                in_namespace("rollout", "restart", "deployment/kernelgate")
                after = set(addresses("kernelgate"))
        finally:
            load.stop.set()
        rounds = [client.result(120) for client in clients]
    assert not before & after and len(after) == 3
    print(f"{dict(load.requests)}, {rounds} rounds, the longest request {load.longest:.1f} s")
