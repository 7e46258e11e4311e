# SPDX-License-Identifier: Apache-2.0
"""Kernelspecs: the wheels that they install, and what is wrong with one."""

import os
import re
import shutil
import subprocess

import pytest
from kernelgate import PROJECT
from web import Index, wheel


@pytest.mark.parametrize("name", ["javascript", "python"])
def test_only_the_named_wheels_are_installed(name, tmp_path):
    folder = PROJECT / "kernelspec" / name
    lines = (folder / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", line), line
    # The installer refuses a wheel with other bytes.
    for part in folder.iterdir():
        shutil.copy(part, tmp_path)
    (tmp_path / "requirements.txt").write_text(packages[0] + "\n")
    package, version = re.match(r"([\w.-]+)==([\w.]+)", packages[0]).groups()
    index = Index()
    index.add(f"{package}-{version}-py3-none-any.whl", wheel(package, version, {}))
    settings = {"PIP_INDEX_URL": index.simple, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    run = subprocess.run(
        ["bash", tmp_path / "install", tmp_path / "target", f"/opt/kernelgate/{name}"],
        env={**os.environ, **settings}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    index.close()
    assert run.returncode != 0 and "DO NOT MATCH THE HASHES" in run.stderr, run.stderr


def test_a_broken_kernelspec_is_said(start_gateway, tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/kernel.json").write_text('{"argv": "bash", "language": "x"}')
    with pytest.raises(AssertionError, match="odd/kernel.json: argv must be a list of strings"):
        start_gateway("--kernelspec-dir", str(tmp_path))
