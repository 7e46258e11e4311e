# SPDX-License-Identifier: Apache-2.0
"""Which parts passed on this machine with the same sources, tests and tools: a file in the cache folder."""

import hashlib
import json
import os
import pathlib
import platform
import subprocess

from parts import PROJECT

# Of each part that many states are remembered: a branch and its base, or two clones.
KEPT = 8
# What the gateway and its kernels stand on; a part names its own packages beside these.
TOOLS = (
    "gcc libevent-dev libczmq-dev libzmq3-dev libsodium-dev libjansson-dev libcurl4-openssl-dev libseccomp-dev"
    " libsqlite3-dev libwslay-dev libyaml-dev libc6 runc python3"
).split()


def _files(inputs):
    """Their files, as git knows them; without git, as from an archive, all that there are."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={PROJECT}", "ls-files", "-z", "-co", "--exclude-standard", "--", *inputs],
        cwd=PROJECT, check=False, capture_output=True,
    )  # fmt: skip
    if listing.returncode == 0:
        return sorted(set(filter(None, listing.stdout.decode().split("\0"))))
    paths = [path for name in inputs for path in (PROJECT / name, *(PROJECT / name).rglob("*"))]
    return sorted({str(path.relative_to(PROJECT)) for path in paths if path.is_file()})


def fingerprint(part):
    """A digest of all that a part's result depends on."""
    digest = hashlib.sha256(repr((part.tests, part.prepare, platform.release())).encode())
    versions = subprocess.run(
        ["dpkg-query", "-W", *TOOLS, *part.tools], check=False, capture_output=True
    ).stdout
    digest.update(versions)
    for name in _files(part.inputs):
        path = PROJECT / name
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\0{os.access(path, os.X_OK)}\n".encode())
    return digest.hexdigest()


class Record:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def _read(self):
        try:
            return json.loads(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}

    def has(self, part):
        return fingerprint(part) in self._read().get(part.name, [])

    def add(self, name, digest):
        known = self._read()
        known[name] = [digest, *(each for each in known.get(name, []) if each != digest)][:KEPT]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(known, indent=1), encoding="utf-8")
        new.replace(self.path)
