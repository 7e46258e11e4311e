# SPDX-License-Identifier: Apache-2.0
"""MCP servers behind a gateway: its file of them, and code in a sandbox that calls their tools."""

import base64
import json
import os
import pathlib
import zlib

import mcp_stand_in
from kernelgate import PROJECT, wait_for

SOURCE = pathlib.Path(mcp_stand_in.__file__).read_text()
# An environment has room for 16 KiB.
CLIENT = base64.b64encode(
    zlib.compress((PROJECT / "kernelspec/python/kernelgate_tools.py").read_bytes(), 9)
).decode()
# Commands have no packages: the module comes with the script.
SCRIPT = """
import base64, json, os, sys, threading, time, types, zlib
tools = types.ModuleType("kernelgate_tools")
exec(zlib.decompress(base64.b64decode(os.environ["CLIENT"])), tools.__dict__)
def failed(name, /, **arguments):
    try:
        return ["ok", tools.call(name, arguments)]
    except tools.ToolError as error:
        return [error.code, str(error)]
"""


def stdio(**fields):
    """A program that any user can start: its source is an argument."""
    return {"command": "/usr/bin/python3", "args": ["-c", SOURCE, "stdio"], **fields}


def write_file(folder, **servers):
    """Writes the file of --mcp-servers; returns its path."""
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    path.chmod(0o600)
    return str(path)


class Caller:
    """Runs scripts in a session that call tools; each prints one JSON value."""

    def __init__(self, gateway, session, client=None):
        self.client = client or gateway.client
        self.url = f"/api/v1/sessions/{session}/commands?wait=1"

    def script(self, script, status=0):
        """What it prints; `tools` is the module, failed(name, …) [code, message] or ["ok", result]."""
        body = {
            "command": 'exec /usr/bin/python3 -c "$SCRIPT"',
            "env": {"SCRIPT": SCRIPT + script, "CLIENT": CLIENT},
        }
        answer = self.client.post(self.url, json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.json()["exit_code"] == status, answer.json()["stderr"]
        return json.loads(answer.json()["stdout"] or "null")

    def call(self, name, /, **arguments):
        return self.script(f"print(json.dumps(tools.call({name!r}, {arguments!r})))")

    def failed(self, name, /, **arguments):
        """The error of a call: its code and its text."""
        code, message = self.script(f"print(json.dumps(failed({name!r}, **{arguments!r})))")
        assert code != "ok", message
        return code, message

    def names(self):
        return self.script("print(json.dumps(list(tools.find())))")

    def wait_for_tool(self, name):
        wait_for(lambda: name in self.names(), interval=0.1)


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(each) for each in task.read_text().split()]
    return found


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    return state != "Z"
