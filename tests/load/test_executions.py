# SPDX-License-Identifier: Apache-2.0
"""Memory that the logs of ended executions take."""


def test_logs_kept_for_replay_take_bounded_memory(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("1", session_id="s")
    before = gateway.rss_mb()
    for i in range(12):
        gateway.execute(f"print('{i}' * 5_000_000)", session_id="s")
    # 32 MiB are kept of 57, one execution more, and what the allocator keeps. Seen after 30: 42.
    assert gateway.rss_mb() - before < 80
