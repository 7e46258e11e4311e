# SPDX-License-Identifier: Apache-2.0
"""What refuses or ends something because of a limit names the setting that sets it, on each face."""

import pytest
from component import cell
from kernelgate import problem, wait_for
from mcp_clients import WireClient


@pytest.fixture(scope="module")
def gateway_flags():
    return [
        *("--max-code-bytes", "100", "--max-upload-bytes", "1000", "--memory-mb", "100"),
        *("--max-execution-time", "1", "--max-timeout", "2", "--kernel-start-timeout", "50"),
    ]


def error(lines):
    return lines.one("error")["error"]


@pytest.mark.parametrize("path", ["execute", "execute_sync"])
def test_code(gateway, path):
    answer = gateway.client.post(f"/api/v1/{path}", json={"code": "#" * 101})
    assert problem(answer, 413, "code_too_large")["detail"] == (
        "code is 101 bytes; the limit is 100 (setting max-code-bytes)"
    )


def test_upload(gateway, session):
    answer = gateway.client.put(f"/api/v1/sessions/{session}/files/a", content=bytes(1001))
    assert problem(answer, 413, "upload_too_large")["detail"] == (
        "the file is larger than 1000 bytes (setting max-upload-bytes)"
    )


@pytest.mark.parametrize("path", ["execute", "sessions/{}/commands"])
def test_longest_timeout(gateway, session, path):
    body = {"code": "result 1"} if path == "execute" else {"command": "true"}
    answer = gateway.client.post(f"/api/v1/{path.format(session)}", json={**body, "timeout": 3})
    assert problem(answer, 400, "invalid_request")["detail"] == (
        "timeout must be a number of seconds above 0, at most 2 (setting max-timeout)"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "1 s (setting max-execution-time; a request may name its own timeout)"),
        ({"timeout": 0.5}, "0.5 s (timeout of the request)"),
        ({"timeout": 2}, "2 s (setting max-timeout)"),
    ],
    ids=["default", "own", "longest"],
)
def test_time(gateway, session, given, said):
    lines = gateway.execute("hang", session_id=session, **given)
    assert lines.status == "timeout"
    assert error(lines) == f"TimeoutError: the execution took longer than {said}"


def test_memory(gateway, session):
    lines = gateway.execute(cell("print 1", "oom"), session_id=session)
    assert lines.status == "died"
    assert error(lines) == (
        "OutOfMemory: the kernel used more memory than its sandbox may have (100 MiB, setting memory-mb)"
    )


def test_mcp(gateway):
    with WireClient(gateway) as client:

        def said(**arguments):
            result = client.call("run_python_code", arguments)
            assert result.is_error
            return result.text

        assert "the limit is 100 (setting max-code-bytes)" in said(code="#" * 101)
        assert "at most 2 (setting max-timeout)" in said(code="result 1", timeout=3)
        assert "longer than 1 s (setting max-execution-time; " in said(code="hang")
        assert "longer than 0.5 s (timeout of the request)" in said(code="hang", timeout=0.5)
        assert "(100 MiB, setting memory-mb)" in said(code="oom")


def test_a_client_learns_its_limits(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    gateway = start_gateway(
        *("--api-keys-file", str(keys), "--max-sessions", "5", "--disk-mb", "32"),
        *("--max-upload-bytes", "1000", "--max-execution-time", "7", "--max-savepoints", "3"),
        *("--tool-call-timeout", "9"),
        key="key-of-alice",
    )
    stranger = gateway.client.get("/api/v1/limits", headers={"Authorization": "Bearer wrong"})
    problem(stranger, 401, "unauthorized")
    answer = gateway.client.get("/api/v1/limits").json()
    assert answer["owner"] == "alice" and answer["sessions"] == 0 and answer["set_by"] == {}
    assert answer["limits"] == {
        **{"max_sessions": 5, "memory_mb": 512, "disk_mb": 32, "cpus": 1, "pids": 256},
        **{"max_upload_bytes": 1000, "max_code_bytes": 1 << 20, "max_output_bytes": 10 << 20},
        **{"max_execution_time": 7, "max_timeout": 3600, "idle_timeout": 1800},
        **{"max_session_lifetime": 0, "max_savepoints": 3, "max_requests_per_second": 0},
        **{"tool_call_timeout": 9, "max_tool_calls": 1000, "max_tool_result": 1 << 20},
    }
    gateway.create_session()
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")  # now they share

    def shared():
        found = gateway.client.get("/api/v1/limits").json()
        return found if found["set_by"] else None

    answer = wait_for(shared)
    assert answer["sessions"] == 1 and answer["limits"]["max_sessions"] == 3
    said = "half of setting max-sessions, while there are several owners"
    assert answer["set_by"] == {"max_sessions": said}
