# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/tools.md that can run as they stand: a client that brings tools, and an MCP server
behind the gateway."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import leftovers
import pytest
from kernelgate import BINARY, INHERITED, PROJECT, wait_for
from test_readme import blocks_of

pytestmark = pytest.mark.once
TEXT = (PROJECT / "docs/tools.md").read_text()


def test_a_client_that_brings_tools(gateway):
    before = TEXT.partition("\n## ")[0]
    [example] = re.findall(r"^```python\n(.*?)^```\n", before, re.MULTILINE | re.DOTALL)
    assert example.count("http://localhost:16010") == 1
    code = example.replace("http://localhost:16010", gateway.url)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "'Cairo'\n"), done.stderr


def shell(commands, folder):
    path = f"{pathlib.Path(BINARY).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=folder, env={**kept, "PATH": path, "HOME": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_mcp_server_behind_the_gateway(start_gateway, tmp_path):
    """The folder of the server and the port differ, and the gateway is the test's."""
    section = TEXT.partition("\n## MCP servers behind the gateway\n")[2].partition("\n## ")[0]
    [block] = blocks_of(section)
    serve = "kernelgate serve --mcp-servers mcp-servers.json &\nsleep 5\n"
    before, found, after = block.commands.partition(serve)
    assert found and "/opt/mcp-time" in before and after.count("localhost:16010") == 1
    server = tempfile.mkdtemp(prefix=leftovers.PREFIX)
    try:
        pathlib.Path(server).chmod(0o755)  # it runs as a user of its own
        printed = shell(before.replace("/opt/mcp-time", server), tmp_path)
        expected = re.search(r"\| grep MCP +# (.*)", before)[1]
        assert printed.split() == expected.split()
        gateway = start_gateway("--mcp-servers", str(tmp_path / "mcp-servers.json"))
        up = 'kernelgate_mcp_server_tools{server="time"} 2'
        wait_for(lambda: up in gateway.client.get("/metrics").text)
        address = gateway.url.removeprefix("http://")
        answer = shell(after.replace("localhost:16010", address), tmp_path)
    finally:
        shutil.rmtree(server)
    lines = [json.loads(line) for line in answer.splitlines()]
    assert lines[-1]["status"] == "ok", lines
    assert "Asia/Tokyo" in "".join(line["text"] for line in lines if line["type"] == "result")
