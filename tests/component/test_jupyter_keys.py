# SPDX-License-Identifier: Apache-2.0
"""Keys at the WebSocket to a kernel's channels, and ids of kernels as keys."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from account_commands import Accounts
from jupyter_wire import (
    Channels,
    connections,
    handshake,
    start_kernel,
    text,
    wait_until_left,
)
from kernelgate import wait_for


def test_keys(start_gateway, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway("--jupyter-api", "--api-keys-file", str(keys), key="key-a")
    kernel = start_kernel(gateway)
    for options in (
        {"query": "?token=key-a"},
        {"header": ["Authorization: token key-a"]},
        {"header": ["Authorization: Bearer key-a"]},
        {"header": ["Authorization: token "], "query": "?session_id=s&token=key-a"},
    ):
        with Channels(gateway, kernel, **options) as client:
            assert text(client.run("print 1")) == "1\n"
    assert handshake(gateway, kernel, gateway.client_for("key-b")).status_code == 404
    for client in gateway.client_for(None), gateway.client_for("wrong"):
        assert handshake(gateway, kernel, client).status_code == 401


def test_an_id_is_enough_where_settings_say_so(start_gateway, tmp_path):
    """For the WebSocket of a kernel that POST /api/kernels has started, and for nothing else."""
    keys = tmp_path / "keys"
    keys.write_text("anna:key-a\nbert:key-b\n")
    gateway = start_gateway(
        "--jupyter-api", "--jupyter-id-as-key",
        "--api-keys-file", str(keys), "--log-level", "debug", key="key-a",
    )  # fmt: skip
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        assert text(client.run("print 1")) == "1\n"
        assert connections(gateway, kernel) == 1
    with Channels(gateway, kernel, header=["Authorization: token "]) as client:
        assert text(client.run("print 2")) == "2\n"
    chosen = "11111111-2222-4333-8444-555555555555"
    gateway.execute("result 1", session_id=chosen)
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
        gateway.execute(
            "result 1", session_id=kernel
        )  # another kernel, whose id a client has chosen
        assert handshake(gateway, kernel, stranger).status_code == 401
        for _ in range(10):
            handshake(gateway, kernel, stranger)
        started = time.monotonic()
        assert handshake(gateway, kernel, stranger).status_code == 401
        assert time.monotonic() - started > 0.09  # 100 ms, by a clock that counts milliseconds
    assert kernel[:8] in gateway.log() and kernel not in gateway.log()


class FileOfKeys:
    """Two keys of alice, in a file."""

    def __init__(self, folder):
        self.path = folder / "keys"
        self.flags = ("--api-keys-file", str(self.path))
        self.keys = ["key-1", "key-2"]
        self.path.write_text("alice:key-1\nalice:key-2\n")

    def revoke(self):
        self.path.write_text("alice:key-2\n")

    def restore(self):
        pass


class KeysOfAccount:
    """Two keys of an account."""

    def __init__(self, folder):
        self.accounts = Accounts(folder / "accounts.db")
        self.flags = self.accounts.flags
        self.accounts.do("user", "add", "alice")
        self.keys = [self.accounts.key("alice"), self.accounts.key("alice")]

    def revoke(self):
        self.accounts.do("key", "revoke", self.keys[0])

    def restore(self):
        pass


class DisabledAccount(KeysOfAccount):
    def revoke(self):
        self.accounts.do("user", "disable", "alice")

    def restore(self):
        self.accounts.do("user", "enable", "alice")


@pytest.mark.parametrize("kind", [FileOfKeys, KeysOfAccount, DisabledAccount])
def test_a_revoked_key_ends_its_websockets(start_gateway, clients, tmp_path, kind):
    """A client that sends, one that only reads, and one that is away; not that of another key."""
    store = kind(tmp_path)
    first, second = store.keys
    gateway = start_gateway("--jupyter-api", *store.flags, key=second)
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query=f"?token={first}&session_id=lab") as away:
        away.run("result 1")
    wait_until_left(gateway, kernel)
    gateway.execute("print missed", session_id=kernel)
    sender = Channels(gateway, kernel, query=f"?token={first}")
    reader = Channels(gateway, kernel, query=f"?token={first}")
    others = (
        [] if kind is DisabledAccount else [Channels(gateway, kernel, query=f"?token={second}")]
    )
    assert text(sender.run("print 1")) == "1\n"
    store.revoke()
    old = clients(gateway, first)
    wait_for(lambda: old.get("/api/kernels").status_code == 401)
    sender.execute("write ran")
    assert sender.closing_status() == 1008
    assert reader.closing_status() == 1008
    wait_for(lambda: gateway.log().count("the key of a WebSocket is no longer valid") == 2)
    store.restore()
    assert connections(gateway, kernel) == len(others)
    for other in others:
        assert text(other.run("print 3")) == "3\n"
        other.ws.close()
    assert gateway.client.get(f"/api/v1/sessions/{kernel}/files/ran").status_code == 404
    with Channels(gateway, kernel, query=f"?token={second}&session_id=lab") as new:
        assert text(new.run("print 2")) == "2\n"
        assert text(new.seen) == ""
    assert first not in gateway.log()


def test_messages_wait_while_keys_cannot_be_checked(start_gateway, tmp_path):
    accounts = Accounts(tmp_path / "accounts.db")
    accounts.do("user", "add", "alice")
    key = accounts.key("alice")
    gateway = start_gateway("--jupyter-api", *accounts.flags, key=key)
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, query=f"?token={key}") as client:
        client.run("result 1")
        aside = accounts.path.with_name("aside")
        accounts.path.rename(aside)
        wait_for(lambda: gateway.client.get("/api/kernels").status_code == 503)
        running = client.execute("print 2")
        for _ in range(50):  # these come after the message, and each is checked as it is
            assert gateway.client.get("/api/kernels").status_code == 503
        assert not client.is_readable()
        aside.rename(accounts.path)
        assert text(client.until_idle(running)) == "2\n"


NBCLIENT = """
import sys, nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from nbclient import NotebookClient

GatewayClient.instance().url, GatewayClient.instance().auth_token = sys.argv[1:]
cell = nbformat.v4.new_code_cell("print 21")
notebook = nbformat.v4.new_notebook(cells=[cell])
manager = "jupyter_server.gateway.managers.GatewayKernelManager"
NotebookClient(notebook, kernel_manager_class=manager).execute()
assert notebook.cells[0].outputs[0].text == "21\\n"
"""


def test_nbclient_with_a_key(start_gateway, tmp_path):
    """Its WebSocket sends none."""
    flags = "--jupyter-api", "--api-key", "key-a"
    for switch, failed in (("--jupyter-id-as-key",), False), ((), True):
        gateway = start_gateway(*flags, *switch, key="key-a")
        result = subprocess.run(
            [sys.executable, "-c", NBCLIENT, gateway.url, "key-a"],
            env={**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)},
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (result.returncode != 0) == failed, result.stderr[-4000:]
        assert not failed or "401" in result.stderr
