# SPDX-License-Identifier: Apache-2.0
"""How long commands take beside what takes the sandbox's processor time."""

import time

from kernelgate import run_until_timeout
from session_commands import Commands


def test_beside_a_busy_kernel(gateway, session):
    command = Commands(gateway, session)

    def quick():
        started = time.monotonic()
        assert command.wait("echo quick")["stdout"] == "quick\n"
        return time.monotonic() - started

    with gateway.stream("print('busy', flush=True)\nwhile True: pass", session_id=session) as busy:
        busy.next()
        # One of several tries has to be quick: the machine may do something else for a moment.
        assert any(quick() < 0.1 for _ in range(20))
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert busy.rest().status == "interrupted"


def test_a_fork_bomb_ends_soon(gateway, session):
    command = Commands(gateway, session)
    bomb = "import os\nprint('up', flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass"
    lines = run_until_timeout(
        lambda timeout: command(f'python -c "{bomb}"', timeout=timeout),
        lambda lines: lines.text() == "up\n",
    )
    assert lines.done["status"] == "timeout" and lines.done["duration_ms"] < 30_000
