# SPDX-License-Identifier: Apache-2.0
"""Files that an execution creates or changes: `file` lines before `done`."""

import urllib.parse

from component import cell
from kernelgate import problem, run_until_timeout, wait_for


def names(lines):
    return [line["file"] for line in lines.of("file")]


def test_a_picture_is_a_file_with_a_link(gateway, session, run):
    lines = run(cell("mkdir out", "mkdir out/deep", "png out/deep/chart.png", "print drawn"))
    line = lines.one("file")
    assert lines[-2] is line and lines[-1]["type"] == "done" and lines.text() == "drawn\n"
    assert line["file"] == "out/deep/chart.png" and line["mime"] == "image/png"
    image = gateway.client_for(None).get(line["url"])
    assert image.status_code == 200 and len(image.content) == line["size"]
    assert image.content[:4] == b"\x89PNG"
    assert urllib.parse.urlsplit(line["url"]).path == f"/files/{session}/out/deep/chart.png"


def test_created_changed_and_neither(gateway, session, run):
    url = f"/api/v1/sessions/{session}/files"
    assert names(run(cell("write a 1", "sh echo 1 > 'b ☃'"))) == ["a", "b ☃"]
    assert names(run("result 1")) == []
    assert names(run("append a 2")) == ["a"]
    # Uploads and deletions over HTTP do not count, nor do files that code deletes or only reads.
    assert gateway.client.put(f"{url}/up", content=b"x").status_code == 201
    assert gateway.client.put(f"{url}/large", content=bytes(3 << 20)).status_code == 201
    assert names(run("read up")) == []
    assert gateway.client.delete(f"{url}/up").status_code == 200
    assert names(run("remove a")) == []
    # Its size stays.
    assert names(run("sh printf y | dd of=large conv=notrunc 2>/dev/null")) == ["large"]
    assert names(run("sh mkfifo fifo; ln -s large link; mkdir empty")) == []


def test_however_an_execution_ends(run):
    lines = run(cell("write error x", "error E x"))
    assert lines.status == "error" and names(lines) == ["error"]
    lines = run_until_timeout(
        lambda timeout: run(cell("write late x", "print on", "hang"), timeout=timeout),
        lambda it: it.text(),
    )
    assert lines.status == "timeout" and names(lines) == ["late"]
    lines = run(cell("write dead x", "die 3"))
    assert lines.status == "died" and names(lines) == ["dead"]
    assert lines.done["kernel_restarted"]
    assert names(run("write alive x")) == ["alive"]


def test_what_another_kernel_wrote_just_before(run):
    """A file is the cell's that wrote it, however soon the next cell follows."""
    run("print 1", kernel="script-message")
    assert names(run("write first x")) == ["first"]
    assert names(run("write second x", kernel="script-message")) == ["second"]
    assert names(run("write first y")) == ["first"]
    assert names(run("print 2", kernel="script-message")) == []


def test_at_most_100(run):
    lines = run("sh touch $(seq -f f%03g 0 249)")
    assert names(lines) == [f"f{i:03}" for i in range(100)]
    assert lines.done["more_files"] == 150
    assert "more_files" not in run("result 1").done


def test_in_one_answer(gateway, session):
    body = {"code": cell("write a.csv x", "result 1"), "session_id": session}
    data = gateway.client.post("/api/v1/execute_sync", json=body).json()["data"]
    assert [line["type"] for line in data["outputs"]] == ["result", "file", "done"]
    assert data["outputs"][1]["mime"] == "text/csv; charset=utf-8"


def test_a_session_that_ends_has_no_links(gateway):
    line = gateway.execute("write a x").one("file")
    assert line["file"] == "a" and "url" not in line


def test_html_that_an_execution_wrote(gateway, run):
    """The headers make a browser give the page an opaque origin, and run no script in it."""
    page = "<script>fetch('/api/v1/sessions')</script><h1>hello</h1>"
    url = run(f"write page.html {page}").one("file")["url"]
    got = gateway.client.get(url)
    assert got.text == page and got.headers["content-type"] == "text/html; charset=utf-8"
    policy = got.headers["content-security-policy"].split("; ")
    assert policy[:2] == ["sandbox", "default-src 'none'"] and "frame-ancestors 'none'" in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    # A page with an opaque origin sends `Origin: null`, which is refused.
    refused = gateway.client.get("/api/v1/sessions", headers={"Origin": "null"})
    problem(refused, 403, "forbidden_origin")


def test_a_restarted_gateway_keeps_its_links(start_gateway):
    gateway = start_gateway("--keep-sandboxes")
    session = gateway.create_session(session_id="kept")
    url = gateway.execute("write a x", session_id=session).one("file")["url"]
    gateway.kill()
    gateway.start()
    wait_for(lambda: gateway.client.get(url).text == "x")
    lines = gateway.execute("write b x", session_id=session)
    assert [line["file"] for line in lines.of("file")] == ["b"]
    gateway.delete_session(session)
