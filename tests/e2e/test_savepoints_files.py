# SPDX-License-Identifier: Apache-2.0
"""Savepoints that keep /mnt/data, too, with real kernels and disks."""

import concurrent.futures

import pytest
from kernelgate import wait_for
from mcp_clients import WireClient
from session_savepoints import Savepoints, known, value

MIB = 1 << 20

# All that a folder may have, and a cell that says what it has.
TREE = r"""
import os, socket, stat
os.makedirs("deep/er/still"); os.makedirs("locked"); os.mkdir("empty")
def put(path, text, mode=0o644):
    with open(path, "w") as file: file.write(text)
    os.chmod(path, mode)
put("plain.txt", "first"); put("deep/er/still/there", "below"); put("locked/in", "it")
put("a name\nwith 'all' ü $(x) \\", "odd"); put("-rf", "dash"); put(b"\xff\xfe", "not UTF-8")
put("run.sh", "#!/bin/sh", 0o755); put("only.read", "r", 0o444); put("own", "s", 0o600); put("sticky", "", 0o4711)
put("void", "")
os.chmod("locked", 0o555)
os.symlink("plain.txt", "link"); os.symlink("/etc/passwd", "out"); os.symlink("nowhere", "dangling")
os.symlink("deep", "to-folder"); os.symlink("loop", "loop")
os.link("plain.txt", "hard")
os.mkfifo("fifo", 0o620)
listener = socket.socket(socket.AF_UNIX); listener.bind("socket")
with open("holes", "wb") as file: file.seek(10 << 20); file.write(b"end"); file.truncate(20 << 20)
os.utime("plain.txt", (1, 1234567890.5)); os.utime("deep", (1, 1e9))
"""
SEEN = r"""
import hashlib, os, stat
def seen():
    for folder, folders, files in os.walk(b"/mnt/data"):
        folders[:] = [each for each in folders if not each.startswith(b".kg-")]
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = None
            if stat.S_ISLNK(kind): content = os.readlink(path)
            if stat.S_ISREG(kind) and status.st_mode & 0o400:
                content = hashlib.sha256(open(path, "rb").read()).hexdigest()
            time = status.st_mtime_ns if stat.S_ISREG(kind) or name == b"deep" else 0
            yield path, oct(status.st_mode), content, time, status.st_uid, status.st_blocks > 2048
hashlib.sha256(repr(sorted(seen(), key=repr)).encode()).hexdigest(), len(list(seen()))
"""
SPOIL = r"""
import shutil, os
os.chmod("locked", 0o755)
for name in "plain.txt", "own": open(name, "a").write(" and more")
shutil.rmtree("deep"); shutil.rmtree("locked"); os.rmdir("empty"); os.remove("link"); os.remove("fifo")
os.mkdir("fifo"); open("fifo/new", "w"); open("locked", "w").write("a file now"); os.mkdir("deep")
os.remove("only.read"); os.symlink("own", "only.read"); os.symlink("x", "link"); os.chmod("run.sh", 0)
open("new", "w").write("new"); os.makedirs("new-folder/below"); os.chmod("new-folder/below", 0)
os.chmod("new-folder", 0o500)
with open("holes", "r+b") as file: file.write(b"x" * 4096)
"""


@pytest.fixture
def disk(gateway, session):
    """MiB of the session's disk that are used."""

    def used():
        body = gateway.client.get(f"/api/v1/sessions/{session}").json()
        return body["usage"]["disk_bytes"] / MIB

    return used


def test_files_come_back(gateway, session, run, savepoints):
    run(TREE)
    before = value(run, SEEN)
    made = savepoints.make(files=True, name="all")
    assert made["files"]["entries"] == int(before.split(", ")[1].rstrip(")"))
    assert value(run, SEEN) == before  # and nothing else is there
    listed = gateway.client.get(f"/api/v1/sessions/{session}/files?details=1").json()["files"]
    assert not [each for each in listed if ".kg-" in each["path"]]
    for _ in range(2):
        assert run(SPOIL).status == "ok" and value(run, SEEN) != before
        assert known(savepoints.restore(made["savepoint"])) == known(made)
        assert value(run, SEEN) == before
    assert run("raise SystemExit").status == "ok"
    savepoints.restore(made["savepoint"])  # nothing has changed
    assert value(run, SEEN) == before


def test_without_files_they_stay(run, savepoints):
    run("open('a', 'w').write('1')")
    made = savepoints.make()
    assert made["files"] is None
    run("open('a', 'w').write('2')")
    savepoints.restore(made["savepoint"])
    assert value(run, "open('a').read()") == "'2'"


def test_what_is_open_is_the_same_file(run, savepoints):
    """The working folder, too, and what is mapped."""
    run("import mmap, os; os.mkdir('in'); os.chdir('in'); file = open('f', 'w+'); file.write('0123456789')\n"
        "file.flush(); file.seek(5); mapped = mmap.mmap(file.fileno(), 10)")  # fmt: skip
    made = savepoints.make(files=True)["savepoint"]
    run("file.write('xxxxxyyyyy'); file.flush(); open('other', 'w')")
    savepoints.restore(made)
    assert value(run, "file.read(), mapped[:], os.listdir(), os.getcwd()") == (
        "('56789', b'0123456789', ['f'], '/mnt/data/in')"
    )
    run("file.write('!'); file.flush()")
    assert value(run, "open('/mnt/data/in/f').read()") == "'0123456789!'"


def test_all_branches_share_them(run, savepoints):
    run("open('a', 'w').write('1')")
    made = savepoints.make(files=True)["savepoint"]
    savepoints.branch("b", **{"from": made})  # which puts nothing back
    run("open('a', 'w').write('2')", branch="b")
    assert value(run, "open('a').read()") == "'2'"
    savepoints.restore(made)
    assert value(run, "open('a').read()", branch="b") == "'1'"
    savepoints.promote("b")
    assert value(run, "open('a').read()") == "'1'"


def test_their_room(start_gateway):
    """What is kept counts in the disk, goes with its savepoint, and is refused before anything happens."""
    gateway = start_gateway("--disk-mb", "64", "--max-savepoints", "3")
    session = gateway.create_session()
    savepoints = Savepoints(gateway, session)
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    used = lambda: gateway.client.get(f"/api/v1/sessions/{session}").json()["usage"]["disk_bytes"] / MIB
    run("x = 1; open('a', 'wb').write(bytes(range(256)) * (20 << 12))")
    base = used()
    first = savepoints.make(files=True)
    assert first["files"]["bytes"] == 20 * MIB and 20 <= used() - base < 21
    savepoints.make(files=True)
    assert 40 <= used() - base < 41
    detail = savepoints.make(507, "disk_full", files=True)
    assert "disk-mb" in detail and "MiB more" in detail
    assert len(savepoints.ids()) == 2 and 40 <= used() - base < 41
    savepoints.drop(first["savepoint"])
    wait_for(lambda: used() - base < 21)
    kept = savepoints.ids()[0]
    # What a restore puts back needs room only for what is not there.
    run("x = 2; import os; os.rename('a', 'b'); open('b', 'r+b').write(b'changed')")
    run("open('c', 'wb').write(bytes(1 << 20) * 20)")
    savepoints.restore(kept)
    listing = "sorted(each for each in __import__('os').listdir() if each[0] != '.')"
    assert value(run, f"x, {listing}") == "(1, ['a'])"
    # Those of unnamed ones go when newer ones take their place.
    run("__import__('os').remove('a')")
    for _ in range(3):
        savepoints.make()
    assert kept not in savepoints.ids()
    wait_for(lambda: used() - base < 1)
    gateway.delete_session(session)


def test_a_restore_without_room(start_gateway):
    gateway = start_gateway("--disk-mb", "64")
    session = gateway.create_session()
    savepoints = Savepoints(gateway, session)
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    run("x = 1; open('a', 'wb').write(b'a' * (25 << 20))")
    made = savepoints.make(files=True)["savepoint"]
    # Linux counts what is open still, although nothing can be removed for it.
    command = {
        "command": "head -c 30000000 /dev/zero >f; exec 9<f; rm f; touch held; sleep 1000",
        "background": True,
    }
    run("x = 2; import os; os.truncate('a', 0)")
    gateway.client.post(
        f"/api/v1/sessions/{session}/commands", json={**command, "id": "holds"}
    ).raise_for_status()
    wait_for(lambda: value(run, "os.path.exists('f'), os.path.exists('held')") == "(False, True)")
    detail = savepoints.restore(made, 507, "disk_full")
    assert "MiB more" in detail
    assert value(run, "x, os.path.getsize('a')") == "(2, 0)"  # nothing has changed
    gateway.client.delete(f"/api/v1/sessions/{session}/commands/holds").raise_for_status()
    wait_for(
        lambda: gateway.client.get(f"/api/v1/sessions/{session}").json()["usage"]["disk_bytes"] < 30 * MIB
    )
    savepoints.restore(made)
    assert value(run, "x, __import__('os').path.getsize('a') >> 20") == "(1, 25)"
    gateway.delete_session(session)


def test_the_next_gateway(start_gateway):
    gateway = start_gateway()
    session = gateway.create_session()
    savepoints = Savepoints(gateway, session)
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    run("open('a', 'w').write('1')")
    made, lost = savepoints.make(files=True), savepoints.make(files=True)
    run("import glob, os, signal; open('a', 'w').write('2')")
    gateway.kill()
    gateway.start()
    savepoints = Savepoints(gateway, session)
    wait_for(lambda: gateway.client.get(f"{savepoints.url}/savepoints").status_code != 429)
    assert savepoints.shown()["savepoints"] == [known(made), known(lost)]
    savepoints.drop(lost["savepoint"])
    kept = "__import__('os').listdir('/mnt/data/.kg-savepoints')"
    wait_for(lambda: value(run, kept) == str([made["savepoint"]]))
    savepoints.restore(made["savepoint"])
    assert value(run, "open('a').read()") == "'1'"
    savepoints.drop(made["savepoint"])
    wait_for(lambda: value(run, "__import__('os').path.exists('/mnt/data/.kg-savepoints')") == "False")
    gateway.delete_session(session)


def test_while_others_write(gateway, session, run, savepoints):
    """Each file is whole or as far as it was; what is not there any more is left out."""
    run("for i in range(300): open(f'f{i}', 'w').write('x' * 5000)")
    loop = "while :; do for i in 1 2 3 4 5; do echo $i >w$i; mkdir -p d/$i; rm -rf w$i d; done; done"
    command = {"command": loop, "id": "writes", "background": True}
    gateway.client.post(f"/api/v1/sessions/{session}/commands", json=command).raise_for_status()
    made = [savepoints.make(files=True)["savepoint"] for _ in range(3)]
    for each in made:
        savepoints.restore(each)
        assert value(run, "sum(len(open(f'f{i}').read()) for i in range(300))") == "1500000"
    gateway.client.delete(f"/api/v1/sessions/{session}/commands/writes").raise_for_status()
    # Several at once: one after the other, or refused.
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for name in "ab":
            savepoints.branch(name)
        ask = lambda **fields: savepoints.client.post(f"{savepoints.url}/savepoints", json=fields, timeout=60)
        asked = [pool.submit(ask, files=True, **fields) for fields in ({}, {"branch": "a"}, {"branch": "b"})]
        codes = [each.result().status_code for each in asked]
    assert set(codes) <= {201, 429} and 201 in codes


@pytest.mark.once
def test_hostile_folders(run, savepoints):
    """What code does to what is kept is its own loss."""
    run("import os; open('a', 'w').write('1')")
    made = savepoints.make(files=True)["savepoint"]
    run("import shutil; shutil.rmtree('.kg-savepoints')")
    assert "no files" in savepoints.restore(made, 404, "not_found")
    run("os.symlink('/tmp', '.kg-savepoints')")
    savepoints.make(400, "invalid_path", files=True)
    assert "no files" in savepoints.restore(made, 404, "not_found")
    savepoints.drop(made)
    assert value(run, "os.listdir('/tmp') != [] and open('a').read()") == "'1'"
    run("os.remove('.kg-savepoints'); open('.kg-savepoints', 'w')")
    savepoints.make(400, "invalid_path", files=True)
    run(
        "os.remove('.kg-savepoints')\nfor i in range(40): os.mkdir('x'); os.chdir('x')\nos.chdir('/mnt/data')"
    )
    assert "folders" in savepoints.make(400, "invalid_request", files=True)
    run("shutil.rmtree('x'); open('secret', 'w'); os.chmod('secret', 0)")
    assert "secret" in savepoints.make(400, "invalid_path", files=True)
    run("os.remove('secret'); os.mkdir('closed', 0)")
    assert "closed" in savepoints.make(400, "invalid_path", files=True)
    run("os.rmdir('closed')")
    assert value(run, "os.path.exists('.kg-savepoints')") == "False"
    made = savepoints.make(files=True)["savepoint"]
    run(f"os.symlink('/etc', '.kg-savepoints/{made}/etc'); os.mkdir('etc')")
    savepoints.restore(made)
    assert value(run, "os.readlink('etc')") == "'/etc'"


@pytest.mark.once
def test_an_agent_takes_back_files(gateway):
    with WireClient(gateway) as client:
        client.call("run_python_code", {"code": "x = 1; _ = open('data.csv', 'w').write('a,b')"})
        made = client.call("create_savepoint", {"files": True})
        assert "files in /mnt/data" in made.text and made.structured["files"]["entries"] == 1
        client.call("run_python_code", {"code": "import os; os.remove('data.csv')"})
        assert "files in /mnt/data" in client.call("restore_savepoint").text
        assert client.call("run_python_code", {"code": "open('data.csv').read(), x"}).text == "('a,b', 1)"
        client.call("close_session")


@pytest.mark.once
def test_bad_requests(savepoints):
    for wrong in 1, "yes", [True]:
        savepoints.make(400, "invalid_request", files=wrong)
