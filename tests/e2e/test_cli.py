# SPDX-License-Identifier: Apache-2.0
"""The command line: help, settings, the ready line, doctor, draining."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest
from kernelgate import BINARY, HELD, problem, wait_for


def run(*arguments, env=None, cwd="/", timeout=60):
    return subprocess.run(
        [BINARY, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={"PATH": os.environ["PATH"], **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["doctor", "--help"]])
def test_help(arguments):
    result = run(*arguments)
    assert result.returncode == 0 and result.stderr == ""
    assert "serve" in result.stdout or "--" in result.stdout


def test_help_lists_the_settings():
    text = run("serve", "--help").stdout
    for setting in (
        "host",
        "port",
        "api-key",
        "image",
        "max-sessions",
        "pool-size",
        "memory-mb",
        "state-dir",
    ):
        assert f"--{setting}" in text


def test_version():
    result = run("version")
    assert result.returncode == 0
    assert result.stdout.startswith("kernelgate ") and result.stdout.count("\n") == 1


def test_unknown_commands_and_flags():
    for arguments in (["nonsense"], ["serve", "--nonsense"], ["serve", "--port"], []):
        result = run(*arguments)
        assert result.returncode != 0 and result.stderr, arguments
        assert result.stdout == "", arguments


@pytest.mark.parametrize(
    "flag, value",
    [
        ("--port", "65536"),
        ("--port", "x"),
        ("--pool-size", "-2"),
        ("--idle-timeout", "0"),
        ("--cpus", "0"),
        ("--cpus", "nan"),
        ("--memory-mb", "512m"),
        ("--max-sessions", "99999999999999999999"),
        ("--provisioner", "magic"),
        ("--network", "all"),
        ("--log-level", "loud"),
    ],
)
def test_values_out_of_bounds(flag, value):
    variable = "KERNELGATE_" + flag.removeprefix("--").upper().replace("-", "_")
    for source, result in (
        (flag, run("serve", flag, value)),
        (variable, run("serve", env={variable: value})),
    ):
        assert result.returncode not in (0, -6, -11)
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert source in lines[0] and value in lines[0]


def test_listening_beyond_loopback_needs_a_key(tmp_path):
    result = run("serve", "--host", "0.0.0.0", "--port", "0", "--state-dir", str(tmp_path))
    assert result.returncode != 0 and "key" in result.stderr


def test_one_ready_line(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    assert gateway.url.startswith("http://127.0.0.1:")
    gateway.execute("print(1)")
    gateway.signal(signal.SIGTERM)
    rest = gateway.process.stdout.read()
    assert gateway.wait() == 0 and rest == b""


def test_where_settings_come_from(start_gateway, tmp_path):
    tmp_path.joinpath(".env").write_text(
        'MAX_KERNELS=3\n# comment\nKERNELGATE_MAX_EXECUTION_TIME="1"\n'
    )
    gateway = start_gateway(
        "--max-sessions", "1", cwd=tmp_path, env={"KERNELGATE_MAX_SESSIONS": "2", "DEBUG": "app:*"}
    )  # fmt: skip
    gateway.create_session(session_id="s")
    problem(gateway.client.post("/api/v1/sessions", json={}), 429, "max_sessions")
    assert gateway.execute("import time; time.sleep(60)", session_id="s").status == "timeout"
    assert "DEBUG" in gateway.log()


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_doctor():
    result = run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "runc" in result.stdout


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_doctor_leaves_the_state_folder_as_it_was(tmp_path):
    (tmp_path / "made").mkdir(mode=0o711)
    for name, there in (("made", True), ("new", False)):
        folder = tmp_path / name
        run("doctor", "--oci-runtime", "/no/such/runtime", "--state-dir", str(folder))
        assert folder.exists() == there
        assert not there or not list(folder.iterdir())


def test_doctor_says_what_the_machine_leaves_open():
    lines = run("doctor", "--provisioner", "oci", "--max-sessions", "3").stdout.splitlines()

    def finding(what):
        [line] = [line for line in lines if line[5:].startswith(f"{what} ")]  # said once
        return line.split(maxsplit=1)[0] == "ok", line

    ok, line = finding("oci: core dumps")
    piped = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().startswith("|")
    assert ok and ("is not a pipe" in line) == (not piped)
    assert len([line for line in lines if "core_pattern" in line]) == 1
    assert len([line for line in lines if "inotify" in line]) == 1
    have = int(pathlib.Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    ok, line = finding("oci: inotify")
    assert ok == (have >= 128 + 16 * 3) and (ok or "max_user_instances=176" in line)
    alone = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    assert ("version 1" in finding("oci: control groups")[1]) == (not alone)
    runtimes = [name for name in ("runc", "crun") if shutil.which(name)]
    for name in runtimes:
        version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        assert version.splitlines()[0] in finding(f"version of {name}")[1]


def test_doctor_says_what_is_missing():
    result = run("doctor", "--provisioner", "oci", "--oci-runtime", "/no/such/runtime")
    assert result.returncode != 0
    assert "/no/such/runtime" in result.stdout + result.stderr


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_serve_says_what_is_missing(tmp_path):
    result = run(
        "serve", "--port", "0", "--state-dir", str(tmp_path),
        "--provisioner", "oci", "--oci-runtime", "/no/such/runtime",
    )  # fmt: skip
    assert result.returncode != 0 and result.stdout == ""
    assert "/no/such/runtime" in result.stderr


def test_a_state_folder_has_one_gateway(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    result = run("serve", "--port", "0", "--state-dir", gateway.state_dir)
    assert result.returncode != 0 and gateway.state_dir in result.stderr
    assert gateway.client.get("/healthz").status_code == 200


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        result = run("serve", "--port", port, "--state-dir", str(tmp_path), "--pool-size", "0")
    assert result.returncode != 0 and port in result.stderr


def test_logs_as_json(start_gateway):
    import json

    gateway = start_gateway("--pool-size", "0", "--log-format", "json", "--log-level", "debug")
    gateway.execute("print('a secret of the tenant')")
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert lines
    assert "a secret of the tenant" not in gateway.log()


# ---- The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_draining_lets_executions_finish(start_gateway, number):
    gateway = start_gateway("--pool-size", "0", "--drain-timeout", "60")
    with gateway.stream(f"{HELD}print('finished')", session_id="busy") as reader:
        reader.next_of("stdout")
        gateway.signal(number)
        wait_for(lambda: gateway.client.get("/readyz").status_code == 503)
        for path in ("/api/v1/execute", "/api/v1/%65xecute"):
            problem(gateway.client.post(path, json={"code": "1"}), 503, "draining")
        problem(gateway.client.post("/api/v1/sessions", json={}), 503, "draining")
        gateway.release("busy")
        lines = reader.rest()
    assert lines.text() == "on\nfinished\n" and lines.status == "ok"
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_draining_has_an_end(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--drain-timeout", "1")
    with gateway.stream(HELD, session_id="busy", timeout=600) as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_more_signals_do_not_cut_the_end_short(start_gateway):
    """They end running work at once; what follows is done all the same."""
    gateway = start_gateway("--pool-size", "0", "--drain-timeout", "600")
    with gateway.stream(HELD, session_id="busy", timeout=600) as reader:
        reader.next_of("stdout")
        while gateway.process.poll() is None:
            gateway.signal(signal.SIGTERM)
            time.sleep(0.0005)
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_the_end_comes_while_kernels_start(start_gateway):
    gateway = start_gateway("--pool-size", "2")
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_what_is_being_sent_at_the_end_is_answered(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    url = httpx.URL(gateway.url)
    with socket.create_connection((url.host, url.port), timeout=10) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        gateway.signal(signal.SIGTERM)

        def refuses():
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection((url.host, url.port)).close()
                return False
            return True

        wait_for(refuses)
        client.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()
