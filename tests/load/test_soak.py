# SPDX-License-Identifier: Apache-2.0
"""The gateway's memory during a soak (tests/e2e/test_soak.py): what has ended takes none."""

from soak_cells import Python
from soak_killer import SECONDS, Run

SLACK_MB, KEPT_KB = 6, 1


def test_memory_of_a_soak(start_gateway):
    gateway = start_gateway(
        *("--kernel-start", "fork", "--max-sessions", "30", "--pool-size", "1", "--pool-bare", "2")
    )
    soak = Run(
        gateway, Python(), ("zygote", "kernel", "agent", "sandbox"), pool_size=1, pool_bare=2
    )
    soak.run(min(60, SECONDS))
    before, n_before = gateway.rss_mb(), soak.soak.counts["executions"]
    soak.run(SECONDS)
    after, n_ended = gateway.rss_mb(), soak.soak.counts["executions"] - n_before
    soak.end()
    print(f"soak: {before:.1f} MiB, {n_ended} executions later {after:.1f} MiB")
    # Ended executions are kept for 10 minutes, at most 4,096. The rest is for what the allocator keeps.
    assert after - before < SLACK_MB + min(n_ended, 4096) * KEPT_KB / 1024
