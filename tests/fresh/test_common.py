# SPDX-License-Identifier: Apache-2.0
"""What the scripts share (script/common): things that are made once for all work trees, the reason when a
step fails, and the certificates that programs trust."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
from kernelgate import wait_for

PROJECT = pathlib.Path(__file__).resolve().parents[2]
MAKE = """
make() {
    mkdir "$1"
    echo "made in $1" | tee -a ../made >"$1/file"
    until [[ -e ../go ]]; do sleep 0.02; done
}
"""


# The machine's configuration of pip, if there is one, plays no part.
HIDE = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /etc/pip.conf; exec "$@"', "sh"]
HIDE = HIDE if os.path.exists("/etc/pip.conf") else []


class Tree:
    """A work tree that has nothing but script/common, beside another one, and the user's cache folder."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "script").mkdir(parents=True)
        shutil.copy(PROJECT / "script/common", folder / "script")

    def start(self, script, **environment):
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder.parent)}
        return subprocess.Popen(
            [*HIDE, "bash", "-euc", f"source script/common\n{script}"], cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own | environment,
            start_new_session=True,
        )  # fmt: skip

    def run(self, script, **environment):
        process = self.start(script, **environment)
        said, complained = process.communicate()
        return process.returncode, said, complained

    def succeed(self, script, **environment):
        status, said, complained = self.run(script, **environment)
        assert status == 0, complained
        return said


@pytest.fixture
def trees(tmp_path):
    """Two work trees; what their `make` makes is not held back, and is counted in `made`."""
    (tmp_path / "go").touch()
    return Tree(tmp_path / "one"), Tree(tmp_path / "two")


def made(tree):
    record = tree.folder.parent / "made"
    return record.read_text().splitlines() if record.exists() else []


def entries(tree):
    return sorted(tree.folder.parent.glob(".cache/kernelgate/made/thing-*"))


def test_what_one_tree_has_made_is_there_for_the_other(trees):
    for tree in trees:
        tree.succeed(f"{MAKE}\nmake_once build/thing hash make")
    files = [tree.folder / "build/thing/file" for tree in trees]
    assert len(made(trees[0])) == 1
    assert files[0].read_text() == f"made in {entries(trees[0])[0]}\n"  # and may contain that path
    assert files[0].samefile(files[1])


def test_a_copy_is_a_folder_of_the_tree_itself(trees):
    for tree in trees:
        tree.succeed(f"{MAKE}\ncopy_once build/thing hash make")
        assert not (tree.folder / "build/thing").is_symlink()
    assert len(made(trees[0])) == 1
    shutil.rmtree(entries(trees[0])[0])
    assert "made in" in (trees[1].folder / "build/thing/file").read_text()


def test_another_hash_takes_its_place_and_the_first_one_stays(trees):
    one, two = trees
    for tree, value in ((one, "first"), (two, "first"), (one, "second"), (two, "first")):
        tree.succeed(f"{MAKE}\nmake_once build/thing {value} make")
    assert len(made(one)) == 2
    assert not one.folder.joinpath("build/thing").samefile(two.folder / "build/thing")


def test_what_is_made_in_another_way_is_something_else(trees):
    trees[0].succeed(f"{MAKE}\nmake_once build/thing hash make")
    trees[0].succeed("make() { mkdir $1; echo other >$1/file; }; make_once build/thing hash make")
    assert (trees[0].folder / "build/thing/file").read_text() == "other\n"


def test_of_concurrent_calls_one_makes_it(trees):
    trees[0].folder.parent.joinpath("go").unlink()
    runs = [tree.start(f"{MAKE}\nmake_once build/thing hash make") for tree in (*trees, *trees)]
    wait_for(lambda: made(trees[0]), timeout=60)
    trees[0].folder.parent.joinpath("go").touch()
    for run in runs:
        assert run.wait(60) == 0, run.stderr.read()
        run.communicate()
    assert len(made(trees[0])) == 1


def test_one_that_was_killed_is_made_again(trees):
    one = trees[0]
    one.folder.parent.joinpath("go").unlink()
    run = one.start(f"{MAKE}\nmake_once build/thing hash make")
    wait_for(lambda: made(one), timeout=60)
    os.killpg(run.pid, signal.SIGKILL)
    one.folder.parent.joinpath("go").touch()
    run.communicate()
    assert not one.folder.joinpath("build/thing").exists()
    one.succeed(f"{MAKE}\nmake_once build/thing hash make")
    assert len(made(one)) == 2 and one.folder.joinpath("build/thing/file").exists()


def test_what_was_not_used_for_long_is_removed(trees):
    one, _ = trees
    for value in ("old", "used"):
        one.succeed(f"{MAKE}\nmake_once build/thing {value} make")
    for entry in entries(one):
        long_ago = time.time() - 20 * 24 * 3600
        os.utime(entry, (long_ago, long_ago))
    one.succeed(f"{MAKE}\nmake_once build/thing used make")
    one.succeed(f"{MAKE}\nmake_once build/other hash make")
    assert len(entries(one)) == 1 and one.folder.joinpath("build/thing/file").exists()


def test_a_folder_of_an_earlier_version_is_replaced(trees):
    folder = trees[0].folder / "build/thing"
    folder.mkdir(parents=True)
    (folder / "file").write_text("earlier")
    trees[0].succeed(f"{MAKE}\nmake_once build/thing hash make")
    assert folder.is_symlink() and "made in" in (folder / "file").read_text()
    assert not folder.with_name("thing.old").exists()


# ---- Reasons ---------------------------------------------------------------------------------------


def test_what_cannot_be_made_says_why_and_leaves_what_is_there(trees):
    one = trees[0]
    one.succeed(f"{MAKE}\nmake_once build/thing hash make")
    # Also where the shell does not end with the first command that fails.
    broken = "make() { mkdir $1; ls /no/such/folder; touch $1/file; }"
    for call in ("make_once build/thing other make", "make_once build/thing other make || exit 3"):
        status, _, complained = one.run(f"{broken}\n{call}")
        assert status != 0
        assert "/no/such/folder" in complained and "build/thing was not made" in complained
        assert "made in" in one.folder.joinpath("build/thing/file").read_text()


def test_a_failed_npm_is_quoted(trees):
    one = trees[0]
    for name in ("package.json", "package-lock.json"):
        (one.folder / name).touch()
    node = one.folder / "node/bin/node"
    node.parent.mkdir(parents=True)
    node.write_text("#!/bin/sh\necho npm error code E407; exit 1\n")
    node.chmod(0o755)
    status, _, complained = one.run("mkdir to; install_node_packages node . to")
    assert status == 1
    assert "npm error code E407" in complained
    assert (
        "npm could not install what ./package-lock.json names. See its words above." in complained
    )
    assert "https_proxy" in complained and "NODE_EXTRA_CA_CERTS" in complained


def test_a_failed_pip_is_quoted(trees):
    status, _, complained = trees[0].run(f"install_python_packages {sys.executable} no-such-file")
    assert status == 1
    assert "No such file or directory" in complained
    assert "pip could not install what no-such-file names. See its words above." in complained


def test_a_step_that_succeeds_is_silent(trees):
    assert trees[0].run("step sentence sh -c 'echo words; echo more >&2'") == (0, "", "")


# ---- Certificates ----------------------------------------------------------------------------------

SHOW = 'echo "${PIP_CERT-none} ${NODE_EXTRA_CA_CERTS-none}"'
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def test_pip_and_node_trust_what_the_machine_trusts(trees):
    assert trees[0].succeed(SHOW) == f"{BUNDLE} {BUNDLE}\n"


def test_they_trust_what_the_environment_names(trees, tmp_path):
    own = tmp_path / "own.crt"
    own.touch()
    one = trees[0]
    assert one.succeed(SHOW, SSL_CERT_FILE=str(own)) == f"{own} {own}\n"
    assert one.succeed(SHOW, PIP_CERT="/p", NODE_EXTRA_CA_CERTS="/n") == "/p /n\n"
    assert one.succeed(SHOW, REQUESTS_CA_BUNDLE="/r").startswith("none ")  # which pip reads itself


def test_a_configuration_of_pip_stays_in_force(trees, tmp_path):
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\ncert = /own.crt\n")
    assert trees[0].succeed(SHOW).startswith("none ")


def test_what_runs_as_root_gets_the_settings_of_the_network(trees, tmp_path):
    settings = {"https_proxy": "http://proxy:1", "PIP_CERT": "/p", "no_proxy": "a,b", "OTHER": "x"}
    told = trees[0].succeed("network_settings", **settings).splitlines()
    assert {"https_proxy=http://proxy:1", "PIP_CERT=/p", "no_proxy=a,b"} <= set(told)
    assert not [line for line in told if line.startswith(("OTHER", "PATH", "HOME"))]
