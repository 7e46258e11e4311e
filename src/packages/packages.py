# SPDX-License-Identifier: Apache-2.0
"""What pip does for kernelgate, inside sandboxes. It is in a folder that every sandbox sees, or,
where no folder is shared, an argument of `python -c`. Progress goes to stderr; the result is one JSON object on stdout.

    packages.py check REQUIREMENT...       which of them are satisfied here
    packages.py download REQUIREMENT...    resolves and downloads wheels; needs a way out
    packages.py install WHEEL...           installs exactly these, offline
    packages.py list [NAME]                what is installed, and for which interpreter
"""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

from pip._vendor import requests
from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.utils import canonicalize_name

DATA = pathlib.Path("/mnt/data")
TARGET = DATA / ".kg-packages"
DOWNLOADS = DATA / "wheels"


def pip(*arguments):
    """Run pip, its words on stderr; end with its exit code where it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # Big wheels do not fit into /tmp; and from here the result is moved, not copied.
    with tempfile.TemporaryDirectory(dir=DATA, prefix=".kg-pip-") as folder:
        result = subprocess.run(
            [*command, *arguments],
            env={
                **os.environ,
                "TMPDIR": folder,
                "PIP_NO_COLOR": "1",
                "KERNELGATE_REAL_PIP": "1",  # not the one that asks the gateway
            },
            stdout=sys.stderr,
            check=False,
        )
    if result.returncode:
        sys.exit(result.returncode)


def version_of(name):
    """The version that is installed, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def parse(text):
    """A requirement; what is none ends this program, in words that do not depend on pip's version."""
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        sys.exit(f"ERROR: {text} is not a requirement: {str(error).splitlines()[0]}")


def check(*requirements):
    """Tell satisfied requirements from missing ones; extras are always left to the resolver."""
    satisfied = []
    missing = []
    for text in requirements:
        requirement = parse(text)
        version = version_of(requirement.name)
        fits = version and requirement.specifier.contains(version, prereleases=True)
        if fits and not requirement.extras:
            satisfied.append({"requirement": text, "version": version})
        else:
            missing.append(text)
    return {"satisfied": satisfied, "missing": missing}


def credentials_for(url):
    """Those of the index's URL for the same server, which pip's report leaves out; or None."""
    index = urllib.parse.urlparse(os.environ.get("PIP_INDEX_URL", ""))
    other = urllib.parse.urlparse(url)
    same = (index.scheme, index.hostname, index.port) == (other.scheme, other.hostname, other.port)
    if not same or index.username is None:
        return None
    unquote = urllib.parse.unquote
    return unquote(index.username), unquote(index.password or "")


def fetch(session, url, digest):
    """Download one wheel; end where it is not the one that was resolved."""
    path = DOWNLOADS / pathlib.PurePosixPath(urllib.parse.urlparse(url).path).name
    path = path.with_name(urllib.parse.unquote(path.name))
    found = hashlib.sha256()
    auth = credentials_for(url)
    with session.get(url, stream=True, timeout=15, auth=auth) as response, path.open("wb") as file:
        response.raise_for_status()
        for part in response.iter_content(1 << 20):
            found.update(part)
            file.write(part)
    if found.hexdigest() != digest:
        sys.exit(f"ERROR: {path.name} is not the file that the index names: its SHA-256 differs")
    return {"file": path.name, "size": path.stat().st_size}


def download(*requirements):
    """Resolve, only wheels, and download what this environment does not have."""
    with tempfile.NamedTemporaryFile(dir=DATA, prefix=".kg-report-") as report:
        options = ["--only-binary=:all:", "--progress-bar=off", "--timeout=15", "--retries=2"]
        options.append("--no-cache-dir")  # the disk has no room for everything twice
        pip("install", "--dry-run", "--report", report.name, *options, *requirements)
        items = json.load(report)["install"]
    DOWNLOADS.mkdir(exist_ok=True)
    session = requests.Session()
    session.verify = os.environ.get("PIP_CERT") or True
    for scheme in ("https://", "http://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=2))
    wheels = []
    for item in items:
        info = item["download_info"]
        archive = info["archive_info"]
        digest = archive.get("hashes", {}).get("sha256") or archive["hash"].partition("sha256=")[2]
        metadata = item["metadata"]
        wheel = {"name": metadata["name"], "version": metadata["version"], "sha256": digest}
        try:
            wheels.append({**wheel, **fetch(session, info["url"], digest)})
        except (requests.RequestException, OSError) as error:
            sys.exit(f"ERROR: cannot download {metadata['name']}: {error}")
    return {"wheels": wheels, **check(*requirements)}


def install(*wheels):
    """Install wheels, and nothing else, where kernels and commands look."""
    TARGET.mkdir(exist_ok=True)
    options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", f"--target={TARGET}"]
    pip("install", *options, *wheels)
    shutil.rmtree(TARGET / "bin" / "__pycache__", ignore_errors=True)
    return {}


def list_(*names):
    """What is installed here: one package, or all; the first of a name is what gets imported."""
    wanted = [canonicalize_name(name) for name in names]
    packages = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and (not wanted or canonicalize_name(name) in wanted):
            packages.setdefault(canonicalize_name(name), distribution.version)
    return {"packages": packages, "python": sys.implementation.cache_tag}


if __name__ == "__main__":
    ACTIONS = {"check": check, "download": download, "install": install, "list": list_}
    print(json.dumps(ACTIONS[sys.argv[1]](*sys.argv[2:])))
