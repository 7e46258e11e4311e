# SPDX-License-Identifier: Apache-2.0
"""What refuses or ends something because of a limit names the setting that sets it, on each face."""

import pytest
from component import cell
from kernelgate import problem
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
