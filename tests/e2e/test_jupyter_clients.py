# SPDX-License-Identifier: Apache-2.0
"""Clients that people have, as they are, with the gateway for their Jupyter server."""

import contextlib
import os
import subprocess
import sys
import types

import httpx
import pytest
from jupyter_wire import Channels, list_kernels, one, text
from kernelgate import PROJECT, Gateway, free_port, wait_for
from mcp_clients import NODE

TAKES_LONG = True

CLIENTS = PROJECT / "tests/jupyter"


def run_client(command, gateway, tmp_path):
    """Runs a client in a process of its own. It must end the kernels that it has started."""
    before = list_kernels(gateway).keys()
    result = subprocess.run(
        command,
        env={
            **os.environ,
            "JUPYTER_PREFER_ENV_PATH": "0",
            "JUPYTER_CONFIG_DIR": str(tmp_path),
            "IPYTHONDIR": str(tmp_path),
            "KG_NODE_ROOT": str(PROJECT / "build/jupyter"),
            "KG_URL": gateway.url,
            "KG_KEY": gateway.key or "",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0 and result.stdout.endswith("done\n"), said[-4000:]
    assert list_kernels(gateway).keys() == before


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture(scope="module")
def gateway_with_key(engine):
    flags = "--jupyter-api", "--pool-size", "1", "--kernel-start", "fork"
    running = Gateway(*flags, "--api-key", "key-a", key="key-a")
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.mark.parametrize("client", ["nbclient", "papermill", "kernel_test"])
def test_jupyter_servers_gateway_client(gateway, tmp_path, client):
    """It opens its WebSocket without a key."""
    run_client([sys.executable, CLIENTS / f"run_{client}.py"], gateway, tmp_path)


@pytest.mark.parametrize("client", ["autogen", "open_webui"])
def test_clients_with_a_key(gateway_with_key, tmp_path, client):
    run_client([sys.executable, CLIENTS / f"run_{client}.py"], gateway_with_key, tmp_path)


@pytest.mark.parametrize("part", ["kernels", "sessions", "terminals"])
def test_jupyterlab_services(gateway_with_key, tmp_path, part):
    """JupyterLab's own client, from npm."""
    run_client([NODE, CLIENTS / f"{part}.mjs"], gateway_with_key, tmp_path)


@pytest.fixture
def lab(gateway_with_key, tmp_path):
    """A Jupyter server that gets its kernels from the gateway, as `jupyter lab --gateway-url`."""
    gateway = gateway_with_key
    port = free_port()
    command = [
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root",
        f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True", f"--gateway-url={gateway.url}",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "JUPYTER_GATEWAY_AUTH_TOKEN": "key-a",
        "JUPYTER_CONFIG_DIR": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
        "JUPYTER_DATA_DIR": str(tmp_path),
        "IPYTHONDIR": str(tmp_path),
    }
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
    server = types.SimpleNamespace(url=f"http://127.0.0.1:{port}", gateway=gateway)
    try:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as server.client:
            wait_for(lambda: answers(server))
            yield server
    finally:
        process.terminate()
        process.wait(60)
        print((tmp_path / "log").read_text()[-6000:])


def answers(server):
    with contextlib.suppress(httpx.TransportError):
        return server.client.get("/api").status_code == 200


def test_the_server_of_jupyterlab(lab):
    specs = lab.client.get("/api/kernelspecs").json()
    assert specs["default"] == "python3" and "javascript" in specs["kernelspecs"]
    body = {
        "path": "a.ipynb",
        "name": "a",
        "type": "notebook",
        "kernel": {"name": "python3"},
    }
    session = lab.client.post("/api/sessions", json=body)
    assert session.status_code == 201, session.text
    kernel = session.json()["kernel"]["id"]
    assert list(list_kernels(lab.gateway)) == [kernel]
    with Channels(lab, kernel, v1=False) as client:
        client.until_idle(client.send("kernel_info_request", {}))
        assert text(client.run("print(1 + 1)")) == "2\n"
        running = client.execute("print('go', flush=True)\nwhile True: pass")
        client.until_printed("go\n")
        assert lab.client.post(f"/api/kernels/{kernel}/interrupt").status_code == 204
        messages = client.until_idle(running)
        assert one(messages, "error")["content"]["ename"] == "KeyboardInterrupt"
        asking = client.execute("print(input())", allow_stdin=True)
        asked = client.until(lambda message: message["channel"] == "stdin")[-1]
        client.send("input_reply", {"value": "me"}, "stdin", parent_header=asked["header"])
        assert text(client.until_idle(asking)) == "me\n"
        assert lab.client.post(f"/api/kernels/{kernel}/restart").status_code == 200
    with Channels(lab, kernel, v1=False) as client:
        assert text(client.run("print('running' in globals())")) == "False\n"
    assert [it["id"] for it in lab.client.get("/api/kernels").json()] == [kernel]
    assert lab.client.delete(f"/api/sessions/{session.json()['id']}").status_code == 204
    assert list_kernels(lab.gateway) == {}
