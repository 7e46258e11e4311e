# SPDX-License-Identifier: Apache-2.0
"""GET /metrics where a real limit is reached; the rest is in tests/component."""

import re


def test_kernel_deaths_by_cause(gateway, run):
    def deaths():
        text = gateway.client.get("/metrics").text
        return float(
            re.search(r'^kernelgate_kernel_deaths_total\{cause="oom"\} (\S+)$', text, re.M)[1]
        )

    before = deaths()
    assert run("x = bytearray(2_000_000_000)").done["kernel_restarted"] is True
    assert deaths() == before + 1
