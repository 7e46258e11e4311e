# SPDX-License-Identifier: Apache-2.0
"""The tests' own Podman, whose service implements Docker's API, with the kernels' image.

The image is kept in build/podman, and comes from the tests' dockerd; nothing else of it is kept, also if
this process is killed (guard.py).
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import dockerd
import guard
import leftovers

KEPT = dockerd.PROJECT / "build/podman"
# Podman sets a limit of 2^20 processes, which cannot be configured. A machine that may not raise
# limits refuses that; a sandbox is limited by its control group.
RUNTIME = """#!/bin/bash
arguments=("$@")
while (($#)); do
    [[ $1 != --bundle ]] || sed -i 's/,{"type":"RLIMIT_NPROC"[^}]*}//' "$2/config.json"
    shift
done
exec runc "${arguments[@]}"
"""


class Podman:
    def __init__(self):
        with dockerd.locked(KEPT) as lock:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{leftovers.PREFIX}p-"))
            self._guard = guard.Guard(self.folder, KEPT, keep_open=[lock.fileno()])
        self.host = f"unix://{self.folder}/podman.sock"
        runtime = self.folder / "runc"
        runtime.write_text(RUNTIME)
        runtime.chmod(0o755)
        self.command = [
            "podman", "--root", str(KEPT), "--runroot", f"{self.folder}/run",
            "--tmpdir", f"{self.folder}/tmp", "--runtime", str(runtime),
            "--cgroup-manager", "cgroupfs", "--events-backend", "file",
        ]  # fmt: skip
        self.process = None
        shutil.rmtree(KEPT / "libpod", ignore_errors=True)  # remembers the other folders' paths

    def run(self, *arguments, **options):
        return subprocess.run([*self.command, *arguments], check=True, cwd=self.folder, **options)

    def start(self, timeout=60):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "system", "service", "--time=0", self.host],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder,  # conmon writes files (`oom`) to the working directory
                start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + timeout
        while not (self.folder / "podman.sock").exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.1)
        return self

    def log(self):
        return (self.folder / "log").read_text()

    def load_kernels(self, engine):
        """Copies the image from a dockerd, unless it is the same already."""
        template = f'{{{{index .Labels "{dockerd.HASH_LABEL}"}}}}'
        known = subprocess.run(
            [*self.command, "image", "inspect", "-f", template, dockerd.KERNELS],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
            cwd=self.folder,
        )  # fmt: skip
        if known.stdout.strip() == engine.image_hash(dockerd.KERNELS):
            return
        dockerd.say(f"loading the image {dockerd.KERNELS}")
        with subprocess.Popen(
            ["docker", "save", dockerd.KERNELS], stdout=subprocess.PIPE,
            env={**os.environ, "DOCKER_HOST": engine.host},
        ) as save:  # fmt: skip
            self.run("load", "--quiet", stdin=save.stdout, stdout=subprocess.DEVNULL)

    def stop(self):
        """Ends the service; containers keep running."""
        self.process.terminate()
        self.process.wait(20)

    def close(self):
        if self.process and self.process.poll() is None:
            self.stop()
        quiet = subprocess.DEVNULL
        subprocess.run(
            [*self.command, "rm", "--all", "--force"], stdout=quiet, check=False, cwd=self.folder
        )
        self._guard.end()
