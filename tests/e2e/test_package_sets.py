# SPDX-License-Identifier: Apache-2.0
"""Sets of packages: what installing costs a session, whom it changes, and what hostile wheels do."""

import base64
import concurrent.futures
import io
import pathlib
import re
import stat
import subprocess
import zipfile

import pytest
from kernelgate import BINARY, wait_for
from test_packages import NOWHERE, install, show, version_in_kernel
from web import Index, wheel

OWN_GATEWAY = True  # it ends with its index
pytestmark = [
    pytest.mark.once,
    pytest.mark.not_on("kubernetes", "no folder is shared with a pod: pip installs there"),
]

FOLDER = "/mnt/data/.kg-packages"


@pytest.fixture(scope="module")
def index():
    server = Index()
    server.add_wheel("kgone", "1.0")
    server.add_wheel("kgone", "1.1")
    server.add_wheel("kgtwo", "2.0", requires=["kgone<1.1"])
    server.add_wheel("kgthree", "3.0")
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway_flags(index):
    return ["--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1"]


def run(gateway, session_id, code):
    lines = gateway.execute(code, session_id=session_id)
    assert lines.status == "ok", lines
    return lines.text()


def add_wheel(index, name, files, attributes=None):
    """A wheel with these files beside its module; `attributes`: {file: Unix mode}."""
    plain = zipfile.ZipFile(
        io.BytesIO(wheel(name, "1.0", {f"{name}/__init__.py": "VERSION = '1.0'\n"}))
    )
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for info in plain.infolist():
            archive.writestr(info.filename, plain.read(info))
        for path, content in files.items():
            info = zipfile.ZipInfo(path)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (attributes or {}).get(path, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    index.add(f"{name}-1.0-py3-none-any.whl", data.getvalue())


def test_an_install_takes_nothing_of_the_sessions_disk(gateway, session):
    before = run(gateway, session, "import os; s = os.statvfs('/mnt/data'); print(s.f_bfree)")
    assert install(gateway, session, "kgtwo")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgtwo") == "2.0"
    after = run(gateway, session, "s = os.statvfs('/mnt/data'); print(s.f_bfree)")
    assert before == after
    assert run(gateway, session, f"print(os.path.islink('{FOLDER}'))") == "True\n"


def test_the_answer_says_which_versions_it_replaces(gateway, session):
    assert "changed" not in install(gateway, session, "kgone==1.1", "kgthree")[-1]
    lines = install(gateway, session, "kgtwo")
    assert lines[-1]["changed"] == [{"name": "kgone", "from": "1.1", "to": "1.0"}]
    assert "kgone 1.0 takes the place of 1.1" in "".join(line.get("text", "") for line in lines)
    versions = {item["name"]: item.get("version") for item in show(gateway, session)["packages"]}
    assert versions["kgone"] == "1.0" and versions["kgthree"] == "3.0"
    assert version_in_kernel(gateway, session, "kgthree") == "3.0"


def test_nobodys_session_changes_by_anothers_install(gateway, session):
    other = gateway.create_session()
    install(gateway, session, "kgone==1.0")
    assert gateway.execute("import kgone", session_id=other).status == "error"
    install(gateway, other, "kgone==1.1")
    assert version_in_kernel(gateway, session, "kgone") == "1.0"
    assert version_in_kernel(gateway, other, "kgone") == "1.1"
    # Nothing in it can be written, nor can anybody see what else there is.
    code = f"""
import os, pathlib
folder = pathlib.Path(os.path.realpath('{FOLDER}'))
for path in (folder / "kgone/__init__.py", folder / "new", folder.parent / "new"):
    for action in (lambda: open(path, "a"), path.unlink, lambda: path.chmod(0o777)):
        try:
            action()
            print("done", path)
        except OSError:
            pass
try:
    print(os.listdir(folder.parent))
except PermissionError:
    print("closed")
"""
    assert run(gateway, session, code) == "closed\n"
    gateway.delete_session(other)


def test_programs_run_and_byte_code_is_there(gateway, index, session):
    add_wheel(
        index,
        "kgprog",
        {
            "kgprog-1.0.dist-info/entry_points.txt": "[console_scripts]\nkghello = kgprog.main:run\n",
            "kgprog/main.py": "def run():\n    print('hello from', __name__)\n",
            "kgprog-1.0.data/scripts/kgscript": "#!python\nprint('a script')\n",
            "kgprog-1.0.data/data/share/kgprog/note.txt": "a note",
            "kgprog-1.0.data/purelib/kgprog_pure.py": "VALUE = 7\n",
        },
    )
    assert install(gateway, session, "kgprog")[-1]["status"] == "ok"
    code = f"""
import subprocess, kgprog.main, kgprog_pure
print(subprocess.run(["{FOLDER}/bin/kghello"], capture_output=True, text=True).stdout.strip())
print(subprocess.run(["{FOLDER}/bin/kgscript"], capture_output=True, text=True).stdout.strip())
print(open("{FOLDER}/share/kgprog/note.txt").read(), kgprog_pure.VALUE)
print(kgprog.main.__cached__.endswith(".pyc"), os.path.exists(kgprog.main.__cached__))
"""
    text = run(gateway, session, "import os\n" + code)
    assert text == "hello from kgprog.main\na script\na note 7\nTrue True\n"


def test_a_program_that_a_wheel_has_twice(gateway, index, session):
    info = "kgtwice-1.0.dist-info/entry_points.txt"
    script = "kgtwice-1.0.data/scripts/kgtwice"
    section = "kgtwice = kgtwice.main:run"
    files = {
        info: f"[console_scripts]\n{section}\n[gui_scripts]\n{section}\n",
        script: "#!python\nprint('the script')\n",
        "kgtwice/main.py": "def run():\n    print('the entry point')\n",
    }
    add_wheel(index, "kgtwice", files)
    assert install(gateway, session, "kgtwice")[-1]["status"] == "ok"
    code = f"import subprocess\nprint(subprocess.run(['{FOLDER}/bin/kgtwice'], check=True))"
    assert "the entry point" in run(gateway, session, code)


def test_a_link_that_code_has_removed_comes_back(gateway, session):
    install(gateway, session, "kgthree")
    run(gateway, session, f"import os; os.unlink('{FOLDER}')")
    assert gateway.execute("import kgthree", session_id=session).status == "error"
    assert install(gateway, session, "kgthree")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgthree") == "3.0"


def test_what_pip_installed_before_an_update_of_the_gateway_stays(gateway, session):
    code = f"""
import os
os.makedirs("{FOLDER}/kgold")
with open("{FOLDER}/kgold/__init__.py", "w") as file:
    file.write("VERSION = 'old'")
"""
    run(gateway, session, code)
    assert version_in_kernel(gateway, session, "kgold") == "old"
    install(gateway, session, "kgone==1.0")
    assert version_in_kernel(gateway, session, "kgone") == "1.0"
    text = run(gateway, session, "import sys; del sys.modules['kgold']; import kgold; print(kgold)")
    assert "/.kg-own/" in text


def test_an_index_that_wants_a_password(start_gateway, index):
    locked = Index()
    locked.add_wheel("kglocked", "1.0")
    wanted = "Basic " + base64.b64encode(b"ann:p@ss").decode()
    for path, (status, headers, body) in list(locked.answers.items()):

        def answer(handler, path=path, status=status, headers=headers, body=body):
            allowed = handler.headers["Authorization"] == wanted
            handler.send_response(status if allowed else 401)
            for name, value in headers.items():
                handler.send_header(name, value)
            if not allowed:
                handler.send_header("WWW-Authenticate", "Basic")
            handler.send_header("Content-Length", str(len(body) if allowed else 0))
            handler.end_headers()
            handler.wfile.write(body if allowed else b"")

        locked.answers[path] = answer
    url = locked.simple.replace("http://", "http://ann:p%40ss@")
    gateway = start_gateway(
        "--pool-size", "0", "--fetch-allow", "127.0.0.1", "--pypi-index-url", url
    )
    session_id = gateway.create_session()
    lines = install(gateway, session_id, "kglocked")
    assert lines[-1]["status"] == "ok", lines
    assert "p%40ss" not in str(lines) and "p@ss" not in str(lines)
    locked.close()


def test_files_that_would_run_at_start_are_left_out(gateway, index, session):
    bad = "import pathlib; pathlib.Path('/tmp/ran').touch()\n"
    names = ["evil.pth", "sitecustomize.py", "usercustomize/__init__.py",
             "kgstart-1.0.data/purelib/sitecustomize.py"]  # fmt: skip
    add_wheel(index, "kgstart", dict.fromkeys(names, bad))
    assert install(gateway, session, "kgstart")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgstart") == "1.0"
    code = "import subprocess, sys, os\nsubprocess.run([sys.executable, '-c', ''], check=True)\n"
    assert run(gateway, session, code + "print(os.path.exists('/tmp/ran'))") == "False\n"


def test_byte_code_of_a_wheel_is_not_taken(gateway, index, session):
    add_wheel(index, "kgcode", {"kgcode/__pycache__/__init__.cpython-311.pyc": b"not byte code"})
    assert install(gateway, session, "kgcode")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session, "kgcode") == "1.0"


@pytest.mark.parametrize(
    "path",
    ["../escaped", "/tmp/escaped", "kgescape/../../escaped", "kgescape/.kg-x", "kgescape/a\nb"],
)
def test_paths_that_lead_elsewhere(gateway, index, session, path):
    name = f"kgescape{path.encode().hex()}"
    add_wheel(index, name, {path: "x"})
    [result] = install(gateway, session, name)[-1]["packages"]
    assert result["status"] == "failed" and "leads elsewhere" in result["message"]
    assert gateway.execute(f"import {name}", session_id=session).status == "error"
    assert version_after(gateway, session)


def version_after(gateway, session_id):
    """Whether the session goes on as before."""
    return install(gateway, session_id, "kgthree")[-1]["status"] == "ok"


def test_links_in_a_wheel_are_files(gateway, index, session):
    add_wheel(
        index, "kglink", {"kglink/secret": "/etc/passwd"}, {"kglink/secret": stat.S_IFLNK | 0o777}
    )
    assert install(gateway, session, "kglink")[-1]["status"] == "ok"
    code = f"import os\np = '{FOLDER}/kglink/secret'\nprint(os.path.islink(p), open(p).read())"
    assert run(gateway, session, code) == "False /etc/passwd\n"


def test_wheels_that_cannot_be_unpacked(gateway, index, session):
    add_wheel(index, "kgbomb", {"kgbomb/zeros": bytes(400 << 20)})
    index.add("kgnozip-1.0-py3-none-any.whl", b"PK\x03\x04 this is no wheel")
    for name, reason in {"kgbomb": "disk-mb", "kgnozip": ""}.items():
        [result] = install(gateway, session, name)[-1]["packages"]
        assert result["status"] == "failed" and reason in result["message"], result
        assert version_after(gateway, session)


@pytest.mark.seldom
def test_a_wheel_with_more_files_than_the_bound(gateway, index, session):
    add_wheel(index, "kgmany", {f"kgmany/{i}": b"" for i in range(45_000)})
    [result] = install(gateway, session, "kgmany")[-1]["packages"]
    assert result["status"] == "failed" and "more than" in result["message"], result
    assert version_after(gateway, session)


def test_after_a_restart_a_session_keeps_what_it_has(start_gateway, index):
    flags = ("--pool-size", "0", "--fetch-allow", "127.0.0.1", "--pypi-index-url", index.simple)
    gateway = start_gateway(*flags)
    session_id = gateway.create_session()
    assert install(gateway, session_id, "kgone==1.1")[-1]["status"] == "ok"
    gateway.kill()
    gateway.start()
    assert install(gateway, session_id, "kgthree")[-1]["status"] == "ok"
    assert version_in_kernel(gateway, session_id, "kgone") == "1.1"
    assert version_in_kernel(gateway, session_id, "kgthree") == "3.0"
    used = pathlib.Path(gateway.state_dir, "packages/used")
    assert len(list(used.iterdir())) == 1
    gateway.delete_session(session_id)
    wait_for(lambda: list(used.iterdir()) == [])


def test_installs_at_once_that_need_the_same_wheel(gateway, index):
    """Its file leaves as soon as one of them has unpacked it."""
    index.add_wheel("kgshared", "1.0")
    names = [f"kgneeds{number}" for number in range(6)]
    for name in names:
        index.add_wheel(name, "1.0", requires=["kgshared"])
    session_ids = [gateway.create_session() for _ in names]
    with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
        ends = threads.map(lambda id, name: install(gateway, id, name)[-1], session_ids, names)
        assert [end["status"] for end in ends] == ["ok"] * len(names)
    for session_id, name in zip(session_ids, names, strict=True):
        assert version_in_kernel(gateway, session_id, name) == "1.0"
        assert version_in_kernel(gateway, session_id, "kgshared") == "1.0"
        gateway.delete_session(session_id)


def test_two_sessions_share_the_memory_of_what_they_import(gateway, index, session):
    """The files are the same ones, so Linux keeps them in memory once."""
    other = gateway.create_session()
    for session_id in (session, other):
        install(gateway, session_id, "kgthree")
    code = f"import os; s = os.stat('{FOLDER}/kgthree/__init__.py'); print(s.st_ino, s.st_dev)"
    install(gateway, other, "kgone")  # another set, with the same wheel in it
    assert run(gateway, session, code) == run(gateway, other, code)
    gateway.delete_session(other)


# ---- Packages of all sessions ------------------------------------------------------------------


def command(gateway, *words):
    """Runs `kernelgate packages`; returns its exit code and what it says."""
    done = subprocess.run(
        [BINARY, "packages", *words, "--state-dir", gateway.state_dir],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def wait_for_packages(gateway, start):
    """Until the gateway that was started for the `start`th time has given them or given up."""
    wait_for(lambda: len(re.findall("all sessions (have|could not)", gateway.log())) == start)


def test_packages_of_all_sessions(start_gateway, index):
    flags = ("--pool-size", "1", "--fetch-allow", "127.0.0.1", "--pypi-index-url")
    gateway = start_gateway(*flags, index.simple, "--packages", "kgone == 1.0")
    wait_for_packages(gateway, start=1)
    session_id = gateway.create_session()
    assert version_in_kernel(gateway, session_id, "kgone") == "1.0"
    assert gateway.execute("import kgthree", session_id=session_id).status == "error"
    answer = gateway.client.post(
        f"/api/v1/sessions/{session_id}/commands?wait=1",
        json={"command": "python -c 'import kgone; print(kgone.VERSION)'"},
    ).json()
    assert answer["stdout"] == "1.0\n", answer
    # They are there; a session's own version goes before them, for this session.
    assert [line["type"] for line in install(gateway, session_id, "kgone")] == ["done"]
    lines = install(gateway, session_id, "kgone==1.1")
    assert lines[-1]["changed"] == [{"name": "kgone", "from": "1.0", "to": "1.1"}]
    other = gateway.create_session()
    assert version_in_kernel(gateway, other, "kgone") == "1.0"

    assert command(gateway, "add", "KGthree>=3", "kgtwo")[0] == 0
    assert command(gateway, "list") == (0, "kgthree>=3\nkgtwo\n")
    gateway.stop()
    gateway.start()
    wait_for_packages(gateway, start=2)
    session_id = gateway.create_session()
    assert version_in_kernel(gateway, session_id, "kgthree") == "3.0"
    assert version_in_kernel(gateway, session_id, "kgtwo") == "2.0"

    # Without the index they are what they were; removed, they are gone.
    gateway.stop()
    gateway.flags = (*flags, NOWHERE)
    gateway.start()
    wait_for_packages(gateway, start=3)
    session_id = gateway.create_session()
    assert version_in_kernel(gateway, session_id, "kgthree") == "3.0"
    assert command(gateway, "remove", "kgthree", "KGTWO")[0] == 0
    gateway.stop()
    gateway.start()
    session_id = gateway.create_session()
    assert gateway.execute("import kgthree", session_id=session_id).status == "error"


def test_packages_that_the_command_refuses(start_gateway, tmp_path):
    gateway = start_gateway("--pool-size", "0")
    for words, says in {
        ("add", "../x"): "../x",
        ("add", "https://evil.example/x.whl"): "evil.example",
        ("remove", "kgone"): "not in the list",
        ("add",): "usage",
        ("list", "x"): "x",
        ("frobnicate",): "usage",
    }.items():
        code, text = command(gateway, *words)
        assert code != 0 and says in text, (words, text)
    assert command(gateway, "list") == (0, "")
    gateway.state_dir, kept = str(tmp_path / "nowhere"), gateway.state_dir
    assert "state folder" in command(gateway, "add", "kgone")[1]
    gateway.state_dir = kept
