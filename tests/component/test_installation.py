# SPDX-License-Identifier: Apache-2.0
"""An installation is a folder: its gateway finds all in there, and nothing in the tree that it was built
from, which another user may be able to write."""

import pathlib
import shutil
import subprocess

import component
import pytest
from component import cell
from kernelgate import BINARY, PROJECT, RELEASE, Gateway

BUILD = pathlib.Path(BINARY).parents[1]
RELEASED = pathlib.Path(RELEASE).parents[1]


@pytest.fixture
def installed(tmp_path):
    """Where it is installed."""
    subprocess.run(
        ["cmake", "--install", BUILD, "--prefix", tmp_path / "i"], check=True, capture_output=True
    )
    return tmp_path / "i"


def run(installed, command, tmp_path):
    return subprocess.run(
        [installed / "bin/kernelgate", command, "--state-dir", tmp_path / "s", "--provisioner", "oci"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_gateway_that_is_installed(installed):
    shared = installed / "share/kernelgate"
    shutil.copytree(component.HERE / "kernelspec/script", shared / "kernelspec/script")
    (shared / "kernels").mkdir()
    (shared / "kernels/script").symlink_to(component.KERNELS / "script")
    gateway = Gateway(
        *("--oci-runtime", str(component.TEST_RUNTIME), "--kernel-start", "exec"),
        *("--default-kernel", "script", "--pool-size", "0", "--pool-bare", "0"),
        binary=installed / "bin/kernelgate",
    )
    try:
        assert gateway.start().execute(cell("print found")).text() == "found\n"
    finally:
        gateway.clean_up()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("share/kernelgate/kernelspec", "cannot read the kernelspecs' folder {}: No such file"),
        ("share/kernelgate/kernels", "the kernel python has no environment in {};"),
        ("libexec/kernelgate/kernelgate-agent", "{}: No such file"),
    ],
)
def test_what_is_missing_is_named_and_not_looked_for_elsewhere(installed, tmp_path, missing, said):
    assert (PROJECT / "kernelspec/python/kernel.json").exists() and (BUILD / missing).exists()
    (installed / "share/kernelgate/kernels/python").mkdir(parents=True)
    path = installed / missing
    path.unlink() if path.is_file() else shutil.rmtree(path)
    served = run(installed, "serve", tmp_path)
    assert served.returncode == 1 and said.format(path) in served.stderr, served.stderr
    examined = run(installed, "doctor", tmp_path)
    assert examined.returncode == 1 and str(path) in examined.stdout, examined.stdout


@pytest.mark.parametrize(
    "name",
    [
        "bin/kernelgate",
        "libexec/kernelgate/kernelgate-agent",
        "libexec/kernelgate/kernelgate-enter.so",
    ],
)
def test_what_is_released_is_hardened_and_does_not_say_where_it_was_built(name):
    def lines(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "BIND_NOW" in lines("readelf", "-dW", RELEASED / name)
    headers = lines("readelf", "-hlW", RELEASED / name)
    assert "GNU_RELRO" in headers and "DYN (" in headers and " RWE " not in headers
    symbols = lines("readelf", "-sW", RELEASED / name)
    assert "__stack_chk_fail" in symbols
    assert "__snprintf_chk" in symbols or name.endswith(".so")  # which prints nothing
    assert str(PROJECT).encode() not in (RELEASED / name).read_bytes()
