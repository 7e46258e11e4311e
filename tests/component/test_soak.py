# SPDX-License-Identifier: Apache-2.0
"""Clients use sessions while kernels, agents, whole sandboxes and the gateway are killed at random, as in
tests/e2e/test_soak.py: with scripted kernels more is killed in the same time."""

from kernelgate import free_port
from soak_cells import Script
from soak_killer import SECONDS, Run


def test_soak(start_gateway):
    gateway = start_gateway("--max-sessions", "30", "--pool-size", "2", port=free_port())
    soak = Run(gateway, Script(), ("kernel", "agent", "sandbox", "gateway"), pool_size=2)
    soak.run(SECONDS / 4)
    # The gateway lives on from here, so that what it forgets to close adds up.
    soak.run(SECONDS / 4, without=["gateway"])
    soak.end()
