# SPDX-License-Identifier: Apache-2.0
"""The door by which the gateway dials the agents over TCP, as an engine with a network would use it.

The tests of other files that are named here run once more with this module's gateway. All of them do
where KERNELGATE_DOOR=tcp is in the environment.
"""

import os
import pathlib
import stat

import pytest
from kernelgate import Gateway, wait_for
from sandboxes import lives, sandbox_of
from test_commands import command, test_a_command, test_beside_a_busy_kernel  # noqa: F401
from test_execute import (  # noqa: F401
    test_executions_of_a_session_wait_for_one_another,
    test_result,
    test_streams_are_told_apart_and_in_order,
    test_without_a_session_id_the_session_ends_with_the_response,
)
from test_files import files, test_up_down_and_away  # noqa: F401
from test_sessions import (  # noqa: F401
    test_delete_ends_a_running_execution,
    test_env_of_a_session,
    test_interrupt,
    test_restart_of_a_busy_kernel,
    test_state_persists_by_session_id,
)

pytestmark = [
    pytest.mark.only("oci", "it enters a sandbox's network namespace"),
    pytest.mark.not_on("runsc", "it has a network stack of its own"),
]

INSIDE = """
import os, socket
listening = [line.split()[1] for name in ("tcp", "tcp6") for line in open("/proc/net/" + name)
             if line.split()[3] == "0A"]
print(os.path.exists("/run/kg/door.sock"), any(address.endswith(":3E8B") for address in listening),
      [name for _, name in socket.if_nameindex()])
"""

STRANGER = """
import socket
with socket.create_connection(("127.0.0.1", 16011), 10) as stranger:
    print(stranger.recv(40, socket.MSG_WAITALL)[:8])
    stranger.sendall(bytes(224))
    print(stranger.recv(1))
"""


@pytest.fixture(scope="module")
def gateway(engine):
    running = Gateway("--pool-size", "1", env={"KERNELGATE_DOOR": "tcp"})
    try:
        yield running.start()
    finally:
        running.clean_up()


def test_it_is_tcp(gateway, run):
    """The socket is not there, the agent listens, and loopback is all the network there is."""
    assert run(INSIDE).text() == "False True ['lo']\n"
    key = pathlib.Path(gateway.state_dir, "link.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_text()) == 64


def test_the_secret_stays_outside(gateway, session, run):
    secret = pathlib.Path(gateway.state_dir, "link.key").read_text()
    run("pass")
    arguments = pathlib.Path(f"/proc/{sandbox_of(gateway, session).agent}/cmdline").read_text()
    assert "--gateway-key" in arguments and secret not in arguments


def test_the_tenant_is_no_gateway(run):
    assert run(STRANGER).text() == "b'KGNONCE1'\nb''\n"
    assert run("1 + 1").status == "ok"


def test_sessions_outlive_the_gateway(start_gateway):
    gateway = start_gateway("--pool-size", "1", env={"KERNELGATE_DOOR": "tcp"})
    session = gateway.create_session(session_id="kept")
    gateway.execute("x = 41", session_id=session)
    gateway.kill()
    gateway.start()
    assert gateway.execute("print(x + 1)", session_id=session).text() == "42\n"


def test_an_earlier_gateway_lets_a_sandbox_go(start_gateway):
    """Its state folder may be a backup. The container stays, for the gateway that was later."""
    gateway = start_gateway("--pool-size", "1", env={"KERNELGATE_DOOR": "tcp"})
    epoch = pathlib.Path(gateway.state_dir, "epoch")
    assert epoch.read_text() == "1\n"
    gateway.execute("x = 41", session_id="kept")
    sandbox = sandbox_of(gateway, "kept")
    gateway.kill()
    gateway.start()
    assert epoch.read_text() == "2\n"
    assert gateway.execute("print(x)", session_id="kept").text() == "41\n"
    gateway.kill()
    epoch.write_text("0\n")
    gateway.start()
    wait_for(lambda: gateway.client.get("/api/v1/sessions").json()["total"] == 0)
    assert lives(sandbox.agent)
    gateway.kill()
    epoch.write_text("2\n")
    gateway.start()
    assert gateway.execute("print(x + 1)", session_id="kept").text() == "42\n"


def test_other_doors_are_refused(start_gateway, tmp_path):
    with pytest.raises(AssertionError, match="KERNELGATE_DOOR can only be tcp"):
        start_gateway(env={"KERNELGATE_DOOR": "window"}, state_dir=os.fspath(tmp_path))
