# SPDX-License-Identifier: Apache-2.0
"""Files of a session over HTTP: whole, in parts, hostile ones, and while the kernel is busy."""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import urllib.parse

import pytest
from component import HELD, cell
from kernelgate import problem, wait_for
from sandboxes import sandbox_of
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
    assert run("read data/deep/a.csv").text() == "x,y\n1,2\n"
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
    assert "nixé 日.txt" in problem(files.get("nixé 日.txt"), 404, "not_found")["detail"]


def test_overwrite_0_keeps_what_is_there(files):
    assert files.put("a", b"1", overwrite="0").status_code == 201
    problem(files.put("a", b"2", overwrite="0"), 409, "file_exists")
    problem(files.put("big", b"2", overwrite="perhaps"), 400, "invalid_request")
    assert files.put("big", b"2" * (3 * MIB), overwrite="0").status_code == 201
    problem(files.put("big", b"3" * (3 * MIB), overwrite="0"), 409, "file_exists")
    assert files.get("a").content == b"1" and files.get("big").content[:1] == b"2"


def test_times_that_no_date_can_say(files, run):
    run(cell("sh touch -d @1099511627776 late", "sh touch -d @-9 early"))
    assert files.get("late").headers["last-modified"] == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert files.head("early").headers["last-modified"] == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert [file["mtime"][:4] for file in files.page()["files"]] == ["1970", "9999"]


def test_any_name_in_utf8(files, run):
    for name in ["naïve ☃ 你好.txt", "a b+c%20&d=#?.txt", "'\"\\<>|*.txt", "-rf", "…" * 85]:
        assert files.put(name, b"here").status_code == 201
        assert files.get(name).content == b"here"
        assert files.names() == [name]
        assert run(f"read {name}").text() == "here"
        assert files.delete(name).status_code == 200


def test_50_mib_both_ways(files, run):
    content = os.urandom(MIB) * 50
    assert files.put("large.bin", content).status_code == 201
    digest = run("sh sha256sum large.bin").text().split()[0]
    assert digest == hashlib.sha256(content).hexdigest()
    got = files.get("large.bin")
    assert got.content == content
    problem(files.put("larger.bin", content + b"x"), 413, "upload_too_large")
    run(f"sh truncate -s {50 * MIB + 1} larger.bin")
    problem(files.get("larger.bin"), 413, "artifact_too_large")
    assert files.get("larger.bin", Range="bytes=0-9").content == bytes(10)
    assert files.names() == ["large.bin", "larger.bin"]


def test_curl_sees_the_413(files, tmp_path):
    too_large = tmp_path / "too-large"
    with too_large.open("wb") as file:
        file.truncate(60 * MIB)
    for more in ([], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]):
        result = subprocess.run(
            ["curl", "-sS", "-T", too_large, "-w", "\n%{http_code}", *more]
            + [files.gateway.url + files.url("x")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.stdout.endswith("\n413"), (more, result)
        assert "upload_too_large" in result.stdout, (more, result)
    ok = subprocess.run(
        [
            "curl",
            "-sS",
            "-T",
            "-",
            "-w",
            "\n%{http_code}",
            files.gateway.url + files.url("chunked"),
        ],
        input=b"y" * (2 * MIB),
        capture_output=True,
        timeout=60,
    )
    assert ok.stdout.endswith(b"\n201"), ok
    assert files.get("chunked").content == b"y" * (2 * MIB)
    assert files.names() == ["chunked"]


# ---- Parts


def test_ranges(files):
    files.put("digits", b"0123456789")
    for header, expected, range_ in [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
    ]:
        got = files.get("digits", Range=header)
        assert got.status_code == 206, header
        assert (got.content, got.headers["content-range"]) == (expected, range_)
    for header in ["bytes=10-", "bytes=-0", "bytes=99-100"]:
        got = files.get("digits", Range=header)
        assert got.status_code == 416 and got.headers["content-range"] == "bytes */10", header
    for header in ["bytes=5-2", "lines=1-2", "bytes=1-2,4-5", "bytes=a-b", "bytes=-", "bytes"]:
        got = files.get("digits", Range=header)
        assert got.status_code == 200 and got.content == b"0123456789", header


def test_conditions(files):
    etag = files.put("a", b"0123").headers["etag"]
    for known in [etag, f"W/{etag}", f'"other", {etag}', "*"]:
        got = files.get("a", If_None_Match=known)
        assert got.status_code == 304 and got.content == b"" and got.headers["etag"] == etag
    assert files.get("a", If_None_Match='"other"').status_code == 200
    assert files.get("a", Range="bytes=1-1", If_Range=etag).content == b"1"
    assert files.get("a", Range="bytes=1-1", If_Range='"other"').content == b"0123"
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    assert files.get("a", Range="bytes=1-1", If_Range=date).content == b"0123"
    files.put("a", b"4567")
    assert files.get("a", If_None_Match=etag).status_code == 200


# ---- Listing


def test_pages_of_10000_small_files(files, run):
    run(
        "sh for d in 0 1 2 3 4 5 6 7 8 9; do mkdir d0$d;"
        " seq -f d0$d/%04g 0 999 | xargs touch; done",
        timeout=600,
    )
    names, after = [], None
    while True:
        page = files.page(**({"after": after} if after else {}))
        assert len(page["files"]) <= 1000
        names += [file["path"] for file in page["files"]]
        after = page.get("next")
        if not after:
            break
    expected = [f"d{d:02}" for d in range(10)]
    expected += [f"d{d:02}/{i:04}" for d in range(10) for i in range(1000)]
    assert names == sorted(expected)
    assert files.names(path="d03", limit=2, after="d03/0004") == ["d03/0005", "d03/0006"]
    problem(files.client.get(files.base, params={"limit": "0"}), 400, "invalid_request")
    assert run("print 1").text() == "1\n"


# ---- Hostile


BAD_PATHS = [
    "../x",
    "a/../../x",
    "..%2Fx",
    "%2e%2e/x",
    "a/%2e%2e%2f%2e%2e%2fx",
    "/etc/passwd",
    "%2Fetc/passwd",
    "",
    ".",
    "a//b",
    "a/",
    "a/./b",
    ".kg-upload-x",
    "n" * 256,
    "a/" * 600 + "a",
]


def test_bad_paths(files):
    for method in ["GET", "PUT", "DELETE"]:
        for path in BAD_PATHS:
            body = b"x" if method == "PUT" else None
            status, content = files.raw(method, f"{files.base}/{path}", body)
            assert status == 400 and b'"invalid_path"' in content, (method, path, status, content)
    assert files.names() == []


def test_nul_and_bad_utf8_and_control_characters(files, run):
    for path in ["a%00b", "%ff", "a%"]:
        assert files.raw("GET", f"{files.base}/{path}")[0] == 400
    for path in ["a%0Ab", "a%7F", "tab%09", "%C2%85"]:
        status, content = files.raw("PUT", f"{files.base}/{path}", b"x")
        assert status == 400 and b'"invalid_path"' in content
    # Files with such names that code creates can be listed, read and deleted.
    run(r'''sh printf odd > "$(printf "a\nb")"''')
    assert files.names() == ["a\nb"]
    assert files.get("a\nb").content == b"odd"
    assert files.delete("a\nb").status_code == 200


def test_a_file_that_grows_or_shrinks_while_it_is_read(gateway, files, run):
    run(f"file-size f {20 * MIB}")
    with files.client.stream("GET", files.url("f")) as response:
        chunks = response.iter_raw(65536)
        size = len(next(chunks))
        run("sh head -c 20M /dev/zero >> f")
        size += sum(len(chunk) for chunk in chunks)
    assert size == int(response.headers["content-length"]) == 20 * MIB
    # A slow reader: most is still to be read when the file shrinks.
    url = urllib.parse.urlsplit(gateway.url)
    with socket.create_connection((url.hostname, url.port), timeout=30) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(f"GET {files.url('f')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        got = len(client.recv(1000))
        run("sh truncate -s 1000 f")
        while data := client.recv(1 << 20):
            got += len(data)
    assert got < 40 * MIB
    assert run("print 1").text() == "1\n"


def test_slow_readers_keep_nobody_from_reading(gateway, files, run):
    run(f"sh truncate -s {50 * MIB} f")
    url = urllib.parse.urlsplit(gateway.url)
    readers = []
    for _ in range(10):
        client = socket.create_connection((url.hostname, url.port), timeout=30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(f"GET {files.url('f')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        client.recv(1000)
        readers.append(client)
    assert files.get("f", Range="bytes=0-0").content == b"\0"
    for client in readers:
        client.close()


def test_an_upload_whose_client_dies_leaves_nothing(gateway, files, run):
    url = urllib.parse.urlsplit(gateway.url)
    for sent in [10, 3 * MIB]:
        client = socket.create_connection((url.hostname, url.port), timeout=30)
        head = f"PUT {files.url('half')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {4 * MIB}"
        client.sendall(head.encode() + b"\r\n\r\n" + b"x" * sent)
        client.close()
    assert files.put("whole", b"y" * (4 * MIB)).status_code == 201
    assert files.names() == ["whole"]
    # The gateway may notice that clients have left after it has served later requests.
    wait_for(lambda: run("sh find . -name '.kg-upload*'").text() == "")


def test_an_upload_goes_on_as_it_comes(gateway, files, run):
    """The sandbox gets it while the client sends, so the gateway holds little of it."""
    content = os.urandom(16 * MIB)
    host = urllib.parse.urlsplit(gateway.url)
    connection = http.client.HTTPConnection(host.hostname, host.port, timeout=30)
    connection.putrequest("PUT", files.url("piece by piece"))
    connection.putheader("Content-Length", str(len(content)))
    connection.endheaders(content[: 10 * MIB])
    script = "sh find . -name '.kg-upload*' -size +9000k"
    wait_for(lambda: run(script).text() != "")
    assert gateway.budget_held("http_body_bytes") < MIB
    connection.send(content[10 * MIB :])
    response = connection.getresponse()
    assert response.status == 201 and json.loads(response.read())["size"] == len(content)
    connection.request("GET", files.url("piece by piece"))
    assert connection.getresponse().read() == content


def test_an_upload_that_cannot_be_written(gateway, files):
    """The answer comes before the end of the body, and the rest of it is no request."""
    assert files.put("taken", b"1").status_code == 201
    host = urllib.parse.urlsplit(gateway.url)
    for path, status in [("taken/below", 400), ("taken?overwrite=0", 409)]:
        connection = socket.create_connection((host.hostname, host.port), timeout=30)
        url = files.url("x").removesuffix("x") + path
        head = f"PUT {url} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {8 * MIB}\r\n\r\n"
        connection.sendall(head.encode() + bytes(MIB))
        answer = b""
        while data := connection.recv(65536):
            answer += data
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert b"\r\nConnection: close\r\n" in answer and answer.count(b"HTTP/1.1") == 1
        connection.close()
    assert files.get("taken").content == b"1"


def test_uploads_that_stop(gateway, files):
    """Sixteen uploads of 45 MiB that stop before their end take no memory, and hold nobody up."""
    url = urllib.parse.urlsplit(gateway.url)
    head = f"PUT {files.url('u')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {45 * MIB}\r\n\r\n"
    clients = [socket.create_connection((url.hostname, url.port), timeout=30) for _ in range(16)]
    for client in clients:
        client.sendall(head.encode() + bytes(MIB))
    assert gateway.budget_held("http_body_bytes") < 4 * MIB
    assert files.put("after", b"z" * (20 * MIB)).status_code == 201
    for client in clients:
        client.close()


# ---- Beside the kernel


def test_while_the_kernel_is_busy(gateway, session):
    files = Files(gateway, session)
    files.put("a", b"x" * 1000)
    with gateway.stream(cell("deaf", HELD), session_id=session) as reader:
        reader.next_of("stdout")
        assert files.put("b", b"y" * 1000).status_code == 201
        assert files.get("a").content == b"x" * 1000
        assert files.names() == ["a", "b"]
        assert files.delete("b").status_code == 200
        assert gateway.show_session(session)["is_busy"]


def test_files_renew_the_expiry_and_belong_to_their_owner(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:key-of-ann\nbob:key-of-bob\n")
    gateway = start_gateway("--api-keys-file", str(keys), "--idle-timeout", "3")
    ann, bob = gateway.client_for("key-of-ann"), gateway.client_for("key-of-bob")
    session = gateway.create_session(client=ann, session_id="shared-name")
    files = Files(gateway, session)
    files.client = ann
    url = files.put("page.html", b"<h1>hi</h1>").json()["url"]
    files.client = bob
    problem(files.get("page.html"), 404, "session_not_found")
    problem(files.put("page.html", b""), 404, "session_not_found")
    assert_links(gateway, ann, bob, url)
    files.client = ann
    idle = gateway.create_session(client=ann)

    def another_has_ended():
        assert files.get("page.html").status_code == 200
        return ann.get(f"/api/v1/sessions/{idle}").status_code == 404

    wait_for(another_has_ended)
    # Each request renews the expiry.
    wait_for(lambda: ann.get(url).status_code in (403, 404), timeout=60, interval=4)


def assert_links(gateway, ann, bob, url):
    nobody = gateway.client_for(None)
    got = nobody.get(url)
    assert got.status_code == 200 and got.content == b"<h1>hi</h1>"
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    policy = got.headers["content-security-policy"].split("; ")
    assert policy[:2] == ["sandbox", "default-src 'none'"] and "frame-ancestors 'none'" in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["content-disposition"] == "inline"
    assert got.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in got.headers
    plain, query = url.split("?")
    assert bob.get(url).status_code == 200
    assert ann.get(plain).status_code == 200
    problem(nobody.get(plain), 403, "forbidden_link")
    problem(bob.get(plain), 404, "session_not_found")
    values = dict(urllib.parse.parse_qsl(query))
    for change in [
        {"owner": "bob"},
        {"expires": str(int(values["expires"]) + 1)},
        {"expires": "0"},
        {"signature": "0" * len(values["signature"])},
        {"signature": values["signature"][:-1]},
        {"signature": ""},
    ]:
        problem(nobody.get(plain, params={**values, **change}), 403, "forbidden_link")
    problem(nobody.get(url.replace("page.html", "other.html")), 403, "forbidden_link")
    assert nobody.get(f"/api/v1/sessions/shared-name?{query}").status_code == 401


def test_a_link_ends_with_its_session(start_gateway):
    key = "key-of-somebody"
    gateway = start_gateway("--api-key", key, key=key)

    def make(content):
        gateway.create_session(session_id="name")
        return Files(gateway, "name").put("a.txt", content).json()["url"]

    old = make(b"old")
    assert gateway.client_for(None).get(old).content == b"old"
    gateway.kill()
    gateway.start()  # the session is found again, and so is what the link is bound to
    nobody = gateway.client_for(None)
    wait_for(lambda: nobody.get(old).content == b"old")
    gateway.delete_session("name")
    problem(nobody.get(old), 403, "forbidden_link")
    new = make(b"new")
    problem(nobody.get(old), 403, "forbidden_link")
    assert nobody.get(new).content == b"new"


# ---- Eviction


def test_eviction_does_not_end_a_download(start_gateway):
    gateway = start_gateway("--max-sessions", "1", "--evict", "idle")
    gateway.create_session(session_id="a")
    files = Files(gateway, "a")
    content = os.urandom(40 * MIB)
    assert files.put("large.bin", content).status_code == 201
    with gateway.client.stream("GET", files.url("large.bin")) as response:
        pieces = response.iter_raw(MIB)
        received = [next(pieces)]  # the rest does not fit into what lies between us and the agent
        refused = gateway.client.post("/api/v1/sessions", json={"session_id": "b"})
        problem(refused, 429, "max_sessions")
        received.extend(pieces)
    assert b"".join(received) == content
    wait_for(
        lambda: gateway.client.post("/api/v1/sessions", json={"session_id": "b"}).status_code == 200
    )
    assert gateway.client.get("/api/v1/sessions/a").status_code == 404


def test_eviction_does_not_end_an_upload(start_gateway):
    gateway = start_gateway("--max-sessions", "1", "--evict", "idle")

    def last_activity():
        [session] = gateway.client.get("/api/v1/sessions").json()["sessions"].values()
        return session["last_activity"]

    gateway.create_session(session_id="a")
    files = Files(gateway, "a")
    agent = sandbox_of(gateway, "a").agent
    before = last_activity()
    answers = []
    os.kill(agent, signal.SIGSTOP)
    try:
        uploading = threading.Thread(
            target=lambda: answers.append(files.put("large.bin", b"x" * 8 * MIB))
        )
        uploading.start()
        wait_for(lambda: last_activity() > before)
        refused = gateway.client.post("/api/v1/sessions", json={"session_id": "b"})
        problem(refused, 429, "max_sessions")
    finally:
        os.kill(agent, signal.SIGCONT)
    uploading.join()
    assert answers[0].status_code == 201, answers[0].text
