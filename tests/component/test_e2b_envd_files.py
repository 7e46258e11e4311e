# SPDX-License-Identifier: Apache-2.0
"""Files of E2B's sandboxes in raw HTTP: /files, signed URLs, and the calls of Filesystem."""

import gzip
import time

import component
import pytest
from e2b_wire import STREAM_TYPE, Envd, create_sandbox, envelope, signature
from kernelgate import Gateway

KEY = "key-of-envd-files"


@pytest.fixture(scope="module")
def keyed():
    running = Gateway(*component.FLAGS, "--api-key", KEY, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def bare(keyed, clients):
    """A client that sends no credential by itself."""
    stranger = clients(keyed, None)
    stranger.headers.pop("Authorization", None)
    return stranger


@pytest.fixture(scope="module")
def sandbox(keyed):
    return create_sandbox(keyed.client_for(KEY))


@pytest.fixture
def envd(bare, sandbox, request):
    """In a folder of the test's own, which is in `envd.folder`."""
    made = Envd(bare, sandbox)
    made.folder = f"/home/user/{request.node.name[:60].replace('[', '-').replace(']', '')}"
    made.files("MakeDir", {"path": made.folder})
    return made


def write(envd, path, data=b"x", status=200, **params):
    answer = envd.request(
        "POST", "/files", {"Content-Type": "application/octet-stream"}, content=data,
        params={"path": path, **params},
    )  # fmt: skip
    assert answer.status_code == status, answer.text
    return answer.json()


def read(envd, path, status=200, **params):
    answer = envd.request("GET", "/files", params={"path": path, **params})
    assert answer.status_code == status, answer.text
    return answer.content if status == 200 else answer.json()


# ---- /files ------------------------------------------------------------------------------------


def test_one_file(envd):
    data = bytes(range(256)) * 5000
    path = f"{envd.folder}/new/ü x.bin"

    def get(method="GET"):
        plain = {"Accept-Encoding": "identity"}
        return envd.request(method, "/files", plain, params={"path": path})

    assert write(envd, path, data) == [{"name": "ü x.bin", "type": "file", "path": path}]
    answer = get()
    assert answer.content == data and answer.headers["content-length"] == str(len(data))
    assert get("HEAD").headers["content-length"] == str(len(data))
    write(envd, path, b"")
    answer = get()
    assert answer.content == b"" and answer.headers["content-length"] == "0"


def test_paths(envd):
    name = envd.folder.removeprefix("/home/user/")
    assert write(envd, f"{name}/a")[0]["path"] == f"{envd.folder}/a"
    for path in f"~/{name}/a", f"./{name}//b/../a", f"/mnt/data/{name}/a", f"{envd.folder}/a":
        assert read(envd, path) == b"x"
    assert write(envd, f"/tmp/{name}")[0]["path"] == f"/tmp/{name}"
    assert read(envd, f"/tmp/{name}") == b"x"
    assert "another user" in read(envd, "~root/a", 400)["message"]
    assert read(envd, "/proc/self/environ", 400)["code"] == 400
    assert read(envd, "../../../proc/self/environ", 400)["code"] == 400


def test_what_is_not_a_file(envd):
    assert "folder" in read(envd, envd.folder, 400)["message"]
    missing = read(envd, f"{envd.folder}/none", 404)
    assert missing["code"] == 404 and missing["message"]
    write(envd, f"{envd.folder}/file")
    write(envd, f"{envd.folder}/file/below", status=400)
    write(envd, "", status=400)


def test_several_files(envd):
    parts = [("file", (f"{envd.folder}/{name}", name.encode())) for name in ("a", "d/b")]
    answer = envd.request("POST", "/files", files=parts)
    assert answer.status_code == 200, answer.text
    assert [it["path"] for it in answer.json()] == [f"{envd.folder}/a", f"{envd.folder}/d/b"]
    assert read(envd, f"{envd.folder}/d/b") == b"d/b"
    # Of one file the query's path counts.
    params = {"path": f"{envd.folder}/c"}
    answer = envd.request("POST", "/files", files=[("file", ("ignored", b"1"))], params=params)
    assert answer.json() == [{"name": "c", "type": "file", "path": f"{envd.folder}/c"}]
    # No file is written where one has a path that is not valid.
    parts = [("file", (f"{envd.folder}/first", b"")), ("file", ("/proc/x", b""))]
    assert envd.request("POST", "/files", files=parts).status_code == 400
    read(envd, f"{envd.folder}/first", 404)
    answer = envd.request(
        "POST", "/files", {"Content-Type": "multipart/form-data; boundary=b"}, content=b"--b\r\n"
    )
    assert answer.status_code == 400 and answer.json()["code"] == 400


def test_bodies_of_unknown_length_and_in_gzip(envd):
    data = bytes(range(256)) * 2000
    path = f"{envd.folder}/a"
    for content, headers in (
        (iter([data[:1000], data[1000:]]), {}),
        (gzip.compress(data), {"Content-Encoding": "gzip"}),
        (iter([gzip.compress(data)]), {"Content-Encoding": "gzip"}),
    ):
        write(envd, path, b"old")
        headers = {"Content-Type": "application/octet-stream", **headers}
        answer = envd.request("POST", "/files", headers, content=content, params={"path": path})
        assert answer.status_code == 200, answer.text
        assert read(envd, path) == data
    answer = envd.request("GET", "/files", {"Accept-Encoding": "gzip"}, params={"path": path})
    assert answer.headers["content-encoding"] == "gzip" and answer.content == data
    answer = envd.request("GET", "/files", {"Accept-Encoding": "identity"}, params={"path": path})
    assert "content-encoding" not in answer.headers and answer.content == data
    for content, coding in (b"no gzip", "gzip"), (data, "br"):
        headers = {"Content-Type": "application/octet-stream", "Content-Encoding": coding}
        answer = envd.request("POST", "/files", headers, content=content, params={"path": path})
        assert answer.status_code in (400, 415) and answer.json()["code"] == answer.status_code
    assert read(envd, path) == data


def test_large_parts_are_parsed_beside_the_loop(envd):
    data = bytes(300_000)
    parts = [("file", (f"{envd.folder}/{i}", data)) for i in range(5)]
    answer = envd.request("POST", "/files", files=parts)
    assert answer.status_code == 200 and len(answer.json()) == 5
    assert read(envd, f"{envd.folder}/4") == data


# ---- Who asks ----------------------------------------------------------------------------------


def test_strangers(envd, bare, keyed, sandbox):
    no_token = {"E2b-Sandbox-Id": sandbox["sandboxID"]}
    for headers in no_token, no_token | {"X-Access-Token": "kgs_nonsense"}:
        answer = bare.get("/files", params={"path": "x"}, headers=headers)
        assert answer.status_code == 401 and answer.json()["code"] == 401, answer.text
        answer = bare.post("/filesystem.Filesystem/Stat", json={"path": "x"}, headers=headers)
        assert answer.status_code == 401 and answer.json()["code"] == "unauthenticated"
    other = create_sandbox(keyed.client_for(KEY))
    wrong = Envd(bare, sandbox, other["envdAccessToken"])
    assert wrong.request("GET", "/files", params={"path": "x"}).status_code == 403
    wrong.refused("filesystem.Filesystem/Stat", {"path": "x"}, "permission_denied")


def test_users(envd):
    path = f"{envd.folder}/a"
    for name in "user", "root":
        write(envd, path, username=name)
        assert read(envd, path, username=name) == b"x"
    assert "no user bob" in read(envd, path, 401, username="bob")["message"]
    write(envd, path, status=401, username="bob")
    basic = {"user": "dXNlcjo=", "bob": "Ym9iOg=="}
    stat = "filesystem.Filesystem/Stat"
    envd.call(stat, {"path": path}, headers={"Authorization": f"Basic {basic['user']}"})
    for wrong in basic["bob"], "*":
        headers = {"Authorization": f"Basic {wrong}"}
        envd.refused(stat, {"path": path}, "unauthenticated", headers=headers)


def test_a_sandbox_that_has_ended(bare, keyed):
    client = keyed.client_for(KEY)
    made = create_sandbox(client)
    ended = Envd(bare, made)
    assert ended.request("GET", "/health").status_code == 204
    assert ended.request("GET", "/envs").json() == {}
    assert client.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204
    unknown = Envd(bare, {"sandboxID": "none"})
    unknown.headers["X-API-Key"] = KEY
    for envd in ended, unknown:
        for answer in (
            envd.request("GET", "/health"),
            envd.request("GET", "/envs"),
            envd.request("GET", "/files", params={"path": "x"}),
            envd.request("POST", "/filesystem.Filesystem/Stat", json={"path": "x"}),
            envd.request(
                "POST",
                "/process.Process/Start",
                {"Content-Type": STREAM_TYPE},
                content=envelope({}),
            ),
        ):
            assert answer.status_code == 502, answer.text
            assert answer.json() == {"code": 502, "message": "The sandbox was not found"}


def signed(sandbox, path, operation, user=None, expires=None, token=None):
    token = token or sandbox["envdAccessToken"]
    params = {"path": path, "signature": signature(token, path, operation, user or "", expires)}
    if user is not None:
        params["username"] = user
    if expires is not None:
        params["signature_expiration"] = str(expires)
    return params


@pytest.mark.parametrize("named", [False, True])
def test_signed_urls(envd, bare, sandbox, named):
    path = f"{envd.folder}/signed"
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"]} if named else {}
    later, before = int(time.time()) + 600, int(time.time()) - 600
    for more in {}, {"user": "user"}, {"expires": later}, {"user": "user", "expires": later}:
        data = b"x" * 100_000
        answer = bare.post(
            "/files", params=signed(sandbox, path, "write", **more), headers=headers,
            files=[("file", ("f", data))],
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        answer = bare.get("/files", params=signed(sandbox, path, "read", **more), headers=headers)
        assert answer.status_code == 200 and answer.content == data
    good = signed(sandbox, path, "read")
    for wrong in (
        signed(sandbox, path, "write"),
        signed(sandbox, path, "read", expires=before),
        signed(sandbox, path, "read", token="kgs_other"),
        good | {"path": f"{path}2"},
        good | {"username": "root"},
        good | {"signature_expiration": str(later)},
        good | {"signature": good["signature"] + "A"},
        good | {"signature": good["signature"][3:]},
        good | {"signature": ""},
        signed(sandbox, path, "read", expires="never"),
    ):
        answer = bare.get("/files", params=wrong, headers=headers)
        assert answer.status_code == 401 and answer.json()["code"] == 401, answer.text


def test_a_wrong_signature_counts_as_a_wrong_key(start_gateway, clients):
    gateway = start_gateway("--api-key", KEY, key=KEY)
    made = create_sandbox(gateway.client)
    stranger = clients(gateway, None)
    stranger.headers.pop("Authorization", None)
    assert stranger.get("/files", params=signed(made, "none", "read")).status_code == 404
    assert "with a wrong key" not in gateway.log()
    wrong = signed(made, "none", "read", token="kgs_other")
    assert stranger.get("/files", params=wrong).status_code == 401
    assert "with a wrong key" in gateway.log()


def test_a_wrong_signature_without_any_keys(start_gateway):
    """Such a gateway serves everybody, but not those who bring a wrong one."""
    gateway = start_gateway()
    made = create_sandbox(gateway.client)
    headers = {"E2b-Sandbox-Id": made["sandboxID"]}
    assert gateway.client.get("/files", params={"path": "none"}, headers=headers).status_code == 404
    wrong = signed(made, "none", "read", token="kgs_other")
    for named in {}, headers:
        assert gateway.client.get("/files", params=wrong, headers=named).status_code == 401


# ---- Calls -------------------------------------------------------------------------------------


def test_stat(envd):
    write(envd, f"{envd.folder}/a", b"1234")
    entry = envd.files("Stat", {"path": f"{envd.folder}/a"})["entry"]
    assert entry.pop("modifiedTime").endswith("Z")
    assert entry == {
        "name": "a", "type": "FILE_TYPE_FILE", "path": f"{envd.folder}/a", "size": "4",
        "mode": 0o644, "permissions": "-rw-r--r--", "owner": "user", "group": "user",
    }  # fmt: skip
    folder = envd.files("Stat", {"path": envd.folder})["entry"]
    assert folder["type"] == "FILE_TYPE_DIRECTORY" and folder["permissions"][0] == "d"
    root = envd.files("Stat", {"path": "/"})["entry"]
    assert (root["name"], root["path"], root["owner"]) == ("/", "/", "root")
    home = envd.files("Stat", {"path": "~"})["entry"]
    assert (home["name"], home["path"]) == ("user", "/home/user")
    envd.refused("filesystem.Filesystem/Stat", {"path": f"{envd.folder}/no"}, "not_found")
    envd.refused("filesystem.Filesystem/Stat", {"path": 5}, "invalid_argument")


def test_links(envd):
    write(envd, f"{envd.folder}/file", b"1234")
    envd.files("MakeDir", {"path": f"{envd.folder}/dir"})
    envd.run(
        "ln -s file to-file; ln -s dir to-dir; ln -s none to-none", process={"cwd": envd.folder}
    )
    entries = {it["name"]: it for it in envd.files("ListDir", {"path": envd.folder})["entries"]}
    for name, kind in ("to-file", "FILE"), ("to-dir", "DIRECTORY"), ("to-none", "SYMLINK"):
        entry = entries[name]
        assert entry == envd.files("Stat", {"path": f"{envd.folder}/{name}"})["entry"]
        assert entry["type"] == f"FILE_TYPE_{kind}" and entry["isSymlink"] is True
        assert entry["symlinkTarget"] == f"{envd.folder}/{name[3:]}"
        assert entry["permissions"] == "Lrwxrwxrwx"
    assert "isSymlink" not in entries["file"]


def test_links_on_the_way(envd):
    """What reads follows them; what they lead to is checked like any other path."""
    write(envd, f"{envd.folder}/dir/sub/file", b"1234")
    envd.run(
        "ln -s dir/sub a; ln -s a/file b; ln -s ../dir dir/up; ln -s /proc/self p; ln -s loop loop;"
        " ln -s $PWD/dir /tmp/to-dir",
        process={"cwd": envd.folder},
    )
    for path in "a/file", "b", "dir/up/sub/file", "dir/up/up/sub/x/../file":
        assert read(envd, f"{envd.folder}/{path}") == b"1234"
        entry = envd.files("Stat", {"path": f"{envd.folder}/{path}"})["entry"]
        assert entry["path"].startswith(envd.folder) and entry.get("isSymlink", False) == (
            path == "b"
        )
    assert read(envd, "/tmp/to-dir/sub/file") == b"1234"
    for path in f"{envd.folder}/a", "/tmp/to-dir/sub":
        (entry,) = envd.files("ListDir", {"path": path})["entries"]
        assert entry["path"] == f"{path}/file" and entry["size"] == "4"
    for path in "p", "p/environ", "loop", "loop/x":
        assert read(envd, f"{envd.folder}/{path}", 400)["code"] == 400
    envd.refused("filesystem.Filesystem/ListDir", {"path": f"{envd.folder}/p"}, "invalid_argument")
    read(envd, f"{envd.folder}/a/none", 404)
    # What changes something does not.
    write(envd, f"{envd.folder}/a/new", status=400)
    for method, message in (
        ("Remove", {"path": f"{envd.folder}/a/file"}),
        (
            "Move",
            {"source": f"{envd.folder}/a/file", "destination": f"{envd.folder}/x"},
        ),
    ):
        envd.refused(f"filesystem.Filesystem/{method}", message, "invalid_argument")


def test_make_dir(envd):
    entry = envd.files("MakeDir", {"path": f"{envd.folder}/a/b/c"})["entry"]
    assert entry["path"] == f"{envd.folder}/a/b/c" and entry["type"] == "FILE_TYPE_DIRECTORY"
    write(envd, f"{envd.folder}/file")
    for path in f"{envd.folder}/a/b/c", f"{envd.folder}/file", "/", "~":
        envd.refused("filesystem.Filesystem/MakeDir", {"path": path}, "already_exists")
    envd.refused(
        "filesystem.Filesystem/MakeDir", {"path": f"{envd.folder}/file/x"}, "invalid_argument"
    )


def test_move(envd):
    write(envd, f"{envd.folder}/a", b"1")
    there = f"{envd.folder}/new/b"
    entry = envd.files("Move", {"source": f"{envd.folder}/a", "destination": there})["entry"]
    assert entry["path"] == there and read(envd, there) == b"1"
    read(envd, f"{envd.folder}/a", 404)
    envd.refused(
        "filesystem.Filesystem/Move", {"source": f"{envd.folder}/a", "destination": there},
        "not_found",
    )  # fmt: skip
    envd.refused(
        "filesystem.Filesystem/Move", {"source": there, "destination": "/proc/x"},
        "invalid_argument",
    )  # fmt: skip


def test_remove(envd):
    write(envd, f"{envd.folder}/d/e/f")
    assert envd.files("Remove", {"path": f"{envd.folder}/d"}) == {}
    envd.refused("filesystem.Filesystem/Stat", {"path": f"{envd.folder}/d"}, "not_found")
    assert envd.files("Remove", {"path": f"{envd.folder}/d"}) == {}
    for path in "/", "~", "":
        envd.refused("filesystem.Filesystem/Remove", {"path": path}, "invalid_argument")


def test_list_dir(envd):
    for path in "a", "d/x", "d/e/y", "d/e/g/z", "d.txt":
        write(envd, f"{envd.folder}/{path}")

    def names(path=envd.folder, **more):
        entries = envd.files("ListDir", {"path": path, **more})["entries"]
        assert all(it["path"].rsplit("/", 1)[1] == it["name"] for it in entries)
        return [it["path"].removeprefix(envd.folder + "/") for it in entries]

    one = ["a", "d", "d.txt"]
    assert names() == names(depth=0) == names(depth=1) == names(depth="1") == one
    assert names(depth=2) == ["a", "d", "d/e", "d/x", "d.txt"]
    assert names(depth=9) == ["a", "d", "d/e", "d/e/g", "d/e/g/z", "d/e/y", "d/x", "d.txt"]
    assert names(f"{envd.folder}/d/e") == ["d/e/g", "d/e/y"]
    assert {"etc", "usr"} <= {it["name"] for it in envd.files("ListDir", {"path": "/"})["entries"]}
    method = "filesystem.Filesystem/ListDir"
    envd.refused(method, {"path": f"{envd.folder}/none"}, "not_found")
    envd.refused(method, {"path": f"{envd.folder}/a"}, "invalid_argument")
    envd.refused(method, {"path": envd.folder, "depth": -1}, "invalid_argument")


def test_a_long_list(envd):
    """More than a page of the agent's."""
    envd.run("for i in $(seq 1 1500); do : > f$i; done", process={"cwd": envd.folder})
    entries = envd.files("ListDir", {"path": envd.folder})["entries"]
    assert len({it["name"] for it in entries}) == len(entries) == 1500


# ---- The protocol ------------------------------------------------------------------------------


def test_bad_calls(envd):
    method = "/filesystem.Filesystem/Stat"
    for kind in "application/proto", "application/connect+json", "":
        answer = envd.request("POST", method, {"Content-Type": kind}, content=b"{}")
        assert answer.status_code == 415 and "application/json" in answer.json()["message"]
    json_type = {"Content-Type": "application/json"}
    for body in b"", b"{", b"[]", b"\xff", b'{"path":"a","path":"b"}':
        answer = envd.request("POST", method, json_type, content=body)
        assert answer.status_code == 400 and answer.json()["code"] == "invalid_argument"
    answer = envd.request("POST", method, json_type | {"Content-Encoding": "gzip"}, content=b"{}")
    assert answer.status_code in (415, 501)
    no_sandbox = envd.client.post(
        method, json={}, headers={"X-Access-Token": envd.headers["X-Access-Token"]}
    )
    assert no_sandbox.status_code in (403, 502)
