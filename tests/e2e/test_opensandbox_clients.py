# SPDX-License-Identifier: Apache-2.0
"""Clients of OpenSandbox that people have, as they are, with the gateway for their server."""

import os
import subprocess
import sys

import pytest
from kernelgate import PROJECT, Gateway

TAKES_LONG = True

CLIENTS = PROJECT / "tests/opensandbox"


def run_client(name, gateway, tmp_path):
    """Runs a client in a process of its own. It must end the sandboxes that it has made."""
    result = subprocess.run(
        [sys.executable, CLIENTS / f"{name}.py"],
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "KG_URL": gateway.url,
            "KG_KEY": gateway.key or "",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0 and result.stdout.endswith("done\n"), said[-6000:]
    assert gateway.client.get("/v1/sandboxes").json()["items"] == []


@pytest.fixture(scope="module")
def keyed(engine):
    running = Gateway(
        "--pool-size", "1", "--kernel-start", "fork", "--api-key", "key-a", key="key-a"
    )
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def open_gateway(engine):
    running = Gateway("--pool-size", "1", "--kernel-start", "fork")
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", ["run_sandbox", "run_code_interpreter", "run_litellm"])
def test_clients_with_a_key(keyed, tmp_path, client):
    run_client(client, keyed, tmp_path)


@pytest.mark.timeout(300)
def test_litellm_without_a_key(open_gateway, tmp_path):
    run_client("run_litellm", open_gateway, tmp_path)
