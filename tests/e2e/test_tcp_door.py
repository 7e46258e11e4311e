# SPDX-License-Identifier: Apache-2.0
"""The door by which the gateway dials the agents over TCP, as an engine with a network would use it:
no folder of this machine is in a sandbox, neither a door nor wheels.

The tests of other files that are named here run once more with this module's gateway. All of them do
where KERNELGATE_DOOR=tcp is in the environment.
"""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import threading

import leftovers
import pytest
from kernelgate import PROJECT, Gateway, wait_for
from sandboxes import lives, sandbox_of, sandboxes
from test_commands import command, test_a_command, test_beside_a_busy_kernel  # noqa: F401
from test_execute import (  # noqa: F401
    test_executions_of_a_session_wait_for_one_another,
    test_result,
    test_streams_are_told_apart_and_in_order,
    test_without_a_session_id_the_session_ends_with_the_response,
)
from test_files import files, test_up_down_and_away  # noqa: F401
from test_packages import (  # noqa: F401
    NOWHERE,
    index,
    install,
    show,
    test_a_running_kernel_imports_it_at_once,
    test_another_version_takes_its_place,
    test_dependencies_come_with_it_but_not_what_is_there,
    test_the_second_session_needs_neither_network_nor_another_sandbox,
    test_two_installs_of_one_thing_are_one_download,
    test_what_cannot_be_had_is_told,
    version_in_kernel,
)
from test_sessions import (  # noqa: F401
    test_delete_ends_a_running_execution,
    test_env_of_a_session,
    test_interrupt,
    test_restart_of_a_busy_kernel,
    test_state_persists_by_session_id,
)
from web import wheel

pytestmark = [
    pytest.mark.seldom,
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


TCP = {"KERNELGATE_DOOR": "tcp"}


@pytest.fixture(scope="module")
def gateway(engine, index):  # noqa: F811
    flags = ("--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1")
    running = Gateway("--pool-size", "1", *flags, env=TCP, quick=True)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def installer(gateway):
    """The gateway of the tests of packages."""
    return gateway


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
    gateway = start_gateway("--pool-size", "1", env=TCP)
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


def test_a_damaged_epoch_is_refused(start_gateway, tmp_path):
    (tmp_path / "epoch").write_text("x\n")
    with pytest.raises(AssertionError, match="epoch does not begin with a number"):
        start_gateway(env={"KERNELGATE_DOOR": "tcp"}, state_dir=os.fspath(tmp_path))


def test_other_doors_are_refused(start_gateway, tmp_path):
    with pytest.raises(AssertionError, match="KERNELGATE_DOOR can only be tcp"):
        start_gateway(env={"KERNELGATE_DOOR": "window"}, state_dir=os.fspath(tmp_path))


# ---- Packages, without a folder that is shared -----------------------------------------------

# Files that kernelgate itself has among the session's, other than installed packages.
OWN_FILES = """
import os
paths = [os.path.join(folder, name) for folder, _, names in os.walk('/mnt/data') for name in names]
print([path for path in paths if '/.kg-' in path and '/.kg-packages/' not in path])
"""


def packages_flags(index):  # noqa: F811
    return (
        "--pool-size",
        "0",
        "--fetch-allow",
        "127.0.0.1",
        "--pypi-index-url",
        index.simple,
    )


@pytest.fixture
def held(index):  # noqa: F811
    """The index does not answer for kgslow before this event is set."""
    event = threading.Event()
    status, headers, body = index.answers["/simple/kgslow/"]

    def slowly(handler):
        event.wait(60)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    index.answers["/simple/kgslow/"] = slowly
    index.asked.clear()
    yield event
    event.set()
    index.answers["/simple/kgslow/"] = (status, headers, body)


def test_sandboxes_share_no_folder(start_gateway, index, held):  # noqa: F811
    """Neither the session's nor the one that downloads."""
    gateway = start_gateway(*packages_flags(index), env=TCP)
    session = gateway.create_session()
    path = f"/api/v1/sessions/{session}/packages?wait=0"
    assert gateway.client.post(path, json={"packages": ["kgslow"]}).status_code == 202
    wait_for(lambda: "/simple/kgslow/" in index.asked, timeout=60)
    found = sandboxes(gateway)
    assert len(found) == 2
    for sandbox in found:
        mounts = pathlib.Path(f"/proc/{sandbox.agent}/mountinfo").read_text()
        shared = f"{os.path.basename(gateway.state_dir)}/packages"
        assert " / / " in mounts  # it is the sandbox's
        assert shared not in mounts and "/opt/kernelgate/packages" not in mounts
    held.set()
    wait_for(lambda: show(gateway, session, "kgslow")["status"] == "installed", timeout=60)
    code = "import os, kgslow; print(kgslow.VERSION, os.path.exists('/opt/kernelgate/packages'))"
    assert gateway.execute(code, session_id=session).text() == "1.0 False\n"
    assert gateway.execute(OWN_FILES, session_id=session).text() == "[]\n"
    assert gateway.show_session(session)["files"] == []


def test_modules_of_the_session_are_not_pips(gateway, session, run):
    run("for name in 'json', 'tempfile': open(f'/mnt/data/{name}.py', 'w').write('1/0')")
    assert install(gateway, session, "kgthree")[-1]["status"] == "ok"
    assert show(gateway, session, "kgthree")["version"] == "3.0"


def test_packages_stay_through_restarts(start_gateway, index):  # noqa: F811
    gateway = start_gateway(*packages_flags(index), env=TCP)
    session = gateway.create_session()
    assert install(gateway, session, "kgtwo")[-1]["status"] == "ok"
    assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
    assert version_in_kernel(gateway, session, "kgtwo") == "2.0"
    gateway.kill()
    gateway.flags = (*packages_flags(index)[:-1], NOWHERE)
    gateway.start()
    assert show(gateway, session, "kgone")["version"] == "1.0"
    assert version_in_kernel(gateway, session, "kgone") == "1.0"
    other = gateway.create_session()
    assert install(gateway, other, "kgtwo==2.0")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, other, "kgtwo") == "2.0"


def test_a_set_that_does_not_fit_leaves_nothing(start_gateway, index):  # noqa: F811
    """One of its wheels has room, and the other has not."""
    content = {
        "kglarge/__init__.py": "VERSION = '1.0'\n",
        "kglarge/data": "x" * (8 << 20),
    }
    large = wheel("kglarge", "1.0", content, requires=["kgone"])
    index.add("kglarge-1.0-py3-none-any.whl", large)
    gateway = start_gateway(*packages_flags(index), "--disk-mb", "48", env=TCP)
    session = gateway.create_session()
    ballast = "disk = os.statvfs('/mnt/data'); n = disk.f_bavail * disk.f_frsize - (6 << 20)"
    code = f"import os; {ballast}; open('/mnt/data/ballast', 'wb').write(bytes(n))"
    assert gateway.execute(code, session_id=session).status == "ok"
    [result] = install(gateway, session, "kglarge")[-1]["packages"]
    assert result["status"] == "failed"
    expected = f"no room for kglarge-1.0-py3-none-any.whl ({len(large)} bytes): see disk-mb"
    assert expected in result["message"]
    assert gateway.execute(OWN_FILES, session_id=session).text() == "[]\n"
    assert gateway.execute("import kgone", session_id=session).status == "error"
    assert gateway.execute("os.remove('/mnt/data/ballast')", session_id=session).status == "ok"
    assert install(gateway, session, "kglarge")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kglarge") == "1.0"
    assert gateway.execute(OWN_FILES, session_id=session).text() == "[]\n"


def test_a_gateway_that_ends_while_wheels_are_copied(start_gateway, index, held):  # noqa: F811
    gateway = start_gateway(*packages_flags(index), env=TCP)
    session = gateway.create_session()
    # As a gateway leaves it that ends between two wheels.
    left = "/mnt/data/.kg-delivered/wheels/x"
    code = f"import os; os.makedirs('{left}'); open('{left}/left.whl', 'w').close()"
    assert gateway.execute(code, session_id=session).status == "ok"
    path = f"/api/v1/sessions/{session}/packages"
    agent = sandbox_of(gateway, session).agent
    with gateway.client.stream("POST", path, json={"packages": ["kgslow"]}) as response:
        lines = response.iter_lines()
        wait_for(lambda: "/simple/kgslow/" in index.asked, timeout=60)
        os.kill(agent, signal.SIGSTOP)
        try:
            held.set()
            assert any("copying the wheels" in line for line in lines)
            gateway.kill()
        finally:
            os.kill(agent, signal.SIGCONT)
    gateway.start()
    assert show(gateway, session, "kgslow")["status"] == "not_found"
    assert install(gateway, session, "kgslow")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgslow") == "1.0"
    assert gateway.execute(OWN_FILES, session_id=session).text() == "[]\n"


# ---- Kernels, without environments that are mounted ------------------------------------------


@pytest.fixture
def image():
    """A root folder with the Python kernel in it, as a pod's image has it: hard links, or copies,
    of this machine's files."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=leftovers.PREFIX))
    folder.chmod(0o755)
    python = pathlib.Path(os.path.realpath(PROJECT / "build/kernels/python/bin/python"))
    usr = pathlib.Path("/usr")
    parts = {path: folder / f".{path}" for path in [
        usr / "bin/dash", usr / "bin/env", *python.parent.glob("python3*"), *usr.glob("lib64"),
        *usr.glob("lib/ld-linux*"), *usr.glob("lib/python3*"), *usr.glob("lib/*-linux-gnu"),
    ]}  # fmt: skip
    parts[PROJECT / "build/kernels/python"] = folder / "opt/kernelgate/python"
    for source, target in parts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        link = ["cp", "-aT", "--link", source, target]
        if subprocess.run(link, stderr=subprocess.DEVNULL, check=False).returncode:
            subprocess.run(["cp", "-aT", source, target], check=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "usr/bin/sh").symlink_to("dash")
    for point in ("proc", "dev", "sys", "tmp", "mnt/data", "run/kg"):
        (folder / point).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "run/kg-agent").touch()
    # Debian's pip reads them before it knows which ones to use.
    (folder / "etc/ssl/certs").mkdir(parents=True)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs")
    yield folder
    shutil.rmtree(folder)


def test_the_kernel_of_the_image(image, start_gateway, index):  # noqa: F811
    """Where no folder is shared, /opt/kernelgate is the image's, also on a gateway that has kernels
    of its own."""
    (image / "opt/kernelgate/python/of-the-image").touch()
    gateway = start_gateway(*packages_flags(index), "--image", str(image), env=TCP)
    session = gateway.create_session()
    code = (
        "import os, sys; print(sys.prefix, os.listdir('/opt/kernelgate'), os.listdir(sys.prefix))"
    )
    text = gateway.execute(code, session_id=session).text()
    assert text.startswith("/opt/kernelgate/python ['python']") and "of-the-image" in text
    mounts = pathlib.Path(f"/proc/{sandbox_of(gateway, session).agent}/mountinfo").read_text()
    points = {line.split()[4] for line in mounts.splitlines()}
    assert {"/", "/mnt/data", "/tmp"} <= points
    assert not [point for point in points if point.startswith(("/opt", "/usr"))]
    assert install(gateway, session, "kgtwo")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgtwo") == "2.0"
