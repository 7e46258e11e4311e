# SPDX-License-Identifier: Apache-2.0
"""Files that the gateway fetches: their names, and addresses that no request may reach."""

import contextlib
import json
import socket
import threading

import httpx
import pytest
from component import cell
from kernelgate import Gateway, problem, wait_for
from web import Web

LIMIT = 100_000


def hang(handler):
    """Sends a head and never the body, until the client leaves."""
    handler.send_response(200)
    handler.send_header("Content-Length", "10")
    handler.end_headers()
    handler.wfile.flush()
    handler.connection.settimeout(300)
    with contextlib.suppress(OSError):
        handler.rfile.read(1)


@pytest.fixture(scope="module")
def web():
    server = Web()
    other = server.url.replace("127.0.0.1", "127.0.0.2")
    server.answers |= {
        "/data/a%20b.csv": (200, {}, b"x,y\n1,2\n"),
        "/data.csv": (200, {}, b"x,y\n1,2\n"),
        "/named": (200, {"Content-Disposition": "inline; filename*=UTF-8''%e2%82%ac.csv"}, b"e"),
        "/evil": (200, {"Content-Disposition": 'attachment; filename="../../etc/passwd"'}, b"p"),
        "/moved": (302, {"Location": "/data.csv"}, b""),
        "/loop": (302, {"Location": "/loop"}, b""),
        "/private": (302, {"Location": f"{other}/data.csv"}, b""),
        "/file": (302, {"Location": "file:///etc/passwd"}, b""),
        "/big": (200, {}, b"b" * (LIMIT + 1)),
        "/full": (200, {}, b"b" * LIMIT),
        "/error": (500, {}, b"oh"),
    }
    yield server
    server.close()


@pytest.fixture(scope="module")
def fetcher(layer_flags):
    flags = ("--fetch-allow", "127.0.0.1", "--max-upload-bytes", str(LIMIT))
    gateway = Gateway(*layer_flags, *flags)
    try:
        yield gateway.start()
    finally:
        gateway.clean_up()


def create(gateway, **fields):
    response = gateway.client.post("/api/v1/sessions", json=fields)
    assert response.status_code == 200, response.text
    return response.json()["data"]


def test_files_are_there_before_the_first_execution(fetcher, web):
    data = create(
        fetcher,
        file_urls=[f"{web.url}{path}" for path in ("/data/a%20b.csv", "/named", "/moved", "/full")],
        files=[{"url": f"{web.url}/data.csv", "id": "mine"}],
    )
    assert data["errors"] == []
    files = {item["url"].removeprefix(web.url): item for item in data["downloaded_files"]}
    assert files["/data/a%20b.csv"]["path"] == "a b.csv" and files["/data/a%20b.csv"]["size"] == 8
    assert files["/named"]["path"] == "€.csv" and files["/named"]["mime"].startswith("text/csv")
    assert files["/moved"]["path"] == "moved" and files["/full"]["size"] == LIMIT
    assert files["/data.csv"]["id"] == "mine"
    code = cell("sh ls", "sh cat 'a b.csv'")
    text = fetcher.execute(code, session_id=data["session_id"]).text()
    assert "\ndata.csv\n" in text and "x,y\n1,2\n" in text
    fetcher.delete_session(data["session_id"])


def test_names_are_made_safe_and_unique(fetcher, web):
    urls = [f"{web.url}{path}" for path in ("/evil", "/data.csv", "/data.csv")]
    data = create(fetcher, file_urls=urls)
    paths = {item["path"] for item in data["downloaded_files"]}
    assert paths == {"passwd", "data.csv", "data-1.csv"}
    # Files can be added to an existing session, too.
    again = create(fetcher, session_id=data["session_id"], file_urls=[f"{web.url}/data.csv"])
    assert [item["path"] for item in again["downloaded_files"]] == ["data-2.csv"]
    fetcher.delete_session(data["session_id"])


def test_what_fails_is_told_and_the_session_lives(fetcher, web):
    wrong = {
        f"{web.url}/big": "upload_too_large",
        f"{web.url}/missing": "not_found",
        f"{web.url}/error": "internal",
        f"{web.url}/loop": "internal",
        f"{web.url}/file": "invalid_request",
        "ftp://127.0.0.1/x": "invalid_request",
        "file:///etc/passwd": "invalid_request",
        "http://127.0.0.1:1/x": "internal",
        "http://": "internal",
    }
    data = create(fetcher, file_urls=[*wrong, f"{web.url}/data.csv"])
    assert {item["url"]: item["code"] for item in data["errors"]} == wrong
    assert all(item["error"] for item in data["errors"])
    assert [item["path"] for item in data["downloaded_files"]] == ["data.csv"]
    assert fetcher.execute("result 1", session_id=data["session_id"]).status == "ok"
    fetcher.delete_session(data["session_id"])


def test_no_redirect_leads_to_where_no_url_may(fetcher, web):
    web.asked.clear()
    data = create(fetcher, file_urls=[f"{web.url}/private"])
    [error] = data["errors"]
    assert error["code"] == "invalid_request" and "127.0.0.2" in error["error"]
    assert web.asked == ["/private"]
    fetcher.delete_session(data["session_id"])


def test_no_url_leads_to_this_machine(gateway, web):
    hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0"]
    hosts += ["[::1]", "[::ffff:127.0.0.1]"]
    urls = [f"http://{host}:{web.port}/data.csv" for host in hosts]
    web.asked.clear()
    data = create(gateway, file_urls=[*urls, "http://169.254.169.254/latest/meta-data/"])
    assert data["downloaded_files"] == [] and len(data["errors"]) == len(urls) + 1
    assert {item["code"] for item in data["errors"]} == {"invalid_request"}
    assert all("not allowed" in item["error"] for item in data["errors"])
    assert web.asked == []
    gateway.delete_session(data["session_id"])


def test_a_client_that_leaves_ends_the_downloads(fetcher, web):
    left = threading.Event()

    def hold(handler):
        hang(handler)
        left.set()

    web.answers["/hang"] = hold
    web.asked.clear()
    body = json.dumps({"session_id": "left", "file_urls": [f"{web.url}/hang"]}).encode()
    port = int(fetcher.url.rsplit(":", 1)[1])
    head = f"POST /api/v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(head.encode() + body)
        wait_for(lambda: web.asked == ["/hang"])
    assert left.wait(60)
    assert fetcher.execute("result 1", session_id="left").status == "ok"
    fetcher.delete_session("left")


def test_one_owner_takes_half_of_the_downloads(start_gateway, tmp_path, web):
    keys = tmp_path / "keys"
    keys.write_text("ann:key-of-ann\nbob:key-of-bob\n")
    gateway = start_gateway("--api-keys-file", str(keys), "--fetch-allow", "127.0.0.1")
    ann, bob = gateway.client_for("key-of-ann"), gateway.client_for("key-of-bob")
    released = threading.Event()

    def hold(handler):
        released.wait(300)
        hang(handler)

    web.answers["/hold"] = hold
    web.asked.clear()

    def ask(number):
        urls = [f"{web.url}/hold"] * 20
        with contextlib.suppress(httpx.ReadTimeout):
            ann.post("/api/v1/sessions", json={"session_id": f"s{number}", "file_urls": urls})

    asking = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    try:
        for thread in asking:
            thread.start()
        wait_for(lambda: web.asked.count("/hold") == 8)
        answer = bob.post("/api/v1/sessions", json={"file_urls": [f"{web.url}/data.csv"]})
        assert answer.json()["data"]["downloaded_files"][0]["path"] == "data.csv"
        assert web.asked.count("/hold") == 8
        for i in range(4):
            ann.delete(f"/api/v1/sessions/s{i}")
    finally:
        released.set()
    for thread in asking:
        thread.join(60)


def test_a_download_that_the_state_folder_cannot_hold(small_folder, start_gateway, web):
    gateway = start_gateway("--fetch-allow", "127.0.0.1", state_dir=small_folder("40m"))
    data = create(gateway, file_urls=[f"{web.url}/data.csv"])  # one may have 50 MiB
    assert [item["code"] for item in data["errors"]] == ["disk_full"]
    assert "set state-dir" in data["errors"][0]["error"]


@pytest.mark.parametrize(
    "fields",
    [
        {"file_urls": "http://x"},
        {"file_urls": [1]},
        {"files": [{"id": "x"}]},
        {"files": ["http://x"]},
        {"files": [{"url": "http://x", "name": "y"}]},
        {"file_urls": ["http://x"] * 21},
        {"file_urls": ["http://x"] * 11, "files": [{"url": "http://x"}] * 10},
    ],
    ids=[
        "no list",
        "no string",
        "no url",
        "no object",
        "unknown field",
        "too many",
        "too many together",
    ],
)
def test_malformed_requests(gateway, fields):
    problem(gateway.client.post("/api/v1/sessions", json=fields), 400, "invalid_request")


def test_a_bad_rule_is_refused_at_the_start(start_gateway):
    with pytest.raises(AssertionError, match="fetch-allow"):
        start_gateway("--fetch-allow", "10.0.0.0/99")
