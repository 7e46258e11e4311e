# SPDX-License-Identifier: Apache-2.0
"""Clients use sessions while processes are killed at random: zygotes, kernels, agents, whole
sandboxes and the gateway itself. A session that was not hit loses nothing, and at the end nothing
is left. tests/component does the same with scripted kernels, and tests/load looks at the memory.

KERNELGATE_SOAK_SECONDS sets the duration, KERNELGATE_SOAK_SEED repeats a run's choices.
"""

import pytest
from kernelgate import free_port
from soak_cells import Python
from soak_killer import SECONDS, Run

TAKES_LONG = True

pytestmark = [
    pytest.mark.seldom,
    pytest.mark.only("oci", "its processes are killed on this machine"),
    pytest.mark.not_on("runsc", "its sandboxes have a kernel of their own"),
]


def test_soak(start_gateway):
    gateway = start_gateway(
        *("--kernel-start", "fork", "--max-sessions", "30", "--pool-size", "1", "--pool-bare", "2"),
        port=free_port(),
    )
    kinds = "zygote", "kernel", "agent", "sandbox", "gateway"
    soak = Run(gateway, Python(), kinds, pool_size=1, pool_bare=2)
    soak.run(SECONDS / 2)
    # The gateway lives on from here, so that what it forgets to close adds up.
    soak.run(SECONDS / 2, without=["gateway"])
    soak.end()
