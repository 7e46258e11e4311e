# SPDX-License-Identifier: Apache-2.0
"""Helpers of the component tests: gateways' flags, cells, kernelspecs."""

import concurrent.futures
import json
import pathlib
import uuid

from kernelgate import BINARY, PROJECT

HERE = pathlib.Path(__file__).parent
# Only the presets with tests have the programs.
BUILDS = pathlib.Path(BINARY).parent.parent, PROJECT / "build/dev"
PROGRAMS = next((each for each in BUILDS if (each / "bin/test-runtime").exists()), BUILDS[-1])
TEST_RUNTIME = PROGRAMS / "bin/test-runtime"
KERNELS = PROGRAMS / "component-kernels"
SCRIPT_KERNEL = KERNELS / "script/script-kernel"

FLAGS = [
    *("--provisioner", "oci", "--oci-runtime", str(TEST_RUNTIME)),
    *("--kernelspec-dir", str(HERE / "kernelspec"), "--kernels-dir", str(KERNELS)),
    *("--default-kernel", "script", "--kernel-start", "exec"),
    *("--pool-size", "0", "--pool-bare", "0", "--max-sessions", "200"),
]

# A cell that runs until `Gateway.release()`, and one that an interrupt does not end; as kernelgate.HELD and
# kernelgate.STUBBORN are in Python.
HELD = "print on\ntake go"
STUBBORN = "deaf\nprint deaf\nhang"


def cell(*steps):
    """A cell with these steps."""
    return "\n".join(steps)


def exact(text):
    """A text for a step that takes TEXT: without a newline that is added, with any character."""
    return json.dumps(text)


def kernelspecs(folder, **specs):
    """Makes a folder for `--kernelspec-dir` with the kernelspec `script`, and others that are the same but
    for the members below `metadata.kernelgate` that are given for each name; returns its path."""
    text = (HERE / "kernelspec/script/kernel.json").read_text()
    for name, members in {"script": {}, **specs}.items():
        spec = json.loads(text)
        spec["metadata"]["kernelgate"] |= {"aliases": [], **members}
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.json").write_text(json.dumps(spec))
    return str(folder)


class SideBySide:
    """Runs that wait for a bound of the product (1 s, 3 s), each in a session of its own, all at once."""

    def __init__(self, run_one):
        self._run_one = run_one
        self._pool = concurrent.futures.ThreadPoolExecutor(32)
        self._runs = {}

    def begin(self, name, *arguments):
        session = f"t-{uuid.uuid4().hex[:12]}"
        self._runs[name] = self._pool.submit(self._run_one, session, *arguments)

    def __getitem__(self, name):
        """What the run has returned; raises what it has raised."""
        return self._runs[name].result()

    def close(self):
        self._pool.shutdown()
