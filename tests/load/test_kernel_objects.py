# SPDX-License-Identifier: Apache-2.0
"""Nothing that Linux gives to a sandbox is memory of nobody: each kind of its objects is made in bulk, and
the machine's memory must not grow by much more than the memory of the sandbox's control group."""

import pathlib
import re

import pytest
from kernelgate import wait_for
from object_cells import KINDS, PRELUDE
from sandboxes import sandbox_of

# Docker sets no limit of TCP's memory with version 1, and Kubernetes has the filter of its runtime.
pytestmark = [
    pytest.mark.only("oci", "test_isolation.py has what the filter refuses"),
    pytest.mark.not_on("runsc", "its objects are memory of the sandbox's own kernel"),
]

MIB = 1 << 20
# Other activity on the machine looks the same, so what grows must do so each time.
UNCOUNTED_MIB = 64


@pytest.fixture(scope="module", params=["fork", "exec"])
def gateway_flags(request):
    return ["--kernel-start", request.param]


def numbers(path):
    """The numbers in a file that has a name and a number in each line."""
    return {
        name: int(number)
        for name, number in re.findall(r"^(\S+?):?\s+(\d+)", path.read_text(), re.M)
    }


def machine_memory():
    """What Linux itself uses on the machine, of all kinds: not files, not memory of processes."""
    found = numbers(pathlib.Path("/proc/meminfo"))
    processes = found["Cached"] + found["Buffers"] + found["AnonPages"] + found["SwapCached"]
    return (found["MemTotal"] - found["MemFree"] - processes) * 1024


def group_memory(pid):
    """The part of it that is counted for the control group of a process."""
    groups = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    old = re.search(r"^\d+:(?:.*,)?memory(?:,.*)?:(.*)$", groups, re.M)
    if not old:
        folder = pathlib.Path("/sys/fs/cgroup" + re.search(r"^0::(.*)$", groups, re.M)[1])
        stat = numbers(folder / "memory.stat")
        return int((folder / "memory.current").read_text()) - stat["anon"] - stat["file"]
    folder = pathlib.Path("/sys/fs/cgroup/memory" + old[1])
    stat = numbers(folder / "memory.stat")
    tcp = int((folder / "memory.kmem.tcp.usage_in_bytes").read_text())
    used = int((folder / "memory.usage_in_bytes").read_text())
    return used + tcp - stat["total_rss"] - stat["total_cache"]


def settled_memory():
    """What the machine uses when it has freed what sandboxes and processes had that have ended."""
    seen = []

    def is_settled():
        seen.append(machine_memory())
        return len(seen) > 2 and max(seen[-3:]) - min(seen[-3:]) < 4 * MIB

    wait_for(is_settled)
    return seen[-1]


def uncounted(gateway, code):
    """By how many bytes the machine's memory grows beyond that of the sandbox; what the code printed."""
    session = gateway.create_session()
    assert gateway.execute(PRELUDE, session_id=session).status == "ok"
    agent = sandbox_of(gateway, session).agent
    machine = settled_memory()
    group = group_memory(agent)
    lines = gateway.execute(code, session_id=session, timeout=240)
    grown = settled_memory() - machine, group_memory(agent) - group
    gateway.delete_session(session)
    return grown[0] - grown[1], f"{lines.text()[:2000]}{lines.status}: {grown}"


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_linux_are_counted(gateway, kind):
    found = []
    for _ in range(3):
        beyond, made = uncounted(gateway, KINDS[kind])
        found.append(f"{beyond / MIB:.0f} MiB uncounted; {made}")
        print(found[-1])
        if beyond < UNCOUNTED_MIB * MIB:
            return
    pytest.fail("\n".join(found))
