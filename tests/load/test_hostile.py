# SPDX-License-Identifier: Apache-2.0
"""What code and kernels that attack the gateway cost it: memory."""

import component
import fake_kernel
import pytest
from kernelgate import wait_for

# The default of max-output-bytes: what one execution, and so one message, may hold.
KEPT_MB = 10


@pytest.mark.parametrize("mode", ["frames", "frame", "garbage", "silence"])
def test_a_fake_kernel(start_gateway, tmp_path, mode):
    gateway = start_gateway(*component.FLAGS, *fake_kernel.flags(tmp_path, mode))
    before = gateway.rss_mb()
    assert gateway.client.post("/api/v1/execute", json={"code": "1"}).status_code >= 500
    assert gateway.rss_mb() < before + 2 * KEPT_MB


def test_a_reader_that_never_reads(start_gateway):
    gateway = start_gateway(*component.FLAGS)
    gateway.create_session(session_id="calm")
    before = gateway.rss_mb()
    with gateway.stream("flood 300 1000000", session_id="unread", timeout=300) as reader:
        wait_for(lambda: not gateway.show_session("unread")["is_busy"], timeout=300)
        assert gateway.rss_mb() < before + 2 * KEPT_MB
        assert gateway.execute("result 1", session_id="calm").status == "ok"
        assert reader.rest().of("dropped")
