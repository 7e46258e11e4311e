# SPDX-License-Identifier: Apache-2.0
"""A language is added by a folder with a kernelspec, and nothing else."""

import re
import shutil
import subprocess

import pytest
from kernelgate import PROJECT


@pytest.mark.parametrize("name", ["javascript", "python"])
def test_only_the_named_wheels_are_installed(name, tmp_path):
    folder = PROJECT / "kernelspec" / name
    lines = (folder / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", line), line
    # The installer refuses a wheel with another hash.
    for part in folder.iterdir():
        shutil.copy(part, tmp_path)
    wrong = re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, packages[0])
    (tmp_path / "requirements.txt").write_text(wrong + "\n")
    run = subprocess.run(
        ["bash", tmp_path / "install", tmp_path / "target", f"/opt/kernelgate/{name}"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert run.returncode != 0 and "DO NOT MATCH THE HASHES" in run.stderr, run.stderr


@pytest.fixture(scope="module")
def kernelspecs(tmp_path_factory):
    """A folder as a user would have it: Python, and bash_kernel from PyPI."""
    make = "source script/common && make_kernel_environment tests/kernelspec/bash"
    subprocess.run(["bash", "-c", make], cwd=PROJECT, check=True, timeout=500)
    folder = tmp_path_factory.mktemp("kernelspec")
    (folder / "bash").symlink_to(PROJECT / "tests/kernelspec/bash")
    (folder / "python").symlink_to(PROJECT / "kernelspec/python")
    return folder


@pytest.mark.only("oci", "in an image the language would have to be built")
def test_another_language(start_gateway, kernelspecs):
    gateway = start_gateway("--kernelspec-dir", str(kernelspecs), "--pool-size", "0")
    assert set(gateway.client.get("/api/v1/kernelspecs").json()["kernelspecs"]) == {
        "bash",
        "python",
    }
    session = gateway.create_session()

    def bash(code, **fields):
        return gateway.execute(code, session_id=session, language="sh", **fields)

    assert bash("x=5; echo $((x + 1)) > n").status == "ok"
    assert bash("cat n; echo $x; pwd").text() == "6\n5\n/mnt/data\n"
    assert gateway.execute("print(open('n').read())", session_id=session).text() == "6\n\n"
    assert bash("no-such-command").status == "error"
    (line,) = (line for line in bash("sleep 60", timeout=1) if line["type"] == "done")
    assert line["status"] == "timeout"
    assert bash("echo back").text() == "back\n"
    assert set(gateway.show_session(session)["kernels"]) == {"bash", "python"}
    # Fields for which the kernelspec has no code are refused.
    for field in ({"variables": {"a": 1}}, {"env": {"A": "1"}}):
        response = gateway.client.post(
            "/api/v1/execute", json={"code": "1", "session_id": session, "kernel": "bash", **field}
        )
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request")


def test_a_broken_kernelspec_is_said(start_gateway, tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/kernel.json").write_text('{"argv": "bash", "language": "x"}')
    with pytest.raises(AssertionError, match="odd/kernel.json: argv must be a list of strings"):
        start_gateway("--kernelspec-dir", str(tmp_path))
