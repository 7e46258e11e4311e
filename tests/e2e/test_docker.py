# SPDX-License-Identifier: Apache-2.0
"""The Docker Engine below a gateway, and what happens to it: killed, without image, full, meddled with.

The rest of the tests shows that sandboxes on it are what they are elsewhere.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import tempfile
import threading

import docker_engine
import dockerd
import httpx
import leftovers
import pytest
from engine_proxy import EngineProxy
from kernelgate import BINARY, HELD, free_port, problem, wait_for
from sandboxes import pooled, sandbox_of, sandboxes

pytestmark = pytest.mark.only("docker", "it is about that engine")

NO_REGISTRY = "127.0.0.1:1/none"  # nothing listens there
FOLDERS = "folders:latest"


@pytest.fixture(scope="module")
def docker(engine):
    return docker_engine.Engine()


def run(*arguments, env=None):
    return subprocess.run(
        [BINARY, *arguments], capture_output=True, text=True, timeout=60, cwd="/", check=False,
        env={"PATH": os.environ["PATH"], **docker_engine.gateway_environment(), **(env or {})},
    )  # fmt: skip


def new_session(gateway, code="print('new')"):
    return gateway.client.post("/api/v1/execute", json={"code": code})


# ---- What it is


def test_what_the_engine_is_told(start_gateway, docker):
    # No gateway may make containers while the other tests end the engine: a container that is being
    # started then can leave a process that the engine has forgotten.
    gateway = start_gateway("--pool-size", "0")
    gateway.create_session(session_id="s")
    sandbox = sandbox_of(gateway, "s")
    made = docker.ask("GET", f"/containers/{sandbox.container}/json")
    config, host = made["Config"], made["HostConfig"]
    mib = 1 << 20
    user, _, group = config["User"].partition(":")
    assert user == group and int(user) > 0x70000000
    assert config["Image"] == dockerd.KERNELS
    assert config["Labels"]["kernelgate.sandbox"] == sandbox.id
    assert config["Labels"]["kernelgate.gateway"] in made["Name"]
    assert config["Labels"]["kernelgate.state"] == gateway.state_dir
    folder = os.stat(gateway.state_dir)
    assert config["Labels"]["kernelgate.folder"] == f"{folder.st_dev}:{folder.st_ino}"
    assert host["Memory"] == host["MemorySwap"] == (512 + 256 + 64) * mib
    assert (host["CpuQuota"], host["CpuPeriod"], host["PidsLimit"]) == (100_000, 100_000, 256)
    assert host["NetworkMode"] == "none" and host["CapDrop"] == ["ALL"]
    assert host["ReadonlyRootfs"] and host["Init"] is False and not host["Privileged"]
    assert host["IpcMode"] == "private" and host["CgroupnsMode"] == "private"
    assert host["OomScoreAdj"] == 500 and host["ShmSize"] == 64 * mib
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert host["LogConfig"] == {
        "Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}
    }  # fmt: skip
    assert {each["Name"]: (each["Soft"], each["Hard"]) for each in host["Ulimits"]} == {
        "nofile": (4096, 4096), "core": (1, 1), "sigpending": (1024, 1024), "msgqueue": (0, 0)
    }  # fmt: skip
    assert host["Tmpfs"] == {
        "/tmp": "nosuid,nodev,size=64m,nr_inodes=9216,exec,mode=1777",
        "/mnt/data": f"nosuid,nodev,size=256m,nr_inodes=33792,exec,mode=755,uid={user},gid={user}",
        "/dev/mqueue": "ro,nosuid,nodev,noexec,size=4k",
    }
    assert "/proc/cmdline" in host["MaskedPaths"] and "/proc/sys" in host["ReadonlyPaths"]
    assert host["SecurityOpt"][0] == "no-new-privileges"
    assert '"defaultAction":"SCMP_ACT_ERRNO"' in host["SecurityOpt"][1]
    assert {mount["Destination"]: mount["RW"] for mount in made["Mounts"]} == {
        "/run/kg-agent": False, "/run/kg": False, "/opt/kernelgate/packages": False,
        "/etc/passwd": False, "/etc/group": False,
    }  # fmt: skip
    assert gateway.client.get("/api/v1/health").json()["provisioner"] == "docker"
    names = "import getpass, os, pwd\nprint(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name)"
    assert gateway.execute(names, session_id="s").text() == "sandbox sandbox\n"


def test_auto_takes_docker_where_there_is_no_runtime(start_gateway):
    gateway = start_gateway(
        "--provisioner", "auto", "--oci-runtime", "/no/such/runtime", "--pool-size", "0"
    )
    assert gateway.client.get("/api/v1/health").json()["provisioner"] == "docker"
    assert gateway.execute("print(1)").text() == "1\n"


def test_doctor():
    result = run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    for finding in ("engine", "limits", "image", "sandbox"):
        assert re.search(rf"^ok +docker: {finding}\b", result.stdout, re.MULTILINE)
    # What docs/security.md says about Docker.
    [line] = re.findall(r"^-- +docker: other limits .*", result.stdout, re.MULTILINE)
    assert all(word in line for word in ("terminals", "inotify", "disk reads", "together"))


@pytest.mark.parametrize(
    "flags, finding, words",
    [
        (["--docker-host", "unix:///no/docker.sock"], "engine", "unix:///no/docker.sock"),
        (["--docker-host", "ssh://somewhere"], "settings", "ssh://somewhere"),
        (["--image", NO_REGISTRY], "image", "kernelspec/Dockerfile"),
    ],
)
def test_doctor_says_what_is_missing(flags, finding, words):
    result = run("doctor", *flags)
    assert result.returncode == 1
    [line] = re.findall(rf"^-- +docker: {finding}\b.*", result.stdout, re.MULTILINE)
    assert words in line


@pytest.fixture
def meddle(engine):
    """Starts a proxy in front of the engine; returns its host. Before start_gateway in a test's
    arguments, so that it outlives the gateways."""
    proxies = []

    def start(**options):
        proxies.append(EngineProxy(**options))
        return proxies[-1].host

    yield start
    for proxy in proxies:
        proxy.close()


def test_an_engine_that_cannot_limit(meddle, tmp_path):
    host = meddle(change=lambda data: data.replace(b'"PidsLimit":true', b'"PidsLimit":null'))
    result = run("serve", "--port", "0", "--state-dir", str(tmp_path), env={"DOCKER_HOST": host})
    assert result.returncode == 1 and "cannot limit: processes" in result.stderr
    result = run("doctor", "--state-dir", str(tmp_path), env={"DOCKER_HOST": host})
    assert result.returncode == 1
    assert re.search(r"^-- +docker: limits .*processes", result.stdout, re.MULTILINE)
    assert not list(tmp_path.glob("trial-*"))


def test_an_engine_that_limits_the_most(meddle, start_gateway):
    host = meddle(change=lambda data: data.replace(b'"CpuCfsQuota":true', b'"CpuCfsQuota":null'))
    gateway = start_gateway("--pool-size", "0", env={"DOCKER_HOST": host})
    assert re.search("warning docker cannot set all limits .*processors", gateway.log())


def test_more_processors_than_there_are(start_gateway, docker):
    cpus = (os.cpu_count() or 1) + 2
    gateway = start_gateway("--pool-size", "0", "--cpus", str(cpus))
    assert gateway.execute("print(1)", session_id="s").text() == "1\n"
    made = docker.ask("GET", f"/containers/{sandbox_of(gateway, 's').container}/json")
    assert made["HostConfig"]["CpuQuota"] == cpus * 100_000


def test_no_engine_is_said_at_the_start(tmp_path):
    flags = ("serve", "--port", "0", "--state-dir", str(tmp_path))
    result = run(*flags, env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert result.returncode == 1 and result.stdout == ""
    assert f"{tmp_path}/none.sock" in result.stderr


# ---- The engine goes away


def wait_for_sandboxes(gateway, known):
    """Until there are those sessions alone, and no container that has ended or is half removed."""
    gateway_id = pathlib.Path(gateway.state_dir, "id").read_text().strip()
    wait_for(lambda: {each.session for each in sandboxes(gateway)} - {None} == known, timeout=40)
    wait_for(
        lambda: all(" Up " in each for each in leftovers.containers_of_gateway(gateway_id)),
        timeout=40,
    )


@pytest.mark.parametrize("live_restore", [True, False])
def test_the_engine_is_killed_and_comes_back(start_gateway, mortal, live_restore):
    mortal.stop()
    mortal.start(live_restore=live_restore)
    gateway = start_gateway("--pool-size", "1")
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200, timeout=60)
    gateway.execute("x = 41", session_id="s")
    gateway.fill_pool()
    with gateway.stream(f"{HELD}print('off')", session_id="s") as reader:
        reader.next_of("stdout")
        mortal.kill()
        # What runs goes on: it does not pass through the engine.
        gateway.release("s")
        lines = reader.rest()
    assert lines.status == "ok" and lines.text() == "on\noff\n"
    assert gateway.execute("print(x + 1)", session_id="s").text() == "42\n"
    # The pooled sandbox is still used; the next request is refused.
    assert new_session(gateway).status_code == 200
    assert "docker" in problem(new_session(gateway), 503, "provisioner_unavailable")["detail"]
    assert gateway.client.get("/readyz").status_code == 503
    assert gateway.client.get("/healthz").status_code == 200

    mortal.start(live_restore=live_restore)
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200, timeout=60)
    assert new_session(gateway).status_code == 200
    if live_restore:
        assert gateway.execute("print(x + 1)", session_id="s").text() == "42\n"
    else:  # the engine ends what it does not restore, and that is noticed
        wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404, timeout=60)
    # The container that was released while the engine was down is removed as well.
    wait_for_sandboxes(gateway, {"s"} if live_restore else set())
    assert gateway.execute("print(7)", session_id="again").text() == "7\n"


@pytest.mark.parametrize("live_restore", [True, False])
def test_the_engine_is_stopped_in_good_order(start_gateway, mortal, live_restore):
    """As an update of its package does."""
    mortal.stop()
    mortal.start(live_restore=live_restore)
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 41", session_id="s")
    mortal.stop()
    if live_restore:
        assert gateway.execute("print(x + 1)", session_id="s").text() == "42\n"
    else:  # it has ended its containers, and says so until its end
        wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404)
    mortal.start(live_restore=live_restore)
    wait_for(lambda: new_session(gateway).status_code == 200, timeout=60)
    wait_for_sandboxes(gateway, {"s"} if live_restore else set())


def test_a_session_that_is_ended_while_the_engine_is_away(start_gateway, docker, mortal):
    mortal.stop()
    mortal.start(live_restore=True)
    gateway = start_gateway("--pool-size", "0")
    gateway.create_session(session_id="s")
    container = sandbox_of(gateway, "s").container
    mortal.kill()
    gateway.delete_session("s")
    assert gateway.client.get("/api/v1/sessions/s").status_code == 404
    # The gateway must not reach the engine before the test does.
    gateway.signal(signal.SIGSTOP)
    try:
        mortal.start(live_restore=True)
        assert docker.pid(container)
    finally:
        gateway.signal(signal.SIGCONT)
    wait_for(lambda: not docker.pid(container), timeout=60)
    wait_for(lambda: not list((gateway.own_dir / "sb").iterdir()))


# ---- The image and the disk


def test_an_image_that_is_not_there(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--image", NO_REGISTRY)
    detail = problem(new_session(gateway), 503, "provisioner_unavailable")["detail"]
    assert NO_REGISTRY in detail and "--image" in detail
    assert gateway.client.get("/healthz").status_code == 200


@pytest.fixture
def small_engine():
    """An engine with a small disk, and an image that contains only folders."""
    with tempfile.TemporaryDirectory(prefix=f"{dockerd.leftovers.PREFIX}s-") as folder:
        disk = pathlib.Path(folder, "disk")
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", disk], check=True)
        running = dockerd.Dockerd(disk)
        try:
            running.start()
            archive = pathlib.Path(folder, "image.tar")
            with tarfile.open(archive, "w") as image:
                for name in ("tmp", "mnt", "mnt/data", "run", "proc", "sys", "dev", "etc"):
                    entry = tarfile.TarInfo(name)
                    # A tmpfs takes the mode of the folder that it covers.
                    entry.type = tarfile.DIRTYPE
                    entry.mode = 0o1777 if name in ("tmp", "mnt/data") else 0o755
                    image.addfile(entry)
            running.docker("import", str(archive), FOLDERS, quiet=True)
            yield running
        finally:
            running.close()  # which unmounts the disk, too


@pytest.fixture
def registry(tmp_path):
    """The address of an empty registry."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "version": "0.1",
        "http": {"addr": address},
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(settings))  # which is YAML as well
    with open(tmp_path / "registry.log", "wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", tmp_path / "registry.yml"], stdout=log, stderr=log
        )
    try:
        wait_for(lambda: answers(f"http://{address}/v2/"))
        yield address
    finally:
        process.terminate()
        process.wait(10)


def answers(url):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, trust_env=False).status_code == 200
    return False


def test_an_image_is_pulled_where_it_is_missing(start_gateway, small_engine, registry):
    image = f"{registry}/kernels/folders:1.0"
    small_engine.docker("tag", FOLDERS, image)
    small_engine.docker("push", image, quiet=True)
    small_engine.docker("rmi", FOLDERS, image, quiet=True)
    gateway = start_gateway(
        "--pool-size", "0", "--image", image, "--kernel-start-timeout", "2",
        env={"DOCKER_HOST": small_engine.host},
    )  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # all wait for the same pull
        responses = list(pool.map(lambda _: new_session(gateway), range(3)))
    # The image was pulled and sandboxes were made; they fail only because it has no kernel.
    assert [each.json()["code"] for each in responses] == ["kernel_start_timeout"] * 3, responses[
        0
    ].text
    assert small_engine.docker("image", "inspect", image, quiet=True).returncode == 0
    log = gateway.log()
    assert "pulling the image" in log
    assert log.count("pulled the image") == 1


def test_a_full_disk(start_gateway, small_engine):
    gateway = start_gateway(
        "--pool-size", "0", "--image", FOLDERS, "--kernel-start-timeout", "2",
        env={"DOCKER_HOST": small_engine.host},
    )  # fmt: skip
    filler = small_engine.data_root / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    detail = problem(new_session(gateway), 503, "provisioner_unavailable")["detail"]
    assert "no space left on device" in detail
    filler.unlink()
    # Now it fails only because the image has no kernel.
    detail = wait_for(lambda: new_session(gateway).json()["detail"])
    assert "no space left" not in detail


# ---- Somebody else's hands


def test_containers_removed_by_hand(start_gateway, docker):
    gateway = start_gateway("--pool-size", "1")
    gateway.execute("x = 1", session_id="s")
    gateway.fill_pool()
    [waiting] = pooled(gateway)
    docker.remove(sandbox_of(gateway, "s").container)
    wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404)
    docker.remove(waiting.container)
    wait_for(lambda: {each.id for each in pooled(gateway)} - {waiting.id}, timeout=60)
    lines = gateway.execute("print('x' in globals())", session_id="s")
    assert lines.text() == "False\n"


# For the tests' own containers. (Podman would raise the limit on files by itself.)
HARMLESS = {
    "NetworkMode": "none", "Ulimits": [{"Name": "nofile", "Soft": 1024, "Hard": 1024}]
}  # fmt: skip


class NameTaker:
    """Makes a container of the same name before the gateway does, once."""

    def __init__(self, docker, labels):
        self.docker = docker
        self.labels = labels
        self.names = []

    def __call__(self, line):
        match = re.search(r"/containers/create\?name=(\S+)", line)
        if match and not self.names:
            self.names.append(match[1])
            body = {
                "Image": dockerd.KERNELS, "Cmd": ["sleep", "1000"],
                "Labels": self.labels(match[1]), "HostConfig": HARMLESS,
            }  # fmt: skip
            made = self.docker.ask(
                "POST", "/containers/create", params={"name": match[1]}, json=body
            )
            if body["Labels"]:  # so that it ends when it goes, which is not the end of the new one
                self.docker.ask("POST", f"/containers/{made['Id']}/start")


@pytest.fixture
def taken_names(meddle, start_gateway, docker):
    """Starts a gateway whose first container finds its name taken, by one with `labels(name)`."""

    def start(labels, change=None):
        taker = NameTaker(docker, labels)
        host = meddle(before=taker, change=change)
        return start_gateway("--pool-size", "0", env={"DOCKER_HOST": host}), taker

    return start


def test_a_name_that_another_container_has(taken_names, docker):
    gateway, taker = taken_names(lambda name: {})
    try:
        detail = problem(new_session(gateway), 503, "provisioner_unavailable")["detail"]
        [name] = taker.names
        assert name in detail and "docker rm" in detail
        assert docker.ask("GET", f"/containers/{name}/json")["State"]["Status"] == "created"
        assert new_session(gateway).status_code == 200  # another name
    finally:
        docker.remove(taker.names[0])


def ours(name):
    _, gateway_id, sandbox = name.split("-")
    return {"kernelgate.gateway": gateway_id, "kernelgate.sandbox": sandbox}


def test_a_name_that_a_half_made_container_of_ours_has(taken_names):
    gateway, taker = taken_names(ours)
    assert new_session(gateway).status_code == 200
    assert len(taker.names) == 1


def test_the_end_of_a_half_made_container_is_reported_late(taken_names, docker):
    """It had the name of the session's container, whose end it is not."""
    reported, released = threading.Event(), threading.Event()

    def hold_back(data):
        if re.search(rb'"Action":"died?"', data):
            reported.set()
            released.wait(60)
        return data

    gateway, _ = taken_names(ours, hold_back)
    gateway.execute("x = 1", session_id="kept")
    assert reported.wait(60)
    gateway.create_session(session_id="next")
    released.set()
    docker.kill(sandbox_of(gateway, "next").container)  # which is reported after it
    wait_for(lambda: gateway.client.get("/api/v1/sessions/next").status_code == 404)
    assert gateway.execute("print(x)", session_id="kept").text() == "1\n"


def test_leftovers_of_an_earlier_run_are_removed(start_gateway, docker):
    gateway = start_gateway("--pool-size", "0")
    for name in ("kept", "lost"):
        gateway.execute(f"x = '{name}'", session_id=name)
    lost = sandbox_of(gateway, "lost")
    dead = sandbox_of(gateway, "kept").container.rpartition("-")[0] + "-orphan"
    label = {"kernelgate.gateway": dead.split("-")[1], "kernelgate.sandbox": "orphan"}
    gateway.kill()
    subprocess.run(["rm", "-r", gateway.own_dir / "sb" / lost.id], check=True)
    body = {"Image": dockerd.KERNELS, "Cmd": ["sleep", "1000"], "Labels": label}
    docker.ask("POST", "/containers/create", params={"name": dead}, json=body)
    (gateway.own_dir / "sb/half").mkdir()
    gateway.start()
    assert gateway.execute("print(x)", session_id="kept").text() == "kept\n"
    assert gateway.client.get("/api/v1/sessions/lost").status_code == 404
    kept, ours = sandbox_of(gateway, "kept").container, f"kernelgate.gateway={dead.split('-')[1]}"
    wait_for(lambda: [each["Names"][0] for each in docker.containers(ours)] == [f"/{kept}"])
    wait_for(lambda: not (gateway.own_dir / "sb/half").exists())


def test_a_state_folder_that_was_emptied(start_gateway, docker):
    """As after a reboot, if the folder is in memory: the next gateway has another id."""
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 1", session_id="lives")
    gateway.execute("x = 1", session_id="dead")
    before = [sandbox_of(gateway, name).container for name in ("lives", "dead")]
    gateway.kill()
    docker.kill(before[1])
    for path in pathlib.Path(gateway.state_dir).iterdir():
        if path != pathlib.Path(gateway.log_path):
            subprocess.run(["rm", "-r", path], check=True)
    gateway.start()
    state = f"kernelgate.state={gateway.state_dir}"
    wait_for(lambda: docker.containers(state) == [])
    gateway.execute("x = 2", session_id="new")
    [new] = docker.containers(state)
    assert new["Names"] == [f"/{sandbox_of(gateway, 'new').container}"]
    assert new["Names"][0] not in before


def test_a_gateway_whose_state_folder_only_has_the_same_path(start_gateway, docker):
    """As in another container: the sandboxes of that gateway are left alone."""
    gateway = start_gateway("--pool-size", "0")
    labels = {
        "kernelgate.gateway": "elsewher", "kernelgate.sandbox": "other",
        "kernelgate.state": gateway.state_dir, "kernelgate.folder": "1:1",
    }  # fmt: skip
    body = {
        "Image": dockerd.KERNELS, "Cmd": ["sleep", "1000"], "Labels": labels, "HostConfig": HARMLESS,
    }  # fmt: skip
    other = docker.ask(
        "POST", "/containers/create", params={"name": "kg-elsewher-other"}, json=body
    )["Id"]
    try:
        docker.ask("POST", f"/containers/{other}/start")
        gateway.stop()
        gateway.start()
        assert gateway.execute("print(1)").text() == "1\n"
        assert docker.pid(other)
        assert "same path" in gateway.log()
        docker.kill(other)
        gateway.stop()
        gateway.start()
        wait_for(lambda: not docker.containers("kernelgate.gateway=elsewher"))
    finally:
        for left in docker.containers("kernelgate.gateway=elsewher"):
            docker.remove(left["Id"])


def test_a_container_of_an_image_that_was_a_sandbox(start_gateway, docker):
    """`docker commit` keeps a sandbox's labels, so containers of that image have them, too."""
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 1", session_id="s")
    sandbox = sandbox_of(gateway, "s")
    of = {"container": sandbox.container}
    image = docker.ask("POST", "/commit", params=of, json={})["Id"]
    body = {
        "Image": image, "Entrypoint": ["sleep"], "Cmd": ["1000"], "HostConfig": HARMLESS,
    }  # fmt: skip
    debug = docker.ask("POST", "/containers/create", json=body)["Id"]
    try:
        labelled = docker.containers(f"kernelgate.sandbox={sandbox.id}")
        assert len(labelled) == 2
        docker.ask("POST", f"/containers/{debug}/start")
        docker.kill(debug)
        docker.ask("POST", f"/containers/{debug}/start")
        gateway.kill()
        gateway.start()
        assert gateway.execute("print(x)", session_id="s").text() == "1\n"
        gateway.delete_session("s")
        [left] = docker.containers(f"kernelgate.sandbox={sandbox.id}")
        assert left["Id"] == debug and docker.pid(debug)
    finally:
        docker.remove(debug)
        docker.ask("DELETE", f"/images/{image}")
