# SPDX-License-Identifier: Apache-2.0
"""The README's first commands on a Debian machine that has nothing but certificates: script/server
installs what it needs, and streams what code prints."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import httpx
import leftovers
import machine
import pytest

# It serves until its input ends. Then it prepares the machine once more, as if npm could not be reached;
# what is kept for other work trees is not there either.
SERVE = """
script/server --port 0 2>&1 &
read -r _ || true
kill $!
wait $!
rm -r build/console build/console-tools ~/.cache/kernelgate/made/console*
npm_config_registry=http://127.0.0.1:1 npm_config_fetch_retries=0 script/setup 2>&1
test ! -e build/console
"""


@pytest.fixture
def root():
    prefix = f"{os.path.basename(leftovers.PREFIX)}fresh-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=machine.PROJECT / "build") as folder:
        yield pathlib.Path(folder)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_the_first_commands_work_on_a_fresh_machine(root, release):
    machine.make(root / "root", release)
    fresh = subprocess.Popen(
        machine.command(root / "root", "bash", "-ec", SERVE),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=machine.ENVIRONMENT,
    )  # fmt: skip
    said = []
    began = time.monotonic()
    try:
        for line in fresh.stdout:
            said.append(line)
            if ready := re.match(r"kernelgate listening on (\S+)", line):
                break
        else:
            pytest.fail("script/server ended:\n" + "".join(said[-40:]))
        print(f"script/server was ready after {time.monotonic() - began:.0f} s")
        page = httpx.get(f"{ready[1]}/console/")
        assert page.status_code == 200 and "<title>kernelgate</title>" in page.text
        with httpx.stream(
            "POST", f"{ready[1]}/api/v1/execute", json={"code": "print(6 * 7)"}, timeout=60
        ) as response:
            lines = [json.loads(line) for line in response.iter_lines()]
        assert [line["type"] for line in lines] == ["stdout", "done"], lines
        assert lines[0]["text"] == "42\n" and lines[1]["status"] == "ok"
    finally:
        rest, _ = fresh.communicate()  # its input ends, and so does the gateway
    assert fresh.returncode == 0, "".join(said[-40:]) + rest
    assert "ECONNREFUSED" in rest and "npm could not install the console's packages" in rest, rest
    assert "the console was not built" in rest and "ready: start it" in rest, rest
