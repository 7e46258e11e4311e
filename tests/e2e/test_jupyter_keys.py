# SPDX-License-Identifier: Apache-2.0
"""Keys at the WebSocket to a kernel's channels, and ids of kernels as keys."""

import contextlib
import os
import subprocess
import sys
import time

from jupyter_wire import Channels, connections, handshake, start_kernel, text


def test_keys(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway(
        "--jupyter-api", "--pool-size", "0", "--api-keys-file", str(keys), key="key-a"
    )
    kernel = start_kernel(gateway)
    for options in (
        {"query": "?token=key-a"},
        {"header": ["Authorization: token key-a"]},
        {"header": ["Authorization: Bearer key-a"]},
        {"header": ["Authorization: token "], "query": "?session_id=s&token=key-a"},
    ):
        with Channels(gateway, kernel, **options) as client:
            assert text(client.run("print(1)")) == "1\n"
    assert handshake(gateway, kernel, gateway.client_for("key-b")).status_code == 404
    for client in gateway.client_for(None), gateway.client_for("wrong"):
        assert handshake(gateway, kernel, client).status_code == 401


def test_an_id_is_enough_where_settings_say_so(start_gateway, tmp_path):
    """For the WebSocket of a kernel that POST /api/kernels has started, and for nothing else."""
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway(
        "--jupyter-api", "--jupyter-id-as-key", "--pool-size", "0",
        "--api-keys-file", str(keys), "--log-level", "debug", key="key-a",
    )  # fmt: skip
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        assert text(client.run("print(1)")) == "1\n"
        assert connections(gateway, kernel) == 1
    with Channels(gateway, kernel, header=["Authorization: token "]) as client:
        assert text(client.run("print(2)")) == "2\n"
    chosen = "11111111-2222-4333-8444-555555555555"
    gateway.execute("1", session_id=chosen)
    other = chosen.replace("1", "2")
    body = {"path": "a", "type": "notebook", "kernel": {"name": "python3", "id": other}}
    assert gateway.client.post("/api/sessions", json=body).json()["kernel"]["id"] == other
    with contextlib.closing(gateway.client_for(None)) as stranger:
        for unknown in chosen, other, "99999999-2222-4333-8444-555555555555", "x":
            assert handshake(gateway, unknown, stranger).status_code == 401
        for path in "/api/kernels", f"/api/kernels/{kernel}", f"/api/v1/sessions/{kernel}":
            assert stranger.get(path).status_code == 401
        assert stranger.delete(f"/api/kernels/{kernel}").status_code == 401
        assert handshake(gateway, kernel, stranger, Origin="http://evil.example").status_code == 403
        assert handshake(gateway, kernel, gateway.client_for("key-b")).status_code == 404
        with Channels(gateway, chosen, header=["Authorization: token key-a"]):
            pass
        gateway.client.delete(f"/api/kernels/{kernel}")
        assert handshake(gateway, kernel, stranger).status_code == 401
        gateway.execute("1", session_id=kernel)  # another kernel, whose id a client has chosen
        assert handshake(gateway, kernel, stranger).status_code == 401
        for _ in range(10):
            handshake(gateway, kernel, stranger)
        started = time.monotonic()
        assert handshake(gateway, kernel, stranger).status_code == 401
        assert time.monotonic() - started > 0.09  # 100 ms, by a clock that counts milliseconds
    assert kernel[:8] in gateway.log() and kernel not in gateway.log()


NBCLIENT = """
import sys, nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from nbclient import NotebookClient

GatewayClient.instance().url, GatewayClient.instance().auth_token = sys.argv[1:]
cell = nbformat.v4.new_code_cell("print(20 + 1)")
notebook = nbformat.v4.new_notebook(cells=[cell])
manager = "jupyter_server.gateway.managers.GatewayKernelManager"
NotebookClient(notebook, kernel_manager_class=manager).execute()
assert notebook.cells[0].outputs[0].text == "21\\n"
"""


def test_nbclient_with_a_key(start_gateway, tmp_path):
    """Its WebSocket sends none."""
    flags = "--jupyter-api", "--pool-size", "1", "--api-key", "key-a"
    for switch, failed in (("--jupyter-id-as-key",), False), ((), True):
        gateway = start_gateway(*flags, *switch, key="key-a")
        result = subprocess.run(
            [sys.executable, "-c", NBCLIENT, gateway.url, "key-a"],
            env={**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)},
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (result.returncode != 0) == failed, result.stderr[-4000:]
        assert not failed or "401" in result.stderr
