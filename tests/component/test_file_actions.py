# SPDX-License-Identifier: Apache-2.0
"""Files outside the working folder, and what is done to files and folders as wholes."""

import pytest
from contract import validator
from kernelgate import problem
from session_files import Files


ENTRY = validator({"$ref": "#/components/schemas/FileEntry"})


@pytest.fixture
def files(gateway, session):
    return Files(gateway, session)


@pytest.fixture
def outside(files, session):
    """The path, below the root, of a folder outside the working folder."""
    path = f"tmp/{session}-files"
    assert files.act(path, "mkdir", root="/").status_code == 201
    yield path
    files.delete(path, root="/")


def stat(files, path, **params):
    response = files.client.get(files.url(path), params={"stat": "1", **params})
    assert response.status_code == 200, response.text
    ENTRY.validate(response.json())
    return response.json()


# ---- Anywhere


def test_a_file_outside_of_the_working_folder(files, outside, run):
    path = f"{outside}/deep/a b.txt"
    made = files.put(path, b"here", root="/")
    assert made.status_code == 201, made.text
    assert made.json()["path"] == path
    assert run(f"read /{path}").text() == "here"
    assert files.get(path, root="/").content == b"here"
    problem(files.get(path), 404, "not_found")
    link = files.client.get(made.json()["url"])
    assert link.status_code == 200 and link.content == b"here"
    without = made.json()["url"].replace("root=/&", "")
    problem(files.client.get(without), 404, "not_found")  # with a key: below the working folder
    assert files.put(path, b"new", root="/").status_code == 200
    assert files.names(path=outside, root="/") == [f"{outside}/deep", path]
    assert files.names(path=outside, root="/", after=f"{outside}/deep") == [path]
    assert files.delete(outside, root="/").status_code == 200
    problem(files.get(path, root="/"), 404, "not_found")
    assert files.names() == []


def test_a_link_is_for_one_root(files, outside):
    """Without a key."""
    url = files.put(f"{outside}/a", b"x", root="/").json()["url"]
    files.put(f"{outside}/a", b"other")
    stranger = files.gateway.client_for(None)
    assert stranger.get(url).content == b"x"


def test_the_working_folder_by_its_whole_path(files, run):
    assert files.put("mnt/data/a/b", b"1", root="/").status_code == 201
    assert files.names() == ["a", "a/b"]
    assert files.names(path="mnt/data/a", root="/") == ["mnt/data/a/b"]
    assert files.put("c", b"1", root="/mnt/data").status_code == 201
    # What a client has written is not told as a file of the code's.
    assert not [line for line in run("print x") if line["type"] == "file"]


@pytest.mark.parametrize("path", ["proc/self/environ", "sys/kernel", "run/kg/door", "run/kg-agent"])
def test_what_is_not_the_tenants(files, path):
    for response in [
        files.get(path, root="/"),
        files.client.get(files.url(path), params={"root": "/", "stat": "1"}),
        files.put(path, b"", root="/"),
        files.delete(path, root="/"),
        files.act(path, "chmod", root="/", mode="777"),
        files.act("tmp/x", "copy", root="/", to=path),
        files.act(path, "copy", root="/", to="tmp/x"),
        files.client.get(files.base, params={"root": "/", "path": path}),
    ]:
        assert "cannot be used" in problem(response, 400, "invalid_path")["detail"]


def test_listings_leave_out_what_is_not_the_tenants(files):
    names = files.names(root="/", recursive="0")
    assert {"mnt", "tmp", "usr"} <= set(names) and not {"proc", "sys"} & set(names)
    assert all("/" not in name for name in names)


def test_paths_without_a_root_stay_relative(files):
    for target in "//tmp/x", "/%2Ftmp/x":
        status, body = files.raw("PUT", files.base + target, b"x")
        assert status == 400 and b"invalid_path" in body
    problem(files.get("a", root="/etc"), 400, "invalid_request")
    status, body = files.raw("PUT", files.base + "/../../tmp/x?root=/", b"x")
    assert status in (400, 404)
    status, body = files.raw("PUT", files.base + "/a%2f..%2fx?root=/", b"x")
    assert status == 400 and b"invalid_path" in body


def test_no_link_is_followed(files, outside, run):
    run(f"sh ln -s /etc /{outside}/link")
    problem(files.get(f"{outside}/link/hostname", root="/"), 400, "invalid_path")
    problem(files.put(f"{outside}/link/x", b"", root="/"), 400, "invalid_path")
    entry = stat(files, f"{outside}/link", root="/")
    assert entry["type"] == "symlink" and entry["target"] == "/etc"


def test_what_the_tenant_may_not_write(files):
    detail = problem(files.put("usr/x", b"", root="/"), 400, "invalid_path")["detail"]
    assert "cannot write usr/x" in detail


# ---- One entry


def test_stat(files, run):
    files.put("data/a.csv", b"x,y\n")
    run("sh ln -s a.csv data/link; mkfifo data/pipe; chmod 640 data/a.csv")
    entry = stat(files, "data/a.csv")
    assert entry.pop("mtime").endswith("Z")
    owner = {"uid": entry["uid"], "gid": entry["gid"]}
    assert entry == {
        "name": "a.csv", "path": "data/a.csv", "type": "file", "size": 4, "mode": 0o640,
        "permissions": "rw-r-----", "mime": "text/csv; charset=utf-8", **owner,
    }  # fmt: skip
    assert owner["uid"] > 0
    assert stat(files, "data")["type"] == "dir"
    assert stat(files, "data/link")["target"] == "a.csv"
    assert stat(files, "data/pipe")["type"] == "other"
    assert stat(files, "")["name"] == ""
    assert stat(files, "", root="/")["type"] == "dir"
    problem(files.client.get(files.url("none"), params={"stat": "1"}), 404, "not_found")
    problem(files.client.get(files.url("data"), params={"stat": "yes"}), 400, "invalid_request")


def test_details_of_a_listing(files):
    files.put("a/b", b"123")
    plain = files.page()["files"]
    assert all("mode" not in file for file in plain)
    folder, file = files.page(details="1")["files"]
    assert file["permissions"] == "rw-r--r--" and folder["mode"] == 0o755
    assert file["uid"] == stat(files, "a/b")["uid"]
    assert files.names(recursive="0") == ["a"]
    assert files.names(recursive="0", path="a") == ["a/b"]
    problem(files.client.get(files.base, params={"details": "x"}), 400, "invalid_request")


# ---- Actions


def test_mkdir(files):
    made = files.act("a/b/c", "mkdir")
    assert made.status_code == 201 and made.json()["type"] == "dir"
    problem(files.act("a/b/c", "mkdir"), 409, "file_exists")
    files.put("file", b"")
    problem(files.act("file", "mkdir"), 409, "file_exists")
    problem(files.act("file/x", "mkdir"), 400, "invalid_path")


def test_move(files):
    files.put("a/one", b"1")
    files.put("two", b"2")
    problem(files.act("a/one", "move", to="two"), 409, "file_exists")
    moved = files.act("a/one", "move", to="two", overwrite=True)
    assert moved.status_code == 200 and moved.json()["path"] == "two"
    assert files.get("two").content == b"1"
    assert files.act("a", "move", to="b/c").status_code == 200
    assert files.names() == ["b", "b/c", "two"]
    problem(files.act("none", "move", to="x"), 404, "not_found")
    problem(files.act("b", "move", to="b/c/d"), 400, "invalid_path")


def test_move_to_another_file_system(files, outside):
    """Between the working folder and /tmp rename() cannot do it."""
    files.put("a/b/file", b"1")
    moved = files.act("mnt/data/a", "move", root="/", to=f"{outside}/a")
    assert moved.status_code == 200, moved.text
    assert files.names() == []
    assert files.get(f"{outside}/a/b/file", root="/").content == b"1"
    problem(files.act("usr/bin/env", "move", root="/", to=f"{outside}/env"), 400, "invalid_path")
    problem(files.get(f"{outside}/env", root="/"), 404, "not_found")


def test_the_second_name_of_the_working_folder(files, outside, run):
    """/home/user is /mnt/data, also where Linux would not rename a file from one to the other."""
    assert files.put("home/user/a/one", b"1", root="/").status_code == 201
    assert files.names() == ["a", "a/one"]
    assert files.names(path="home/user/a", root="/") == ["home/user/a/one"]
    assert run("read /home/user/a/one").text() == "1"
    inode = "sh stat -c %i /mnt/data/b"
    assert files.act("home/user/a/one", "move", root="/", to="mnt/data/b").status_code == 200
    before = run(inode).text()
    assert files.act("mnt/data/b", "move", root="/", to="home/user/c").status_code == 200
    assert run(inode.replace("/b", "/c")).text() == before  # renamed, not copied
    # A file that replaces itself is there afterwards.
    same = files.act("mnt/data/c", "move", root="/", to="home/user/c", overwrite=True)
    assert same.status_code == 200, same.text
    assert files.get("c").content == b"1"
    same = files.act("mnt/data/c", "copy", root="/", to="home/user/c", overwrite=True)
    assert same.status_code == 200, same.text
    assert files.get("home/user/c", root="/").content == b"1"
    problem(files.act("mnt/data/a", "move", root="/", to="home/user/a/b"), 400, "invalid_path")
    assert files.act("home/user/c", "move", root="/", to=f"{outside}/c").status_code == 200
    assert files.names() == ["a"]


def test_copy(files, outside):
    files.put("a/b", b"1")
    assert files.act("a", "copy", to="c/d").status_code == 200
    assert files.names() == ["a", "a/b", "c", "c/d", "c/d/b"]
    problem(files.act("a", "copy", to="c/d"), 409, "file_exists")
    assert files.act("mnt/data/a", "copy", root="/", to=f"{outside}/a").status_code == 200
    assert files.get(f"{outside}/a/b", root="/").content == b"1"


def test_copies_do_not_enter_the_kernels_folders(files, outside):
    copied = files.act("proc", "copy", root="/", to=f"{outside}/p")
    problem(copied, 400, "invalid_path")


def test_chmod(files, run):
    files.put("run.sh", b"#!/bin/sh\necho ran\n")
    for mode in "755", "0755", 0o755:
        changed = files.act("run.sh", "chmod", mode=mode)
        assert changed.status_code == 200 and changed.json()["permissions"] == "rwxr-xr-x"
    assert run("sh ./run.sh").text() == "ran\n"
    run("sh ln -s run.sh link")
    problem(files.act("link", "chmod", mode="600"), 400, "invalid_path")
    for mode in "4755", "8", "rwx", 0o1000, -1, None, 1.5, "07777":
        problem(files.act("run.sh", "chmod", mode=mode), 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"action": "delete"}, {"action": 1}, {"action": "mkdir", "to": "x"},
        {"action": "move"}, {"action": "copy", "to": 1}, {"action": "chmod", "overwrite": True},
        {"action": "move", "to": "x", "mode": 1}, {"action": "move", "to": "x", "more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_actions_are_checked(files, body):
    files.put("a", b"")
    problem(files.client.post(files.url("a"), json=body), 400, "invalid_request")


def test_targets_are_checked(files):
    files.put("a", b"")
    for to in "", "/x", "../x", "x//y", ".kg-x", "x\ny":
        problem(files.act("a", "move", to=to), 400, "invalid_path")
