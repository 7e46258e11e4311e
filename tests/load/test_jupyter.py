# SPDX-License-Identifier: Apache-2.0
"""The gateway's memory while clients of Jupyter's kernels do not read, or send what takes much. The kernels
are the component tests' scripted ones."""

import contextlib
import pathlib
import re
import resource

import component
import pytest
from jupyter_wire import (
    Channels,
    connect_without_reading,
    failure,
    list_kernels,
    start_kernel,
    text,
)
from kernelgate import wait_for

FLAGS = [*component.FLAGS, "--jupyter-api"]


@pytest.fixture
def many_files():
    """This process may have two thousand open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_that_do_not_read(start_gateway, many_files):
    """31 of each of 33 kernels, all of which print 8 MB; the 32nd client reads."""
    gateway = start_gateway(
        *FLAGS, "--max-buffered-bytes", str(8 << 20), "--kernel-start-timeout", "300"
    )
    kernels = [start_kernel(gateway) for _ in range(33)]
    gateway.execute("set x 1", session_id="other")
    with Channels(gateway, kernels[0]) as reader:  # so that what large messages need is there
        reader.run("flood 128 65537")
    wait_for(lambda: list_kernels(gateway)[kernels[0]]["connections"] == 0)
    files, memory = gateway.open_files(), gateway.rss_mb()
    with contextlib.ExitStack() as unread:
        for kernel in kernels:
            for _ in range(31):
                client = connect_without_reading(gateway, kernel)
                unread.callback(client.sock.close)
        wait_for(lambda: sum(it["connections"] for it in list_kernels(gateway).values()) == 1023)
        for kernel in kernels:
            with Channels(gateway, kernel, timeout=120) as reader:
                messages = reader.run(component.cell("flood 128 65537", "print end"))
                assert text(messages).endswith("end\n")
            assert gateway.execute("get x", session_id="other").text() == "1\n"
            assert gateway.rss_mb() - memory < 200  # the kernels print 270 MB
    wait_for(lambda: gateway.open_files() <= files)
    assert all(it["connections"] == 0 for it in list_kernels(gateway).values())


def test_indents_of_notebooks_are_bounded(start_gateway):
    """Indented, each null of this body takes thirteen times as much."""
    gateway = start_gateway(*FLAGS)
    folder = f"/api/contents/{start_kernel(gateway)}"
    proc = pathlib.Path(f"/proc/{gateway.process.pid}")
    deep = "[" * 60 + ",".join(["null"] * 800000) + "]" * 60
    body = f'{{"type":"notebook","format":"json","content":{{"cells":{deep}}}}}'

    def memory_mb(name):
        return int(re.search(rf"{name}:\s+(\d+)", (proc / "status").read_text())[1]) / 1024

    (proc / "clear_refs").write_text("5")  # VmHWM begins anew
    before = memory_mb("VmRSS")
    failure(gateway.client.put(folder + "/deep.ipynb", content=body), 413)
    failure(gateway.client.get(folder + "/deep.ipynb"), 404)
    assert memory_mb("VmHWM") - before < 96
