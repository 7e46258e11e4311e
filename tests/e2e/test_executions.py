# SPDX-License-Identifier: Apache-2.0
"""Interrupts of real code, at the moments at which a kernel ignores signals."""

import os
import pathlib
import re
import signal

from sandboxes import sandbox_of


def pending(pid):
    """The signals that a process has yet to handle."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    masks = [int(mask, 16) for mask in re.findall(r"^S(?:ig|hd)Pnd:\t(\w+)", status, re.MULTILINE)]
    return {number for mask in masks for number in signal.valid_signals() if mask >> number - 1 & 1}


def test_an_interrupt_before_the_kernel_has_begun(gateway, session):
    """The kernel ignores signals between requests: one that came then would be lost, and the kernel be
    killed after the grace, with its variables."""
    gateway.execute("x = 41", session_id=session)
    kernel = sandbox_of(gateway, session).kernel()
    os.kill(kernel, signal.SIGSTOP)
    try:
        with gateway.stream("import time; time.sleep(60)", session_id=session) as reader:
            gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
            # The agent takes requests in order: it has sent by now what it was asked to send.
            gateway.client.post(
                f"/api/v1/sessions/{session}/commands", params={"wait": 1}, json={"command": "true"}
            ).raise_for_status()
            assert signal.SIGINT not in pending(kernel)
            os.kill(kernel, signal.SIGCONT)
            assert reader.rest().status == "interrupted"
    finally:
        os.kill(kernel, signal.SIGCONT)
    assert gateway.execute("print(x + 1)", session_id=session).text() == "42\n"


SLOW_TO_BEGIN = """
import time
x, usual = 41, get_ipython().kernel.should_handle
def should_handle(*arguments):
    time.sleep(0.15)
    return usual(*arguments)
get_ipython().kernel.should_handle = should_handle
"""


def test_an_interrupt_that_the_kernel_misses_is_repeated(gateway, session):
    """It ignores signals after it has said that it begins, until the code runs."""
    gateway.execute(SLOW_TO_BEGIN, session_id=session)
    with gateway.stream("time.sleep(60)", session_id=session) as reader:
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert reader.rest().status == "interrupted"
    assert gateway.execute("print(x + 1)", session_id=session).text() == "42\n"
