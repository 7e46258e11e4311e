# SPDX-License-Identifier: Apache-2.0
"""The profiles: prompts written for other systems work unchanged, with real clients. What needs Python's
own packages is in tests/e2e/test_mcp_profiles.py."""

import base64
import hashlib
import re
import threading
import time

import component
import httpx
import pytest
import python_packages
from component import cell
from kernelgate import problem, wait_for
from mcp_clients import client_of
from mcp_work import PNG
from web import Index

FIGURE = f"display image/png {PNG}"
ERROR = "error ZeroDivisionError division by zero"


@pytest.fixture(scope="module")
def gateway_flags(tmp_path_factory):
    """Packages are installed by Python's kernel; code is run by the scripted ones, which have the names."""
    folder = tmp_path_factory.mktemp("kernels")
    flags = python_packages.flags(folder)
    for part in "kernelspec", "kernels":
        (folder / part / "python").rename(folder / part / "installer")
    spec = folder / "kernelspec/installer/kernel.json"
    spec.write_text(spec.read_text().replace("/opt/kernelgate/python", "/opt/kernelgate/installer"))
    name = "kernelspec/script-message"
    (folder / name).symlink_to(component.HERE / name)
    return flags


@pytest.fixture(scope="module")
def profiles():
    """One client per profile, made on first use."""
    clients = {}
    yield clients
    for client in clients.values():
        client.__exit__()


@pytest.fixture
def use(gateway, profiles):
    def use(profile, sdk="1", transport="http"):
        if profile not in profiles:
            profiles[profile] = client_of(sdk, transport, gateway, profile).__enter__()
        client = profiles[profile]

        def tool(called, /, **arguments):
            result = client.call(called, arguments)
            assert not result.is_error, result.text
            return result.json

        tool.client = client
        return tool

    return use


# ---- sandbox-mcp


def test_sandbox_mcp(use):
    tool = use("sandbox-mcp")
    assert set(tool.client.tools()) == {
        "execute_python_code",
        "list_active_sessions",
        "terminate_session",
        "create_session_with_files",
    }
    created = tool("create_session_with_files", file_urls=["http://127.0.0.1:1/data.csv"])
    assert set(created) == {
        "session_id",
        "working_directory",
        "downloaded_files",
        "errors",
        "status",
    }
    assert created["working_directory"] == "/mnt/data" and created["downloaded_files"] == []
    assert created["errors"][0]["url"] == "http://127.0.0.1:1/data.csv"

    first = tool(
        "execute_python_code",
        code=cell("set x 6", "print hi", "result 42"),
        session_id=None,
        timeout=None,
    )
    session = first["session_id"]
    assert first == {"output": "hi\n42", "images": [], "session_id": session}
    figure = tool("execute_python_code", code=FIGURE, session_id=session)
    (image,) = figure["images"]
    assert image["type"] == "image" and image["format"] == "png" and image["data"] == PNG
    assert tool("execute_python_code", code="get x", session_id=session)["output"] == "6\n"
    error = tool("execute_python_code", code=ERROR, session_id=session)
    assert set(error) == {"error", "traceback"}
    assert error["error"] == "ZeroDivisionError: division by zero"
    timeout = tool("execute_python_code", code="hang", session_id=session, timeout=1)
    assert timeout["error"].startswith("TimeoutError")

    listed = tool("list_active_sessions")
    assert listed["total"] == len(listed["sessions"])
    about = listed["sessions"][session]
    assert (
        set(about) == {"execution_count", "last_activity", "status"} and about["status"] == "active"
    )
    content = tool.client.do("read", uri=f"session://{session}")["contents"][0]
    assert session in content["text"]
    arguments = {"task_description": "add 1 and 2", "include_comments": "false"}
    prompt = tool.client.do("prompt", name="code_execution_prompt", args=arguments)
    assert "add 1 and 2" in prompt["messages"][0]["content"]["text"]
    for expected in ("success", "warning"):
        assert tool("terminate_session", session_id=session)["status"] == expected
    assert tool("terminate_session", session_id="../x")["status"] == "error"
    tool("terminate_session", session_id=created["session_id"])


@pytest.mark.parametrize(
    "profile, run, create",
    [
        ("sandbox-mcp", "execute_python_code", None),
        ("mcp-code-sandbox", "sandbox_run_python", None),
        ("mcp-sandbox", "execute_python_code", "create_sandbox"),
    ],
)
def test_sessions_that_nobody_goes_on_in_make_room(start_gateway, profile, run, create):
    gateway = start_gateway("--max-sessions", "3")
    name = "sandbox_id" if create else "session_id"
    with client_of("1", "http", gateway, profile) as client:

        def new():
            result = client.call(create or run, {} if create else {"code": "result 1"})
            assert not result.is_error, result.text
            return result.json[name]

        first = new()
        others = []
        for _ in range(6):  # the one that is used stays, and each new one takes the oldest's place
            used = client.call(run, {name: first, "code": "set x 1"})
            assert not used.is_error, used.text
            others.append(new())
        listed = set(gateway.client.get("/api/v1/sessions").json()["sessions"])
        assert listed == {first, *others[-2:]}
        # If all are used, the one that was used longest ago goes.
        for used in (*others[-2:], first):
            assert not client.call(run, {name: used, "code": "result 1"}).is_error
        newest = new()
        listed = set(gateway.client.get("/api/v1/sessions").json()["sessions"])
        assert listed == {first, others[-1], newest}
        assert "1" in client.call(run, {name: first, "code": "get x"}).text
    # A session that somebody has asked for by its name does not go.
    gateway.end_sessions()
    for i in range(3):
        gateway.create_session(session_id=f"mine-{i}")
    with client_of("1", "http", gateway, profile) as client:
        refused = client.call(create or run, {} if create else {"code": "result 1"})
        assert "already has" in refused.text


# ---- code-sandbox


def test_code_sandbox_runs_javascript_by_both_names(use):
    client = use("code-sandbox").client
    assert {"run_javascript_code", "run_js_code"} <= set(client.tools())
    for name in ("run_javascript_code", "run_js_code"):
        assert client.call(name, {"code": "print 42"}).text == "42"


# ---- mcp-code-sandbox


def test_mcp_code_sandbox(use):
    tool = use("mcp-code-sandbox", "2-legacy")
    tools = tool.client.tools()
    assert tools["sandbox_list_artifacts"]["annotations"]["readOnlyHint"] is True
    assert tools["sandbox_close_session"]["annotations"]["destructiveHint"] is True
    csv = base64.b64encode(b"a,b\n1,2\n3,4\n").decode()
    uploaded = tool("sandbox_upload_file", filename="data.csv", content_base64=csv)
    session = uploaded["session_id"]
    assert re.fullmatch("sess_[0-9a-f]{12}", session) and uploaded["path"] == "data.csv"
    again = {"filename": "data.csv", "content_base64": csv, "session_id": session}
    assert tool("sandbox_upload_file", **again)["error"] == "file_exists"
    assert "error" not in tool("sandbox_upload_file", **again, overwrite=True)

    code = cell(
        "sh awk -F, 'NR > 1 {sum += $1} END {print sum}' data.csv",
        'write summary.csv ",a,b\\ncount,2.0,2.0\\nmean,2.0,3.0\\n"',
    )
    run = tool("sandbox_run_python", code=code, session_id=session)
    assert re.fullmatch(r"run_\d{8}T\d{6}Z_[0-9a-f]{4}", run["run_id"])
    assert (run["session_id"], run["exit_code"], run["stdout"]) == (session, 0, "4\n")
    assert run["stdout_truncated"] is False and run["duration_ms"] >= 0
    (artifact,) = run["artifacts"]
    assert artifact["path"] == artifact["filename"] == "summary.csv"
    assert artifact["mime_type"] == "text/csv" and artifact["size_bytes"] > 20
    link = httpx.get(artifact["download_url"], trust_env=False)
    assert link.status_code == 200 and link.text.startswith(",a,b")

    failed = tool("sandbox_run_python", code=ERROR, session_id=session)
    assert failed["exit_code"] == 1 and "ZeroDivisionError" in failed["stderr"]
    listed = tool("sandbox_list_artifacts", session_id=session)["artifacts"]
    assert [entry["path"] for entry in listed] == ["data.csv", "summary.csv"]
    read = tool("sandbox_read_artifact", session_id=session, path="summary.csv")
    assert set(read) == {"path", "filename", "mime_type", "size_bytes", "content_base64"}
    assert base64.b64decode(read["content_base64"]).decode() == link.text
    assert tool("sandbox_close_session", session_id=session) == {"status": "closed"}


@pytest.mark.parametrize(
    "name, arguments, code",
    [
        ("sandbox_run_python", {"code": "1", "session_id": "mine"}, "invalid_session_id"),
        (
            "sandbox_run_python",
            {"code": "1", "session_id": "sess_0123456789ab"},
            "session_not_found",
        ),
        ("sandbox_run_python", {"code": "x" * (1 << 20 | 1)}, "code_too_large"),
        ("sandbox_upload_file", {"filename": "../x", "content_base64": ""}, "invalid_filename"),
        ("sandbox_upload_file", {"filename": "x", "content_base64": "%"}, "invalid_content"),
        (
            "sandbox_read_artifact",
            {"session_id": "sess_0123456789ab", "path": "../x"},
            "session_not_found",
        ),
        ("sandbox_close_session", {"session_id": "sess_0123456789ab"}, "session_not_found"),
    ],
)
def test_mcp_code_sandbox_answers_errors(use, name, arguments, code):
    answer = use("mcp-code-sandbox", "2-legacy")(name, **arguments)
    assert set(answer) == {"error", "message", "size_bytes", "download_url"}
    assert answer["error"] == code and answer["message"]


# ---- mcp-sandbox


def test_mcp_sandbox(use, gateway):
    """Over the old HTTP+SSE, as its users have it."""
    tool = use("mcp-sandbox", "1", "sse")
    created = tool("create_sandbox", name="analysis")
    sandbox = {"sandbox_id": created["sandbox_id"]}
    assert created == {
        **sandbox, "user_id": "anonymous", "name": "analysis", "status": "active",
    }  # fmt: skip
    listed = {entry["sandbox_id"]: entry for entry in tool("list_sandboxes")}
    assert listed[created["sandbox_id"]]["name"] == "analysis"
    assert isinstance(listed[created["sandbox_id"]]["installed_packages"], list)
    status = tool("check_package_installation_status", **sandbox, package_name="not-asked-for")
    assert status["status"] == "not_found"
    run = tool("execute_python_code", **sandbox, code=cell("write r.txt done", "print 1"))
    assert (run["stdout"], run["stderr"], run["exit_code"]) == ("1\n", "", 0)
    assert run["files"] == ["/mnt/data/r.txt"]
    (link,) = run["file_links"]
    assert httpx.get(link, trust_env=False).text == "done"
    for path in ("r.txt", "/mnt/data/r.txt", "/app/results/r.txt"):
        params = {"sandbox_id": created["sandbox_id"], "file_path": path}
        answer = gateway.client.get("/sandbox/file", params=params, follow_redirects=True)
        assert answer.text == "done"
    problem(gateway.client.get("/sandbox/file?sandbox_id=x&file_path=y"), 404, "session_not_found")
    problem(gateway.client.get("/sandbox/file"), 400, "invalid_request")
    failed = tool("execute_python_code", **sandbox, code=ERROR)
    assert failed["exit_code"] == 1 and failed["error"] == "ZeroDivisionError: division by zero"
    command = tool("execute_terminal_command", **sandbox, command="cat r.txt; echo e >&2; exit 3")
    assert command == {"stdout": "done", "stderr": "e\n", "exit_code": 3}
    refused = tool.client.call(
        "install_package_in_sandbox", {**sandbox, "package_name": "--index-url=x"}
    )
    assert refused.is_error and refused.json["success"] is False
    # Over HTTP, no client can upload the server's own files.
    upload = {**sandbox, "local_file_path": "/etc/hostname"}
    assert tool.client.call("upload_file_to_sandbox", upload).json["code"] == "invalid_path"


def ended(client, package, status):
    """What is said of an installation when it has ended; each call waits a few seconds for that."""
    said = [status]

    def has_ended():
        if said[-1]["status"] == "installing":
            said.append(client.call("check_package_installation_status", package).json)
        return said[-1]["status"] != "installing"

    wait_for(has_ended, 300)
    return said[-1]


def test_mcp_sandbox_tells_of_an_installation(start_gateway, gateway_flags):
    index = Index()
    index.add_wheel("kgslow", "1.0")
    status, headers, body = index.answers["/simple/kgslow/"]
    go = threading.Event()

    def slowly(handler):
        go.wait(300)
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    index.answers["/simple/kgslow/"] = slowly
    gateway = start_gateway(
        *gateway_flags, "--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1"
    )
    with client_of("1", "sse", gateway, "mcp-sandbox") as client:
        sandbox = {"sandbox_id": client.call("create_sandbox").json["sandbox_id"]}
        package = {**sandbox, "package_name": "kgslow==1.0"}
        started = time.monotonic()
        begun = client.call("install_package_in_sandbox", package).json
        assert (begun["status"], begun["success"]) == ("installing", None)
        waited = client.call("check_package_installation_status", package).json
        assert (waited["status"], waited["complete"]) == ("installing", False), waited
        assert 9 < waited["elapsed_seconds"] <= time.monotonic() - started
        go.set()
        done = ended(client, package, waited)
        assert (done["status"], done["success"]) == ("success", True), done
        missing = {**sandbox, "package_name": "kgnothing"}
        begun = client.call("install_package_in_sandbox", missing).json
        failed = ended(client, missing, begun)
        assert (failed["status"], failed["complete"], failed["success"]) == ("failed", True, False)
        assert failed["stderr"]
        unknown = {**sandbox, "package_name": "kgunknown"}
        missing = client.call("check_package_installation_status", unknown).json
        assert missing == {
            "status": "not_found",
            "message": "kgunknown was not asked for",
            "complete": True,
            "success": False,
        }
        broken = client.call(
            "check_package_installation_status", {**sandbox, "package_name": "./x"}
        )
        assert broken.is_error and broken.json["status"] == "error"
        assert (broken.json["complete"], broken.json["success"]) == (True, False)
    index.close()


def test_mcp_sandbox_code_finds_the_folder_that_it_knows(use):
    tool = use("mcp-sandbox", "1", "sse")
    sandbox = {"sandbox_id": tool("create_sandbox")["sandbox_id"]}
    run = tool("execute_python_code", **sandbox, code="write /app/results/plot.txt here")
    assert (run["exit_code"], run["files"]) == (0, ["/mnt/data/plot.txt"]), run
    command = tool("execute_terminal_command", **sandbox, command="cat /app/results/plot.txt")
    assert command["stdout"] == "here"


def test_mcp_sandbox_uploads_over_stdio_and_below_its_root(own_gateway, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/data.txt").write_text("local")
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "in/link").symlink_to(tmp_path / "secret")
    flags = [*own_gateway, *component.FLAGS, "--upload-root", str(tmp_path / "in")]
    with client_of("1", "stdio", profile="mcp-sandbox", flags=flags) as client:
        sandbox = {"sandbox_id": client.call("create_sandbox").json["sandbox_id"]}
        upload = lambda path: client.call(  # noqa: E731
            "upload_file_to_sandbox", {**sandbox, "local_file_path": str(path)}
        )
        assert upload(tmp_path / "in/data.txt").json["success"] is True
        ran = client.call("execute_python_code", {**sandbox, "code": "read data.txt"})
        assert ran.json["stdout"] == "local"
        large = bytes(range(256)) * 10_000  # read in pieces
        (tmp_path / "in/large").write_bytes(large)
        assert upload(tmp_path / "in/large").json["success"] is True
        ran = client.call("execute_python_code", {**sandbox, "code": "sh md5sum <large"})
        assert ran.json["stdout"].split()[0] == hashlib.md5(large).hexdigest()
        for path in ("secret", "in/link", "in/../secret", "in"):
            assert upload(tmp_path / path).json["code"] == "invalid_path", path
        assert upload(tmp_path / "in/nothing").json["code"] == "not_found"
        # Nor does it reveal which files exist elsewhere.
        for path in (tmp_path / "nothing", tmp_path / "in/../nothing", "/root/nothing/at/all"):
            assert upload(path).json == upload(tmp_path / "secret").json, path


def test_errors_cut_no_character(use):
    """Messages that quote the request are cut at a character."""
    tool = use("mcp-sandbox", "1", "sse")
    sandbox = {"sandbox_id": tool("create_sandbox")["sandbox_id"]}
    for name, argument in (
        ("check_package_installation_status", "package_name"),
        ("install_package_in_sandbox", "package_name"),
        ("upload_file_to_sandbox", "local_file_path"),
    ):
        for pad in range(4):
            arguments = {**sandbox, argument: "a" * pad + "\N{GRINNING FACE}" * 100}
            answer = tool.client.call(name, arguments)
            assert answer.is_error and answer.json["success"] is False


def test_an_unknown_profile_is_refused(gateway):
    response = gateway.client.post("/mcp?profile=nope", json={}, headers={"Accept": "*/*"})
    assert response.status_code == 400 and "mcp-code-sandbox" in response.text
