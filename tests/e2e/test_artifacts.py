# SPDX-License-Identifier: Apache-2.0
"""Files that an execution creates or changes: `file` lines before `done`."""

import urllib.parse

from kernelgate import problem, run_until_timeout, wait_for


def names(lines):
    return [line["file"] for line in lines.of("file")]


def test_a_chart_is_a_file_with_a_link(gateway, session, run):
    lines = run(
        "import matplotlib; matplotlib.use('Agg')\n"
        "import matplotlib.pyplot as plt, os\n"
        "plt.plot([1, 2]); os.makedirs('out/deep', exist_ok=True)\n"
        "plt.savefig('out/deep/chart.png'); print('drawn')",
        timeout=60,
    )
    line = lines.one("file")
    assert lines[-2] is line and lines[-1]["type"] == "done" and lines.text() == "drawn\n"
    assert line["file"] == "out/deep/chart.png" and line["mime"] == "image/png"
    image = gateway.client_for(None).get(line["url"])
    assert image.status_code == 200 and len(image.content) == line["size"]
    assert image.content[:4] == b"\x89PNG"
    assert urllib.parse.urlsplit(line["url"]).path == f"/files/{session}/out/deep/chart.png"


def test_created_changed_and_neither(gateway, session, run):
    url = f"/api/v1/sessions/{session}/files"
    assert names(run("open('a', 'w').write('1'); open('b ☃', 'w').write('1')")) == ["a", "b ☃"]
    assert names(run("1")) == []
    assert names(run("open('a', 'a').write('2')")) == ["a"]
    # Uploads and deletions over HTTP do not count, nor do files that code deletes or only reads.
    assert gateway.client.put(f"{url}/up", content=b"x").status_code == 201
    assert gateway.client.put(f"{url}/large", content=bytes(3 << 20)).status_code == 201
    assert names(run("open('up').read()")) == []
    assert gateway.client.delete(f"{url}/up").status_code == 200
    assert names(run("import os; os.remove('a')")) == []
    assert names(run("open('large', 'r+b').write(b'y')")) == ["large"]
    assert names(run("os.mkfifo('fifo'); os.symlink('large', 'link'); os.mkdir('empty')")) == []


def test_however_an_execution_ends(run):
    lines = run("open('error', 'w').close(); 1 / 0")
    assert lines.status == "error" and names(lines) == ["error"]
    code = "open('late', 'w').close(); print('on', flush=True)\nwhile True: pass"
    lines = run_until_timeout(lambda timeout: run(code, timeout=timeout), lambda it: it.text())
    assert lines.status == "timeout" and names(lines) == ["late"]
    lines = run("open('dead', 'w').close(); import os; os._exit(3)")
    assert lines.status == "died" and names(lines) == ["dead"]
    assert lines.done["kernel_restarted"]
    assert names(run("open('alive', 'w').close()")) == ["alive"]


def test_at_most_100(run):
    lines = run("for i in range(250): open(f'f{i:03}', 'w').close()")
    assert names(lines) == [f"f{i:03}" for i in range(100)]
    assert lines.done["more_files"] == 150
    assert "more_files" not in run("1").done


def test_in_one_answer(gateway, session):
    body = {"code": "open('a.csv', 'w').write('x')", "session_id": session}
    data = gateway.client.post("/api/v1/execute_sync", json=body).json()["data"]
    assert [line["type"] for line in data["outputs"]] == ["result", "file", "done"]
    assert data["outputs"][1]["mime"] == "text/csv; charset=utf-8"


def test_a_session_that_ends_has_no_links(gateway):
    line = gateway.execute("open('a', 'w').close()").one("file")
    assert line["file"] == "a" and "url" not in line


def test_html_that_an_execution_wrote(gateway, run):
    """The headers make a browser give the page an opaque origin, and run no script in it."""
    page = "<script>fetch('/api/v1/sessions')</script><h1>hello</h1>"
    url = run(f"open('page.html', 'w').write({page!r})").one("file")["url"]
    got = gateway.client.get(url)
    assert got.text == page and got.headers["content-type"] == "text/html; charset=utf-8"
    assert got.headers["content-security-policy"] == "sandbox"
    assert got.headers["x-content-type-options"] == "nosniff"
    # A page with an opaque origin sends `Origin: null`, which is refused.
    refused = gateway.client.get("/api/v1/sessions", headers={"Origin": "null"})
    problem(refused, 403, "forbidden_origin")


def test_a_restarted_gateway_keeps_its_links(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes")
    session = gateway.create_session(session_id="kept")
    url = gateway.execute("open('a', 'w').write('x')", session_id=session).one("file")["url"]
    gateway.kill()
    gateway.start()
    wait_for(lambda: gateway.client.get(url).text == "x")
    lines = gateway.execute("open('b', 'w').write('x')", session_id=session)
    assert [line["file"] for line in lines.of("file")] == ["b"]
    gateway.delete_session(session)
