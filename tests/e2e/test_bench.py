# SPDX-License-Identifier: Apache-2.0
"""The gateway's log has the events that the benchmarks read."""

import sys

from kernelgate import BINARY, PROJECT

sys.path.append(str(PROJECT / "bench"))


def test_the_log_has_the_parts_of_a_cold_start():
    from contestants import Kernelgate

    flags = ("--pool-size", "0", "--log-level", "debug", "--log-format", "json")
    with Kernelgate(*flags, binary=BINARY) as gateway:
        marks = gateway.cold_start()
    parts = [name for name, _ in marks]
    assert parts == ["request", "container", "agent", "kernel", "readiness", "execution"]
    times = [time for _, time in marks]
    assert times == sorted(times)
