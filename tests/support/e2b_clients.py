# SPDX-License-Identifier: Apache-2.0
"""Clients of E2B's protocol as people have them, each in a process of its own (tests/e2b)."""

import os
import subprocess

from kernelgate import PROJECT
from mcp_clients import NODE

SCRIPTS = PROJECT / "tests/e2b"
OLD_SDK = PROJECT / "build/e2b-old/bin/python"
FRAMEWORKS = PROJECT / "build/e2b-frameworks/bin/python"


def by_urls(gateway, key):
    """What tells an SDK to use a gateway for the control plane, and for what is in sandboxes."""
    return {"E2B_API_URL": gateway.url, "E2B_SANDBOX_URL": gateway.url, "E2B_API_KEY": key}


def run_script(name, gateway, environment, folder, python=None, launcher=()):
    """Runs a script, by Node unless a Python is given. It must say `done` at the end, and leave no sandbox."""
    before = gateway.client.get("/api/v1/sessions").json()["sessions"]
    result = subprocess.run(
        [*launcher, python or NODE, SCRIPTS / name],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KG_NODE_ROOT": str(PROJECT / "build/e2b-node"),
            **environment,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0 and result.stdout.endswith("done\n"), said[-6000:]
    after = gateway.client.get("/api/v1/sessions").json()["sessions"]
    assert names(after) <= names(before)


def names(sessions):
    return {it["session_id"] for it in sessions}
