# SPDX-License-Identifier: Apache-2.0
"""The Jupyter face's REST API: kernelspecs and kernels, whose they are, how long they live."""

import datetime
import socket
import urllib.parse
import uuid
from types import SimpleNamespace

import pytest
from component import HELD, cell
from jupyter_wire import (
    UUID,
    Channels,
    failure,
    list_kernels,
    one,
    start_and_connect,
    start_kernel,
    text,
)
from kernelgate import Gateway, problem, wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


# ---- The server


def test_the_face_is_on_and_can_be_off(start_gateway):
    paths = "/api", "/api/kernels", "/api/kernelspecs", "/api/sessions", "/api/contents"
    by_default, without = start_gateway(), start_gateway("--jupyter-api=false")
    for path in paths:
        assert by_default.client.get(path).status_code == 200
        problem(without.client.get(path), 404, "not_found")


def test_a_prefix(start_gateway):
    gateway = start_gateway(
        "--jupyter-api", "--jupyter-api-prefix", "/lab/jupyter", key="k",
        env={"KERNELGATE_API_KEY": "k"},
    )  # fmt: skip
    nobody = gateway.client_for(None)
    below = "/lab/jupyter"
    for path in "/", "/tree?":
        assert nobody.get(below + path).status_code == 404
    assert nobody.get(f"{below}/api").json() == nobody.get("/api").json()
    assert nobody.get(f"{below}/api/kernels").status_code == 401
    # As Open WebUI forms its URLs from one that ends in a slash.
    url = urllib.parse.urljoin(gateway.url + below + "/", "api/kernels?token=k")
    kernel = nobody.post(url).json()["id"]
    assert list(list_kernels(gateway)) == [kernel]
    with Channels(SimpleNamespace(url=gateway.url + below), kernel, query="?token=k") as client:
        assert text(client.run("print 1")) == "1\n"
    assert gateway.client.delete(f"{below}/api/kernels/{kernel}").status_code == 204
    problem(gateway.client.get(f"{below}/api/v1/sessions"), 404, "not_found")


@pytest.mark.parametrize(
    "prefix", ["jupyter", "/", "/a/", "//a", "/../a", "/a b", "/{x}", "/" + 64 * "a"]
)
def test_prefixes_that_are_none(engine, prefix):
    gateway = Gateway("--jupyter-api", "--jupyter-api-prefix", prefix)
    try:
        with pytest.raises(AssertionError, match="setting jupyter-api-prefix"):
            gateway.start()
        gateway.process.stdout.close()
    finally:
        gateway.clean_up()


def test_what_it_says_of_itself(gateway, kernel):
    assert gateway.client.get("/api").json()["version"]
    status = gateway.client.get("/api/status").json()
    assert status["kernels"] == len(list_kernels(gateway)) >= 1
    assert status["connections"] == 0
    assert status["started"] <= status["last_activity"]
    identity = gateway.client.get("/api/me").json()["identity"]
    assert identity["username"] == "anonymous" and identity["initials"] == "an"


def test_kernelspecs_have_what_jupyterlab_asks_for(gateway):
    listed = gateway.client.get("/api/kernelspecs").json()
    assert listed["default"] == "python3"
    assert {"python3", "script-message"} <= set(listed["kernelspecs"])
    for name, model in listed["kernelspecs"].items():
        assert model["name"] == name
        assert isinstance(model["spec"]["argv"], list) and model["resources"] == {}
        assert model["spec"]["language"] and model["spec"]["display_name"]
        assert gateway.client.get(f"/api/kernelspecs/{name}").json() == model
        assert model["spec"]["metadata"] == ({"debugger": True} if name == "python3" else {})
    same = gateway.client.get("/api/kernelspecs/script").json()
    assert same == listed["kernelspecs"]["python3"]
    assert gateway.client.get("/api/kernelspecs/Python3").json() == same
    failure(gateway.client.get("/api/kernelspecs/cobol"), 404)


# ---- Kernels


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"{}",
        b'{"name":"python3"}',
        b'{"name":null,"env":{"KERNEL_ID":"a"},"path":"x"}',
    ],
)
def test_a_kernel_from_its_start_to_its_end(gateway, body):
    response = gateway.client.post("/api/kernels", content=body)
    assert response.status_code == 201
    model = response.json()
    assert UUID.fullmatch(model["id"])
    assert response.headers["location"] == f"/api/kernels/{model['id']}"
    assert model["name"] == "python3"
    assert model["execution_state"] == "idle" and model["connections"] == 0
    # The gateway's client of jupyter_server parses it like this.
    datetime.datetime.strptime(model["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")

    path = f"/api/kernels/{model['id']}"
    assert gateway.client.get(path).json()["id"] == model["id"]
    assert model["id"] in list_kernels(gateway)
    assert gateway.client.delete(path).status_code == 204
    assert model["id"] not in list_kernels(gateway)
    for response in gateway.client.get(path), gateway.client.delete(path):
        assert model["id"] in failure(response, 404)


def test_a_client_chooses_a_kernels_id(gateway):
    chosen = str(uuid.uuid4())
    response = gateway.client.post("/api/kernels", json={"kernel_id": chosen})
    assert response.status_code == 201 and response.json()["id"] == chosen
    try:
        same = gateway.client.post("/api/kernels", json={"kernel_id": chosen})
        assert chosen in failure(same, 409)
        for bad in 5, "", "x", chosen[:-1], chosen + "0", f"../{chosen[3:]}":
            failure(gateway.client.post("/api/kernels", json={"kernel_id": bad}), 400)
        assert list(list_kernels(gateway)) == [chosen]
    finally:
        assert gateway.client.delete(f"/api/kernels/{chosen}").status_code == 204


def test_environment_of_a_kernel(gateway):
    env = {
        "KERNEL_COLOUR": "blue; $(false) {{}}\n",
        "FLAVOUR": "é",
        "KERNEL_WORKING_DIR": "/home/u",
        "KERNEL_USERNAME": "u",
        "KERNEL_LAUNCH_TIMEOUT": "40",
        "KERNEL_ID": "x",
    }
    kernel = start_kernel(gateway, name="python3", env=env, path="a/b.ipynb")
    with Channels(gateway, kernel) as client:
        for name, value in env.items():
            expected = value if name in ("KERNEL_COLOUR", "FLAVOUR") else "None"
            assert text(client.run(f"getenv {name}")) == expected + "\n"
    gateway.client.delete(f"/api/kernels/{kernel}")


@pytest.mark.parametrize(
    "env",
    [
        [],
        5,
        {"A": 1},
        {"": "a"},
        {"A=B": "c"},
        {"A": "x" * 20000},
        dict.fromkeys(map(str, range(65)), ""),
    ],
)
def test_bad_environments(gateway, env):
    assert "env" in failure(gateway.client.post("/api/kernels", json={"env": env}), 400)


def test_a_kernel_is_a_session(gateway, kernel):
    assert gateway.show_session(kernel)["session_id"] == kernel
    assert gateway.execute("set x 20", session_id=kernel).status == "ok"
    with Channels(gateway, kernel) as client:
        assert text(client.run("get x")) == "20\n"
        client.run("set x 22")
    assert gateway.execute("get x", session_id=kernel).text() == "22\n"
    gateway.delete_session(kernel)
    assert kernel not in list_kernels(gateway)


def test_other_sessions_are_no_kernels(gateway, session):
    assert session not in list_kernels(gateway)
    failure(gateway.client.get(f"/api/kernels/{session}"), 404)


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"{", b'{"name":5}'])
def test_bad_bodies(gateway, body):
    failure(gateway.client.post("/api/kernels", content=body), 400)
    assert "cobol" in failure(gateway.client.post("/api/kernels", json={"name": "cobol"}), 404)


def test_interrupt(gateway, kernel):
    with Channels(gateway, kernel) as client:
        running = client.execute(cell("print go", "busy 1000"))
        client.until(lambda message: message["content"].get("text") == "go\n")
        assert list_kernels(gateway)[kernel]["execution_state"] == "busy"
        assert gateway.client.post(f"/api/kernels/{kernel}/interrupt").status_code == 204
        reply = client.until(lambda message: message["channel"] == "shell")[-1]
        assert reply["parent_header"]["msg_id"] == running
        assert reply["content"]["ename"] == "KeyboardInterrupt"


def test_restart(gateway, kernel):
    with Channels(gateway, kernel) as client:
        client.run("set x 1")
        response = gateway.client.post(f"/api/kernels/{kernel}/restart", json={})
        assert response.status_code == 200 and response.json()["id"] == kernel
        assert one(client.run("get x"), "error")["content"]["ename"] == "NameError"
        # JupyterLab takes `restarting` for the kernel's death.
        assert all(it["content"].get("execution_state") != "restarting" for it in client.seen)


def test_a_client_that_leaves_leaves_no_kernel(start_gateway):
    gateway = start_gateway("--jupyter-api")
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            f"POST /api/kernels HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        (_,) = wait_for(lambda: list_kernels(gateway).values())
    wait_for(lambda: not list_kernels(gateway))


# ---- Limits and owners


def test_limits_are_those_of_sessions(start_gateway):
    gateway = start_gateway("--jupyter-api", "--max-sessions", "1")
    start_kernel(gateway)
    response = gateway.client.post("/api/kernels")
    assert "already has 1 session " in failure(response, 429)
    assert response.headers["retry-after"]


def test_last_activity_follows_the_messages_of_a_websocket(gateway, kernel):
    """Those of the client, and what the kernel says long after the last of them."""

    def last():
        return list_kernels(gateway)[kernel]["last_activity"]

    with Channels(gateway, kernel) as client:
        connected = last()
        client.run("result 1")
        answered = last()
        assert answered > connected
        assert last() == answered  # asking is no activity
        client.until_idle(client.send("kernel_info_request", {}))
        informed = last()
        assert informed > answered
        running = client.execute(HELD)
        client.until(lambda message: message["content"].get("text") == "on\n")
        begun = last()
        gateway.release(kernel)
        client.until_idle(running)
        assert last() > begun > informed
        status = gateway.client.get("/api/status").json()
        assert status["last_activity"] >= last()


def test_a_connected_client_keeps_its_kernel(start_gateway):
    gateway = start_gateway("--jupyter-api", "--idle-timeout", "2")
    kept, client = start_and_connect(gateway)
    with client:
        forgotten = start_kernel(gateway)
        wait_for(lambda: forgotten not in list_kernels(gateway))
        assert list_kernels(gateway)[kept]["connections"] == 1
        assert text(client.run("print 1")) == "1\n"
    wait_for(lambda: kept not in list_kernels(gateway))


def test_keys_and_owners(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway("--jupyter-api", "--api-keys-file", str(keys), key="key-a")
    kernel = start_kernel(gateway)
    nobody, bert = gateway.client_for(None), gateway.client_for("key-b")
    assert nobody.get("/api").status_code == 200
    for path in (
        "/",
        "/tree?",
    ):  # by which VS Code finds out whether there is a login page
        assert nobody.get(path).status_code == 404
    for how in (
        {"params": {"token": "key-a"}},
        {"headers": {"Authorization": "token key-a"}},
        {"headers": {"Authorization": "Bearer key-a"}},
        {
            "headers": {"Authorization": "token"},
            "params": {"token": "key-a", "1732270000": ""},
        },
    ):
        assert [model["id"] for model in nobody.get("/api/kernels", **how).json()] == [kernel]
    for how in (
        {},
        {"params": {"token": "x"}},
        {"headers": {"Authorization": "token"}},
    ):
        assert nobody.get("/api/kernels", **how).status_code == 401
        assert nobody.post("/api/kernels", **how).status_code == 401
    # Nor is a token in the query a key for the other routes.
    assert nobody.get("/api/v1/sessions", params={"token": "key-a"}).status_code == 401

    assert bert.get("/api/kernels").json() == []
    assert bert.get("/api/status").json()["kernels"] == 0
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/interrupt"),
        ("POST", "/restart"),
    ):
        failure(bert.request(method, f"/api/kernels/{kernel}{path}"), 404)
    assert kernel in list_kernels(gateway)


def test_a_kernel_outlives_the_gateway(start_gateway):
    gateway = start_gateway("--jupyter-api")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        client.run("set x 42")
        gateway.kill()
    gateway.start()
    wait_for(lambda: list_kernels(gateway)[kernel]["execution_state"] == "idle")
    with Channels(gateway, kernel) as client:
        assert text(client.run("get x")) == "42\n"
