# SPDX-License-Identifier: Apache-2.0
"""Several files in one request: multipart/form-data, and what is not."""

import os
import subprocess

import pytest
from kernelgate import problem, wait_for
from session_files import Files

MIB = 1 << 20


@pytest.fixture
def files(gateway, session):
    return Files(gateway, session)


def body(*parts, boundary="b"):
    """Parts are (headers, data)."""
    begun = "".join(f"--{boundary}\r\n{head}\r\n\r\n{data}\r\n" for head, data in parts)
    return f"{begun}--{boundary}--\r\n".encode()


def disposition(more):
    return f'Content-Disposition: form-data; name="f"{more}'


def send(files, content, kind="multipart/form-data; boundary=b", **params):
    headers = {"Content-Type": kind} if kind else {}
    return files.client.post(files.base, content=content, headers=headers, params=params)


def upload(files, *named, **params):
    parts = [("file", (name, data)) for name, data in named]
    return files.client.post(files.base, files=parts, params=params)


def test_several(files, run):
    made = upload(files, ("a.txt", b"1"), ("d/e/ü b.bin", bytes(range(256))), ("empty", b""))
    assert made.status_code == 201, made.text
    written = made.json()["files"]
    assert [file["path"] for file in written] == ["a.txt", "d/e/ü b.bin", "empty"]
    assert [file["size"] for file in written] == [1, 256, 0]
    assert files.get("d/e/ü b.bin").content == bytes(range(256))
    assert files.client.get(written[0]["url"]).content == b"1"
    assert run("read a.txt").text() == "1"
    assert upload(files, ("a.txt", b"2")).status_code == 200


def test_anywhere(files, session):
    made = upload(files, (f"tmp/{session}-up", b"x"), root="/")
    assert made.json()["files"][0]["path"] == f"tmp/{session}-up"
    assert files.get(f"tmp/{session}-up", root="/").content == b"x"
    assert files.delete(f"tmp/{session}-up", root="/").status_code == 200
    problem(upload(files, ("run/kg/x", b""), root="/"), 400, "invalid_path")


def test_overwrite_0(files):
    files.put("b", b"old")
    refused = upload(files, ("a", b"1"), ("b", b"2"), overwrite="0")
    assert problem(refused, 409, "file_exists")["detail"].startswith("file 2 of 2: b exists")
    assert files.get("a").content == b"1" and files.get("b").content == b"old"


def test_large(files, gateway):
    content = os.urandom(MIB) * 20
    made = upload(files, ("one", content), ("two", content))
    assert made.status_code == 201 and files.get("two").content == content
    problem(upload(files, ("three", content * 3)), 413, "upload_too_large")


def test_a_client_that_leaves(files):
    """While the body is read, and while the files are written."""
    content = os.urandom(MIB) * 10
    for timeout in "0.05", "0.2":
        subprocess.run(
            [
                "curl",
                "-s",
                "-m",
                timeout,
                "-F",
                "f=@-;filename=gone",
                files.gateway.url + files.base,
            ],
            input=content,
            check=False,
        )
    wait_for(lambda: not [name for name in files.names() if name != "gone"])


def test_curl(files, tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    url = files.gateway.url + files.base
    told = subprocess.run(
        ["curl", "-sS", "-F", f"f=@{tmp_path}/a", "-F", f'f=@{tmp_path}/a;filename=d/"q".txt', url],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert files.names() in (["a", "d", 'd/"q".txt'], ["a", "d", "d/%22q%22.txt"]), told.stdout


def test_every_name_is_checked_first(files):
    for name in "../x", "/x", "a//b", ".kg-x", "n" * 256:
        parts = (disposition('; filename="ok"'), "1"), (disposition(f'; filename="{name}"'), "2")
        detail = problem(send(files, body(*parts)), 400, "invalid_path")["detail"]
        assert detail.startswith("file 2 of 2: ")
    assert files.names() == []


@pytest.mark.parametrize(
    "kind",
    [
        None, "application/json", "multipart/form-data", "multipart/form-data; boundary=",
        "multipart/form-data; boundary=a; boundary=b", 'multipart/form-data; boundary="b',
        "multipart/form-data boundary=b", f"multipart/form-data; boundary={'b' * 71}",
        'multipart/form-data; boundary="b "', "multipart/form-data; boundary=b$",
        "multipart/form-dataset; boundary=b", "multipart/mixed; boundary=b",
    ],
    ids=str,
)  # fmt: skip
def test_kinds_that_are_refused(files, kind):
    content = body((disposition('; filename="a"'), "1"))
    problem(send(files, content, kind), 400, "invalid_request")
    assert files.names() == []


@pytest.mark.parametrize(
    "content",
    [
        b"", b"--b", b"--b--", b"--b\r\n", b"x" + body((disposition('; filename="a"'), "1")),
        b"\r\n" + body((disposition('; filename="a"'), "1")),
        body((disposition('; filename="a"'), "1")) + b"x",
        body((disposition('; filename="a"'), "1"))[:-4],
        body((disposition(""), "a field")),
        body((disposition('; filename=""'), "")),
        body((disposition('; filename="a'), "")),
        body((disposition('; filename="a"; filename="b"'), "")),
        body((disposition("; filename*=UTF-8''a"), "")),
        body((disposition('; filename="a" b'), "")),
        body(("Content-Disposition: attachment; filename=a", "")),
        body(("Content-Type: text/plain", "")),
        body((disposition('; filename="a"') + "\r\n folded: x", "")),
        body((disposition('; filename="a"') + "\nX: y", "")),
        body((disposition('; filename="a"') + "\r\n" + "X: y\r\n" * 2000, "")),
        body((disposition('; filename="a"'), "1\r\n--bc\r\nmore")),
        body((disposition('; filename="a"'), "1")).replace(b'"a"', b'"\xff"'),
        body((disposition('; filename="a"'), "1")).replace(b'"a"', b'"a\0"'),
        body(*[(disposition(f'; filename="{i}"'), "") for i in range(101)]),
    ],
    ids=range(23),
)  # fmt: skip
def test_bodies_that_are_refused(files, content):
    problem(send(files, content), 400, "invalid_request")
    assert files.names() == []


def test_a_boundary_in_the_bytes(files):
    content = body((disposition('; filename="a"'), "--b\r\n--x--\r\n\r\n"))
    assert send(files, content).status_code == 201
    assert files.get("a").content == b"--b\r\n--x--\r\n\r\n"
