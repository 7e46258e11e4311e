# SPDX-License-Identifier: Apache-2.0
"""The command line: help, settings, the ready line, draining; doctor where nothing is to be found."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import component
import httpx
import pytest
from component import HELD, cell
from kernelgate import BINARY, problem, wait_for
from sandboxes import sandboxes


def run(*arguments, env=None, cwd="/"):
    return subprocess.run(
        [BINARY, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
    )


VERBS = {
    "user": ("add", "list", "quota", "disable", "enable", "role", "passwd", "remove"),
    "key": ("add", "list", "revoke"),
    "packages": ("add", "remove", "list"),
}
COMMANDS = ("serve", "mcp", "doctor", "version", *VERBS)


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(f"{one} {verb}" for one, verbs in VERBS.items() for verb in verbs)]
)
def test_help(command, tmp_path):
    """It is printed wherever it is asked for, and nothing else is done."""
    for asked in (["--help"], ["-h"], ["--nonsense", "--help"], ["a", "b", "--help"]):
        result = run(*command.split(), *asked, cwd=tmp_path)
        assert result.returncode == 0 and result.stderr == "", result
        assert result.stdout.startswith(f"usage: kernelgate {command}"), result.stdout
    assert not list(tmp_path.iterdir())


def test_help_of_all_commands():
    result = run("--help")
    assert result.returncode == 0 and result.stderr == ""
    assert all(f"\n  {command} " in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", VERBS)
def test_a_verb_that_does_not_exist_or_lacks_a_word(command):
    result = run(command, "nonsense")
    assert result.returncode == 2 and result.stdout == ""
    said = result.stderr.splitlines()
    assert said[0] == f"kernelgate: there is no command {command} nonsense"
    assert said[2] == f"usage: kernelgate {command} VERB [FLAGS]"
    result = run(command, "add")
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith(f"usage: kernelgate {command} add ")


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


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "192.0.2.1", "::", "::ffff:0.0.0.0", "2001:db8::1"),
        *("gateway.example", "127.gateway.example", "127.0.0.1.example"),
    ],
)
def test_listening_beyond_loopback_needs_a_key(tmp_path, host):
    # A gateway that did not ask for a key would end at the next check.
    result = run(
        "serve", "--host", host, "--port", "0", "--state-dir", str(tmp_path),
        "--provisioner", "oci", "--oci-runtime", "/no/such/runtime",
    )  # fmt: skip
    assert result.returncode != 0 and result.stdout == ""
    assert f"host is {host}, which other machines can reach" in result.stderr
    assert "there is no API key: put API_KEY=" in result.stderr


def test_one_ready_line(start_gateway):
    gateway = start_gateway()
    assert gateway.url.startswith("http://127.0.0.1:")
    gateway.execute("print 1")
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
    assert gateway.execute("hang", session_id="s").status == "timeout"
    assert "DEBUG" in gateway.log()


MISSPELLED = (
    "KERNELGATE_MAX_SESSION: there is no such setting; did you mean KERNELGATE_MAX_SESSIONS?"
)


def test_misspelled_names(start_gateway, tmp_path):
    """Those that Kubernetes sets for a service are none."""
    services = {"KERNELGATE_PORT": "tcp://10.0.0.1:1", "KERNELGATE_SERVICE_HOST": "10.0.0.1"}
    tmp_path.joinpath(".env").write_text("KERNELGATE_POOLSIZE=3\n")
    env = {"KERNELGATE_MAX_SESSION": "4", **services}
    gateway = start_gateway("--log-format", "json", cwd=tmp_path, env=env)
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    said = [line for line in lines if line["event"] == "a variable is ignored"]
    assert [line["reason"] for line in said] == [
        MISSPELLED,
        "KERNELGATE_POOLSIZE in .env: there is no such setting; did you mean KERNELGATE_POOL_SIZE?",
    ]
    assert {line["level"] for line in said} == {"warning"}
    out = run("doctor", "--provisioner", "oci", "--oci-runtime", "/no/such/runtime", env=env).stdout
    assert f"--   environment              {MISSPELLED}\n" in out
    assert "SERVICE_HOST" not in out
    # Commands say it where that may be why they fail.
    env = {"KERNELGATE_ACCOUNT_FILE": "/tmp/a", "KERNELGATE_COLOUR": "red"}
    refused = run("user", "list", env=env).stderr
    assert "did you mean KERNELGATE_ACCOUNTS_FILE?" in refused and "no accounts: " in refused
    assert run("packages", "list", "--state-dir", str(tmp_path), env=env).stderr == ""


@pytest.mark.parametrize("command", [["serve"], ["user", "list"], ["packages", "list"]])
def test_a_malformed_line_of_env(command, tmp_path):
    tmp_path.joinpath(".env").write_text("# keys\nAPI_KEY secret of mine\n")
    result = run(*command, cwd=tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith('kernelgate: .env, line 2: there is no "=" in it; ')
    assert "secret" not in result.stderr


def test_doctor_leaves_the_state_folder_as_it_was(tmp_path):
    (tmp_path / "made").mkdir(mode=0o711)
    for name, there in (("made", True), ("new", False)):
        folder = tmp_path / name
        run("doctor", "--oci-runtime", "/no/such/runtime", "--state-dir", str(folder))
        assert folder.exists() == there
        assert not there or not list(folder.iterdir())


def test_doctor_says_what_is_missing():
    result = run("doctor", "--provisioner", "oci", "--oci-runtime", "/no/such/runtime")
    assert result.returncode != 0
    assert "/no/such/runtime" in result.stdout + result.stderr


def test_what_is_on_without_an_engine():
    """The rest is said all the same; of the packages, that no kernel takes them."""
    specs = str(component.HERE / "kernelspec")
    flags = ("--kernelspec-dir", specs, "--default-kernel", "script", "--max-sessions", "3")
    out = run("doctor", "--provisioner", "oci", "--oci-runtime", "/no/such/runtime", *flags).stdout
    assert "off  engine                   none works\n" in out and "max sessions" not in out
    assert "off  packages                 no kernelspec takes packages" in out
    assert "off  network " in out and "on   jupyter api " in out


def test_no_group_bounds_these_sandboxes(start_gateway):
    """The test runtime makes no control groups: then there are ten sessions, as on Docker."""
    gateway = start_gateway("--max-sessions", "0", "--jupyter-api=false")
    assert 'detail="10: no control group bounds the memory of all sandboxes of oci' in gateway.log()
    assert 'part="jupyter api" state=off detail="setting jupyter-api is false"' in gateway.log()
    assert "\nkernelgate_max_sessions 10\n" in gateway.client.get("/metrics").text
    for _ in range(10):
        gateway.create_session()
    problem(gateway.client.post("/api/v1/sessions", json={}), 429, "max_sessions")


def test_the_share_of_an_owner_follows_the_number_of_sessions(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    flags = ("--max-sessions", "0", "--api-keys-file", str(keys))
    gateway = start_gateway(*flags, key="key-of-alice")
    for _ in range(5):
        gateway.create_session()
    problem(gateway.client.post("/api/v1/sessions", json={}), 429, "max_sessions")


def test_serve_says_what_is_missing(tmp_path):
    result = run(
        "serve", "--port", "0", "--state-dir", str(tmp_path),
        "--provisioner", "oci", "--oci-runtime", "/no/such/runtime",
    )  # fmt: skip
    assert result.returncode != 0 and result.stdout == ""
    assert "setting oci-runtime: there is no program /no/such/runtime\n" in result.stderr
    assert "`kernelgate doctor` with the same flags " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["mcp"]], ids=" ".join)
def test_no_engine_at_all(tmp_path, command):
    result = run(
        *command, "--state-dir", str(tmp_path), "--oci-runtime", "/no/such/runtime",
        "--docker-host", "unix:///no/docker.sock",
    )  # fmt: skip
    assert result.returncode == 1 and result.stdout == ""
    assert (
        "kernelgate: oci: setting oci-runtime: there is no program /no/such/runtime; docker: setting "
        "docker-host: no Docker Engine at unix:///no/docker.sock: No such file or directory\n"
    ) in result.stderr
    assert "`kernelgate doctor` with the same flags " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("provisioner", ["oci", "auto"])
def test_no_environment_of_the_default_kernel(tmp_path, provisioner):
    """The one of this project, whose program is in it."""
    flags = ("--kernels-dir", str(tmp_path / "none"), "--oci-runtime", str(component.TEST_RUNTIME))
    flags += ("--provisioner", provisioner, "--state-dir", str(tmp_path / "state"))
    result = run("serve", "--port", "0", *flags)
    assert result.returncode == 1 and result.stdout == ""
    said = f"setting kernels-dir: the kernel python has no environment in {tmp_path}/none; script/setup"
    assert said in result.stderr
    result = run("doctor", *flags)
    assert result.returncode == 1 and f"no environment at {tmp_path}/none/python" in result.stdout
    assert "Sandboxes do not work yet." in result.stdout


def test_no_environment_of_another_kernel(start_gateway, tmp_path):
    specs = pathlib.Path(component.kernelspecs(tmp_path / "specs", other={}))
    path = specs / "other/kernel.json"
    spec = json.loads(path.read_text()) | {"argv": ["/opt/kernelgate/other/bin/kernel"]}
    path.write_text(json.dumps(spec))
    gateway = start_gateway("--kernelspec-dir", str(specs))
    assert "a kernel has no environment, and cannot start: script/setup makes it" in gateway.log()
    assert gateway.execute("print 1").text() == "1\n"
    answer = gateway.client.post("/api/v1/execute", json={"code": "print 1", "language": "other"})
    detail = problem(answer, 504, "kernel_start_timeout")["detail"]
    assert detail.startswith("cannot start /opt/kernelgate/other/bin/kernel: No such file")
    assert "script/setup installs the kernels" in detail


def test_a_state_folder_has_one_gateway(start_gateway):
    gateway = start_gateway()
    result = run("serve", *component.FLAGS, "--port", "0", "--state-dir", gateway.state_dir)
    assert result.returncode == 1 and result.stderr == (
        f"kernelgate: setting state-dir: another gateway (process {gateway.process.pid}) uses "
        f"{gateway.state_dir}; end that one, or give this one a folder of its own: --state-dir FOLDER "
        "(and another --port)\n"
    )
    assert gateway.client.get("/healthz").status_code == 200


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        result = run("serve", *component.FLAGS, "--port", port, "--state-dir", str(tmp_path))
    assert result.returncode == 1
    assert (
        f"setting port: cannot listen on 127.0.0.1:{port}: Address already in use" in result.stderr
    )
    assert f"choose another port: --port {int(port) + 1}\n" in result.stderr


def test_an_address_of_another_machine(tmp_path):
    flags = ("--host", "192.0.2.1", "--api-key", "k", "--port", "0", "--state-dir", str(tmp_path))
    result = run("serve", *component.FLAGS, *flags)
    assert result.returncode == 1
    assert "setting host: cannot listen on 192.0.2.1:0: Cannot assign" in result.stderr
    assert "it must be an address of this machine" in result.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ("--api-keys-file", "/no/such/file"),
        ("--default-kernel", "nonsense"),
        ("--kernelspec-dir", "/no/such/folder"),
        ("--provisioner", "docker", "--docker-host", "ssh://somewhere"),
        ("--image", "/no/such/image"),
        ("--agent", "/no/such/agent"),
        ("--user", "no-such-user"),
        ("--trusted-proxies", "nonsense"),
        ("--packages", "=="),
        ("--ports-domain", "a b"),
        ("--jupyter-api-prefix", "nonsense"),
    ],
    ids=lambda flags: flags[-2],
)
def test_values_that_cannot_be_used_name_their_setting(tmp_path, flags):
    result = run(
        "serve", *component.FLAGS, "--port", "0", "--state-dir", str(tmp_path / "state"), *flags
    )
    assert result.returncode == 1 and result.stdout == ""
    name = flags[-2].removeprefix("--")
    assert re.search(f"^kernelgate: (setting )?{name}: ", result.stderr, re.MULTILINE), (
        result.stderr
    )


def test_users_who_may_not_make_the_state_folder(tmp_path):
    result = subprocess.run(
        ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", BINARY, "serve"],
        capture_output=True, text=True, timeout=60, check=False, cwd="/", env={"XDG_RUNTIME_DIR": "/proc"},
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith(
        "kernelgate: setting state-dir: cannot create the folder /proc/"
    )


def test_logs_as_json(start_gateway):
    gateway = start_gateway("--log-format", "json", "--log-level", "debug")
    gateway.execute("print a secret of the tenant")
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    assert lines
    assert "a secret of the tenant" not in gateway.log()


# ---- The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_draining_lets_executions_finish(start_gateway, number):
    gateway = start_gateway("--drain-timeout", "600")
    with gateway.stream(cell(HELD, "print finished"), session_id="busy", timeout=600) as reader:
        reader.next_of("stdout")
        gateway.signal(number)
        wait_for(lambda: gateway.client.get("/readyz").status_code == 503)
        for path in ("/api/v1/execute", "/api/v1/%65xecute"):
            problem(gateway.client.post(path, json={"code": "result 1"}), 503, "draining")
        problem(gateway.client.post("/api/v1/sessions", json={}), 503, "draining")
        gateway.release("busy")
        lines = reader.rest()
    assert lines.text() == "on\nfinished\n" and lines.status == "ok"
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_draining_has_an_end(start_gateway):
    gateway = start_gateway("--drain-timeout", "1")
    with gateway.stream(HELD, session_id="busy", timeout=600) as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_more_signals_do_not_cut_the_end_short(start_gateway):
    """They end running work at once; what follows is done all the same."""
    gateway = start_gateway("--drain-timeout", "600")
    with gateway.stream(HELD, session_id="busy", timeout=600) as reader:
        reader.next_of("stdout")

        def has_ended():
            gateway.signal(signal.SIGTERM)
            return gateway.process.poll() is not None

        wait_for(has_ended, interval=0.0005)
        assert reader.rest().status in ("died", "interrupted")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_the_end_comes_while_sandboxes_start(start_gateway):
    gateway = start_gateway("--pool-size", "2")
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_the_end_comes_while_kernels_start(start_gateway, tmp_path):
    """These never say that they are ready."""
    spec = json.loads((component.HERE / "kernelspec/script/kernel.json").read_text())
    spec["argv"] = ["/bin/sleep", "3600"]
    (tmp_path / "script").mkdir()
    (tmp_path / "script/kernel.json").write_text(json.dumps(spec))
    gateway = start_gateway("--pool-size", "2", "--kernelspec-dir", str(tmp_path))

    def kernels():
        return [pid for sandbox in sandboxes(gateway) for pid in sandbox.pids()[1:]]

    wait_for(lambda: len(kernels()) == 2)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    gateway.assert_nothing_left()


def test_what_is_being_sent_at_the_end_is_answered(start_gateway):
    gateway = start_gateway()
    url = httpx.URL(gateway.url)
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        gateway.signal(signal.SIGTERM)

        def refuses():
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection((url.host, url.port)).close()
                return False
            return True

        wait_for(refuses, interval=0.001)  # it waits a second for the rest
        client.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert gateway.wait() == 0
    gateway.assert_nothing_left()
