# SPDX-License-Identifier: Apache-2.0
"""The Jupyter face's /api/contents: each session is a folder, with models as jupyter_server's."""

import base64
import concurrent.futures
import contextlib
import datetime
import hashlib
import http.client
import json
import random
import socket

import pytest
from component import cell, exact
from jupyter_wire import failure, start_kernel
from kernelgate import problem, wait_for

TAKES_LONG = True

ROOT = "/api/contents"
KEYS = {
    "name", "path", "type", "writable", "created", "last_modified", "size", "mimetype", "hash",
    "hash_algorithm", "format", "content",
}  # fmt: skip
NOTEBOOK = {
    "cells": [{"cell_type": "code", "source": "é = 1.5\n", "metadata": {}, "outputs": []}],
    "metadata": {"kernelspec": {"name": "script", "display_name": "Script"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api", "--disk-mb", "128", "--memory-mb", "1024"]


@pytest.fixture(scope="module")
def folder(gateway):
    """The folder of a kernel, which the tests of this file share."""
    return f"{ROOT}/{start_kernel(gateway)}"


@pytest.fixture
def client(gateway):
    return gateway.client


def model_of(response, status=200):
    assert response.status_code == status, response.text
    model = response.json()
    assert set(model) == KEYS
    assert model["name"] == model["path"].rpartition("/")[2]
    for key in "created", "last_modified":
        datetime.datetime.strptime(model[key], "%Y-%m-%dT%H:%M:%S.%fZ")
    return model


def save(client, path, content, status=201, type="file", format="text"):
    body = {"type": type, "format": format, "content": content}
    model = model_of(client.put(path, json=body), status)
    assert model["content"] is None and model["format"] is None and model["type"] == type
    return model


def names(client, path):
    model = model_of(client.get(path))
    assert model["type"] == "directory" and model["format"] == "json" and model["size"] is None
    return {entry["name"]: entry for entry in model["content"]}


def run(gateway, folder, code):
    lines = gateway.execute(code, session_id=folder.removeprefix(ROOT + "/"))
    assert lines.status == "ok", lines
    return lines.text()


# ---- Folders


def test_the_root_has_a_folder_of_each_session(gateway, client, folder, session):
    kernel = folder.removeprefix(ROOT + "/")
    for path in ROOT, ROOT + "/":
        root = model_of(client.get(path))
        assert root["type"] == "directory" and root["path"] == "" and not root["writable"]
        entries = {entry["name"]: entry for entry in root["content"]}
        assert {kernel, session} <= set(entries)
    entry = entries[kernel]
    assert set(entry) == KEYS and entry["path"] == kernel and entry["type"] == "directory"
    assert entry["content"] is None and entry["format"] is None and entry["writable"]
    assert model_of(client.get(ROOT, params={"content": 0}))["content"] is None
    assert model_of(client.get(folder, params={"content": 0}))["format"] is None


def test_what_code_writes_is_listed(gateway, client, folder):
    run(
        gateway,
        folder,
        cell(
            "sh mkdir -p l/sub/deep",
            "write l/a.csv " + exact("1,2\n"),
            "sh printf {} > 'l/é b.ipynb'",
            "write l/sub/x",
            "write l/.hidden",
            "sh ln -s a.csv l/link",
            "sh mkfifo l/pipe",
        ),
    )
    entries = names(client, folder + "/l")
    assert set(entries) == {"a.csv", "é b.ipynb", "sub"}
    assert all(set(entry) == KEYS for entry in entries.values())
    csv = entries["a.csv"]
    assert (csv["type"], csv["size"], csv["mimetype"]) == ("file", 4, "text/csv")
    assert csv["path"] == f"{folder.removeprefix(ROOT + '/')}/l/a.csv"
    assert entries["é b.ipynb"]["type"] == "notebook" and entries["sub"]["type"] == "directory"
    assert set(names(client, folder + "/l/sub")) == {"deep", "x"}
    assert names(client, folder + "/l/sub/deep") == {}
    for path in "/l/.hidden", "/l/none", "/none/none", "/l/none/":
        failure(client.get(folder + path), 404)
    for path in "/l/link", "/l/pipe", "/l/a.csv/x":
        failure(client.get(folder + path), 400)
    failure(client.get(folder + "/l", params={"type": "file"}), 400)
    failure(client.get(folder + "/l/a.csv", params={"type": "directory"}), 400)


def test_folders_of_many_files(gateway, client, folder):
    """The agent lists everything below a folder, in pages of 1,000. The contents of subfolders must not
    hide later entries."""
    run(
        gateway,
        folder,
        cell(
            "repeat 5 sh mkdir -p many/d{i}/sub; cd many/d{i}/sub; touch $(seq 0 1499)",
            "sh cd many; touch $(seq -f f%.0f 0 2499) d2- z",
        ),
    )
    expected = {f"d{d}" for d in range(5)} | {f"f{i}" for i in range(2500)} | {"d2-", "z"}
    assert set(names(client, folder + "/many")) == expected
    assert len(names(client, folder + "/many/d3/sub")) == 1500
    client.delete(folder + "/many")


def test_listings_have_at_most_10000_entries(gateway, client, folder):
    run(
        gateway,
        folder,
        "sh mkdir most; cd most; seq 0 10049 | xargs touch",
    )
    listed = names(client, folder + "/most")
    assert len(listed) == 10000 and set(listed) <= set(map(str, range(10050)))
    client.delete(folder + "/most")


# ---- Reading


def test_reading(gateway, client, folder):
    data = bytes(range(256))
    run(
        gateway,
        folder,
        cell(
            "write r.txt " + exact('a\n"é\u2028"\x01'),
            "sh printf '" + "".join(f"\\{byte:03o}" for byte in data) + "' > r.bin",
            "write r.unknown x",
            "write empty",
        ),
    )
    text = model_of(client.get(folder + "/r.txt"))
    assert text["content"] == 'a\n"é\u2028"\x01'
    assert (text["type"], text["format"], text["mimetype"]) == ("file", "text", "text/plain")
    assert text["size"] == len(text["content"].encode()) and text["hash"] is None

    binary = model_of(client.get(folder + "/r.bin"))
    assert base64.b64decode(binary["content"]) == data
    assert (binary["format"], binary["mimetype"]) == ("base64", "application/octet-stream")
    as_text = client.get(folder + "/r.bin", params={"format": "text", "type": "file"})
    assert "UTF-8" in failure(as_text, 400)
    as_base64 = model_of(client.get(folder + "/r.txt", params={"format": "base64"}))
    assert base64.b64decode(as_base64["content"]).decode() == text["content"]

    assert model_of(client.get(folder + "/r.unknown"))["mimetype"] == "text/plain"
    empty = model_of(client.get(folder + "/empty"))
    assert (empty["content"], empty["format"], empty["size"]) == ("", "text", 0)

    short = model_of(client.get(folder + "/r.txt", params={"content": 0, "1732": ""}))
    assert short["content"] is short["format"] is None and short["size"] == text["size"]
    hashed = model_of(client.get(folder + "/r.bin", params={"content": 0, "hash": 1}))
    assert hashed["hash"] == hashlib.sha256(data).hexdigest() and hashed["content"] is None
    assert hashed["hash_algorithm"] == "sha256"
    head = client.head(folder + "/r.bin")
    assert head.status_code == 200 and head.content == b""
    for bad in {"content": "x"}, {"format": "x"}, {"hash": "2"}:
        failure(client.get(folder + "/r.txt", params=bad), 400)


def test_notebooks(gateway, client, folder):
    path = folder + "/n.ipynb"
    save(client, path, NOTEBOOK, type="notebook", format="json")
    model = model_of(client.get(path))
    assert model["content"] == NOTEBOOK
    assert (model["type"], model["format"], model["mimetype"]) == ("notebook", "json", None)
    written = run(gateway, folder, "read n.ipynb")
    assert written == json.dumps(NOTEBOOK, indent=1, ensure_ascii=False) + "\n"
    as_file = model_of(client.get(path, params={"type": "file"}))
    assert (as_file["type"], as_file["format"]) == ("file", "text")
    assert json.loads(as_file["content"]) == NOTEBOOK
    for broken in "{", "[]", "", '{"a":1}x':
        save(client, path, broken, status=200)
        assert "Unreadable Notebook" in failure(client.get(path), 400)


@pytest.mark.threads
def test_large_files(gateway, client, folder):
    data = bytes(range(256)) * (12 << 12)  # 12 MiB
    path = folder + "/large.bin"
    saved = save(client, path, base64.b64encode(data).decode(), format="base64")
    assert saved["size"] == len(data)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for model in pool.map(lambda _: model_of(client.get(path)), range(2)):
            assert base64.b64decode(model["content"]) == data
    text = "é\n" * (2 << 20)
    save(client, folder + "/large.txt", text)
    assert model_of(client.get(folder + "/large.txt"))["content"] == text
    cells = [{"cell_type": "raw", "source": "x" * 1000, "metadata": {}}] * 5000
    save(client, folder + "/large.ipynb", {"cells": cells}, type="notebook", format="json")
    assert model_of(client.get(folder + "/large.ipynb"))["content"] == {"cells": cells}

    run(gateway, folder, f"sh truncate -s {(16 << 20) + 1} huge")
    assert "/api/v1/sessions" in failure(client.get(folder + "/huge"), 413)
    assert model_of(client.get(folder + "/huge", params={"content": 0}))["size"] > 16 << 20
    body = {"type": "file", "format": "text", "content": "x" * ((16 << 20) + 1)}
    failure(client.put(folder + "/huge2", json=body), 413)
    failure(client.get(folder + "/huge2"), 404)
    for name in "large.bin", "large.txt", "large.ipynb", "huge":
        assert client.delete(f"{folder}/{name}").status_code == 204


def test_what_clients_do_not_read_is_bounded(gateway, client, folder):
    run(gateway, folder, "sh truncate -s 16M zeros")
    streams, refused = [], None
    try:
        for _ in range(16):  # 22 MB each as base64; half of 256 MiB is for one owner
            stream = client.stream("GET", folder + "/zeros", params={"format": "base64"})
            response = stream.__enter__()
            streams.append(stream)
            if response.status_code != 200:
                refused = response
                break
        assert refused is not None and refused.status_code == 429
        assert refused.headers["retry-after"] and len(streams) > 2
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
    wait_for(lambda: client.get(folder + "/zeros", params={"format": "base64"}).status_code == 200)
    client.delete(folder + "/zeros")


def test_listings_that_clients_do_not_read_are_bounded(gateway, client, folder):
    """Paths near the maximum length, of characters that take six bytes each in JSON."""
    deep = "/".join(["long"] + ["{255*\1}"] * 3)
    run(
        gateway,
        folder,
        cell(
            f"sh mkdir -p {deep}",
            f"sh cd {deep}; seq -f '{{220*\1}}%.0f' 0 1499 | xargs touch",
            "sh truncate -s 16M zeros; truncate -s 12M fewer",
        ),
    )
    path = gateway.url + folder + "/long" + ("/" + "%01" * 255) * 3
    with contextlib.ExitStack() as unread:

        def get(path, **params):
            return unread.enter_context(client.stream("GET", path, params=params)).status_code

        # Most of what one owner may have is taken by files: listings take longer to make.
        for name in "zeros", "zeros", "zeros", "zeros", "fewer":
            assert get(f"{folder}/{name}", format="base64") == 200
        statuses = [get(path)]
        while statuses[-1] == 200 and len(statuses) < 16:
            statuses.append(get(path))
        assert statuses[0] == 200 and statuses[-1] == 429
    listed = wait_for(lambda: (found := client.get(path)).status_code == 200 and found)
    assert len(model_of(listed)["content"]) == 1500
    for name in "long", "zeros", "fewer":
        assert client.delete(f"{folder}/{name}").status_code == 204


@pytest.mark.threads
def test_text_of_many_escapes(gateway, client, folder):
    run(
        gateway,
        folder,
        cell(
            "sh head -c 16M /dev/zero | tr '\\000' '\\001' > large.txt",
            "sh head -c 64K /dev/zero | tr '\\000' '\\001' > small.txt",
        ),
    )
    path = folder + "/large.txt"
    large = model_of(client.get(path))
    assert large["format"] == "base64"
    assert base64.b64decode(large["content"]) == b"\x01" * (16 << 20)
    failure(client.get(path, params={"format": "text"}), 413)
    small = model_of(client.get(folder + "/small.txt"))
    assert (small["format"], small["content"]) == ("text", "\x01" * (64 << 10))
    client.delete(path)


def test_indents_of_notebooks_are_bounded(gateway, client, folder):
    """Indented, each null of this body takes thirteen times as much. tests/load looks at the
    gateway's memory meanwhile."""
    deep = "[" * 60 + ",".join(["null"] * 800000) + "]" * 60
    body = f'{{"type":"notebook","format":"json","content":{{"cells":{deep}}}}}'

    failure(client.put(folder + "/deep.ipynb", content=body), 413)
    failure(client.get(folder + "/deep.ipynb"), 404)


def test_the_end_with_an_answer_that_is_not_read(start_gateway):
    gateway = start_gateway("--jupyter-api", "--drain-timeout", "1")
    path = f"{ROOT}/{start_kernel(gateway)}/zeros"
    run(gateway, path.rpartition("/")[0], "sh truncate -s 16M zeros")
    with gateway.client.stream("GET", path) as response:
        assert response.status_code == 200
        gateway.stop()


@pytest.mark.threads
def test_clients_that_leave(gateway, client, folder):
    """They leave before the agent has answered, while a worker has the file, or while it is sent."""
    run(gateway, folder, f"write left {{{4 << 20}*é}}")
    host, port = gateway.url.removeprefix("http://").split(":")
    head = f"{folder}/left HTTP/1.1\r\nHost: {host}\r\n"
    body = json.dumps({"type": "file", "format": "text", "content": "x" * (1 << 20)}).encode()
    requests = [
        f"GET {head}\r\n".encode(),
        f"PUT {head.replace(' HTTP', '2 HTTP')}Content-Length: {len(body)}\r\n\r\n".encode() + body,
        f"POST {head.replace(' HTTP', '/checkpoints HTTP')}Content-Length: 0\r\n\r\n".encode(),
    ]
    for _ in range(8):
        connections = []
        for request in requests:
            connections.append(socket.create_connection((host, int(port))))
            connections[-1].sendall(request)
        client.get(folder + "/left", params={"content": 0})
        for connection in connections:
            connection.close()
    save(client, folder + "/left", "x", status=200)
    wait_for(lambda: client.get(folder + "/left").json()["content"] == "x")


# ---- Writing


def test_writing(gateway, client, folder):
    path = folder + "/w.txt"
    response = client.put(path, json={"type": "file", "format": "text", "content": "ä"})
    model = model_of(response, 201)
    assert response.headers["location"] == path and model["size"] == 2
    assert run(gateway, folder, "read w.txt") == "ä"
    save(client, path, base64.b64encode(b"\x00\xff").decode(), status=200, format="base64")
    assert model_of(client.get(path))["format"] == "base64"
    save(client, folder + "/new/é x/w.txt", "")
    assert set(names(client, folder + "/new")) == {"é x"}

    # Without content a new file is empty, and an existing file is not changed.
    fresh = model_of(client.put(folder + "/fresh.ipynb", json={"format": "json"}), 201)
    assert fresh["type"] == "notebook"
    assert model_of(client.get(folder + "/fresh.ipynb"))["content"]["nbformat"] == 4
    assert model_of(client.put(folder + "/fresh", json={"type": "file"}), 201)["size"] == 0
    assert "content" in failure(client.put(path, json={"type": "file"}), 400)
    assert "type" in failure(client.put(path, json={"content": "x", "format": "text"}), 400)
    failure(client.put(path, json={}), 400)  # as a POST, which is for folders
    failure(client.put(folder + "/none.txt", json={}), 404)
    made = model_of(client.put(folder + "/made", json={"type": "directory"}), 201)
    assert made["type"] == "directory"
    assert model_of(client.put(folder + "/made", json={"type": "directory"}), 201) is not None
    assert names(client, folder + "/made") == {}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"type":5}',
        b'{"type":"file","content":"a"}',
        b'{"type":"file","content":"a","format":"json"}',
        b'{"type":"file","content":{},"format":"text"}',
        b'{"type":"file","content":"a b!","format":"base64"}',
        b'{"type":"file","content":"a\\u0000","format":"text"}',
        b'{"type":"notebook","content":"{}","format":"json"}',
        b'{"type":"file","content":"a","format":"text","chunk":0}',
        b'{"type":"file","content":"a","format":"text","chunk":-2}',
        b'{"type":"file","content":"a","format":"text","chunk":"1"}',
        b'{"type":"file","format":"text","chunk":1}',
        b'{"content":"a","format":"text","chunk":1}',
        b'{"type":"file","content":"a b!","format":"base64","chunk":2}',
        b'{"type":"notebook","content":{},"format":"json","chunk":1}',
        b'{"copy_from":"x"}',
    ],
)
def test_bad_bodies(client, folder, body):
    failure(client.put(folder + "/bad.txt", content=body), 400)
    failure(client.get(folder + "/bad.txt"), 404)


# ---- Chunks, as JupyterLab uploads files above 1 MB


def save_chunks(client, path, data, size):
    """Returns the model that the last one is answered with."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for number, piece in enumerate(pieces, 1):
        content = base64.b64encode(piece).decode()
        body = {"type": "file", "format": "base64", "content": content, "mimetype": "x/y"}
        response = client.put(path, json=body | {"chunk": -1 if number == len(pieces) else number})
        model = model_of(response, response.status_code)
        assert response.status_code == (200 if number > 1 else 201)
        assert model["size"] == min(number * size, len(data)) and model["content"] is None
    return model


def test_a_file_in_chunks(gateway, client, folder):
    data = random.Random(1).randbytes(5_500_000)
    path = folder + "/in chunks é.bin"
    assert save_chunks(client, path, data, 1 << 20)["size"] == len(data)
    session = folder.rpartition("/")[2]
    files = f"/api/v1/sessions/{session}/files"
    assert client.get(f"{files}/in chunks é.bin").content == data
    # Nothing is left of the pieces, also for code in the sandbox.
    assert "piece" not in gateway.execute("sh ls -a", session_id=session).text()
    # The first chunk begins anew; texts are chunks, too.
    for chunk, content in (1, "a\n"), (2, "é"), (-1, "b"):
        body = {"type": "file", "format": "text", "content": content, "chunk": chunk}
        assert client.put(path, json=body).status_code == 200
    assert client.get(f"{files}/in chunks é.bin").text == "a\néb"


def test_chunks_of_several_files_at_a_time(client, folder):
    data = [random.Random(seed).randbytes(300_000) for seed in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(
            threads.map(lambda i: save_chunks(client, f"{folder}/c{i}", data[i], 100_000), range(4))
        )
    for i in range(4):
        content = client.get(f"{folder}/c{i}", params={"format": "base64"}).json()["content"]
        assert base64.b64decode(content) == data[i]


def test_chunks_have_the_bound_of_uploads(start_gateway):
    gateway = start_gateway("--jupyter-api", "--max-upload-bytes", "1000")
    path = f"{ROOT}/{start_kernel(gateway)}/a"
    for chunk, status in (1, 201), (2, 200), (-1, 413):
        body = {"type": "file", "format": "text", "content": 400 * "x", "chunk": chunk}
        assert gateway.client.put(path, json=body).status_code == status
    assert gateway.client.get(path).json()["size"] == 800


def address(gateway):
    return gateway.url.removeprefix("http://")


HOSTILE = [
    "/../x", "/a/../../x", "/%2e%2e/x", "/a%2f..%2fx", "/.hidden", "/a/.hidden/b", "/.kg-x",
    "/a%0ab", "/%1b[2J", "/" + "a" * 256, "/" + "/".join(["a" * 200] * 6), "/a//b",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(gateway, folder, name):
    for method, body in (
        ("PUT", {"type": "file", "format": "text", "content": ""}),
        ("PUT", {"type": "directory"}),
        ("PATCH", {"path": "x"}),
        ("POST", {}),
        ("GET", None),
        ("DELETE", None),
    ):
        # httpx would normalise the target.
        with contextlib.closing(http.client.HTTPConnection(address(gateway), timeout=60)) as raw:
            content = json.dumps(body) if body is not None else None
            raw.request(method, folder + name, content)
            answer = raw.getresponse()
            assert answer.status in (400, 403, 404), (method, answer.read())


@pytest.mark.parametrize(
    "name", ["-rf", "a b", "$(touch x)", "';touch x;'", '"`touch x`"', "é*?[", "&1"]
)
def test_names_that_shells_read(client, folder, name):
    """No shell ever sees them."""
    place = folder + "/shell"
    client.delete(place)
    assert client.put(place, json={"type": "directory"}).status_code == 201
    kernel = place.removeprefix(ROOT + "/")
    path = f"{ROOT}/{kernel}/" + "".join(f"%{byte:02x}" for byte in name.encode())
    save(client, path, "x")
    copied = model_of(client.post(place, json={"copy_from": f"{kernel}/{name}"}), 201)
    assert copied["name"] == name + "-Copy1"
    moved = client.patch(path, json={"path": f"{kernel}/{name}2"})
    assert model_of(moved)["name"] == name + "2"
    made = client.put(path, json={"type": "directory"})
    assert model_of(made, 201)["name"] == name
    inside = model_of(client.post(path, json={"ext": f".{name}"}), 201)
    assert inside["name"] == f"untitled.{name}"
    assert set(names(client, place)) == {name, name + "2", name + "-Copy1"}
    assert "x" not in names(client, folder)  # where a command would run
    assert client.delete(place).status_code == 204


# ---- New names, copies, renaming, deleting


def test_untitled(client, folder):
    place = folder + "/u"
    client.put(place, json={"type": "directory"})
    made = []
    for body in (
        {"type": "notebook"}, {"ext": ".ipynb"}, {"type": "file", "ext": ".txt"},
        {"type": "file", "ext": ".txt"}, {"type": "directory"}, {"type": "directory"}, {}, None,
    ):  # fmt: skip
        response = client.post(place, json=body) if body is not None else client.post(place)
        made.append(model_of(response, 201))
        assert (
            "Untitled" in response.headers["location"] or "untitled" in response.headers["location"]
        )
    assert [model["name"] for model in made] == [
        "Untitled.ipynb", "Untitled1.ipynb", "untitled.txt", "untitled1.txt",
        "Untitled Folder", "Untitled Folder 1", "untitled", "untitled1",
    ]  # fmt: skip
    assert made[0]["type"] == "notebook" and made[4]["type"] == "directory"
    assert model_of(client.get(place + "/Untitled.ipynb"))["content"]["cells"] == []
    assert model_of(client.put(place + "/Untitled Folder", content=b""), 201)["name"] == "untitled"
    failure(client.post(place + "/untitled.txt", json={}), 400)
    failure(client.post(folder + "/none", json={}), 404)
    for ext in "/x", "/../x", "x" * 100, "\n":
        failure(client.post(place, json={"ext": ext}), 400)


def test_untitled_at_the_same_time(client, folder):
    """Each gets a name of its own, whoever else makes something in the folder."""
    place = folder + "/many"
    client.put(place, json={"type": "directory"})
    save(client, place + "/a", "data")
    bodies = [
        {"type": "directory"}, {"type": "notebook"}, {"copy_from": f"{place[len(ROOT) + 1 :]}/a"},
    ]  # fmt: skip

    def make(i):
        return model_of(client.post(place, json=bodies[i % 3]), 201)["name"]

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        made = list(threads.map(make, range(36)))
    assert len(set(made)) == 36
    assert set(names(client, place)) == {*made, "a"}
    assert client.delete(place).status_code == 204


def test_copies(client, folder):
    place = folder + "/c"
    inside = place.removeprefix(ROOT + "/")
    for path in place, place + "/to":
        assert client.put(path, json={"type": "directory"}).status_code == 201
    save(client, place + "/a.tar.gz", "data")
    save(client, place + "/b.v1.ipynb", NOTEBOOK, type="notebook", format="json")
    copied = []
    for name in "a.tar.gz", "a.tar.gz", "a-Copy1.tar.gz", "b.v1.ipynb":
        copied.append(model_of(client.post(place, json={"copy_from": f"/{inside}/{name}"}), 201))
    assert [model["name"] for model in copied] == [
        "a-Copy1.tar.gz", "a-Copy2.tar.gz", "a-Copy3.tar.gz", "b.v1-Copy1.ipynb",
    ]  # fmt: skip
    other = client.post(place + "/to", json={"copy_from": f"{inside}/a-Copy2.tar.gz"})
    assert model_of(other, 201)["path"] == f"{inside}/to/a.tar.gz"
    assert model_of(client.get(f"{place}/to/a.tar.gz"))["content"] == "data"
    failure(client.post(place, json={"copy_from": f"{inside}/none"}), 404)
    save(client, place + "/to/sub/x", "x")
    folder_copy = model_of(client.post(place, json={"copy_from": f"{inside}/to"}), 201)
    assert folder_copy["name"] == "to-Copy1" and folder_copy["type"] == "directory"
    assert set(names(client, place + "/to-Copy1")) == {"a.tar.gz", "sub"}
    assert set(names(client, place + "/to-Copy1/sub")) == {"x"}
    failure(client.post(place, json={"copy_from": "other/a"}), 400)
    failure(client.post(place, json={"copy_from": 5}), 400)


def test_renaming(gateway, client, folder):
    place = folder + "/m"
    inside = place.removeprefix(ROOT + "/")
    save(client, place + "/a.txt", "a")
    save(client, place + "/b/c.txt", "c")
    moved = client.patch(place + "/a.txt", json={"path": f"{inside}/é.txt"})
    assert model_of(moved)["path"] == f"{inside}/é.txt"
    assert moved.headers["location"] == f"{place}/%C3%A9.txt"
    assert (
        model_of(client.patch(place + "/b", json={"path": f"/{inside}/d"}))["type"] == "directory"
    )
    assert set(names(client, place)) == {"é.txt", "d"}
    same = client.patch(place + "/é.txt", json={"path": f"{inside}/é.txt"})
    assert model_of(same)["content"] is None
    assert model_of(client.patch(place + "/é.txt", json={}))["name"] == "é.txt"
    failure(client.patch(place + "/é.txt", json={"path": f"{inside}/d"}), 409)
    failure(client.patch(place + "/none", json={"path": f"{inside}/x"}), 404)
    failure(client.patch(place + "/d", json={"path": f"{inside}/d/e"}), 400)
    for path in "x.txt", "/", "", f"{inside}/../x", f"{inside}/.x", 5:
        failure(client.patch(place + "/é.txt", json={"path": path}), 400)
    failure(client.patch(place + "/é.txt", content=b""), 400)
    assert set(names(client, place)) == {"é.txt", "d"}


def test_deleting(client, folder):
    save(client, folder + "/x/y/z.txt", "")
    assert client.delete(folder + "/x/y/z.txt").status_code == 204
    failure(client.delete(folder + "/x/y/z.txt"), 404)
    assert client.delete(folder + "/x").status_code == 204
    failure(client.get(folder + "/x"), 404)


def test_the_root_and_the_folders_of_kernels_stay(gateway, client, folder):
    body = {"type": "file", "format": "text", "content": ""}
    for path in folder, ROOT + "/a.ipynb", ROOT + "/":
        failure(client.put(path, json=body), 403)
        failure(client.delete(path), 403)
        failure(client.patch(path, json={"path": "x"}), 403)
    for path in ROOT, ROOT + "/":
        failure(client.post(path, json={"type": "notebook"}), 403)
    failure(client.put(ROOT + "/none/a.txt", json=body), 404)
    assert model_of(client.get(folder))["type"] == "directory"


# ---- Checkpoints


def test_no_change_follows_a_symbolic_link(gateway, client, folder):
    """A link would lead to what is no file of the session, such as the kernel's own."""
    run(
        gateway,
        folder,
        cell(
            "sh mkdir -p s/real s/there/.ipynb_checkpoints && echo secret > s/there/x",
            "sh ln -s there/x s/link && ln -s there s/away && touch s/real/y s/z",
            "sh ln -s ../there s/real/.ipynb_checkpoints",
        ),
    )

    def api(path):
        return f"{folder.removeprefix(ROOT + '/')}/s/{path}"

    def refused(method, name, **body):
        said = failure(client.request(method, f"{folder}/s/{name}", json=body), 400)
        assert "ink" in said, said

    refused("POST", "real", copy_from=api("link"))
    refused("POST", "real", copy_from=api("away/x"))
    refused("POST", "real", copy_from=api("away"))
    refused("POST", "away", copy_from=api("real/y"))
    refused("POST", "away", type="notebook")
    refused("PUT", "away/new", type="directory")
    refused("PATCH", "away/x", path=api("x"))
    refused("PATCH", "z", path=api("away/z"))
    refused("POST", "link/checkpoints")
    refused("POST", "away/x/checkpoints")
    refused("POST", "real/y/checkpoints")
    refused("POST", "real/y/checkpoints/checkpoint")
    # The link itself may have another name, and go.
    assert client.patch(f"{folder}/s/link", json={"path": api("other")}).status_code in (200, 400)
    assert (
        run(gateway, folder, "sh ls s/there s/real; cat s/there/x")
        == "s/real:\ny\n\ns/there:\nx\nsecret\n"
    )


def test_checkpoints(gateway, client, folder):
    path = folder + "/k/a.ipynb"
    save(client, path, NOTEBOOK, type="notebook", format="json")
    checkpoints = path + "/checkpoints"
    assert client.get(checkpoints).json() == []
    made = client.post(checkpoints)
    assert made.status_code == 201
    assert set(made.json()) == {"id", "last_modified"} and made.json()["id"] == "checkpoint"
    assert made.headers["location"] == f"{path}/checkpoints/checkpoint"
    assert client.get(checkpoints).json() == [made.json()]
    save(client, path, {**NOTEBOOK, "cells": []}, status=200, type="notebook", format="json")
    assert client.post(checkpoints + "/checkpoint").status_code == 204
    assert model_of(client.get(path))["content"] == NOTEBOOK
    assert set(names(client, folder + "/k")) == {"a.ipynb"}
    kept = run(gateway, folder, "sh ls -A k/.ipynb_checkpoints")
    assert kept == "a-checkpoint.ipynb\n"
    assert client.delete(checkpoints + "/checkpoint").status_code == 204
    assert client.get(checkpoints).json() == []
    failure(client.delete(checkpoints + "/checkpoint"), 404)
    failure(client.post(checkpoints + "/checkpoint"), 404)
    failure(client.post(checkpoints + "/other"), 404)
    failure(client.post(folder + "/k/none/checkpoints"), 404)
    failure(client.post(folder + "/checkpoints"), 404)


# ---- Owners, ends


def test_files_belong_to_their_owner(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway("--jupyter-api", "--api-keys-file", str(keys), key="key-a")
    kernel = start_kernel(gateway)
    path = f"{ROOT}/{kernel}/a.txt"
    save(gateway.client, path, "secret")
    bert, nobody = gateway.client_for("key-b"), gateway.client_for(None)
    assert model_of(bert.get(ROOT))["content"] == []
    body = {"type": "file", "format": "text", "content": ""}
    for method in "GET", "PUT", "PATCH", "POST", "DELETE":
        more = {} if method in ("GET", "DELETE") else {"json": body}
        failure(bert.request(method, path, **more), 404)
        assert nobody.request(method, path, **more).status_code == 401
    for method, target in (
        ("GET", ""),
        ("POST", ""),
        ("POST", "/checkpoint"),
        ("DELETE", "/checkpoint"),
    ):
        failure(bert.request(method, f"{path}/checkpoints{target}"), 404)
        assert nobody.request(method, f"{path}/checkpoints{target}").status_code == 401
    token = nobody.get(path, params={"token": "key-a"})
    assert model_of(token)["content"] == "secret"
    # Files outlive the gateway as their kernel does.
    gateway.kill()
    gateway.start()
    assert wait_for(lambda: gateway.client.get(path).status_code == 200 or None)
    assert model_of(gateway.client.get(path))["content"] == "secret"
    gateway.client.delete(f"/api/kernels/{kernel}")
    failure(gateway.client.get(path), 404)


def test_a_full_disk(start_gateway):
    gateway = start_gateway("--jupyter-api", "--disk-mb", "2")
    path = f"{ROOT}/{start_kernel(gateway)}/a.txt"
    body = {"type": "file", "format": "text", "content": "x" * (3 << 20)}
    failure(gateway.client.put(path, json=body), 507)
    failure(gateway.client.get(path), 404)


def test_methods(client, folder):
    assert client.options(folder + "/a").status_code == 204
    problem(client.put(ROOT, json={}), 405, "method_not_allowed")
