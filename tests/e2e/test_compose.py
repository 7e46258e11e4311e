# SPDX-License-Identifier: Apache-2.0
"""docker-compose.yml: the gateway in a container beside the engine's socket, and nginx before it."""

import asyncio
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import contract
import docker_engine
import dockerd
import httpx
import httpx2
import leftovers
import pytest
from kernelgate import HELD, PROJECT, LineReader, Lines, free_port, problem, wait_for
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

# The first test builds the images.
pytestmark = [pytest.mark.only("docker", "it is about Docker Compose"), pytest.mark.timeout(900)]

KEY = "compose-key"


def has_compose_v2():
    version = ["docker", "compose", "version"]
    return (
        bool(shutil.which("docker"))
        and not subprocess.run(version, capture_output=True, check=False).returncode
    )


COMMAND = ["docker", "compose"] if has_compose_v2() else ["docker-compose"]


class Stack:
    """The project's docker-compose.yml, with ports and a state folder of the test's own."""

    def __init__(self, engine):
        self.state_dir = tempfile.mkdtemp(prefix=leftovers.PREFIX)
        self.port, self.http_port = free_port(), free_port()
        # The last two are where docker finds its plugins.
        kept = ("PATH", "HOME", "DOCKER_CONFIG")
        self.env = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "DOCKER_HOST": engine.host,
            "COMPOSE_PROJECT_NAME": f"kgt{os.getpid()}",
            "DOCKER_SOCKET": str(engine.socket),
            "KERNELGATE_STATE_DIR": self.state_dir,
            "KERNELGATE_PORT": str(self.port),
            "KERNELGATE_POOL_SIZE": "1",
            "HTTP_PORT": str(self.http_port),
            "HTTPS_PORT": str(free_port()),
        }

    def compose(self, *arguments, key="", check=True):
        result = subprocess.run(
            [*COMMAND, *arguments], cwd=PROJECT, env={**self.env, "API_KEY": key}, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert not check or result.returncode == 0, result.stdout
        return result

    def container(self, service):
        """The engine's description of a service's container, which may have ended."""
        ids = self.compose("--profile", "production", "ps", "-aq", service).stdout.split()
        return docker_engine.Engine().ask("GET", f"/containers/{ids[-1]}/json")

    def close(self):
        self.compose("--profile", "production", "down", "--timeout", "20", check=False)
        label = (pathlib.Path(self.state_dir) / "id").read_text()
        engine = docker_engine.Engine()
        for each in engine.containers(f"{docker_engine.LABEL}={label}"):
            engine.remove(each["Id"])
        shutil.rmtree(self.state_dir)


@pytest.fixture(scope="module")
def stack(engine):
    engine.build_gateway()
    engine.build_nginx()
    running = Stack(engine)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def client(stack):
    """Through nginx, with the key."""
    stack.compose("--profile", "production", "up", "-d", key=KEY)
    with httpx.Client(
        base_url=f"http://127.0.0.1:{stack.http_port}", timeout=120, trust_env=False,
        headers={"Authorization": f"Bearer {KEY}"},
        event_hooks={"response": [contract.check_stream]},
    ) as client:  # fmt: skip
        wait_for(lambda: answers(client, "/readyz"), timeout=60)
        yield client


def answers(client, path):
    with contextlib.suppress(httpx.TransportError):
        return client.get(path).status_code == 200
    return False


def stream(client, code, **fields):
    body = {"code": code, **fields}
    with client.stream("POST", "/api/v1/execute", json=body) as response:
        assert response.status_code == 200, response.read()
        lines = Lines(response)
        for text in response.iter_lines():
            lines.add(text)
    return lines


# The order matters: without a key, production without a key, production, and the rate limit last.


def test_up_and_nothing_else(stack):
    stack.compose("up", "-d")
    with httpx.Client(
        base_url=f"http://127.0.0.1:{stack.port}", timeout=60, trust_env=False
    ) as client:
        wait_for(lambda: answers(client, "/readyz"), timeout=60)
        assert stream(client, "print(6 * 7)").text() == "42\n"
        # Against DNS rebinding, a name that is not this machine's is refused.
        headers = {"Host": "rebound.example"}
        problem(client.get("/api/v1/sessions", headers=headers), 403, "forbidden_host")
    status = pathlib.Path(
        f"/proc/{stack.container('kernelgate')['State']['Pid']}/status"
    ).read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert set(fields["Uid"].split()) == {"10001"} and int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"] == "1"


def test_doctor(stack):
    result = stack.compose("exec", "-T", "kernelgate", "kernelgate", "doctor")
    assert "Sandboxes work on this machine." in result.stdout


def test_production_needs_a_key(stack):
    result = stack.compose("--profile", "production", "up", "-d", check=False)
    assert result.returncode != 0
    logs = stack.compose("--profile", "production", "logs", "key-check").stdout
    assert "API_KEY is required in production" in logs


def test_a_key_is_asked_for(client):
    problem(client.get("/api/v1/sessions", headers={"Authorization": ""}), 401, "unauthorized")
    assert client.get("/metrics").status_code == 403


def test_lines_come_at_once_and_long_cells_pass(client):
    """A cell of 70 seconds, and beside it one whose first line is awaited."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        long_one = pool.submit(
            stream, client, "import time; time.sleep(70); print('slept')", timeout=90
        )
        body = {"code": f"{HELD}print('off')", "session_id": "watched"}
        with client.stream("POST", "/api/v1/execute", json=body) as response:
            reader = LineReader(response)
            assert reader.next()["text"] == "on\n"
            go = client.put("/api/v1/sessions/watched/files/go", content=b"")
            assert go.status_code == 201, go.text
            assert reader.rest().text() == "on\noff\n"
        lines = long_one.result()
    assert lines.status == "ok" and lines.text() == "slept\n"
    assert lines.keepalives


def test_a_large_upload_passes(client):
    stream(client, "1", session_id="s")
    path = "/api/v1/sessions/s/files/large"
    data = os.urandom(1 << 20) * 50
    response = client.put(path, content=data)
    assert response.status_code in (200, 201), response.text
    assert client.get(path).content == data
    # Above the gateway's limit, and above nginx's.
    for size in (51, 70):
        problem(client.put(path, content=bytes(size << 20)), 413, "upload_too_large")


def test_an_mcp_client(stack, client):
    """The SDK's client, through nginx; its session keeps its state."""

    async def talk():
        headers = {"Authorization": f"Bearer {KEY}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
            streamable_http_client(
                f"http://127.0.0.1:{stack.http_port}/mcp", http_client=http
            ) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            tools = {tool.name for tool in (await session.list_tools()).tools}
            await session.call_tool("run_code", {"code": "x = 6"})
            result = await session.call_tool("run_code", {"code": "print(x * 7)"})
            return tools, result.content[0].text

    tools, text = asyncio.run(talk())
    assert "run_code" in tools and "42" in text


def test_a_backend_that_restarts(client, stack):
    stream(client, "x = 'kept'", session_id="s")
    docker = docker_engine.Engine()
    container = stack.container("kernelgate")["Id"]
    docker.ask("POST", f"/containers/{container}/stop", params={"t": 20})
    problem(client.get("/api/v1/health"), 503, "provisioner_unavailable")
    docker.ask("POST", f"/containers/{container}/start")
    wait_for(lambda: answers(client, "/readyz"), timeout=60)
    assert stream(client, "print(x)", session_id="s").text() == "kept\n"
    # A new container may have another address.
    stack.compose("up", "-d", "--force-recreate", "--no-deps", "kernelgate", key=KEY)
    wait_for(lambda: answers(client, "/readyz"), timeout=60)
    assert stream(client, "print(x)", session_id="s").text() == "kept\n"


def test_containers_are_bounded_and_have_no_more_than_they_need(client, stack):
    for service in ("kernelgate", "nginx", "key-check"):
        host = stack.container(service)["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        if service != "key-check":
            config = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "3"}}
            assert host["LogConfig"] == config, service


def test_a_gateway_made_anew_without_its_key_is_closed(client, stack):
    """nginx, which still runs, keeps passing on requests from other machines."""
    stack.compose("up", "-d")
    wait_for(lambda: answers(client, "/readyz"), timeout=60)
    for headers in ({}, {"Authorization": ""}, {"X-Forwarded-For": "127.0.0.1"}):
        for method, path in (
            ("GET", "/api/v1/sessions"),
            ("POST", "/api/v1/execute"),
            ("PUT", "/api/v1/sessions/s/files/x"),
            ("POST", "/mcp"),
            ("GET", "/sse"),
        ):
            response = client.request(method, path, headers=headers, content=b'{"code":"1"}')
            problem(response, 403, "forbidden_host")
    with httpx.Client(base_url=f"http://127.0.0.1:{stack.port}", trust_env=False) as local:
        assert local.get("/api/v1/sessions").status_code == 200
    stack.compose("up", "-d", key=KEY)
    wait_for(lambda: answers(client, "/api/v1/sessions"), timeout=60)


def test_the_entry_point_finds_the_socket_that_the_gateway_uses(stack, engine, tmp_path):
    """KERNELGATE_DOCKER_HOST comes before DOCKER_HOST; its group is what the gateway needs."""
    (tmp_path / "kernelgate").write_text("#!/bin/sh\nid -u && id -G\n")
    (tmp_path / "kernelgate").chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "engine.sock"))
    os.chown(tmp_path / "engine.sock", 0, 4321)
    result = engine.docker(
        "run", "--rm", "--network", "none", "--user", "0:0", "--volume", f"{tmp_path}:/mnt",
        "--volume", f"{tmp_path}/kernelgate:/usr/local/bin/kernelgate:ro",
        "--env", "DOCKER_HOST=unix:///nowhere.sock",
        "--env", "KERNELGATE_DOCKER_HOST=unix:///mnt/engine.sock", dockerd.GATEWAY,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    listener.close()
    assert result.stdout.split() == ["10001", "10001", "4321"]


@pytest.mark.parametrize("image", [dockerd.GATEWAY, dockerd.KERNELS])
def test_images_hold_their_licence_and_nothing_of_their_day(stack, engine, image):
    """Images contain nothing that differs between builds: logs, caches, backups, dates."""
    script = """cd /
        ls -d var/log/*.log var/log/apt var/cache/ldconfig/* var/lib/dpkg/*-old etc/*- 2>/dev/null
        cut -d: -f1,3 etc/shadow
        head -n 2 usr/share/doc/kernelgate/LICENSE
        python=opt/kernelgate/python/lib
        [ ! -d $python ] || find $python -name '*.py' -newermt 2025-01-02"""
    lines = engine.docker(
        "run", "--rm", "--network", "none", "--user", "0:0", "--entrypoint", "sh", image, "-c",
        script, stdout=subprocess.PIPE, text=True,
    ).stdout.splitlines()  # fmt: skip
    user = "kernelgate" if image == dockerd.GATEWAY else "sandbox"
    day = str(1735689600 // 86400)
    accounts = [line.split(":") for line in lines if ":" in line]
    assert [user, day] in accounts
    others = [line for line in lines if ":" not in line]
    assert len(others) == 2 and others[1].strip().startswith("Apache License"), others


def test_an_abusive_client_is_limited(client):
    # 40 at once, and 20 a second: more than a slow machine lets pass.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: client.get("/api/v1/sessions"), range(600)))
    refused = [each for each in responses if each.status_code != 200]
    assert len(responses) - len(refused) >= 40 and len(refused) >= 50
    for response in refused:
        problem(response, 429, "rate_limited")
        assert response.headers["retry-after"]
    wait_for(lambda: client.get("/api/v1/sessions").status_code == 200)
