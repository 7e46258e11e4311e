# SPDX-License-Identifier: Apache-2.0
"""Files of a real container outside the working folder: what the tenant itself may do, and no more."""

import contextlib

import pytest
from kernelgate import problem
from session_files import Files
from session_watch import watch


@pytest.fixture
def files(gateway, session):
    return Files(gateway, session)


def test_both_see_the_same_files(files, run):
    assert files.put("tmp/a/in.txt", b"in", root="/").status_code == 201
    assert run("print(open('/tmp/a/in.txt').read())").text() == "in\n"
    run(
        "import os\nopen('/dev/shm/out.txt', 'w').write('out')\nos.chmod('/dev/shm/out.txt', 0o600)"
    )
    assert files.get("dev/shm/out.txt", root="/").content == b"out"
    changed = files.act("dev/shm/out.txt", "chmod", root="/", mode="640").json()
    assert changed["permissions"] == "rw-r-----"
    same = (
        "import os\ns = os.stat('/dev/shm/out.txt')\nprint(oct(s.st_mode), s.st_uid == os.getuid())"
    )
    assert run(same).text() == "0o100640 True\n"
    moved = files.act("dev/shm/out.txt", "move", root="/", to="mnt/data/out.txt")
    assert moved.status_code == 200, moved.text
    assert files.names() == ["out.txt"]


def test_the_second_name_of_the_working_folder(files, run):
    """On each engine, also where /home/user is a link."""
    assert files.put("home/user/in.txt", b"in", root="/").status_code == 201
    assert run(
        "print(open('/mnt/data/in.txt').read(), open('/home/user/in.txt').read())"
    ).text() == ("in in\n")
    same = files.act("mnt/data/in.txt", "move", root="/", to="home/user/in.txt", overwrite=True)
    assert same.status_code == 200, same.text
    assert files.names(path="home/user", root="/") == ["home/user/in.txt"]
    assert files.names() == ["in.txt"]


def test_what_the_tenant_may_not_write(files, run):
    for path in "usr/x", "etc/x", "x", "run/x", "opt/x":
        problem(files.put(path, b"", root="/"), 400, "invalid_path")
        problem(files.act(path, "mkdir", root="/"), 400, "invalid_path")
    problem(files.act("etc/hostname", "chmod", root="/", mode="666"), 400, "invalid_path")
    problem(files.delete("etc/passwd", root="/"), 400, "invalid_path")
    problem(files.act("etc/passwd", "move", root="/", to="tmp/passwd"), 400, "invalid_path")
    assert run("import os\nprint(os.path.exists('/etc/passwd'))").text() == "True\n"


def test_what_the_tenant_may_not_read(files, run):
    for path in "proc/1/environ", "proc/self/maps", "sys/kernel/notes", "run/kg", "run/kg-agent":
        problem(files.get(path, root="/"), 400, "invalid_path")
    # Nor by ways that code has made.
    run("import os\nos.symlink('/proc/1', '/tmp/p')\nos.symlink('/run/kg', '/tmp/d')")
    problem(files.get("tmp/p/environ", root="/"), 400, "invalid_path")
    problem(files.get("tmp/d/door", root="/"), 400, "invalid_path")
    assert files.client.get(
        files.url("tmp/p"), params={"root": "/", "stat": "1"}
    ).json()["target"] == "/proc/1"  # fmt: skip
    copied = files.act("proc", "copy", root="/", to="tmp/copy")
    problem(copied, 400, "invalid_path")
    device = files.get("dev/zero", root="/")
    problem(device, 400, "invalid_path")


def test_the_whole_tree_can_be_listed(files):
    names, after = [], None
    for _ in range(3):
        page = files.page(root="/", **({"after": after} if after else {}))
        names += [file["path"] for file in page["files"]]
        after = page.get("next")
    assert names == sorted(names, key=lambda it: it.split("/")) and len(names) == 3000
    top = files.names(root="/", recursive="0")
    assert {"mnt", "tmp", "usr"} <= set(top) and not {"proc", "sys"} & set(top)


def test_what_code_writes_is_watched(gateway, session, run):
    with watch(gateway, session, path="tmp", root="/", recursive="1") as watched:
        run("import os\nos.makedirs('/tmp/a/b')\nopen('/tmp/a/b/c', 'w').write('x')")
        watched.until("create", "tmp/a/b/c")
        run("os.rename('/tmp/a', '/tmp/z')\nopen('/tmp/z/b/c', 'a').write('y')")
        assert ("rename", "tmp/a", "tmp/z") in watched.until("write", "tmp/z/b/c")


def test_watches_leave_code_instances_of_inotify(gateway, session, run):
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(watch(gateway, session)) for _ in range(8)]
        code = "import ctypes\nc = ctypes.CDLL(None)\nprint(c.inotify_init1(0) >= 0)"
        assert run(code).text() == "True\n" and len(watches) == 8
