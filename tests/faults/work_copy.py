# SPDX-License-Identifier: Apache-2.0
"""A copy of a work tree, in which a fault is applied and built."""

import os
import pathlib
import shutil
import subprocess

from processes import RUN, run

BUILD_LIMIT_S = 900


def files_of(tree):
    command = ["git", "-C", tree, "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return {name for name in listed if name and os.path.lexists(tree / name)}


class Copy:
    """A copy of a work tree, with a build folder of its own."""

    def __init__(self, tree, scratch):
        self.tree = tree
        self.root = scratch / "tree"
        self.originals = {}  # of the files that the present fault has changed

    def update(self):
        """Copies what differs. New files have the present time, so that ninja sees them."""
        wanted = files_of(self.tree)
        self.root.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            self.take(name)
        for folder, folders, names in os.walk(self.root):
            if folder == str(self.root):
                folders[:] = [name for name in folders if name != "build"]
            for name in names:
                path = pathlib.Path(folder, name)
                if str(path.relative_to(self.root)) not in wanted:
                    path.unlink()
        self.link_environments()

    def take(self, name):
        source, target = self.tree / name, self.root / name
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(os.readlink(source))
            return
        if target.is_file() and target.read_bytes() == source.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)

    def link_environments(self):
        """Uses what script/setup and script/test have made in the tree's build folder."""
        build = self.root / "build"
        build.mkdir(exist_ok=True)
        for path in (self.tree / "build").glob("*"):
            made = path.is_dir() and (path / ".made-from").exists()
            if made and not (build / path.name).exists():
                (build / path.name).symlink_to(path)

    def copy_kernels(self):
        """Kernels' environments, as hard links: a fault replaces files in them."""
        source, target = self.tree / "build/kernels", self.root / "build/kernels"
        if target.exists():
            shutil.rmtree(target)
        for flags in (["-al"], ["-a"]):
            if subprocess.run(["cp", *flags, source, target], check=False).returncode == 0:
                return
            shutil.rmtree(target, ignore_errors=True)
        raise SystemExit(f"{source} cannot be copied; script/setup makes it")

    def environment(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith("KERNELGATE_")}
        env.update(
            CCACHE_BASEDIR=str(self.root),
            CCACHE_NOHASHDIR="1",
            GIT_CEILING_DIRECTORIES=str(self.root.parent),
            KGT_RUN=RUN,
            PYTHONDONTWRITEBYTECODE="1",
        )
        return env

    def configure(self):
        command = ["cmake", "--preset", "dev"]
        if shutil.which("ccache"):
            command.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
        code, output = run(command, self.root, BUILD_LIMIT_S, self.environment())
        if code != 0:
            raise SystemExit(output)

    def build(self, targets):
        """Returns an error, or None."""
        command = ["ninja", "-C", "build/dev", *sorted(targets)]
        code, output = run(command, self.root, BUILD_LIMIT_S, self.environment())
        return None if code == 0 else output

    # ---- A fault

    def apply(self, fault):
        """Returns an error, or None."""
        paths = [self.root / name for name in fault.files]
        self.originals = {path: path.read_bytes() for path in paths if path.is_file()}
        command = ["git", "apply", "--recount", str(fault.path)]
        code, output = run(command, self.root, 60, self.environment())
        if code == 0:
            self.install(fault.files)
        return None if code == 0 else output

    def remove(self, fault):
        """Not from the tree, which may have changed meanwhile."""
        for path, content in self.originals.items():
            path.write_bytes(content)
        self.install(fault.files)

    def install(self, files):
        """Files of kernelspecs are replaced where their environments have a copy."""
        for name in files:
            parts = pathlib.PurePath(name).parts
            if parts[0] != "kernelspec":
                continue
            for copy in (self.root / "build/kernels" / parts[1]).rglob(parts[-1]):
                content = (self.root / name).read_bytes()
                if copy.is_file() and copy.read_bytes() != content:
                    mode = copy.stat().st_mode
                    copy.unlink()
                    copy.write_bytes(content)
                    copy.chmod(mode)
