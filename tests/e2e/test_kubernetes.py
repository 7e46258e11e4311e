# SPDX-License-Identifier: Apache-2.0
"""What only a cluster shows: faults of the API server, pods that others change, rights, admission."""

import base64
import contextlib
import os
import pathlib
import shutil
import subprocess
import textwrap

import cluster
import pytest
from kernelgate import BINARY, problem, wait_for
from sandboxes import pooled, sandbox_of, sandboxes

pytestmark = pytest.mark.only("kubernetes", "it is about the cluster")


def patch(sandbox_id, content):
    path = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods/kg-{sandbox_id}"
    headers = {"Content-Type": "application/merge-patch+json"}
    return cluster.Cluster().ask("PATCH", path, json=content, headers=headers)


def pods_of(gateway):
    return cluster.Cluster().pods(pathlib.Path(gateway.state_dir, "id").read_text())


def doctor(**settings):
    environment = {"PATH": os.environ["PATH"], **cluster.gateway_environment(), **settings}
    return subprocess.run(
        [BINARY, "doctor"], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )


# ---- The pod ---------------------------------------------------------------------------------------


def test_the_pod_of_a_session(gateway, session, run):
    run("pass")
    pod = cluster.Cluster().pod(sandbox_of(gateway, session).id)
    labels = pod["metadata"]["labels"]
    assert labels[cluster.INSTALLATION] == pathlib.Path(gateway.state_dir, "id").read_text()
    assert labels["kernelgate/state"] == "claimed"
    assert not pod["spec"].get("automountServiceAccountToken")
    code = (
        "import os; print(os.path.exists('/var/run/secrets'), os.access('/run/kg-agent', os.W_OK))"
    )
    assert run(code).text() == "False False\n"
    secret = pathlib.Path(gateway.state_dir, "link.key").read_text()
    assert secret not in str(pod)


def test_no_file_of_the_node_can_be_written(gateway, session, run):
    """The kubelet mounts one for a last message, which it does not count."""
    code = """
        import os
        for path in ("/dev/termination-log", "/root/termination-log"):
            try:
                open(path, "a").write("x")
                print("written")
            except OSError as error:
                print(type(error).__name__)
        mounts = [line.split() for line in open("/proc/self/mountinfo")]
        print([mount[4] for mount in mounts if "termination" in mount[4]])
    """
    lines = run(textwrap.dedent(code)).text().splitlines()
    assert lines[0] != "written", lines
    assert lines[1:] == ["PermissionError", "['/root/termination-log']"]


def test_limits_of_processes(gateway, session, run):
    code = (
        "import resource as r\n"
        "for name in ('CORE', 'MSGQUEUE', 'NOFILE', 'SIGPENDING'):\n"
        "    print(name, *r.getrlimit(getattr(r, 'RLIMIT_' + name, {'MSGQUEUE': 12,"
        " 'SIGPENDING': 11}.get(name))))"
    )
    expected = "CORE 1 1\nMSGQUEUE 0 0\nNOFILE 4096 4096\nSIGPENDING 1024 1024\n"
    assert run(code).text() == expected


def test_a_pod_that_is_deleted_ends_its_session_only(gateway):
    gateway.execute("x = 1", session_id="deleted")
    gateway.execute("x = 2", session_id="kept")
    cluster.Cluster().delete(sandbox_of(gateway, "deleted").id)
    sessions = "/api/v1/sessions"
    wait_for(lambda: list(gateway.client.get(sessions).json()["sessions"]) == ["kept"])
    assert gateway.execute("print(x)", session_id="kept").text() == "2\n"
    gateway.delete_session("kept")
    wait_for(
        lambda: not [pod for pod in pods_of(gateway) if "claimed" in str(pod["metadata"]["labels"])]
    )


def evict(sandbox_id):
    """As `kubectl drain` does."""
    path = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods/kg-{sandbox_id}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": f"kg-{sandbox_id}", "namespace": cluster.NAMESPACE},
    }
    cluster.Cluster().ask("POST", path, json=eviction)


def limit_time(sandbox_id):
    """After it the kubelet ends the pod."""
    patch(sandbox_id, {"spec": {"activeDeadlineSeconds": 1}})


@pytest.mark.parametrize(
    ("end", "said"),
    [(evict, "the sandbox's pod has ended"), (limit_time, 'reason="DeadlineExceeded: ')],
)
def test_a_pod_that_the_cluster_ends(start_gateway, end, said):
    gateway = start_gateway("--pool-size", "0")
    gateway.create_session(session_id="ended")
    with gateway.stream("import time; print('on'); time.sleep(600)", session_id="ended") as reader:
        reader.next_of("stdout")
        end(sandbox_of(gateway, "ended").id)
        assert reader.rest().status == "died"
    wait_for(lambda: not gateway.client.get("/api/v1/sessions").json()["sessions"])
    wait_for(lambda: said in gateway.log() and pods_of(gateway) == [])


def test_a_pod_that_another_has_claimed_is_not_used(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.fill_pool()
    [taken] = pooled(gateway)
    patch(taken.id, {"metadata": {"labels": {"kernelgate/state": "claimed"}}})
    response = gateway.client.post("/api/v1/sessions", json={"session_id": "second"})
    assert response.status_code in (200, 503), response.text
    gateway.create_session(session_id="second")
    assert sandbox_of(gateway, "second").id != taken.id
    # It is the other's, and stays as long as that wants it.
    assert cluster.Cluster().pod(taken.id)["status"]["phase"] == "Running"
    cluster.Cluster().delete(taken.id)
    wait_for(lambda: not pathlib.Path(gateway.state_dir, "sb", taken.id).exists(), timeout=90)


# ---- Recovery --------------------------------------------------------------------------------------


def test_sessions_outlive_the_gateway_and_its_state_folder(start_gateway, tmp_path):
    """The pods are the only record. The installation's name and its key are the operator's."""
    key = tmp_path / "link.key"
    key.write_text("5a" * 32 + "\n")
    flags = (
        "--pool-size",
        "0",
        "--link-key-file",
        str(key),
        "--kubernetes-installation",
        "kept-e2e",
    )
    first = start_gateway(*flags)
    first.execute("x = 41", session_id="kept")
    pod = cluster.Cluster().pods("kept-e2e")[0]["metadata"]
    assert pod["annotations"]["kernelgate/epoch"] == "1"
    first.kill()
    shutil.rmtree(pathlib.Path(first.state_dir, "sb"))
    second = start_gateway(*flags)
    assert second.execute("print(x + 1)", session_id="kept").text() == "42\n"
    pod = cluster.Cluster().pods("kept-e2e")[0]["metadata"]
    assert pod["annotations"]["kernelgate/epoch"] == "2"
    second.delete_session("kept")
    wait_for(lambda: not cluster.Cluster().pods("kept-e2e"))


def test_a_damaged_record_ends_only_that_pod(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 1", session_id="damaged")
    gateway.execute("x = 2", session_id="kept")
    damaged = sandbox_of(gateway, "damaged").id
    gateway.kill()
    patch(damaged, {"metadata": {"annotations": {cluster.META: "{no JSON"}}})
    gateway.start()
    assert list(gateway.client.get("/api/v1/sessions").json()["sessions"]) == ["kept"]
    assert gateway.execute("print(x)", session_id="kept").text() == "2\n"
    wait_for(lambda: damaged not in str(pods_of(gateway)))


# ---- The network -----------------------------------------------------------------------------------

NETWORK = "--unenforced-network=false"


def readiness(gateway):
    response = gateway.client.get("/readyz")
    return "" if response.status_code == 200 else response.json()["detail"]


def test_an_open_network_makes_it_not_ready(start_gateway):
    gateway = start_gateway("--pool-size", "0", NETWORK)
    assert readiness(gateway) == "what a sandbox can reach is being tried"
    wait_for(lambda: "does not enforce the NetworkPolicy" in readiness(gateway), timeout=90)
    detail = readiness(gateway)
    assert "a sandbox reaches" in detail and "another sandbox" in detail, detail
    assert "the node's kubelet" in detail and "--unenforced-network" in detail
    created = gateway.client.post("/api/v1/sessions", json={})
    problem(created, 503, "provisioner_unavailable")
    assert created.json()["detail"] == detail
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: pods_of(gateway) == [])
    result = doctor(KERNELGATE_UNENFORCED_NETWORK="false")
    assert result.returncode == 1
    assert "a sandbox reaches the node's kubelet, another sandbox" in result.stdout


def test_a_closed_network_is_proved(start_gateway):
    with cluster.closed_network():
        gateway = start_gateway("--pool-size", "0", NETWORK)
        assert readiness(gateway) == "what a sandbox can reach is being tried"
        wait_for(lambda: readiness(gateway) == "", timeout=90)
        wait_for(lambda: pods_of(gateway) == [])
        assert "the cluster enforces the NetworkPolicy" in gateway.log()
        code = """
            import os, socket
            answers = []
            for host, port in [
                ("127.0.0.1", 22), ("10.77.0.1", 6443), ("10.77.0.1", 10250), ("10.78.0.1", 10250),
                ("169.254.169.254", 80), (OTHER, 16011),
            ]:
                try:
                    socket.create_connection((host, port), timeout=2).close()
                    answers.append(host)
                except ConnectionRefusedError:
                    answers.append(f"{host} refuses")
                except OSError:
                    pass
            print(answers)
        """
        gateway.execute("1", session_id="other")
        other = cluster.Cluster().pod(sandbox_of(gateway, "other").id)["status"]["podIP"]
        code = textwrap.dedent(code).replace("OTHER", repr(other))
        assert gateway.execute(code, session_id="one").text() == "['127.0.0.1 refuses']\n"
        result = doctor(KERNELGATE_UNENFORCED_NETWORK="false")
        assert result.returncode == 0, result.stdout
        assert "a sandbox reaches neither the API server" in result.stdout


def test_a_trial_leaves_nothing(start_gateway):
    """Of a gateway that ends while it tries."""
    gateway = start_gateway("--pool-size", "0", NETWORK)
    wait_for(lambda: pods_of(gateway))
    gateway.stop()
    assert pods_of(gateway) == []


# ---- Files of the operator's ------------------------------------------------------------------------

TEMPLATE = """
kind: Pod
metadata:
  labels: {team: data}
  annotations: {example/note: "7"}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  tolerations:
  - {key: sandboxes, operator: Exists}
"""


def test_a_template_of_pods(start_gateway, tmp_path):
    template = tmp_path / "pod.yaml"
    template.write_text(TEMPLATE)
    gateway = start_gateway("--pool-size", "0", "--kubernetes-pod-template", str(template))
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"
    pod = cluster.Cluster().pod(sandbox_of(gateway, "s").id)
    assert pod["metadata"]["labels"]["team"] == "data"
    assert pod["metadata"]["annotations"]["example/note"] == "7"
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert {"key": "sandboxes", "operator": "Exists"} in pod["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Pod\nspec:\n  hostNetwork: true\n", "spec.hostNetwork cannot be set"),
        ("kind: Pod\nspec:\n\ttolerations: []\n", "line 3"),
        # The API server's own check.
        ("kind: Pod\nspec:\n  tolerations: [{keyy: a}]\n", 'unknown field "spec.tolerations'),
    ],
)
def test_a_template_that_is_wrong(tmp_path, text, why):
    template = tmp_path / "pod.yaml"
    template.write_text(text)
    result = doctor(KERNELGATE_KUBERNETES_POD_TEMPLATE=str(template))
    assert result.returncode == 1 and why in result.stdout, result.stdout


def kubeconfig(folder, user):
    """A file that names the authority by its content, and what the user has by paths."""
    authority = base64.b64encode((cluster.KEYS / "ca.crt").read_bytes()).decode()
    path = folder / "config"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: lab
contexts:
- name: lab
  context: {{cluster: here, user: me, namespace: {cluster.NAMESPACE}}}
clusters:
- name: here
  cluster: {{server: "{cluster.SERVER}", certificate-authority-data: {authority}}}
users:
- name: me
  user: {user}
"""
    )
    settings = ("SERVER", "CA_FILE", "TOKEN_FILE", "NAMESPACE")
    unset = {f"KERNELGATE_KUBERNETES_{name}": "" for name in settings}
    return {**unset, "KERNELGATE_KUBECONFIG": str(path)}


def test_kubectls_file_with_a_client_certificate(start_gateway, tmp_path):
    for name in ("admin.crt", "admin.key"):
        shutil.copy(cluster.KEYS / name, tmp_path)
    settings = kubeconfig(tmp_path, "{client-certificate: admin.crt, client-key: admin.key}")
    gateway = start_gateway("--pool-size", "0", env=settings)
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"
    assert cluster.Cluster().pod(sandbox_of(gateway, "s").id)


def test_kubectls_file_with_data_and_a_token(tmp_path):
    certificate, key = (
        base64.b64encode((cluster.KEYS / name).read_bytes()).decode()
        for name in ("admin.crt", "admin.key")
    )
    by_data = f"{{client-certificate-data: {certificate}, client-key-data: {key}}}"
    by_token = f"{{token: {(cluster.KEYS / 'token').read_text()}}}"
    for user, credential in ((by_data, "a client certificate"), (by_token, "a token")):
        result = doctor(**kubeconfig(tmp_path, user))
        assert result.returncode == 0, result.stdout
        assert f"with {credential}, from kubeconfig" in result.stdout
    result = doctor(**kubeconfig(tmp_path, "{token: none}"))
    assert result.returncode == 1 and "401" in result.stdout, result.stdout
    result = doctor(**kubeconfig(tmp_path, "{exec: {command: aws}}"))
    assert result.returncode == 1 and "exec of the user me is not supported" in result.stdout


# ---- What is missing -------------------------------------------------------------------------------


def test_doctor_finds_nothing_missing():
    result = doctor()
    assert result.returncode == 0, result.stdout
    assert "the agent runs in a pod" in result.stdout


def test_doctor_names_missing_rights(tmp_path):
    token = tmp_path / "token"
    token.write_text(cluster.kubectl("-n", "kernelgate", "create", "token", "default"))
    result = doctor(KERNELGATE_KUBERNETES_TOKEN_FILE=str(token))
    assert result.returncode == 1
    assert "may not create, delete, get, list, patch, watch pods" in result.stdout


def test_doctor_names_an_image_that_is_missing():
    result = doctor(KERNELGATE_IMAGE="localhost/nothing:1")
    assert result.returncode == 1
    assert "localhost/nothing:1" in result.stdout


def test_a_server_that_cannot_be_trusted(tmp_path):
    result = doctor(KERNELGATE_KUBERNETES_CA_FILE="/etc/ssl/certs/ca-certificates.crt")
    assert result.returncode == 1
    assert "certificate" in result.stdout


@contextlib.contextmanager
def account_without_leases(folder):
    """A token that allows what a single gateway needs."""
    there = ("-n", cluster.NAMESPACE)
    verbs = "--verb=create,delete,get,list,patch,watch"
    cluster.kubectl(*there, "create", "serviceaccount", "few")
    try:
        cluster.kubectl(*there, "create", "role", "few", verbs, "--resource=pods")
        account = f"--serviceaccount={cluster.NAMESPACE}:few"
        cluster.kubectl(*there, "create", "rolebinding", "few", "--role=few", account)
        (folder / "token").write_text(cluster.kubectl(*there, "create", "token", "few"))
        yield str(folder / "token")
    finally:
        cluster.kubectl(
            *there, "delete", "serviceaccount,role,rolebinding", "few", "--ignore-not-found"
        )


def test_doctor_names_missing_rights_of_a_replica(tmp_path):
    with account_without_leases(tmp_path) as token:
        assert doctor(KERNELGATE_KUBERNETES_TOKEN_FILE=token).returncode == 0
        result = doctor(
            KERNELGATE_KUBERNETES_TOKEN_FILE=token,
            KERNELGATE_KUBERNETES_REPLICA_ADDRESS="127.0.0.1:1",
            KERNELGATE_KEEP_SANDBOXES="true",
        )
    assert result.returncode == 1
    assert "may not create, delete, get, list, patch leases" in result.stdout, result.stdout


def test_the_account_can_do_nothing_else():
    """What it can do beside what every account can: answer for itself, and read about the API."""
    account = "system:serviceaccount:kernelgate:kernelgate"
    nobody = "system:serviceaccount:kernelgate:default"

    def rights(name, namespace):
        table = cluster.kubectl("auth", "can-i", "--list", f"--as={name}", "-n", namespace)
        return {" ".join(line.split()) for line in table.splitlines()[1:]}

    assert rights(account, cluster.NAMESPACE) - rights(nobody, cluster.NAMESPACE) == {
        "pods [] [] [create delete get list patch watch]",
        "leases.coordination.k8s.io [] [] [create delete get list patch]",
    }
    for namespace in ("default", "kernelgate", "kube-system"):
        assert rights(account, namespace) == rights(nobody, namespace)


@contextlib.contextmanager
def quota_used_up():
    quota = ("-n", cluster.NAMESPACE, "patch", "resourcequota", "sandboxes", "--type=merge", "-p")
    cluster.kubectl(*quota, '{"spec":{"hard":{"pods":"0"}}}')
    try:
        wait_for(lambda: "pods: 0" in cluster.kubectl("-n", cluster.NAMESPACE, "get", "resourcequota",
                                                      "-o", "yaml").replace('"', ""))  # fmt: skip
        yield
    finally:
        cluster.kubectl(*quota, '{"spec":{"hard":{"pods":"50"}}}')


def test_a_quota_that_is_used_up_is_told(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    with quota_used_up():
        response = gateway.client.post("/api/v1/sessions", json={})
        assert "exceeded quota" in problem(response, 503, "provisioner_unavailable")["detail"]
        result = doctor()
        assert result.returncode == 1 and "exceeded quota" in result.stdout, result.stdout
    wait_for(
        lambda: gateway.client.post("/api/v1/sessions", json={}).status_code == 200, timeout=60
    )


# ---- Strays ----------------------------------------------------------------------------------------


def test_a_pod_without_a_session_is_removed(start_gateway):
    """One whose create was not known to have succeeded, for instance."""
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 1", session_id="here")
    model = cluster.Cluster().pod(sandbox_of(gateway, "here").id)
    stray = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kg-straystray",
            "labels": model["metadata"]["labels"],
            "annotations": {
                name: value
                for name, value in model["metadata"]["annotations"].items()
                if name != cluster.META
            },
        },
        "spec": {key: value for key, value in model["spec"].items() if key != "nodeName"},
    }
    cluster.Cluster().ask("POST", f"/api/v1/namespaces/{cluster.NAMESPACE}/pods", json=stray)
    wait_for(lambda: "kg-straystray" not in str(pods_of(gateway)), timeout=60)
    assert gateway.execute("print(x)", session_id="here").text() == "1\n"
    assert [sandbox.session for sandbox in sandboxes(gateway)] == ["here"]
