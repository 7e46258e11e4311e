# SPDX-License-Identifier: Apache-2.0
"""A language is added by a folder with a kernelspec, and nothing else."""

import subprocess

import pytest
from kernelgate import PROJECT


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
