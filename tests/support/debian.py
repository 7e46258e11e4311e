# SPDX-License-Identifier: Apache-2.0
"""Debian root folders, made by debootstrap from this machine's own mirror."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

import guard
import user_cache

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
EXTRA_CERTIFICATES = "usr/local/share/ca-certificates"
# What programs read other certificates from, and what they find the network by.
CERTIFICATE_FILES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
NETWORK = tuple(
    name for each in ("http_proxy", "https_proxy", "no_proxy") for name in (each, each.upper())
) + ("PIP_INDEX_URL", "npm_config_registry")  # fmt: skip
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
    archive = user_cache.get(
        "roots", name, key, lambda path, work: _archive(path, work / "root", release, packages)
    )
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-C", folder, "-xpf", archive], check=True)
    _trust_certificates(folder)


def _archive(path, root, release, packages):
    _bootstrap(root, release, packages)
    subprocess.run(guard.tied(["tar", "-C", str(root), "-cf", str(path), "."]), check=True)


def _bootstrap(folder, release, packages):
    names = ",".join(["ca-certificates", *packages])
    command = ["debootstrap", "--variant=minbase", f"--include={names}", release, str(folder)]
    # Its processes and mounts end with it, also if it is killed.
    command = guard.tied(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    )
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


def network():
    """The settings of the environment by which programs in a root reach what this machine reaches."""
    return {name: os.environ[name] for name in NETWORK if name in os.environ}


def _certificates():
    """Those that this machine trusts beside the distribution's."""
    files = set(pathlib.Path("/", EXTRA_CERTIFICATES).glob("*.crt"))
    named = {os.environ.get(name) for name in CERTIFICATE_FILES} - {None, "", BUNDLE}
    files |= {path for path in map(pathlib.Path, named) if path.exists()}
    pattern = r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?"
    return {block for path in files for block in re.findall(pattern, path.read_text(), re.DOTALL)}


def _trust_certificates(folder):
    certificates = _certificates()
    for number, certificate in enumerate(sorted(certificates)):
        (folder / EXTRA_CERTIFICATES / f"machine-{number}.crt").write_text(certificate)
    if certificates:
        subprocess.run(["chroot", folder, "update-ca-certificates"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        (folder / "etc/pip.conf").write_text(f"[global]\ncert = {BUNDLE}\n")
