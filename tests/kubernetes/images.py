# SPDX-License-Identifier: Apache-2.0
"""Makes the images of the cluster, as archives that containerd imports, in the folder that is given:
localhost/pause:1, localhost/kernelgate-kernel:1, localhost/kernelgate:1, localhost/nginx:1.

There is no registry. Those of kernelgate are a minimal root of this machine's release, and what was
built in this work tree. An archive is only made again when what goes into it has changed.
"""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests/support"))

import debian  # noqa: E402

PACKAGES = (
    "python3", "fonts-dejavu-core", "fonts-noto-core", "fonts-symbola", "fonts-wqy-microhei",
    "curl", "libcurl4", "libczmq4",
    "libevent-2.1-7", "libevent-pthreads-2.1-7", "libjansson4", "libsodium23", "libsqlite3-0", "libwslay1", "libyaml-0-2", "libzmq5",
    "zlib1g",
)  # fmt: skip
USERS = (("sandbox", 1000, "/tmp"), ("kernelgate", 10001, "/"))
BUILD = PROJECT / "build/release"
PROGRAMS = "bin/kernelgate", "libexec/kernelgate/kernelgate-agent"


def hash_of_files(*paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def release():
    text = pathlib.Path("/etc/os-release").read_text()
    return re.search(r"^VERSION_CODENAME=(\w+)$", text, re.M)[1]


def run(*command):
    subprocess.run(command, check=True)


# ---- Layers ----------------------------------------------------------------------------------------


def make_base(layer, work):
    root = work / "root"
    debian.make_root(root, release(), *PACKAGES)
    for name, number, home in USERS:
        run("chroot", root, "groupadd", "-g", str(number), name)
        run("chroot", root, "useradd", "-u", str(number), "-g", name, "-d", home, "-M", name)
    for point in ("mnt/data", "opt/kernelgate"):
        (root / point).mkdir(parents=True)
    (root / "home/user").symlink_to("/mnt/data")
    run("tar", "-C", root, "-cf", layer, ".")


def kernels():
    """The project's; a test adds another one for a while."""
    return sorted(path.parent.name for path in PROJECT.glob("kernelspec/*/install"))


def make_kernels(layer, work):
    result = subprocess.run(
        ["tar", "-C", PROJECT / "build/kernels", "--owner=0", "--group=0", "--transform",
         "s,^,opt/kernelgate/,S", "-cf", layer, *kernels()], check=False,
    )  # fmt: skip
    # 1: another work tree has linked files meanwhile (copy_once in script/common), which sets their times.
    if result.returncode not in (0, 1):
        raise RuntimeError(
            f"the kernels were not archived: tar ended with status {result.returncode}"
        )


def make_gateway(layer, work):
    with tarfile.open(layer, "w") as archive:
        for name in PROGRAMS:
            archive.add(BUILD / name, f"usr/local/{name}")
        for spec in sorted(PROJECT.glob("kernelspec/*/kernel.json")):
            archive.add(spec, f"usr/local/share/kernelgate/{spec.relative_to(PROJECT)}")


def make_nginx(layer, work):
    """With logs and temporary files where the official image has them, like tests/support/nginx.Dockerfile."""
    root = work / "root"
    debian.make_root(root, release(), "nginx-light")
    (root / "etc/nginx/sites-enabled/default").unlink()
    shutil.rmtree(root / "var/lib/nginx")
    (root / "var/cache/nginx").mkdir()
    (root / "var/lib/nginx").symlink_to("/var/cache/nginx")
    for log, device in ("access", "stdout"), ("error", "stderr"):
        path = root / f"var/log/nginx/{log}.log"
        path.unlink(missing_ok=True)
        path.symlink_to(f"/dev/{device}")
    run("tar", "-C", root, "-cf", layer, ".")


def make_pause(layer, work):
    program = work / "pause"
    run("cc", "-O2", "-static", "-o", program, PROJECT / "tests/kubernetes/pause.c")
    with tarfile.open(layer, "w") as archive:
        archive.add(program, "pause")


# ---- Images ----------------------------------------------------------------------------------------


def layer_of(folder, name, key, make):
    """The path of a layer's file and its digest; it is made unless one of this key is there."""
    layer, record = folder / f"{name}.layer", folder / f"{name}.layer.json"
    if record.exists() and layer.exists():
        known = json.loads(record.read_text())
        if known["key"] == key:
            return layer, known["digest"]
    print(f"==> making the cluster's layer {name}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = pathlib.Path(work, "layer")
        make(made, pathlib.Path(work))
        os.replace(made, layer)
    with open(layer, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record.write_text(json.dumps({"key": key, "digest": digest}))
    return layer, digest


def add_bytes(archive, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def make_image(folder, name, layers, entrypoint):
    """Writes NAME.tar and NAME.hash, unless they were made from the same layers."""
    digests = [digest for _, digest in layers]
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": entrypoint,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": "1970-01-01T00:00:00Z"} for _ in digests],
    }).encode()  # fmt: skip
    image_id = hashlib.sha256(config).hexdigest()
    record = folder / f"{name}.hash"
    if record.exists() and record.read_text() == image_id:
        return
    print(f"==> making the cluster's image {name}", flush=True)
    names = [f"{digest}.tar" for digest in digests]
    manifest = [
        {"Config": f"{image_id}.json", "RepoTags": [f"localhost/{name}:1"], "Layers": names}
    ]
    with tarfile.open(folder / f"{name}.tar", "w") as archive:
        add_bytes(archive, f"{image_id}.json", config)
        add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
        for (layer, _), inside in zip(layers, names):
            archive.add(layer, inside)
    record.write_text(image_id)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("tmp*"):
        shutil.rmtree(left)
    base_key = json.dumps([release(), PACKAGES, USERS])
    base = layer_of(folder, "base", base_key, make_base)
    stamps = [PROJECT / "build/kernels" / name / ".made-from" for name in kernels()]
    kernels_key = json.dumps([f"{path.parent.name} {path.read_text()}" for path in stamps])
    kernels_layer = layer_of(folder, "kernels", kernels_key, make_kernels)
    gateway_key = hash_of_files(
        *(BUILD / name for name in PROGRAMS),
        *PROJECT.glob("kernelspec/*/kernel.json"),
    )
    gateway = layer_of(folder, "gateway", gateway_key, make_gateway)
    pause_key = hash_of_files(PROJECT / "tests/kubernetes/pause.c")
    pause = layer_of(folder, "pause", pause_key, make_pause)
    make_image(folder, "pause", [pause], ["/pause"])
    make_image(folder, "kernelgate-kernel", [base, kernels_layer], ["/bin/sh"])
    make_image(folder, "kernelgate", [base, gateway], ["/usr/local/bin/kernelgate"])
    nginx = layer_of(folder, "nginx", release(), make_nginx)
    make_image(folder, "nginx", [nginx], ["/usr/sbin/nginx", "-g", "daemon off;"])


if __name__ == "__main__":
    main()
