# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one installation: each reaches the sessions of the others."""

import concurrent.futures
import os
import subprocess
import uuid

import cluster
import httpx
import jupyter_wire
import mcp_wire
import pytest
from contract import OPERATIONS
from kernelgate import BINARY, HELD, problem, wait_for
from port_servers import Port
from replicas import leader_of, leases, listed, pods, wait_until_known
from session_commands import Commands, Known, start
from terminal_wire import terminal

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")


# ---- Forwarding ------------------------------------------------------------------------------------


def test_a_session_is_used_through_both(shared_pair):
    first, second = shared_pair
    first.execute("x = 41", session_id="shared")
    lines = second.execute("print(x + 1)", session_id="shared")
    assert lines.text() == "42\n" and lines.status == "ok"
    assert listed(first) == listed(second) == ["shared"]
    assert second.show_session("shared")["session_id"] == "shared"
    assert second.delete_session("shared").status_code == 200
    wait_for(lambda: listed(first) == [])
    assert problem(first.client.get("/api/v1/sessions/shared"), 404, "session_not_found")


def test_streams_joins_and_links(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="held")
    with second.stream(HELD, session_id="held") as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        execution = reader.response.headers["x-execution-id"]
        other = uuid.uuid4().hex  # a session of the second, so that both have executions
        second.execute("pass", session_id=other)
        for gateway in shared_pair:  # the first one answers, the second one forwards
            url = f"/api/v1/executions/{execution}"
            with gateway.client.stream("GET", url) as joined:
                assert joined.status_code == 200
                assert '"on\\n"' in next(line for line in joined.iter_lines() if "stdout" in line)
        second.release("held")
        assert reader.rest().status == "ok"


def test_a_client_that_leaves_ends_its_execution(shared_pair):
    """The holder notices it, as if the client were its own."""
    first, second = shared_pair
    first.create_session(session_id="left")
    with second.stream("import time; print('on', flush=True); time.sleep(600)",
                       session_id="left") as reader:  # fmt: skip
        reader.next_of("stdout")
        assert first.show_session("left")["is_busy"]
    wait_for(lambda: not first.show_session("left")["is_busy"])


def test_files_go_both_ways(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="files")
    content = bytes(range(256)) * 4096 * 30  # 30 MiB
    url = "/api/v1/sessions/files/files/large.bin"
    assert second.client.put(url, content=content).status_code == 201
    assert second.client.get(url).content == content
    assert first.client.get(url).content == content
    assert second.client.head(url).headers["content-length"] == str(len(content))
    lines = second.execute("open('made.txt', 'w').write('made')", session_id="files")
    link = httpx.URL(lines.one("file")["url"]).raw_path.decode()
    for gateway in shared_pair:
        assert gateway.client.get(link).text == "made"


def test_large_code_is_forwarded(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="large")
    code = "#" + "x" * 500_000 + "\nprint(len(value))"
    lines = second.execute(code, session_id="large", variables={"value": "y" * 1_000_000})
    assert lines.text() == "1000000\n"
    assert listed(second) == ["large"]


# ---- Rows of routes --------------------------------------------------------------------------------


def operations_of_sessions():
    """What docs/openapi.yaml has for a session by its id."""
    for (method, path), operation in OPERATIONS.items():
        if "/sessions/{id}" in path and "accounts" not in operation["tags"]:
            yield method, path


@pytest.mark.parametrize("method, path", operations_of_sessions())
def test_each_operation_reaches_a_session_of_the_other(shared_pair, method, path):
    first, second = shared_pair
    first.create_session(session_id="walked")
    first.client.put("/api/v1/sessions/walked/files/x", content=b"x")
    target = path.replace("{id}", "walked").replace("{path}", "x").replace("{name}", "numpy")
    bodies = {"commands": {"command": "true"}, "packages": {"packages": ["numpy"]}}
    body = bodies.get(target.rsplit("/", 1)[1]) if method == "POST" else None
    sent = {"content": b"y"} if method == "PUT" else {"json": body}
    with second.client.stream(method, target, **sent) as answer:
        text = ""
        if not (path.endswith("/watch") and answer.status_code == 200):  # that has no end
            text = answer.read().decode(errors="replace")
    known = answer.status_code < 500 and "session_not_found" not in text
    assert known, (method, target, text)


def test_what_a_session_has_is_known_to_the_other(shared_pair):
    first, second = shared_pair
    path, query = "/api/v1/sessions/lent", {"metadata": '{"task":"lent"}'}
    first.create_session(session_id="lent", metadata={"task": "lent"})
    changed = second.client.patch(path, json={"max_lifetime": 3600}).json()
    assert changed["metadata"] == {"task": "lent"} and changed["ends_at"]
    made = second.client.post(f"{path}/tokens", json={"scope": ["read"]}).json()
    holders = [gateway.client_for(made["token"]) for gateway in shared_pair]
    for gateway, holder in zip(shared_pair, holders, strict=True):
        found = gateway.client.get("/api/v1/sessions", params=query).json()["sessions"]
        assert list(found) == ["lent"]
        assert holder.get(path).json()["ends_at"] == changed["ends_at"]
        problem(holder.get(f"{path}/files"), 403, "token_scope")
        problem(holder.get("/api/v1/sessions/walked"), 403, "token_scope")
        problem(holder.get("/api/v1/sessions"), 403, "token_scope")
    second.client.delete(f"{path}/tokens/{made['token_id']}").raise_for_status()
    for holder in holders:
        problem(holder.get(path), 401, "unauthorized")
        holder.close()
    first.delete_session("lent")


def test_an_upload_by_the_other_replica(shared_pair):
    """It is passed on as it comes, and a refusal arrives before its end."""
    first, second = shared_pair
    first.create_session(session_id="filled")
    url = "/api/v1/sessions/filled/files/large"
    content = os.urandom(20 << 20)
    assert second.client.put(url, content=content).status_code == 201
    assert first.client.get(url).content == content
    assert second.client.put(url, params={"overwrite": 0}, content=content).status_code == 409
    assert first.client.get(url).content == content


def test_links_that_clients_build_themselves(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="linked")
    first.client.put("/api/v1/sessions/linked/files/x", content=b"x")
    query = {"sandbox_id": "linked", "file_path": "/app/results/x"}
    for gateway in shared_pair:
        answer = gateway.client.get("/sandbox/file", params=query)
        assert answer.status_code == 302, answer.text
        link = httpx.URL(answer.headers["location"]).raw_path.decode()
        assert gateway.client.get(link).text == "x"


def test_commands_and_terminals(shared_pair):
    first, second = shared_pair
    first.create_session(session_id="shared")
    started = start(Commands(first, "shared"), "read x; echo got $x", "work", stdin=True)
    known = Known(Commands(second, "shared"), started.name)
    assert known.show()["running"]
    with known.joined() as lines, terminal(second, "shared", id="main") as screen:
        known.give("42\n")
        assert {"type": "stdout", "text": "got 42\n"} in list(lines)
        screen.type("echo $((6*7))\n")
        screen.until(b"42\r\n")
        with terminal(first, "shared", id="main") as other:
            other.until(b"42\r\n")
            other.type("exit 3\n")
            assert screen.until_told("exit_code") == other.until_told("exit_code") == 3
    name = second.client.post("/api/terminals", json={"session_id": "shared"}).json()["name"]
    for gateway in (first, second):
        assert [each["name"] for each in gateway.client.get("/api/terminals").json()] == [name]
    assert second.client.delete(f"/api/terminals/{name}").status_code == 204


COUNTS_UPLOADS = """exec python3 -c '
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(length).encode())
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()'"""


def test_a_port_by_both(start_replica):
    """Also what is larger than a replica takes of a stranger: it knows the cookie, and not whose it is."""
    pair = (
        start_replica("--ports-domain", "ports.test"),
        start_replica("--ports-domain", "ports.test"),
    )
    pair[0].create_session(session_id="web")
    start(Commands(pair[0], "web"), COUNTS_UPLOADS, "server")
    path = "/api/v1/sessions/web/ports"
    wait_for(
        lambda: 8000 in [each["port"] for each in pair[1].client.get(path).json()["ports"]],
        timeout=30,
    )
    opened = Port(pair[1], "web", 8000)
    opened.open()
    for gateway in pair:
        port = Port(gateway, "web", 8000)
        port.host, port.cookie = opened.host, opened.cookie
        assert port.send("POST", content=b"x" * (3 << 20)).text == str(3 << 20)
        refused = port.send("POST", cookie="a=b", content=b"x" * 1000)
        assert refused.status_code == 403 and refused.json()["code"] == "port_private"


def test_kernels_of_jupyters_api(start_replica):
    first, second = start_replica("--jupyter-api"), start_replica("--jupyter-api")
    wait_until_known(start_replica.installation, 2)
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    kernel = jupyter_wire.start_kernel(first)
    assert kernel in jupyter_wire.list_kernels(second)
    with jupyter_wire.Channels(second, kernel) as channels:
        messages = channels.run("x = 41; print(x + 1)")
        assert jupyter_wire.text(messages) == "42\n"
        large = 1 << 20
        [data] = jupyter_wire.of(channels.run(f"'y' * {large}"), "execute_result")
        assert len(data["content"]["data"]["text/plain"]) == large + 2
        assert jupyter_wire.connections(second, kernel) == 1
    assert second.client.get(f"/api/kernels/{kernel}").json()["id"] == kernel
    # Files of the session.
    path = f"/api/contents/{kernel}/a.txt"
    saved = second.client.put(path, json={"type": "file", "format": "text", "content": "a"})
    assert saved.status_code in (200, 201), saved.text
    assert first.client.get(path).json()["content"] == "a"
    folders = second.client.get("/api/contents").json()["content"]
    assert [folder["name"] for folder in folders] == [kernel]
    # A branch of it, by each of them.
    branch = f"{kernel}_try_d1"
    url = f"/api/v1/sessions/{kernel}/branches"
    assert second.client.post(url, json={"name": "try-1"}).status_code == 201
    for gateway in first, second:
        assert branch in jupyter_wire.list_kernels(gateway)
        with jupyter_wire.Channels(gateway, branch) as channels:
            assert jupyter_wire.text(channels.run("print(x)")) == "41\n"
    notebook = {"path": "b.ipynb", "type": "notebook", "kernel": {"id": branch}}
    assert second.client.post("/api/sessions", json=notebook).json()["kernel"]["id"] == branch
    assert second.client.delete(f"/api/kernels/{branch}").status_code == 204
    assert second.client.post(f"/api/kernels/{kernel}/restart").status_code == 200
    assert second.client.delete(f"/api/kernels/{kernel}").status_code == 204
    wait_for(lambda: not jupyter_wire.list_kernels(first))


def test_notebooks_of_jupyters_api(start_replica):
    first, second = start_replica("--jupyter-api"), start_replica("--jupyter-api")
    wait_until_known(start_replica.installation, 2)
    wait_for(lambda: listed(first) is not None and listed(second) is not None)
    body = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    made = first.client.post("/api/sessions", json=body)
    assert made.status_code == 201, made.text
    # The other replica answers with the same session, and changes and ends it.
    again = second.client.post("/api/sessions", json=body)
    assert again.status_code == 201 and again.json()["id"] == made.json()["id"]
    url = made.headers["location"]
    assert [model["id"] for model in second.client.get("/api/sessions").json()] == [
        made.json()["id"]
    ]
    assert second.client.get(url).json()["path"] == "a.ipynb"
    assert second.client.patch(url, json={"path": "b.ipynb"}).json()["path"] == "b.ipynb"
    assert first.client.get(url).json()["path"] == "b.ipynb"
    # A session for a kernel is made where that is.
    kernel = made.json()["kernel"]["id"]
    other = {"path": "c.ipynb", "type": "notebook", "name": "c", "kernel": {"id": kernel}}
    assert second.client.post("/api/sessions", json=other).json()["kernel"]["id"] == kernel
    assert len(second.client.get("/api/kernels").json()) == 1
    assert second.client.delete(url).status_code == 204
    assert first.client.get(url).status_code == second.client.get(url).status_code == 404


def test_credentials_are_checked(start_replica, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:correct-horse-battery\nbob:wrong-horse-battery\n")
    flags = ("--api-keys-file", str(keys))
    first = start_replica(*flags, key="correct-horse-battery")
    second = start_replica(*flags, key="wrong-horse-battery")
    first.execute("x = 1", session_id="mine")
    ann = second.client_for("correct-horse-battery")
    wait_for(lambda: "mine" in ann.get("/api/v1/sessions").json().get("sessions", {}))
    assert second.execute("print(x)", client=ann, session_id="mine").text() == "1\n"
    assert problem(second.client.get("/api/v1/sessions/mine"), 404, "session_not_found")
    assert second.client_for("nobody").get("/api/v1/sessions/mine").status_code == 401
    assert listed(second) == []
    # Bob's session of that name is another one.
    second.execute("x = 2", session_id="mine")
    assert first.execute("print(x)", session_id="mine").text() == "1\n"


# ---- Names -----------------------------------------------------------------------------------------


def test_of_two_creations_one_has_the_name(start_replica):
    first = start_replica("--pool-size", "2")
    second = start_replica("--pool-size", "2")
    leader_of([first, second]).fill_pool()
    for number in range(4):
        name = f"race-{number}"

        def create(gateway, name=name):
            return gateway.client.post("/api/v1/sessions", json={"session_id": name}).status_code

        with concurrent.futures.ThreadPoolExecutor() as pool:
            codes = list(pool.map(create, [first, second]))
        assert 200 in codes and set(codes) <= {200, 503}, codes
        assert first.execute("x = 7", session_id=name).status == "ok"
        assert second.execute("print(x)", session_id=name).text() == "7\n"
        assert len(leases(start_replica.installation, "session")) == 1
        first.delete_session(name)
        wait_for(lambda: not leases(start_replica.installation, "session"))


def test_a_name_can_be_used_again_at_once(shared_pair):
    first, second = shared_pair
    for number in range(3):
        shared_pair[number % 2].execute("x = 1", session_id="again")
        assert shared_pair[(number + 1) % 2].delete_session("again").status_code == 200
        lines = shared_pair[number % 2].execute("print('x' in globals())", session_id="again")
        assert lines.text() == "False\n"
        assert first.delete_session("again").status_code == 200


# ---- Limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["--max-sessions", "--max-sessions-per-owner"])
def test_a_limit_is_for_all_replicas(start_replica, limit):
    first, second = replicas = [start_replica(limit, "2") for _ in range(2)]
    first.create_session(session_id="one")
    wait_for(lambda: listed(second) == ["one"])
    second.create_session(session_id="two")
    wait_for(lambda: listed(first) == ["one", "two"])
    for gateway in replicas:  # each has its own watch of the pods
        wait_for(lambda: mcp_wire.gauge(gateway, "kernelgate_installation_sessions") == 2)
        refused = gateway.client.post("/api/v1/sessions", json={"session_id": "three"})
        assert problem(refused, 429, "max_sessions")
    first.delete_session("two")
    body = {"session_id": "three"}
    wait_for(lambda: first.client.post("/api/v1/sessions", json=body).status_code == 200)


# ---- The pool --------------------------------------------------------------------------------------


def pods_on_offer(start_replica):
    return {
        pod["metadata"]["name"]
        for pod in cluster.Cluster().pods(start_replica.installation)
        if pod["metadata"]["annotations"].get("kernelgate/ready") == "true"
    }


def test_one_replica_fills_the_pool_for_all(start_replica):
    replicas = [start_replica("--pool-size", "2") for _ in range(3)]
    leader = leader_of(replicas)
    leader.fill_pool()
    free = wait_for(lambda: len(offered := pods_on_offer(start_replica)) == 2 and offered)
    others = [gateway for gateway in replicas if gateway is not leader]
    for gateway in others:  # takes a sandbox of the leader's, with its kernel
        gateway.execute("pass", session_id=f"of-{others.index(gateway)}")
        assert listed(gateway) == listed(leader)
    assert pods(start_replica.installation, "claimed") == free
    assert not free & pods_on_offer(start_replica)  # to a third one
    wait_for(lambda: len(pods(start_replica.installation, "free")) == 2)
    leader.fill_pool()
    assert "could not be started" not in leader.log()
    leader.kill()
    leader_of(others).fill_pool()
    # It may have made some before it adopts those of the dead one; what is too many is removed.
    wait_for(lambda: len(pods(start_replica.installation, "free")) == 2)


# ---- Beside them -----------------------------------------------------------------------------------


def test_doctor_of_an_installation_that_runs(pair, start_replica):
    """Its leader removes pods of the installation that have no holder."""
    wait_for(lambda: leases(start_replica.installation, "leader"))
    settings = {"PATH": os.environ["PATH"], **cluster.gateway_environment()}
    settings["KERNELGATE_KUBERNETES_INSTALLATION"] = start_replica.installation
    result = subprocess.run([BINARY, "doctor"], env=settings, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stdout
    assert "the agent runs in a pod" in result.stdout


# ---- Settings --------------------------------------------------------------------------------------


def test_replicas_need_what_can_be_taken_over(tmp_path):
    settings = {"PATH": os.environ["PATH"], **cluster.gateway_environment()}
    settings["KERNELGATE_KUBERNETES_REPLICA_ADDRESS"] = "127.0.0.1:1"
    command = [BINARY, "serve", "--state-dir", tmp_path]
    result = subprocess.run(command, env=settings, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "replicas need provisioner kubernetes, keep-sandboxes" in result.stderr
