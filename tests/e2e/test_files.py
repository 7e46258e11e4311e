# SPDX-License-Identifier: Apache-2.0
"""Files that real code and HTTP share, in real containers: whole ones, hostile ones, and a full disk."""

import hashlib
import os

import pytest
from kernelgate import problem
from session_files import Files

MIB = 1 << 20


@pytest.fixture
def files(gateway, session):
    return Files(gateway, session)


# ---- Whole files


def test_up_down_and_away(files, run):
    created = files.put("data/deep/a.csv", b"x,y\n1,2\n")
    assert created.status_code == 201, created.text
    about = created.json()
    assert about["path"] == "data/deep/a.csv" and about["size"] == 8
    assert about["mime"] == "text/csv; charset=utf-8" and about["url"].startswith("/files/")
    assert run("print(open('data/deep/a.csv').read(), end='')").text() == "x,y\n1,2\n"
    got = files.get("data/deep/a.csv")
    assert got.status_code == 200 and got.content == b"x,y\n1,2\n"
    assert got.headers["content-type"] == "text/csv; charset=utf-8"
    assert got.headers["etag"] == about["etag"] == created.headers["etag"]
    assert got.headers["content-length"] == "8" and "transfer-encoding" not in got.headers
    head = files.head("data/deep/a.csv")
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-length"] == "8" and head.headers["etag"] == about["etag"]
    assert files.names() == ["data", "data/deep", "data/deep/a.csv"]
    again = files.put("data/deep/a.csv", b"")
    assert again.status_code == 200 and again.json()["etag"] != about["etag"]
    assert files.get("data/deep/a.csv").content == b""
    assert files.delete("data").status_code == 200
    assert files.names() == []
    problem(files.delete("data"), 404, "not_found")
    problem(files.get("data/deep/a.csv"), 404, "not_found")


def test_any_name_in_utf8(files, run):
    for name in ["naïve ☃ 你好.txt", "a b+c%20&d=#?.txt", "'\"\\<>|*.txt", "-rf", "…" * 85]:
        assert files.put(name, b"here").status_code == 201
        assert files.get(name).content == b"here"
        assert files.names() == [name]
        assert run(f"print(open({name!r}).read())").text() == "here\n"
        assert files.delete(name).status_code == 200


def test_50_mib_both_ways(files, run):
    content = os.urandom(MIB) * 50
    assert files.put("large.bin", content).status_code == 201
    code = "import hashlib; print(hashlib.sha256(open('large.bin', 'rb').read()).hexdigest())"
    digest = run(code).text().strip()
    assert digest == hashlib.sha256(content).hexdigest()
    assert files.get("large.bin").content == content


# ---- Hostile


@pytest.mark.not_on(
    "runsc", "its kernel makes nodes for anybody, which open nothing: test_runsc.py"
)
def test_what_is_no_file_is_listed_and_not_read(files, run):
    lines = run(
        "import os, socket\n"
        "os.mkfifo('fifo'); os.mkdir('folder'); os.symlink('/etc/passwd', 'link')\n"
        "os.symlink('/', 'root'); os.symlink('missing', 'dangling')\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('socket')\n"
        "for name in ['/etc/passwd', '/run/kg/door.sock']:\n"
        "    try: os.link(name, 'hard')\n"
        "    except OSError as e: print(type(e).__name__)\n"
        "for mode in [0o20666, 0o60666]:\n"
        "    try: os.mknod('device', mode, os.makedev(1, 5))\n"
        "    except OSError as e: print(type(e).__name__)\n"
    )
    assert lines.status == "ok" and len(lines.text().splitlines()) == 4, lines
    types = {file["path"]: file["type"] for file in files.page()["files"]}
    assert types == {
        "dangling": "symlink",
        "fifo": "other",
        "folder": "dir",
        "link": "symlink",
        "root": "symlink",
        "socket": "other",
    }
    for path in [*types, "root/etc/passwd", "link/x", "fifo/x"]:
        problem(files.get(path), 400, "invalid_path")
        assert files.head(path).status_code == 400
    problem(files.put("root/tmp/x", b"x"), 400, "invalid_path")
    problem(files.put("folder", b"x"), 400, "invalid_path")
    # An upload replaces a link, and does not follow it.
    assert files.put("link", b"mine").status_code == 200
    assert files.get("link").content == b"mine"
    assert (
        run("print(os.path.islink('link'), open('/etc/passwd').read(4))").text() == "False root\n"
    )
    for path in ["fifo", "socket", "root", "dangling", "folder", "link"]:
        assert files.delete(path).status_code == 200
    assert run("print(os.path.exists('/etc/passwd'))").text() == "True\n"


def test_a_full_disk(files, run, gateway, session):
    lines = run("open('fill', 'wb').write(bytes(230 * 2**20))", timeout=60)
    assert lines.status == "ok", lines
    problem(files.put("large", bytes(40 * MIB)), 507, "disk_full")
    run("try: open('fill2', 'wb').write(bytes(60 * 2**20))\nexcept OSError as e: print(e)")
    refused = problem(files.put("small", bytes(MIB)), 507, "disk_full")
    assert refused["detail"] == "the session's disk is full (setting disk-mb): cannot write small"
    assert run("print(1)").text() == "1\n"
    assert files.delete("fill").status_code == 200
    assert files.put("large", bytes(40 * MIB)).status_code == 201
    assert "large" in files.names()
