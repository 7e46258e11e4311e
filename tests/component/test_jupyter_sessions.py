# SPDX-License-Identifier: Apache-2.0
"""The Jupyter face's /api/sessions: notebooks and their kernels, with models as jupyter_server's."""

import concurrent.futures
import json
import os
import pathlib
import socket
import uuid

import pytest
import websocket
from component import cell
from jupyter_wire import UUID, Channels, failure, list_kernels, one, start_kernel, text
from kernelgate import wait_for

OWN_GATEWAY = True  # the tests look at all kernels and sessions


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api", "--max-sessions", "20"]


@pytest.fixture
def client(gateway):
    yield gateway.client
    for kernel in list_kernels(gateway):
        gateway.client.delete(f"/api/kernels/{kernel}")


def create(client, path="a.ipynb", status=201, **fields):
    body = {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}}
    response = client.post("/api/sessions", json={**body, **fields})
    assert response.status_code == status, response.text
    return response.json()


def listed(client):
    response = client.get("/api/sessions")
    assert response.status_code == 200
    return {model["id"]: model for model in response.json()}


# ---- From its start to its end


def test_a_session_from_its_start_to_its_end(gateway, client):
    body = {"path": "w/a.ipynb", "type": "notebook", "name": "a", "kernel": {"name": "python3"}}
    response = client.post("/api/sessions", json=body)
    assert response.status_code == 201
    model = response.json()
    assert UUID.fullmatch(model["id"])
    assert response.headers["location"] == f"/api/sessions/{model['id']}"
    kernel = model["kernel"]
    assert model == {
        "id": model["id"],
        "path": "w/a.ipynb",
        "name": "a",
        "type": "notebook",
        "kernel": kernel,
        "notebook": {"path": "w/a.ipynb", "name": "a"},
    }
    assert kernel == client.get(f"/api/kernels/{kernel['id']}").json()
    assert kernel["name"] == "python3" and kernel["execution_state"] == "idle"

    path = f"/api/sessions/{model['id']}"
    assert client.get(path).json()["kernel"]["id"] == kernel["id"]
    assert list(listed(client)) == [model["id"]]
    with Channels(gateway, kernel["id"]) as channels:
        assert text(channels.run("print 1")) == "1\n"
        assert listed(client)[model["id"]]["kernel"]["connections"] == 1

    assert client.delete(path).status_code == 204
    assert list_kernels(gateway) == {} and listed(client) == {}
    for response in client.get(path), client.delete(path), client.patch(path, json={}):
        assert model["id"] in failure(response, 404)


def test_the_session_of_a_path_is_there_once(gateway, client):
    first = create(client)
    assert create(client, kernel={"name": "script-message"}) == first
    assert len(list_kernels(gateway)) == 1
    other = create(client, "b.ipynb")
    assert other["kernel"]["id"] != first["kernel"]["id"]


def test_requests_for_one_path_at_the_same_time(gateway, client):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: create(client), range(4)))
    assert len({model["id"] for model in models}) == 1
    wait_for(lambda: len(list_kernels(gateway)) == 1)
    assert models[0]["kernel"]["id"] in list_kernels(gateway)


def test_a_session_on_a_kernel_that_is_there(gateway, client):
    kernel = start_kernel(gateway)
    model = create(client, kernel={"id": kernel}, name=None, type="console")
    assert model["kernel"]["id"] == kernel and model["name"] is None
    assert "notebook" not in model
    assert create(client, "b.ipynb", kernel={"id": kernel})["kernel"]["id"] == kernel
    assert list(list_kernels(gateway)) == [kernel]
    # If there is no kernel with that id, one is started with it.
    wanted = str(uuid.uuid4())
    assert create(client, "c.ipynb", kernel={"id": wanted})["kernel"]["id"] == wanted
    assert create(client, "d.ipynb", kernel={"id": "no-uuid"})["kernel"]["id"] != "no-uuid"
    # Without one it is the default.
    assert create(client, "e.ipynb", kernel=None)["kernel"]["name"] == "python3"


def test_the_deprecated_form_of_bodies(client):
    old = {"notebook": {"path": "x/a.ipynb"}, "kernel": {"name": "python3"}}
    response = client.post("/api/sessions", json=old)
    assert response.status_code == 201
    assert response.json()["path"] == "x/a.ipynb" and response.json()["type"] == "notebook"
    path = f"/api/sessions/{response.json()['id']}"
    renamed = client.patch(path, json={"notebook": {"path": "x/b.ipynb"}}).json()
    assert renamed["path"] == "x/b.ipynb"


@pytest.mark.parametrize(
    "body, status",
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"type":"notebook"}', 400),
        (b'{"path":"a"}', 400),
        (b'{"path":5,"type":"notebook"}', 400),
        (b'{"path":"a","type":"notebook","kernel":[]}', 400),
        (b'{"path":"a","type":"notebook","kernel":{"id":1}}', 400),
        (b'{"path":"a","type":"notebook","notebook":1}', 400),
        (b'{"path":"' + b"a" * 5000 + b'","type":"notebook"}', 400),
        (b'{"path":"a","type":"notebook","kernel":{"name":"cobol"}}', 501),
    ],
)
def test_bad_bodies(gateway, client, body, status):
    response = client.post("/api/sessions", content=body)
    message = failure(response, status)
    if status == 501:
        assert "cobol" in message and response.json()["short_message"]
    assert listed(client) == {} and list_kernels(gateway) == {}


# ---- Changes


def test_renaming(client):
    model = create(client)
    path = f"/api/sessions/{model['id']}"
    changed = client.patch(path, json={"path": "z/b.ipynb", "name": "b", "type": "file"})
    assert changed.status_code == 200
    assert changed.json() == {
        **{key: model[key] for key in ("id", "kernel")},
        "path": "z/b.ipynb",
        "name": "b",
        "type": "file",
    }
    assert client.patch(path, json={}).json() == changed.json()
    assert create(client, "z/b.ipynb")["id"] == model["id"]
    failure(client.patch(path, json={"path": []}), 400)
    failure(client.patch(path, content=b""), 400)


def test_another_kernel(gateway, client):
    model = create(client)
    path, first = f"/api/sessions/{model['id']}", model["kernel"]["id"]
    with Channels(gateway, first) as channels:
        changed = client.patch(path, json={"kernel": {"name": "script-message"}})
        assert changed.status_code == 200, changed.text
        kernel = changed.json()["kernel"]
        assert kernel["name"] == "script-message" and kernel["id"] != first
        assert list(list_kernels(gateway)) == [kernel["id"]]  # the earlier one has ended
        opcode = None
        while opcode != websocket.ABNF.OPCODE_CLOSE:  # other messages come before it
            opcode, _ = channels.ws.recv_data(control_frame=True)
    with Channels(gateway, kernel["id"]) as channels:
        assert text(channels.run("print 42")) == "42\n"

    other = start_kernel(gateway)
    assert client.patch(path, json={"kernel": {"id": other}}).json()["kernel"]["id"] == other
    assert list(list_kernels(gateway)) == [other]
    same = client.patch(path, json={"kernel": {"id": other, "name": "script-message"}}).json()
    assert same["kernel"]["id"] == other

    assert "cobol" in failure(client.patch(path, json={"kernel": {"name": "cobol"}}), 501)
    failure(client.patch(path, json={"kernel": {"id": first}}), 400)
    assert client.get(path).json()["kernel"]["id"] == other


def test_a_kernel_that_ends_takes_its_session_with_it(gateway, client):
    model, other = create(client), create(client, "b.ipynb")
    client.delete(f"/api/kernels/{model['kernel']['id']}")
    path = f"/api/sessions/{model['id']}"
    failure(client.delete(path), 410)
    failure(client.delete(path), 404)
    gateway.delete_session(other["kernel"]["id"])
    assert listed(client) == {}
    assert create(client)["id"] != model["id"]


# ---- Several sessions on one kernel


@pytest.fixture
def two(client):
    """A notebook, and a console on its kernel."""
    notebook = create(client)
    return notebook, create(client, "console", kernel=notebook["kernel"], type="console")


def test_the_last_session_of_a_kernel_ends_it(gateway, client, two):
    kernel = two[0]["kernel"]["id"]
    with Channels(gateway, kernel) as channels:
        channels.run("set x 5")
        assert client.delete(f"/api/sessions/{two[0]['id']}").status_code == 204
        assert list(listed(client)) == [two[1]["id"]] and list(list_kernels(gateway)) == [kernel]
        assert text(channels.run("get x")) == "5\n"
        assert client.delete(f"/api/sessions/{two[1]['id']}").status_code == 204
        assert channels.closing_status() == 1001
    assert listed(client) == list_kernels(gateway) == {}


def test_a_session_that_gets_another_kernel_leaves_a_shared_one(gateway, client, two):
    shared = two[0]["kernel"]["id"]
    changed = client.patch(f"/api/sessions/{two[0]['id']}", json={"kernel": {"name": "python3"}})
    own = changed.json()["kernel"]["id"]
    assert {it["kernel"]["id"] for it in listed(client).values()} == {shared, own}
    assert set(list_kernels(gateway)) == {shared, own}
    # Back to the shared one: nothing uses its own any more.
    back = client.patch(f"/api/sessions/{two[0]['id']}", json={"kernel": {"id": shared}})
    assert back.json()["kernel"]["id"] == shared and list(list_kernels(gateway)) == [shared]
    # The last one that leaves ends it.
    for model in two:
        client.patch(f"/api/sessions/{model['id']}", json={"kernel": {"name": "python3"}})
    assert shared not in list_kernels(gateway) and len(list_kernels(gateway)) == 2


def test_the_end_of_a_kernel_ends_all_its_sessions(gateway, client, two):
    assert client.delete(f"/api/kernels/{two[0]['kernel']['id']}").status_code == 204
    assert listed(client) == {}
    for model in two:
        failure(client.get(f"/api/sessions/{model['id']}"), 404)


# ---- A client's requests in their order


def test_the_requests_of_vs_code(start_gateway):
    """The requests of its "Existing Jupyter Server": first probes without a key, whose answers must not
    look like those of a server with a login page, then the key as a token."""
    gateway = start_gateway("--jupyter-api", "--api-key", "sesame")
    nobody = gateway.client_for(None)
    for probe in "/", "/tree?":
        assert nobody.get(probe).status_code == 404
    client = gateway.client_for(None)
    client.headers.update({"Authorization": "token sesame", "Cache-Control": "no-store"})

    for path in "kernels", "sessions":
        assert client.get(f"/api/{path}?1732270000000").json() == []
    specs = client.get("/api/kernelspecs?1732270000001").json()
    assert specs["kernelspecs"][specs["default"]]["spec"]["language"] == "script"
    path = f"/home/u/w/a-jvsc-{uuid.uuid4()}.ipynb"
    session = create(client, path, name=os.path.basename(path), kernel={"name": specs["default"]})
    kernel = session["kernel"]["id"]
    assert [model["id"] for model in client.get("/api/kernels?2").json()] == [kernel]
    with Channels(gateway, kernel, query=f"?session_id={uuid.uuid4()}&token=sesame") as channels:
        info = one(
            channels.until_idle(channels.send("kernel_info_request", {})), "kernel_info_reply"
        )
        assert info["content"]["language_info"]["name"] == "script"
        channels.send("comm_info_request", {"target_name": "jupyter.widget"})
        assert text(channels.run(cell("set x 1", "get x"))) == "1\n"
        assert client.get(f"/api/kernels/{kernel}?3").json()["connections"] == 1
        running = channels.execute(cell("print go", "busy 1000"))
        channels.until(lambda message: message["content"].get("text") == "go\n")
        assert client.post(f"/api/kernels/{kernel}/interrupt").status_code == 204
        reply = channels.until(lambda message: message["channel"] == "shell")[-1]
        assert reply["parent_header"]["msg_id"] == running
        assert client.post(f"/api/kernels/{kernel}/restart").status_code == 200
        assert one(channels.run("get x"), "error")["content"]["ename"] == "NameError"
        renamed = client.patch(f"/api/sessions/{session['id']}", json={"path": path + "2"})
        assert renamed.json()["path"] == path + "2" and renamed.json()["kernel"]["id"] == kernel
    assert client.get(f"/api/sessions/{session['id']}?4").json()["path"] == path + "2"
    assert client.delete(f"/api/sessions/{session['id']}").status_code == 204
    assert client.get("/api/sessions").json() == client.get("/api/kernels").json() == []


# ---- Limits, owners, restarts


def test_texts_are_short_and_printable(gateway, client):
    for fields in {"path": "x" * 1025}, {"name": "x" * 256}, {"path": "a\u0001"}, {"name": "\n"}:
        assert next(iter(fields)) in create(client, **fields, status=400)["message"]
    assert listed(client) == {}


def test_the_same_request_twice_keeps_its_kernel(start_gateway):
    """A client that repeats its request before the kernel is there."""
    gateway = start_gateway("--jupyter-api")
    chosen = str(uuid.uuid4())
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(create, gateway.client_for(None), kernel={"id": chosen})
            for _ in range(2)
        ]
        first, second = (call.result() for call in calls)
    assert first == second | {"kernel": first["kernel"]}
    assert [model["id"] for model in gateway.client.get("/api/kernels").json()] == [chosen]
    with Channels(gateway, chosen) as channels:
        assert text(channels.run("print 1")) == "1\n"


def test_sessions_are_bounded(gateway, client):
    kernel = start_kernel(gateway)
    ids = [create(client, f"{i}", kernel={"id": kernel})["id"] for i in range(256)]
    assert "256" in create(client, "one more", status=429, kernel={"id": kernel})["message"]
    assert "256" in create(client, "one more", status=429)["message"]
    assert create(client, "0")["id"] == ids[0]
    client.delete(f"/api/kernels/{kernel}")
    assert listed(client) == {}


def test_limits_are_those_of_kernels(start_gateway):
    gateway = start_gateway("--jupyter-api", "--max-sessions", "1")
    create(gateway.client)
    create(gateway.client, "b.ipynb", status=429)
    assert len(listed(gateway.client)) == 1


def test_sessions_belong_to_their_owner(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway("--jupyter-api", "--api-keys-file", str(keys), key="key-a")
    model = create(gateway.client)
    kernel = model["kernel"]["id"]
    bert, nobody = gateway.client_for("key-b"), gateway.client_for(None)
    path = f"/api/sessions/{model['id']}"
    assert bert.get("/api/sessions").json() == []
    for method in "GET", "DELETE", "PATCH":
        body = {} if method != "PATCH" else {"json": {"path": "b"}}
        failure(bert.request(method, path, **body), 404)
        assert nobody.request(method, path, **body).status_code == 401
    # It can have its own session with the same path. It cannot use another owner's kernel.
    own = create(bert, kernel={"id": kernel}, status=201)
    assert own["id"] != model["id"]
    failure(
        bert.patch(f"/api/sessions/{own['id']}", json={"kernel": {"id": str(uuid.uuid4())}}), 400
    )
    assert gateway.client.get(path).json()["path"] == "a.ipynb"


def test_sessions_outlive_the_gateway(start_gateway):
    gateway = start_gateway("--jupyter-api", "--max-sessions", "5")
    kept, ended = create(gateway.client), create(gateway.client, "b.ipynb")
    gateway.client.patch(f"/api/sessions/{kept['id']}", json={"path": "é.ipynb", "name": "é"})
    with Channels(gateway, kept["kernel"]["id"]) as channels:
        channels.run("set x 42")
        gateway.kill()
    folder = gateway.own_dir / "notebooks"
    assert {file.name for file in folder.iterdir()} == {
        f"{model['id']}.json" for model in (kept, ended)
    }
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
    # Damaged and unfinished files, and those of kernels that have ended, are removed.
    (folder / f"{ended['id']}.json").write_text('{"owner":5}')
    (folder / f"{uuid.uuid4()}.json.new").write_text("{")
    gone = (folder / f"{kept['id']}.json").read_text().replace(kept["kernel"]["id"], ended["id"])
    (folder / f"{uuid.uuid4()}.json").write_text(gone)
    gateway.start()
    (model,) = wait_for(lambda: listed(gateway.client).values())
    assert (model["id"], model["path"], model["name"]) == (kept["id"], "é.ipynb", "é")
    assert os.listdir(folder) == [f"{kept['id']}.json"]
    wait_for(lambda: list_kernels(gateway)[kept["kernel"]["id"]]["execution_state"] == "idle")
    with Channels(gateway, kept["kernel"]["id"]) as channels:
        assert text(channels.run("get x")) == "42\n"
    assert gateway.client.delete(f"/api/sessions/{kept['id']}").status_code == 204
    assert os.listdir(folder) == []


def test_a_client_that_leaves_leaves_nothing(start_gateway):
    gateway = start_gateway("--jupyter-api")
    host, port = gateway.url.removeprefix("http://").split(":")
    body = json.dumps({"path": "a", "type": "notebook"})
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            f"POST /api/sessions HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        wait_for(lambda: list_kernels(gateway))
    wait_for(lambda: not list_kernels(gateway))
    assert listed(gateway.client) == {}
