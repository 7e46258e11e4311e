# SPDX-License-Identifier: Apache-2.0
"""Replicas on the cluster of script/cluster, by the release build.

(a) warm execute("1"), asked of the replica that holds the session, and of another one, which forwards it
(b) first result of a new session out of the pool, on Kubernetes beside oci and docker
(c) sessions a second: of so many at a time, each made, used once and ended
(d) a replica that knows many sandboxes: its memory, GET sessions of one of their owners, and the first
    result of a new session. The sandboxes are pods that no node runs, held by a replica that is none;
    those above 9,950 have no session.
(e) a replica is killed under load: how long until another one answers for each of its sessions
(f) claims a second that the API server takes: a Lease of a name and a patch of a free pod, as a replica
    asks for them. No node runs the pods.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import http.client
import http.server
import json
import math
import pathlib
import signal
import ssl
import statistics
import sys
import tempfile
import threading
import time
import uuid

import httpx
import report
import scale
from contestants import PROJECT, Connection, Kernelgate

sys.path.insert(0, str(PROJECT / "tests/support"))

import dockerd

KEYS = PROJECT / "build/cluster/keys"
SERVER = "https://127.0.0.1:6443"
NAMESPACE = "kernelgate-bench"
BLOCKS, ROUNDS = 10, 200
STARTS = 20
AT_A_TIME = (1, 4)
SESSIONS_A_SECOND = 40
CLAIMS, CLAIMS_AT_A_TIME = 400, (1, 8)
OF_OWNER = 100  # sessions of one owner among many
MOST_CLAIMED = 9950  # of many; more wait for a session, since an installation has at most 10,000
KILLED, OF_KILLED = 5, 4  # times that a replica is killed, and sessions that it holds
TAKEN_OVER_S = 20
SETTINGS = {
    "PROVISIONER": "kubernetes",
    "KUBERNETES_SERVER": SERVER,
    "KUBERNETES_CA_FILE": KEYS / "ca.crt",
    "KUBERNETES_CERTIFICATE_FILE": KEYS / "admin.crt",
    "KUBERNETES_KEY_FILE": KEYS / "admin.key",
    "KUBERNETES_NAMESPACE": NAMESPACE,
    "KUBERNETES_AGENT_IMAGE": "localhost/kernelgate:1",
    "UNENFORCED_NETWORK": "true",
    "IMAGE": "localhost/kernelgate-kernel:1",
}
FLAGS = [
    text
    for name, value in SETTINGS.items()
    for text in (f"--{name.lower().replace('_', '-')}", str(value))
    if name != "UNENFORCED_NETWORK"
] + ["--unenforced-network"]
SMALL = ["--memory-mb", "96", "--disk-mb", "128"]


class Api:
    """The API server, as its administrator."""

    def __init__(self):
        context = ssl.create_default_context(cafile=str(KEYS / "ca.crt"))
        context.load_cert_chain(KEYS / "admin.crt", KEYS / "admin.key")
        self.http = httpx.Client(base_url=SERVER, verify=context, timeout=60, trust_env=False)

    def ask(self, method, path, **options):
        response = self.http.request(method, path, **options)
        if response.status_code >= 400:
            raise RuntimeError(f"{method} {path}: {response.text}")
        return response.json()

    def pods(self, query=""):
        return self.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods{query}")["items"]


class Namespace:
    """One without a quota."""

    def __enter__(self):
        self.api = Api()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.api.ask("POST", "/api/v1/namespaces", json=body)
        for _ in range(600):
            if self.api.http.get(
                f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
            ).is_success:
                break
            time.sleep(0.05)
        return self.api

    def __exit__(self, *_):
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0"
        self.api.ask("DELETE", pods, timeout=300)
        self.api.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        while self.api.http.get(f"/api/v1/namespaces/{NAMESPACE}").status_code != 404:
            time.sleep(0.5)


class Replica(Kernelgate):
    def __init__(self, installation, key, port, *flags):
        super().__init__(
            *FLAGS, *SMALL, "--keep-sandboxes", "--link-key-file", str(key),
            "--kubernetes-installation", installation,
            "--kubernetes-replica-address", f"127.0.0.1:{port}", "--port", str(port), *flags,
        )  # fmt: skip


@contextlib.contextmanager
def docker():
    """The flags for the tests' own Docker Engine."""
    engine = dockerd.Dockerd(dockerd.KEPT)
    try:
        engine.start()
        engine.build_kernels()
        yield ["--provisioner", "docker", "--docker-host", engine.host]
    finally:
        engine.close()


def link_key(folder):
    path = pathlib.Path(folder, "link.key")
    path.write_text("5a" * 32 + "\n")
    return path


def spread(times):
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49] * 1000, 2), "p95_ms": round(cuts[94] * 1000, 2)}


# ---- Forwarding ------------------------------------------------------------------------------------


def forwarded(folder):
    key, installation = link_key(folder), f"bench-{uuid.uuid4().hex[:8]}"
    times = {"the holder": [], "another replica": []}
    with Replica(installation, key, 17001) as first, Replica(installation, key, 17002) as second:
        first.execute("1")
        while True:
            try:
                second.execute("1")
                break
            except RuntimeError:
                time.sleep(0.2)
        for gateway in (first, second):
            for _ in range(ROUNDS):
                gateway.execute("1")
        # By turns, since the machine is not always equally busy.
        for _ in range(BLOCKS):
            for name, gateway in zip(times, (first, second)):
                times[name] += [scale.timed(gateway.execute, "1") for _ in range(ROUNDS)]
        first.connection.end("bench")
    return {name: spread(values) for name, values in times.items()}


# ---- Taking over -----------------------------------------------------------------------------------


class Load:
    """A client that uses a session again and again, by way of whichever replica answers."""

    def __init__(self, replicas, session):
        self.replicas, self.session = replicas, session
        self.answered = []  # the times of its results
        self.thread = threading.Thread(target=self.run)
        self.stopped = threading.Event()

    def run(self):
        turn = 0
        while not self.stopped.wait(0.05):
            turn += 1
            url = self.replicas[turn % len(self.replicas)].url
            with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
                with Connection(url) as connection:
                    assert connection.execute("print(x)", self.session) == len("41\n")
                self.answered.append(time.monotonic())

    def first_after(self, moment):
        """The seconds until it had a result again; None: it has none."""
        return next((at - moment for at in list(self.answered) if at > moment), None)


def killed(folder):
    key, times = link_key(folder), []
    for number in range(KILLED):
        installation = f"killed-{uuid.uuid4().hex[:8]}"
        with contextlib.ExitStack() as stack:
            first = Replica(installation, key, 17004)
            second = stack.enter_context(Replica(installation, key, 17005))
            first.__enter__()
            names = [f"killed-{i}" for i in range(OF_KILLED)]
            for name in names:
                first.execute("x = 41", name)
            loads = [Load([second, first], name) for name in names]
            try:
                for load in loads:
                    load.thread.start()
                time.sleep(5 + number)  # at another moment between two renewals
                first.process.send_signal(signal.SIGKILL)
                moment = time.monotonic()
                while time.monotonic() < moment + 3 * TAKEN_OVER_S:
                    after = [load.first_after(moment + 0.2) for load in loads]
                    if None not in after:
                        break
                    time.sleep(0.1)
                times += [math.inf if took is None else took + 0.2 for took in after]
            finally:
                for load in loads:
                    load.stopped.set()
                    load.thread.join()
                first.__exit__(None, None, None)
            with Connection(second.url) as connection:
                for name in names:
                    connection.end(name)
    return {"first_answer_p50_s": statistics.median(times), "first_answer_max_s": max(times)}


# ---- New sessions ----------------------------------------------------------------------------------


def pooled(gateway, count):
    times = []
    for number in range(count):
        gateway.fill_pool()
        times.append(scale.start_and_end(gateway, f"pooled-{number}"))
    return spread(times)


def a_second(gateway, at_a_time, count):
    def use(number):
        with Connection(gateway.url) as connection:
            connection.execute("1", f"second-{number}")
            connection.end(f"second-{number}")

    gateway.fill_pool()
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as threads:
        began = time.perf_counter()
        list(threads.map(use, range(count)))
        return round(count / (time.perf_counter() - began), 2)


def starts(engines):
    pool, throughput = {}, {}
    for name, flags in engines.items():
        with Kernelgate(*flags, "--pool-size", "4", "--max-sessions", "40") as gateway:
            gateway.fill_pool()
            pool[name] = pooled(gateway, STARTS)
            throughput[name] = {
                f"{n} at a time": a_second(gateway, n, SESSIONS_A_SECOND) for n in AT_A_TIME
            }
    return pool, throughput


# ---- Claims ----------------------------------------------------------------------------------------


def free_pod(name):
    container = {"name": "sandbox", "image": "localhost/kernelgate-kernel:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"kernelgate/state": "free"},
            "annotations": {"kernelgate/holder": "bench", "kernelgate/epoch": "1"},
        },
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }


def name_of(pod):
    """The Lease of its session's name."""
    owner = {"apiVersion": "v1", "kind": "Pod"}
    owner |= {key: pod["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": pod["metadata"]["name"], "ownerReferences": [owner]},
        "spec": {"holderIdentity": "bench"},
    }


def claim_patch(session):
    state, meta = "/metadata/labels/kernelgate~1state", {"session_id": session}
    return [
        {"op": "test", "path": state, "value": "free"},
        {"op": "test", "path": "/metadata/annotations/kernelgate~1holder", "value": "bench"},
        {"op": "replace", "path": state, "value": "claimed"},
        {
            "op": "add",
            "path": "/metadata/annotations/kernelgate~1meta",
            "value": json.dumps(meta | {"owner": "bench", "env": {}}),
        },
    ]


def claims(api):
    pods, row = f"/api/v1/namespaces/{NAMESPACE}/pods", {}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    headers = {"Content-Type": "application/json-patch+json"}
    local = threading.local()

    def claim(pod):
        if not hasattr(local, "api"):
            local.api = Api()
        name = pod["metadata"]["name"]
        local.api.ask("POST", leases, json=name_of(pod))
        patch = json.dumps(claim_patch(name))
        local.api.ask("PATCH", f"{pods}/{name}", content=patch, headers=headers)

    for at_a_time in CLAIMS_AT_A_TIME:
        made = [
            api.ask("POST", pods, json=free_pod(f"claim-{at_a_time}-{number}"))
            for number in range(CLAIMS)
        ]
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as threads:
            began = time.perf_counter()
            list(threads.map(claim, made))
            row[f"{at_a_time} at a time"] = round(CLAIMS / (time.perf_counter() - began), 1)
    return row


# ---- Many sandboxes --------------------------------------------------------------------------------


class Holder:
    """What a replica sees of the one that holds the pods: its Lease, and its lists of sessions."""

    def __init__(self, api, installation, sessions):
        self.id = "benchholde"
        self.api, self.stopped = api, threading.Event()
        content = json.dumps({"sessions": sessions, "total": len(sessions)}).encode()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        labels = {"kernelgate/installation": installation, "kernelgate/kind": "replica"}
        address = f"127.0.0.1:{self.server.server_address[1]}"
        meta = {"name": f"kg-r-{self.id}", "labels": labels}
        meta["annotations"] = {"kernelgate/address": address}
        spec = {"holderIdentity": self.id, "leaseDurationSeconds": 15, "renewTime": self.now()}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        api.ask("POST", self.path, json=lease | {"metadata": meta, "spec": spec})
        threading.Thread(target=self.renew, daemon=True).start()

    @staticmethod
    def now():
        return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def renew(self):
        headers = {"Content-Type": "application/merge-patch+json"}
        api = Api()
        while not self.stopped.wait(3):
            patch = {"spec": {"renewTime": self.now()}}
            api.ask("PATCH", f"{self.path}/kg-r-{self.id}", json=patch, headers=headers)

    def stop(self):
        self.stopped.set()
        self.server.shutdown()


def held_pod(model, holder, number):
    """Like that of a session, but that no scheduler takes it: it stays pending."""
    labels = model["metadata"]["labels"] | {
        "kernelgate/state": "claimed",
        "kernelgate/session": f"{number:032x}",
        "kernelgate/owner": f"{number // OF_OWNER:032x}",
    }
    meta = {"session_id": f"session-{number}", "owner": f"owner-{number // OF_OWNER}", "env": {}}
    annotations = model["metadata"]["annotations"] | {
        "kernelgate/holder": holder,
        "kernelgate/epoch": "1",
        "kernelgate/meta": json.dumps(meta),
    }
    if number >= MOST_CLAIMED:
        labels["kernelgate/state"] = "free"
        del labels["kernelgate/session"], labels["kernelgate/owner"]
        del annotations["kernelgate/meta"]
        annotations.pop("kernelgate/ready", None)
    letters = "abcdefghijklmnopqrstuvwxyz"
    name = "".join(letters[number // 26**i % 26] for i in range(8))
    spec = {key: value for key, value in model["spec"].items() if key != "nodeName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"kg-{name}", "labels": labels, "annotations": annotations},
        "spec": spec | {"schedulerName": "nobody"},
    }


def create_pods(model, holder, numbers):
    local = threading.local()

    def create(number):
        if not hasattr(local, "api"):
            local.api = Api()
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        local.api.ask("POST", path, json=held_pod(model, holder, number))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(create, numbers))


def listing(gateway):
    times = [scale.timed(gateway.connection.json, "GET", "/api/v1/sessions") for _ in range(300)]
    return spread(times)


def loaded(folder, api, count):
    """A row for one replica alone, and one with so many pods of another one."""
    key, installation, rows = link_key(folder), f"many-{uuid.uuid4().hex[:8]}", {}

    def measure(name):
        flags = ("--pool-size", "4", "--max-sessions", "10000")
        with Replica(installation, key, 17003, *flags) as gateway:
            gateway.fill_pool()
            row = {"memory_mb": round(gateway.memory_kb("VmRSS") / 1024, 1)}
            row |= {f"list_{at}": value for at, value in listing(gateway).items()}
            row |= {f"first_{at}": value for at, value in pooled(gateway, STARTS // 2).items()}
            row["per_second"] = a_second(gateway, 4, SESSIONS_A_SECOND // 2)
            row["peak_mb"] = round(gateway.memory_kb("VmHWM") / 1024, 1)
            rows[name] = row
            gateway.execute("1", "model")
            session = gateway.connection.json("GET", "/api/v1/sessions/model")
            query = (
                f"?labelSelector=kernelgate/installation={installation},kernelgate/state=claimed"
            )
            models = [pod for pod in api.pods(query) if "nodeName" in pod["spec"]]
            [model] = [pod for pod in models if "deletionTimestamp" not in pod["metadata"]]
            gateway.connection.end("model")
        return model, session

    model, session = measure("no other pods")
    sessions = {f"session-{i}": session | {"session_id": f"session-{i}"} for i in range(OF_OWNER)}
    holder = Holder(api, installation, sessions)
    try:
        create_pods(model, holder.id, range(count))
        measure(f"{count} pods")
    finally:
        holder.stop()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file, too")
    parser.add_argument("--pods", type=int, default=10_000, help="sandboxes of (d); 0: none")
    parser.add_argument(
        "--only", choices=("forward", "start", "pods", "kill", "claims"), help="only that part"
    )
    arguments = parser.parse_args()
    results, goals = {}, []
    with Namespace() as api, tempfile.TemporaryDirectory(prefix="kgb-", dir="/tmp") as folder:
        if arguments.only in (None, "forward"):
            rows = results["forward"] = forwarded(folder)
            report.print_table('(a) warm execute("1"), asked of', rows)
            here, there = (row["p50_ms"] for row in rows.values())
            added = round(there - here, 2)
            goals.append(("forwarding adds at most 1 ms", f"{added} ms", added <= 1))
        if arguments.only in (None, "start"):
            oci = ["--provisioner", "oci"]
            with docker() as flags:
                engines = {"kubernetes": FLAGS, "oci": oci, "docker": flags}
                pool, throughput = starts({name: each + SMALL for name, each in engines.items()})
            results |= {"pool": pool, "throughput": throughput}
            report.print_table("(b) first result of a new session, from the pool", pool)
            report.print_table("(c) sessions a second, pool of 4", throughput)
        if arguments.only in (None, "kill"):
            row = {name: round(value, 1) for name, value in killed(folder).items()}
            results["killed"] = row
            report.print_table("(e) a replica is killed under load", {"another one": row})
            longest = row["first_answer_max_s"]
            within = (f"another replica answers within {TAKEN_OVER_S} s", f"{longest} s")
            goals.append((*within, longest <= TAKEN_OVER_S))
        if arguments.only in (None, "claims"):
            results["claims"] = claims(api)
            report.print_table("(f) claims a second", {"the API server": results["claims"]})
        if arguments.only in (None, "pods") and arguments.pods:
            rows = results["pods"] = loaded(folder, api, arguments.pods)
            report.print_table(f"(d) a replica, and {OF_OWNER} sessions of the owner", rows)
            row = rows[f"{arguments.pods} pods"]
            memory, listing_ms = row["peak_mb"], row["list_p50_ms"]
            goals.append(("a replica that knows them needs at most 64 MiB", memory, memory <= 64))
            goals.append(("GET sessions takes at most 5 ms", listing_ms, listing_ms <= 5))
    report.finish(results, goals, arguments.json and pathlib.Path(arguments.json))


if __name__ == "__main__":
    main()
