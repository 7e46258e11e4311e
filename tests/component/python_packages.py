# SPDX-License-Identifier: Apache-2.0
"""A gateway of the component layer that installs packages, by the pip of Python's kernel, which is not
started."""

import json
import shutil

import component
from kernelgate import PROJECT

PYTHON = PROJECT / "build/kernels/python"


def flags(folder):
    """The gateway's flags; `folder` is an empty one. Two packages are there, pip and numpy, for a client
    that asks for each that is listed; numpy cannot be imported."""
    kernels, specs = folder / "kernels", folder / "kernelspec"
    spec = json.loads((PROJECT / "kernelspec/python/kernel.json").read_text())
    spec["metadata"]["kernelgate"]["aliases"] = []
    (specs / "python").mkdir(parents=True)
    (specs / "python/kernel.json").write_text(json.dumps(spec))
    (specs / "script").symlink_to(component.HERE / "kernelspec/script")
    kernels.mkdir()
    (kernels / "script").symlink_to(component.KERNELS / "script")
    copy_environment(kernels / "python")
    return [*component.FLAGS, "--kernelspec-dir", str(specs), "--kernels-dir", str(kernels)]


def copy_environment(target):
    [packages] = PYTHON.glob("lib/python3*/site-packages")
    shutil.copytree(PYTHON / "bin", target / "bin", symlinks=True)
    shutil.copy(PYTHON / "pyvenv.cfg", target)
    for name in ("pip", "pip-*.dist-info", "numpy-*.dist-info"):
        [source] = packages.glob(name)
        shutil.copytree(source, target / source.relative_to(PYTHON))
