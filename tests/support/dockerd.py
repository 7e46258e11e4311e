# SPDX-License-Identifier: Apache-2.0
"""The tests' own Docker Engine, with the images of the project's Dockerfiles. Run as a program, it
builds the images at low priority.

The images are kept in build/docker, which one engine uses at a time, and in the user's cache folder for
other work trees, so that they are built once; nothing else of the engine is kept, also if this process
is killed (guard.py). There is no registry: the Dockerfiles' base image is made here by debootstrap, and
trusts the same certificates as this machine.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

import debian
import guard
import leftovers
import user_cache

PROJECT = pathlib.Path(__file__).resolve().parents[2]
KEPT = PROJECT / "build/docker"
BASE = "debian:bookworm-slim"
KERNELS, GATEWAY, NGINX = "kernelgate-kernel:latest", "kernelgate:latest", "nginx:stable"
GROUP = 61170  # nobody's
HASH_LABEL = "kernelgate.test.inputs"


class Dockerd:
    """One dockerd. Tests of its faults call `kill()` and then `start()` again."""

    def __init__(self, data_root=None, *flags):
        self.flags = flags
        self.process = None
        with contextlib.ExitStack() as stack:
            keep_open = [stack.enter_context(locked(data_root)).fileno()] if data_root else []
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{leftovers.PREFIX}d-"))
            self.folder.chmod(0o711)  # as /run: for the gateway's user, in the socket's group
            self.data_root = pathlib.Path(data_root or self.folder / "data")
            self.data_root.mkdir(parents=True, exist_ok=True)
            self._guard = guard.Guard(self.folder, self.data_root, keep_open=keep_open)
        self.socket = self.folder / "docker.sock"
        self.host = f"unix://{self.socket}"

    def start(self, live_restore=False, timeout=60):
        settings = {"live-restore": live_restore}
        self.folder.joinpath("daemon.json").write_text(json.dumps(settings))
        flags = [
            f"--config-file={self.folder}/daemon.json", f"--data-root={self.data_root}",
            f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/docker.pid",
            f"--host={self.host}", f"--group={GROUP}", "--iptables=false", "--ip6tables=false",
            "--ip-forward=false", "--bridge=none", *self.flags,
        ]  # fmt: skip
        with open(self.folder / "log", "ab") as log:
            # Its shims write to its working folder.
            self.process = subprocess.Popen(
                ["dockerd", *flags],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then end it
            )
        end = time.monotonic() + timeout
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    "dockerd does not run on this machine (it needs root, control groups, and a file "
                    f"system for overlay2 or vfs); its log ends with:\n{self.log_tail()}"
                )
            time.sleep(0.1)
        return self

    def log_tail(self, lines=8):
        return "\n".join((self.folder / "log").read_text().splitlines()[-lines:])

    def answers(self):
        return self.docker("version", check=False, quiet=True).returncode == 0

    def docker(self, *arguments, check=True, quiet=False, **options):
        output = subprocess.DEVNULL if quiet else None
        return subprocess.run(
            ["docker", *arguments], env={**os.environ, "DOCKER_HOST": self.host,
            "DOCKER_BUILDKIT": "0"}, check=check, stdout=options.pop("stdout", output),
            stderr=output, **options,
        )  # fmt: skip

    def kill(self):
        """Kills it with SIGKILL, and waits until its containerd, which it kills, has ended, too."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "exec/containerd/containerd.pid").read_text())
            # A new engine takes it for alive until it has been reaped, by the first process of the
            # namespace.
            end = time.monotonic() + 60
            while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
                time.sleep(0.05)

    def stop(self):
        """Stops it regularly: it ends its containers, unless they are to be restored."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self):
        """Ends every process and mount of the engine, whatever state it is in."""
        if self.process:
            if self.process.poll() is not None:
                with contextlib.suppress(RuntimeError):
                    self.start()
            left = self.docker("ps", "-aq", check=False, stdout=subprocess.PIPE, text=True).stdout
            if left and left.split():
                self.docker("rm", "-f", *left.split(), check=False, quiet=True)
            self.stop()
        self._guard.end()

    # ---- Images

    def image_hash(self, name):
        template = f'{{{{index .Config.Labels "{HASH_LABEL}"}}}}'
        result = self.docker(
            "image", "inspect", "-f", template, name, check=False, quiet=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return result.stdout.strip()

    def import_image(self, name, make):
        """Imports the folder that `make(folder)` fills, unless the image is there."""
        if self.docker("image", "inspect", name, check=False, quiet=True).returncode == 0:
            return
        say(f"making the image {name}")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            root = pathlib.Path(folder, "root")
            make(root)
            subprocess.run(
                f"tar -C {root} -c . | docker import - {name} >/dev/null", shell=True, check=True,
                env={**os.environ, "DOCKER_HOST": self.host},
            )  # fmt: skip

    def build(self, name, dockerfile, *inputs):
        """Builds a Dockerfile of the project, unless an image from the same inputs is kept."""
        wanted = hash_of([dockerfile, *inputs])
        if self.image_hash(name) == wanted:
            return
        kept = user_cache.get(
            "images", name.partition(":")[0], wanted[:16],
            lambda path, _: self._build(name, dockerfile, wanted, path),
        )  # fmt: skip
        if self.image_hash(name) != wanted:
            say(f"loading the image {name}")
            self.docker("load", "--quiet", "--input", kept, quiet=True)

    def _build(self, name, dockerfile, wanted, archive):
        self.import_image(BASE, lambda root: debian.make_root(root, "bookworm"))
        say(f"building the image {name}")
        log = PROJECT / f"build/{name.partition(':')[0]}.build.log"
        network = [f"--build-arg={key}={value}" for key, value in debian.network().items()]
        with open(log, "wb") as output:
            result = subprocess.run(
                ["docker", "build", "--network", "host", "--label", f"{HASH_LABEL}={wanted}",
                 "--cpu-shares", "64", *network, "--tag", name, "--file", dockerfile, "."],
                cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False,
                env={**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"},
            )  # fmt: skip
        if result.returncode:
            tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-20:])
            raise RuntimeError(f"{name} was not built:\n{tail}")
        self.docker("image", "prune", "-f", quiet=True)
        self.docker("save", "--output", archive, name)

    def build_kernels(self):
        self.build(KERNELS, "kernelspec/Dockerfile", "kernelspec", "LICENSE")

    def build_gateway(self):
        self.build(
            GATEWAY, "Dockerfile", "CMakeLists.txt", "CMakePresets.json", "cmake", "src",
            "deploy/docker", "LICENSE", *map(str, PROJECT.glob("kernelspec/*/kernel.json")),
        )  # fmt: skip

    def build_nginx(self):
        """Makes a substitute for the official image of this name from Debian's package."""
        self.build(NGINX, "tests/support/nginx.Dockerfile")


def locked(folder):
    """An open file whose lock one engine has at a time, from its start until all of it has ended."""
    pathlib.Path(folder).parent.mkdir(parents=True, exist_ok=True)
    lock = open(f"{folder}.lock", "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run's engine to leave {folder}")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def say(text):
    print(f"==> {text}", flush=True)


def hash_of(names):
    digest = hashlib.sha256()
    for name in names:
        path = PROJECT / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(PROJECT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    os.nice(19)
    with contextlib.closing(Dockerd(KEPT)) as builder:
        builder.start()
        builder.build_kernels()
        builder.build_gateway()
        builder.build_nginx()
