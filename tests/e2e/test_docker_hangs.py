# SPDX-License-Identifier: Apache-2.0
"""A Docker Engine that hangs. It takes half a minute, so only `script/test --provisioner docker` runs
it."""

import concurrent.futures
import signal
import time

import pytest
from kernelgate import problem, wait_for
from sandboxes import sandboxes

pytestmark = pytest.mark.only("docker", "it is about that engine")


def execute(gateway):
    return gateway.client.post("/api/v1/execute", json={"code": "print('new')"})


def test_an_engine_that_hangs(start_gateway, mortal):
    """New sessions and deletions wait for a limited time, and executions continue."""
    gateway = start_gateway("--pool-size", "0")
    for name in ("deleted", "runs"):
        gateway.execute("x = 41", session_id=name)
    mortal.process.send_signal(signal.SIGSTOP)
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            started = time.monotonic()
            fresh = pool.submit(execute, gateway)
            deleted = pool.submit(gateway.delete_session, "deleted")
            assert gateway.execute("print(x + 1)", session_id="runs").text() == "42\n"
            problem(fresh.result(), 503, "provisioner_unavailable")
            assert deleted.result().status_code == 200
        assert time.monotonic() - started < 45
    finally:
        mortal.process.send_signal(signal.SIGCONT)
    wait_for(lambda: execute(gateway).status_code == 200, timeout=40)
    wait_for(lambda: {each.session for each in sandboxes(gateway)} - {None} == {"runs"}, timeout=40)
