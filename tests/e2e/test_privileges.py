# SPDX-License-Identifier: Apache-2.0
"""What the processes of a gateway may do that root has started, and what happens when one ends."""

import ctypes
import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

import leftovers
import pytest
from account_commands import Accounts
from kernelgate import HELD, problem, wait_for
from processes import CAPABILITIES, NUMBERS, helper_of, listens, starter_of, status
from sandboxes import kill, lives, sandbox_of
from test_recovery import Execution

pytestmark = [
    pytest.mark.not_on("kubernetes", "there the gateway is not root"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root's gateway has something to give up"),
]
USER = 61160
PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)
ENDS_WITHIN_S = 1


@pytest.fixture
def split(start_gateway):
    return start_gateway("--pool-size", "1", "--max-sessions", "5")


# ---- What they may do


def test_the_listening_process_has_no_rights(split):
    own = status(split.process.pid)
    assert listens(split.process.pid)
    assert own["Uid"].split() == own["Gid"].split() == [str(USER)] * 4
    assert {own[f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (own["NoNewPrivs"], own["Seccomp"]) == ("1", "2")
    assert split.execute("print(1)").text() == "1\n"


def test_the_helper_has_few_rights_and_no_network(split):
    allowed = sum(1 << NUMBERS[name] for name in CAPABILITIES)
    for pid in (starter_of(split), helper_of(split)):
        own = status(pid)
        for which in ("Prm", "Eff", "Bnd"):
            assert int(own[f"Cap{which}"], 16) & ~allowed == 0
        assert own["NoNewPrivs"] == "1"
        assert not listens(pid)
        assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
        interfaces = pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]


def as_user(code, *arguments):
    """Runs Python code as the gateway's user, and returns what it prints."""
    return subprocess.run(
        ["/usr/bin/python3", "-c", code, *map(str, arguments)],
        user=USER,
        group=USER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    ).stdout


TAMPER = """
import os, sys
root = sys.argv[1]
def attempt(what, *arguments):
    try:
        what(*arguments)
        print(what.__name__, *arguments)
    except OSError:
        pass
for name in ("packages", "packages/shared", "sb", "layer", "empty", "root", "gateway", "id", "lock"):
    if os.path.lexists(f"{root}/{name}"):
        attempt(os.rename, f"{root}/{name}", f"{root}/{name}-away")
        attempt(os.rename, f"{root}/{name}", f"{root}/packages/away")
for name in ("packages/shared", "id", "lock"):
    attempt(os.rmdir, f"{root}/{name}")
    attempt(os.unlink, f"{root}/{name}")
for name in ("sb", "layer", "."):
    attempt(os.listdir, f"{root}/{name}") if name == "sb" else None
    attempt(os.symlink, "/etc", f"{root}/{name}/etc")
attempt(os.chmod, f"{root}/packages", 0o777)
attempt(os.chmod, f"{root}/packages/shared", 0o777)
print("end")
"""


@pytest.mark.not_on("docker", "there the gateway's group is as good as root")
def test_the_gateway_cannot_replace_what_is_mounted(split):
    split.execute("1", session_id="a")
    assert as_user(TAMPER, split.state_dir) == "end\n"
    assert split.execute("print(2)", session_id="b").text() == "2\n"


# ---- What only root can open


def test_keys_that_only_root_can_read(start_gateway, tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o700)
    keys = folder / "keys"
    keys.touch(mode=0o600)
    keys.write_text("ann:first-key\n")
    gateway = start_gateway("--api-keys-file", str(keys), key="first-key")
    assert gateway.execute("print(1)").text() == "1\n"
    keys.write_text("ann:second-key\n")
    second = gateway.client_for("second-key")
    wait_for(lambda: second.get("/api/v1/sessions").status_code == 200)
    assert gateway.client.get("/api/v1/sessions").status_code == 401
    keys.unlink()
    wait_for(lambda: "the API keys were not read again" in gateway.log())
    assert second.get("/api/v1/sessions").status_code == 200
    new = folder / "new"
    new.touch(mode=0o600)
    new.write_text("ann:third-key\n")
    new.rename(keys)
    third = gateway.client_for("third-key")
    wait_for(lambda: third.get("/api/v1/sessions").status_code == 200)
    kill(helper_of(gateway))  # the next one watches the file, too
    wait_for(lambda: helper_of(gateway) and gateway.log().count("can be made") >= 1)
    keys.write_text("ann:fourth-key\n")
    fourth = gateway.client_for("fourth-key")
    wait_for(lambda: fourth.get("/api/v1/sessions").status_code == 200)
    for client in (second, third, fourth):
        client.close()


def test_a_port_of_roots(start_gateway):
    for port in range(1000, 900, -1):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        gateway = start_gateway("--port", str(port))
        assert gateway.url.endswith(f":{port}")
        assert gateway.client.get("/healthz").status_code == 200
        return


def test_a_state_folder_below_a_folder_of_roots(start_gateway, tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o700)
    state = folder / "state"
    state.mkdir()
    gateway = start_gateway("--keep-sandboxes", "--pool-size", "0", state_dir=str(state))
    gateway.execute("x = 5", session_id="kept")
    gateway.client.put("/api/v1/sessions/kept/files/a.txt", content=b"text").raise_for_status()
    gateway.stop()
    gateway.start()
    assert gateway.execute("print(x)", session_id="kept").text() == "5\n"
    assert gateway.delete_session("kept").is_success


@pytest.mark.not_on("docker", "the Engine mounts by paths, and addresses of sockets have 107 bytes")
def test_a_state_folder_with_a_long_path(start_gateway, tmp_path):
    state = tmp_path / ("a" * 100)
    state.mkdir()
    gateway = start_gateway("--pool-size", "0", state_dir=str(state))
    assert gateway.execute("print(1)").text() == "1\n"


def test_accounts_in_another_users_folder(start_gateway, tmp_path):
    accounts = Accounts(tmp_path / "accounts.db")
    os.chown(accounts.path.parent, 12345, 12345)
    gateway = start_gateway("--api-key", "fixed", *accounts.flags, key="fixed")
    assert "must belong to the gateway's user: move the database" in gateway.log()
    assert gateway.execute("print(1)").text() == "1\n"


def test_accounts_of_an_earlier_version(start_gateway, tmp_path):
    """Root has made them, in a folder of their own: they are the gateway's now."""
    accounts = Accounts(tmp_path / "accounts.db")
    accounts.do("user", "add", "ann")
    key = accounts.key("ann")
    assert accounts.path.stat().st_uid == 0
    gateway = start_gateway(*accounts.flags, key=key)
    assert gateway.execute("print(1)").text() == "1\n"
    assert accounts.path.stat().st_uid == accounts.path.parent.stat().st_uid == USER
    other = gateway.client_for(accounts.key("ann"))  # root's command becomes the folder's owner
    wait_for(lambda: other.get("/api/v1/sessions").status_code == 200)
    other.close()
    assert {path.stat().st_uid for path in accounts.path.parent.iterdir()} == {USER}


# ---- Whom it becomes


def test_the_setting_user(start_gateway):
    gateway = start_gateway("--user", "4321:4322", "--keep-sandboxes", "--pool-size", "0")
    assert status(gateway.process.pid)["Uid"].split() == ["4321"] * 4
    assert status(gateway.process.pid)["Gid"].split() == ["4322"] * 4
    gateway.execute("x = 1", session_id="kept")
    gateway.stop()
    gateway.flags = [flag for flag in gateway.flags if flag not in ("--user", "4321:4322")]
    gateway.start()
    assert status(gateway.process.pid)["Uid"].split() == [str(USER)] * 4
    assert gateway.execute("print(x)", session_id="kept").text() == "1\n"
    gateway.delete_session("kept")


def test_a_gateway_that_stays_root(start_gateway):
    gateway = start_gateway("--user", "root")
    own = status(gateway.process.pid)
    assert own["Uid"].split() == ["0"] * 4
    assert int(own["CapEff"], 16) & ~(1 << 2) == 0  # CAP_DAC_READ_SEARCH
    assert (own["NoNewPrivs"], own["Seccomp"]) == ("1", "2")
    assert gateway.execute("print(1)").text() == "1\n"


def test_a_gateway_that_stays_root_again(start_gateway, tmp_path):
    """The accounts are another user's: it may read them, and not write, and says so."""
    accounts = Accounts(tmp_path / "accounts.db")
    gateway = start_gateway("--api-key", "fixed", *accounts.flags, key="fixed")
    gateway.stop()
    gateway.flags = [*gateway.flags, "--user", "root"]
    gateway.start()
    assert "must belong to the gateway's user" in gateway.log()
    gateway.stop()
    for path in (accounts.path.parent, *accounts.path.parent.iterdir()):
        os.chown(path, 0, 0)
    gateway.start()
    ann = gateway.client_for((accounts.do("user", "add", "ann"), accounts.key("ann"))[1])
    wait_for(lambda: ann.get("/api/v1/sessions").status_code == 200)
    ann.close()


def test_users_that_are_none(start_gateway):
    with pytest.raises(AssertionError, match="no-such-user"):
        start_gateway("--user", "no-such-user")


# ---- When one of them ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_with_the_gateway(start_gateway, number):
    gateway = start_gateway("--pool-size", "1")
    processes = [starter_of(gateway), helper_of(gateway)]
    gateway.signal(number)
    gateway.wait()
    wait_for(lambda: not any(map(lives, processes)), timeout=ENDS_WITHIN_S)
    gateway.start()  # the state folder is free
    assert gateway.execute("print(1)").text() == "1\n"


def test_a_new_gateway_waits_for_the_lock(start_gateway):
    gateway = start_gateway()
    helper = helper_of(gateway)
    os.kill(helper, signal.SIGSTOP)  # it does not notice the end: the starter kills it
    gateway.kill()
    gateway.start()
    assert not lives(helper)


@pytest.mark.parametrize("stays_away", [False, True])
def test_signals_of_a_terminal(start_gateway, stays_away):
    """A terminal and systemd signal all processes at once: the gateway ends in order."""
    gateway = start_gateway("--pool-size", "1")
    processes = [starter_of(gateway), helper_of(gateway)]
    for pid in processes:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGHUP)
    assert gateway.execute("print(1)").text() == "1\n"
    if stays_away:
        os.kill(processes[0], signal.SIGKILL)
        wait_for(lambda: not any(map(lives, processes)), timeout=ENDS_WITHIN_S)
        wait_for(lambda: "must be started again" in gateway.log())
        response = gateway.client.post("/api/v1/sessions", json={"session_id": "new"})
        refusal = problem(response, 503, "provisioner_unavailable")
        assert "must be started again" in refusal["detail"]
        gateway.stop()
        gateway.start()  # removes what is left
        gateway.end_sessions()


@pytest.mark.not_on("docker", "the Engine makes its sandboxes")
def test_a_helper_that_is_killed(split):
    split.execute("x = 1", session_id="idle")
    split.fill_pool()
    execution = Execution(split, f"{HELD}print('ended')", session_id="busy").until("stdout")
    starter, helper = starter_of(split), helper_of(split)
    os.kill(starter, signal.SIGSTOP)  # so that no other helper comes
    kill(helper)
    wait_for(lambda: "the helper has ended" in split.log())
    assert split.execute("print(x)", session_id="idle").text() == "1\n"
    for name in ("from the pool", "new"):
        response = split.client.post("/api/v1/sessions", json={"session_id": name.split()[0]})
        if response.status_code == 200 or response.status_code == 201:
            continue  # it was ready
        refusal = problem(response, 503, "provisioner_unavailable")
        assert "is being started again" in refusal["detail"], refusal
    kill(sandbox_of(split, "idle").agent)
    os.kill(starter, signal.SIGCONT)
    assert split.delete_session("idle").is_success
    wait_for(lambda: "new sandboxes can be made" in split.log())
    assert split.execute("print(3)", session_id="after").text() == "3\n"
    split.release("busy")
    assert execution.ended().text().endswith("ended\n")


@pytest.mark.not_on("docker", "the Engine makes its sandboxes")
def test_helpers_that_are_killed_again_and_again(split):
    for number in range(5):
        session = split.client.post("/api/v1/sessions", json={"session_id": f"s{number}"})
        helper = wait_for(lambda: helper_of(split))
        kill(helper)
        assert session.status_code in (200, 201, 503), session.text
        if session.status_code < 300:
            assert split.execute("print(4)", session_id=f"s{number}").text() == "4\n"
            split.delete_session(f"s{number}")
        wait_for(lambda old=helper: (new := helper_of(split)) and new != old)
    wait_for(lambda: split.client.post("/api/v1/sessions", json={"session_id": "last"}).is_success)
    assert split.execute("print(5)", session_id="last").text() == "5\n"


@pytest.mark.not_on("docker", "the Engine makes its sandboxes")
def test_a_sandbox_that_ends_while_there_is_no_helper(start_gateway):
    gateway = start_gateway("--max-sessions", "1")
    gateway.execute("x = 1", session_id="a")
    starter = starter_of(gateway)
    os.kill(starter, signal.SIGSTOP)
    kill(helper_of(gateway))
    kill(sandbox_of(gateway, "a").agent)
    os.kill(starter, signal.SIGCONT)
    wait_for(lambda: "new sandboxes can be made" in gateway.log())
    wait_for(lambda: gateway.client.post("/api/v1/sessions", json={"session_id": "b"}).is_success)


# ---- From the version before


@pytest.mark.not_on("docker", "its containers are found by test_docker.py")
def test_a_state_folder_of_an_earlier_version(start_gateway):
    """All of it was root's, and the records were in the sandboxes' folders."""
    gateway = start_gateway("--keep-sandboxes", "--pool-size", "0")
    gateway.execute("x = 7", session_id="kept")
    kernel = gateway.client.post("/api/kernels", json={"name": "python"}).json()["id"]
    gateway.stop()
    state = pathlib.Path(gateway.state_dir)
    for record in (state / "gateway/sb").glob("*/meta.json"):
        record.rename(state / "sb" / record.parent.name / "meta.json")
    if (state / "gateway/notebooks").exists():
        (state / "gateway/notebooks").rename(state / "notebooks")
    subprocess.run(["rm", "-r", state / "gateway"], check=True)
    subprocess.run(["chown", "-R", "root:root", state], check=True)
    (state / "packages").chmod(0o755)
    gateway.start()
    assert gateway.execute("print(x)", session_id="kept").text() == "7\n"
    assert kernel in {item["id"] for item in gateway.client.get("/api/kernels").json()}
    assert (state / "packages/shared").stat().st_uid == 0
    owners = {path.stat().st_uid for path in (state / "gateway").rglob("*")}
    assert owners <= {USER}
    gateway.delete_session("kept")
    gateway.delete_session(kernel)


# ---- An attacker in the gateway's place


def give(path, mode=None):
    os.chown(path, USER, USER, follow_symlinks=False)
    if mode:
        path.chmod(mode)


def test_keys_in_a_folder_that_the_gateway_can_change(start_gateway, tmp_path):
    """What it puts in their place is opened with its own rights, not with root's."""
    folder = tmp_path / "accounts" / "own"
    folder.mkdir(parents=True)
    Accounts(folder.parent / "accounts.db")  # lets others through
    secret = tmp_path / "secret"
    secret.write_text("eve:secret-key\n")
    secret.chmod(0o600)
    keys = folder / "keys"
    keys.write_text("ann:first-key\n")
    give(folder, 0o700)
    give(keys, 0o600)
    gateway = start_gateway("--api-keys-file", str(keys), key="first-key")
    keys.unlink()
    keys.symlink_to(secret)
    give(keys)
    wait_for(lambda: "the API keys were not read again" in gateway.log())
    assert "Permission denied" in gateway.log()
    assert gateway.client_for("secret-key").get("/api/v1/sessions").status_code == 401
    keys.unlink()
    keys.write_text("ann:second-key\n")
    give(keys, 0o600)
    second = gateway.client_for("second-key")
    wait_for(lambda: second.get("/api/v1/sessions").status_code == 200)
    second.close()


def test_keys_through_a_symlink_of_roots(start_gateway, tmp_path):
    """As Kubernetes mounts a Secret: the link is root's, and is replaced."""
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o700)
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / "keys").write_text(f"ann:{name}-key\n")
    (folder / "now").symlink_to("first")
    gateway = start_gateway("--api-keys-file", str(folder / "now/keys"), key="first-key")
    (folder / "next").symlink_to("second")
    (folder / "next").rename(folder / "now")
    second = gateway.client_for("second-key")
    wait_for(lambda: second.get("/api/v1/sessions").status_code == 200)
    second.close()


@pytest.mark.not_on("docker", "there it is in that group")
def test_it_is_in_no_group_of_an_engine_that_it_does_not_use(start_gateway, tmp_path):
    with socket.socket(socket.AF_UNIX) as engine:
        path = tmp_path / "docker.sock"
        engine.bind(str(path))
        os.chown(path, 0, 54321)
        path.chmod(0o660)
        gateway = start_gateway("--docker-host", f"unix://{path}")
        assert status(gateway.process.pid)["Groups"] == ""


def test_the_lock_is_not_the_gateways_to_release(start_gateway):
    gateway = start_gateway()
    lock = pathlib.Path(gateway.state_dir, "lock")
    names = [
        os.readlink(f"/proc/{gateway.process.pid}/fd/{descriptor}")
        for descriptor in os.listdir(f"/proc/{gateway.process.pid}/fd")
    ]
    assert str(lock) not in names and str(lock) + ".gateway" in names
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_gateway_that_has_passed_its_sockets_on(start_gateway):
    """Another process holds them when it has ended: the starter sees the end of the gateway itself."""
    gateway = start_gateway()
    processes = [starter_of(gateway), helper_of(gateway)]
    held = []
    process = os.pidfd_open(gateway.process.pid)
    for descriptor in map(int, os.listdir(f"/proc/{gateway.process.pid}/fd")):
        if os.readlink(f"/proc/{gateway.process.pid}/fd/{descriptor}").startswith("socket:"):
            held.append(libc.syscall(PIDFD_GETFD, process, descriptor, 0))
    assert min(held) > 2
    gateway.signal(signal.SIGKILL)
    gateway.process.wait()
    wait_for(lambda: not any(map(lives, processes)), timeout=ENDS_WITHIN_S + 1)
    for descriptor in (process, *held):
        os.close(descriptor)
    gateway.start()


@pytest.mark.parametrize("name", ["sb", "layer", "oci-runc"])
def test_a_state_folder_that_is_not_roots_alone(start_gateway, name):
    gateway = start_gateway()
    gateway.execute("1")
    gateway.stop()
    part = pathlib.Path(gateway.state_dir, name)
    part.mkdir(exist_ok=True)
    give(part)
    with pytest.raises(AssertionError, match="cannot divide the state folder"):
        gateway.start()
    assert "is not root's alone" in gateway.log()
    os.chown(part, 0, 0)
    gateway.start()


def test_accounts_in_the_state_folder(start_gateway):
    """Whoever owns it could change what root trusts: it stays root's."""
    state = tempfile.mkdtemp(prefix=leftovers.PREFIX)
    path = pathlib.Path(state, "accounts.db")
    gateway = start_gateway(
        *("--accounts-file", str(path), "--api-key", "fixed"), state_dir=state, key="fixed"
    )
    assert "move the database into a folder of its own" in gateway.log()
    assert pathlib.Path(state).stat().st_uid == 0
    assert gateway.execute("print(1)").text() == "1\n"


CLUTTER = """
import os, sys
at = os.open(sys.argv[1], os.O_RDONLY)
os.mkdir("incoming/a", dir_fd=at)
os.chmod("incoming/a", 0, dir_fd=at)
at = os.open(sys.argv[2], os.O_RDONLY)
for number in range(1200):
    os.mkdir("x", dir_fd=at)
    below = os.open("x", os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
"""


def test_what_an_attacker_leaves_keeps_nobody_from_starting(start_gateway):
    gateway = start_gateway("--pool-size", "0")
    state = pathlib.Path(gateway.state_dir)
    as_user(CLUTTER, state / "packages", state / "gateway")
    gateway.stop()
    gateway.flags = [*gateway.flags, "--user", "4321:4322"]
    gateway.start()
    assert gateway.execute("print(1)").text() == "1\n"
    gateway.stop()
    subprocess.run(["rm", "-rf", state / "gateway"], check=True)
