# SPDX-License-Identifier: Apache-2.0
"""Packages: installed into running sessions that have no network, from a cache that fills itself.
The index is a small one of our own, where test_workflow.py asks the real one."""

import json
import re
import threading
import time

import pytest
from kernelgate import problem, wait_for
from sandboxes import sandboxes
from web import Index

OWN_GATEWAY = True  # it ends with its index
NOWHERE = "http://127.0.0.1:9/simple/"


@pytest.fixture(scope="module")
def index():
    server = Index()
    server.add_wheel("kgone", "1.0")
    server.add_wheel("kgone", "1.1")
    server.add_wheel("kgtwo", "2.0", requires=["kgone<1.1", "numpy"])
    server.add_wheel("kgthree", "3.0")
    server.add_wheel("kgslow", "1.0")
    server.add("kgsource-1.0.tar.gz", b"no wheel")
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway_flags(index):
    return ["--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1"]


def install(gateway, session_id, *packages):
    """Installs; returns the lines."""
    path = f"/api/v1/sessions/{session_id}/packages"
    with gateway.client.stream("POST", path, json={"packages": packages}, timeout=120) as response:
        assert response.status_code == 200, response.read()
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1]["type"] == "done" and len(lines[-1]["packages"]) == len(packages)
    return lines


def show(gateway, session_id, name=""):
    response = gateway.client.get(f"/api/v1/sessions/{session_id}/packages{name and '/' + name}")
    assert response.status_code == 200, response.text
    return response.json()


def downloads(gateway):
    text = gateway.client.get("/metrics").text
    return int(re.search(r'package_downloads_total\{outcome="ok"\} (\d+)', text)[1])


def version_in_kernel(gateway, session_id, name):
    lines = gateway.execute(f"import {name}; print({name}.VERSION)", session_id=session_id)
    assert lines.status == "ok", lines
    return lines.text().strip()


def test_a_running_kernel_imports_it_at_once(gateway, session):
    lines = gateway.execute("import kgone", session_id=session)
    assert lines.status == "error"
    lines = install(gateway, session, "KGone==1.0")
    assert lines[-1]["status"] == "ok"
    assert lines[-1]["packages"] == [{"name": "kgone", "status": "installed", "version": "1.0"}]
    assert any(line["type"] == "progress" for line in lines)
    assert "Successfully installed kgone-1.0" in "".join(line.get("text", "") for line in lines)
    assert version_in_kernel(gateway, session, "kgone") == "1.0"
    answer = gateway.client.post(
        f"/api/v1/sessions/{session}/commands?wait=1",
        json={"command": "python -c 'import kgone; print(kgone.VERSION)'"},
    ).json()
    assert answer["stdout"] == "1.0\n", answer
    assert show(gateway, session, "kgone") == lines[-1]["packages"][0]
    names = {item["name"] for item in show(gateway, session)["packages"]}
    assert {"kgone", "numpy"} <= names


def test_dependencies_come_with_it_but_not_what_is_there(gateway, session):
    lines = install(gateway, session, "kgtwo", "kgthree>=3,<4")
    assert lines[-1]["status"] == "ok", lines[-3:]
    assert version_in_kernel(gateway, session, "kgtwo") == "2.0"
    assert version_in_kernel(gateway, session, "kgone") == "1.0"
    assert "numpy" not in "".join(line.get("text", "") for line in lines if "Saved" in str(line))


def test_the_second_session_needs_neither_network_nor_another_sandbox(gateway, index, session):
    install(gateway, session, "kgthree")
    before, asked = downloads(gateway), len(index.asked)
    second = gateway.create_session()
    lines = install(gateway, second, "kgthree==3.0")  # what it was resolved to counts as well
    assert lines[-1]["status"] == "ok" and "cache" in lines[0]["text"]
    assert version_in_kernel(gateway, second, "kgthree") == "3.0"
    assert downloads(gateway) == before and len(index.asked) == asked
    # What is there is not even looked for in the cache.
    assert [line["type"] for line in install(gateway, second, "kgthree", "numpy")] == ["done"]
    gateway.delete_session(second)


def test_another_version_takes_its_place(gateway, session):
    install(gateway, session, "kgone==1.0")
    install(gateway, session, "kgone==1.1")
    assert version_in_kernel(gateway, session, "kgone") == "1.1"
    assert show(gateway, session, "kgone")["version"] == "1.1"


def test_a_busy_kernel_does_not_wait(gateway, session):
    with gateway.stream(
        "import time\nfor i in range(400):\n    time.sleep(0.1)\n    try:\n        import kgone\n"
        "        print('there')\n        break\n    except ImportError:\n        print('no')",
        session_id=session,
        timeout=60,
    ) as reader:
        assert reader.next()["text"].startswith("no")
        assert install(gateway, session, "kgone==1.0")[-1]["status"] == "ok"
        assert reader.rest().text().endswith("there\n")


@pytest.mark.once
def test_two_installs_of_one_thing_are_one_download(gateway, index):
    ids = [gateway.create_session() for _ in range(2)]
    before = downloads(gateway)
    results = {}

    def run(session_id):
        return install(gateway, session_id, "kgone>=1.1")

    threads = [threading.Thread(target=lambda i=i: results.update({i: run(i)})) for i in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i][-1]["status"] for i in ids] == ["ok", "ok"]
    assert downloads(gateway) == before + 1
    for i in ids:
        gateway.delete_session(i)


@pytest.mark.once
def test_what_cannot_be_had_is_told(gateway, session):
    for package, reason in {
        "kgnothing": "no such package",
        "kgone==9.9": "version",
        "kgsource": "source only",
    }.items():
        lines = install(gateway, session, package)
        [result] = lines[-1]["packages"]
        assert lines[-1]["status"] == "error" and result["status"] == "failed"
        assert "no wheel fits" in result["message"] and reason in result["message"]
        name = package.split("=")[0]
        assert show(gateway, session, name) == result
    assert show(gateway, session, "never-asked-for")["status"] == "not_found"
    assert gateway.execute("1", session_id=session).status == "ok"
    [result] = install(gateway, session, "kgone~=1")[-1]["packages"]
    assert result["status"] == "failed" and "~=1" in result["message"]


@pytest.mark.once
def test_an_answer_at_once_and_one_at_the_end(gateway, index, session):
    path = f"/api/v1/sessions/{session}/packages"
    hold = threading.Event()
    page = index.answers["/simple/kgslow/"]

    def slowly(handler):
        hold.wait(20)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(page[2])))
        handler.end_headers()
        handler.wfile.write(page[2])

    index.answers["/simple/kgslow/"] = slowly
    response = gateway.client.post(path + "?wait=0", json={"packages": ["kgslow"]})
    assert response.status_code == 202 and response.json()["status"] == "installing"
    assert show(gateway, session, "kgslow")["status"] == "installing"
    hold.set()
    wait_for(lambda: show(gateway, session, "kgslow")["status"] == "installed", timeout=60)
    response = gateway.client.post(path + "?wait=1", json={"packages": ["kgslow"]}, timeout=60)
    assert response.status_code == 200 and response.json()["packages"][0]["version"] == "1.0"


@pytest.mark.once
@pytest.mark.parametrize(
    "package",
    [
        "--index-url=http://evil.example",
        "-r requirements.txt",
        "-e .",
        "./kgone-1.0-py3-none-any.whl",
        "/opt/kernelgate/packages/wheels/x.whl",
        "https://evil.example/x.whl",
        "kgone @ https://evil.example/x.whl",
        "git+https://evil.example/x",
        "kgone; python_version > '3'",
        "kgone\n--no-deps",
        "kgone==1.0 --no-deps",
        "kgone==$(id)",
        "../x",
        "",
        "x" * 300,
    ],
)
def test_what_is_no_name_is_refused(gateway, session, package):
    response = gateway.client.post(
        f"/api/v1/sessions/{session}/packages", json={"packages": ["kgone", package]}
    )
    problem(response, 400, "invalid_request")


@pytest.mark.once
@pytest.mark.parametrize(
    "body", [{}, {"packages": []}, {"packages": "x"}, {"packages": [1]}, {"packages": ["x"] * 33}]
)
def test_malformed_requests(gateway, session, body):
    path = f"/api/v1/sessions/{session}/packages"
    problem(gateway.client.post(path, json=body), 400, "invalid_request")
    response = gateway.client.post(path + "?wait=x", json={"packages": ["x"]})
    problem(response, 400, "invalid_request")


def test_a_session_that_ends_meanwhile(gateway, index):
    session_id = gateway.create_session()
    index.answers["/simple/kgnever/"] = lambda handler: time.sleep(20)
    path = f"/api/v1/sessions/{session_id}/packages"
    with gateway.client.stream("POST", path, json={"packages": ["kgnever"]}) as response:
        lines = response.iter_lines()
        assert "progress" in next(lines)
        gateway.delete_session(session_id)
        last = list(lines)[-1]
    assert '"status":"died"' in last


@pytest.mark.not_on("kubernetes", "no folder is shared with a pod")
def test_the_session_has_no_network_and_its_packages_do_not_show(gateway, session):
    install(gateway, session, "kgone==1.0")
    code = """
import os, socket
print(os.environ.get("http_proxy"), socket.socket().connect_ex(("203.0.113.1", 80)) > 0)
try:
    open("/opt/kernelgate/packages/x", "w")
except OSError as error:
    print(type(error).__name__)
print(sorted(os.listdir("/opt/kernelgate/packages")))
"""
    text = gateway.execute(code, session_id=session).text()
    assert text.startswith("None True\n") and "OSError" in text
    assert "resolved" not in text and "packages.py" in text
    shown = gateway.show_session(session)
    assert shown["files"] == [] and shown["total_files"] == 0
    lines = gateway.execute("open('mine.txt', 'w').write('x')", session_id=session)
    assert [line["file"] for line in lines.of("file")] in ([], ["mine.txt"])


def test_after_a_restart_packages_and_cache_are_there(start_gateway, index):
    flags = ("--pool-size", "0", "--fetch-allow", "127.0.0.1", "--pypi-index-url")
    gateway = start_gateway(*flags, index.simple)
    session_id = gateway.create_session()
    assert install(gateway, session_id, "kgone==1.1")[-1]["status"] == "ok"
    gateway.kill()
    gateway.flags = (*flags, NOWHERE)
    gateway.start()
    assert show(gateway, session_id, "kgone")["version"] == "1.1"
    offline = gateway.create_session()
    assert install(gateway, offline, "kgone==1.1")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, offline, "kgone") == "1.1"
    started = time.monotonic()
    lines = install(gateway, offline, "kgtwo")
    assert lines[-1]["status"] == "error" and time.monotonic() - started < 60
    gateway.delete_session(session_id)
    gateway.delete_session(offline)
    # Those that asked the index are gone as well.
    wait_for(lambda: sandboxes(gateway) == [])


@pytest.mark.once
def test_a_download_that_a_crash_left_is_removed(start_gateway, index):
    index.answers["/simple/kghang/"] = lambda handler: time.sleep(20)
    gateway = start_gateway(
        "--pool-size", "0", "--fetch-allow", "127.0.0.1", "--pypi-index-url", index.simple
    )
    session_id = gateway.create_session()
    path = f"/api/v1/sessions/{session_id}/packages?wait=0"
    assert gateway.client.post(path, json={"packages": ["kghang"]}).status_code == 202
    wait_for(lambda: "/simple/kghang/" in index.asked)
    assert len(sandboxes(gateway)) == 2
    gateway.kill()
    gateway.start()
    wait_for(lambda: [it.session for it in sandboxes(gateway)] == [session_id])


@pytest.mark.once
def test_the_end_of_the_gateway_ends_a_download(start_gateway, index):
    index.answers["/simple/kghang/"] = lambda handler: time.sleep(20)
    flags = ("--pool-size", "0", "--fetch-allow", "127.0.0.1", "--drain-timeout", "1")
    gateway = start_gateway(*flags, "--pypi-index-url", index.simple)
    path = f"/api/v1/sessions/{gateway.create_session()}/packages?wait=0"
    index.asked.clear()
    assert gateway.client.post(path, json={"packages": ["kghang"]}).status_code == 202
    wait_for(lambda: "/simple/kghang/" in index.asked)
    gateway.stop()
