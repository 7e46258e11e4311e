# SPDX-License-Identifier: Apache-2.0
"""Debian root folders, made by debootstrap from this machine's own mirror."""

import hashlib
import pathlib
import shutil
import subprocess
import tempfile

import user_cache

EXTRA_CERTIFICATES = pathlib.Path("/usr/local/share/ca-certificates")
SLIM = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man")


def mirror():
    """The URL of this machine's own packages, or None for debootstrap's default."""
    for path in pathlib.Path("/etc/apt/sources.list.d").glob("*.sources"):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    return None


def make_root(folder, release, *packages):
    """Makes a minimal root of that release; it trusts the certificates that this machine trusts."""
    name = "-".join([release, *packages[:1]])
    made_from = pathlib.Path(__file__).read_bytes() + repr(packages).encode()
    key = hashlib.sha256(made_from).hexdigest()[:16]
    archive = user_cache.get("roots", name, key, lambda path: _archive(path, release, packages))
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-C", folder, "-xpf", archive], check=True)
    _trust_certificates(folder)


def _archive(path, release, packages):
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        root = pathlib.Path(work, "root")
        _bootstrap(root, release, packages)
        subprocess.run(["tar", "-C", root, "-cf", path, "."], check=True)


def _bootstrap(folder, release, packages):
    names = ",".join(["ca-certificates", *packages])
    command = ["debootstrap", "--variant=minbase", f"--include={names}", release, str(folder)]
    result = subprocess.run(
        [*command, *filter(None, [mirror()])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise RuntimeError(f"debootstrap failed:\n{result.stdout[-2000:]}")
    for left in ("var/cache/apt", "var/lib/apt/lists", *SLIM):
        shutil.rmtree(folder / left, ignore_errors=True)
    (folder / "var/cache/apt/archives/partial").mkdir(parents=True)
    # As in the official slim image: packages come without these, and dpkg does not sync the disk.
    excluded = "".join(f"path-exclude /{path}/*\n" for path in SLIM)
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text(f"{excluded}force-unsafe-io\n")


def _trust_certificates(folder):
    certificates = list(EXTRA_CERTIFICATES.glob("*.crt"))
    for certificate in certificates:
        shutil.copy(certificate, folder / "usr/local/share/ca-certificates")
    if certificates:
        subprocess.run(["chroot", folder, "update-ca-certificates"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        (folder / "etc/pip.conf").write_text(f"[global]\ncert = {bundle}\n")
