# SPDX-License-Identifier: Apache-2.0
"""pip in a sandbox: however code spells it, the gateway installs. tests/component/test_code_requests.py has
what code says on the agent's socket."""

import json
import time

import pytest
from kernelgate import wait_for
from web import Index, wheel

OWN_GATEWAY = True  # it ends with its index
NAMES = [f"kgp{i}" for i in range(30)]
FLAGS = ("--pool-size", "1", "--fetch-allow", "127.0.0.1")


@pytest.fixture(scope="module")
def index():
    server = Index()
    for name in NAMES:
        server.add_wheel(name, "1.0")
    for version in ("1.0", "1.1"):
        server.add_wheel("kgone", version)
    server.add_wheel("kgtwo", "2.0", requires=["kgone<1.1", "numpy"])
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway_flags(index):
    return ["--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1"]


@pytest.fixture(scope="module")
def one(gateway):
    """A session that several tests share: each has packages of its own."""
    return gateway.create_session()


def run(gateway, session_id, code):
    """What a cell prints; it must end with ok."""
    lines = gateway.execute(code, session_id=session_id, timeout=120)
    assert lines.status == "ok", lines
    return lines.text().replace("\r", ""), lines.text("stderr")


def shell(gateway, session_id, command):
    answer = gateway.client.post(
        f"/api/v1/sessions/{session_id}/commands?wait=1", json={"command": command}, timeout=120
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


CELLS = [
    "%pip install {0}",
    "%pip install -q {0}  # quietly",
    "%pip install '{0}>=1.0,<2'",
    "%pip3 install --user {0}",
    "%uv pip install {0}",
    "%pip install {0} 2>&1 | tail -1",
    "!pip install {0}",
    "!pip3 install --no-cache-dir {0}",
    "!python -m pip install {0}",
    "!python -Wignore -um pip install -qq {0}",
    "!uv pip install --system {0}",
    "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', '{0}'])",
    "import os\nos.system('pip install --break-system-packages --root-user-action=ignore {0}')",
    "import runpy, subprocess, sys\nsubprocess.run([sys.executable, '-mpip', 'install', '{0}'], check=True)",
]


@pytest.mark.parametrize("i", range(len(CELLS)))
def test_cells(gateway, one, i):
    """The module can be imported in the same cell, where nothing has shown that it would come."""
    code = CELLS[i].format(NAMES[i])
    out, err = run(gateway, one, f"{code}\nimport {NAMES[i]}\nprint({NAMES[i]}.VERSION)")
    assert out.endswith("1.0\n") and err == "", (out, err)
    assert "restart" not in out
    if "-q" not in code and "tail" not in code:
        assert f"Successfully installed {NAMES[i]}-1.0" in out


@pytest.mark.once
def test_a_kernel_that_was_started_by_exec(start_gateway, index):
    flags = (*FLAGS, "--pypi-index-url", index.simple, "--kernel-start", "exec")
    gateway = start_gateway(*flags)
    session_id = gateway.create_session()
    for code in ("%pip install kgone==1.0", "!pip install kgone==1.1"):
        out, _ = run(gateway, session_id, f"{code}\nimport kgone")
        assert f"Successfully installed {code[-10:].replace('==', '-')}" in out


@pytest.mark.once
def test_without_a_percent_sign(gateway, one):
    out, _ = run(gateway, one, f"pip install {NAMES[20]}")
    assert f"Successfully installed {NAMES[20]}-1.0" in out
    out, _ = run(gateway, one, f"pip install {NAMES[20]}")
    assert out == f"Requirement already satisfied: {NAMES[20]} (1.0)\n"


COMMANDS = [
    "pip install {0}",
    "pip3 install -U {0}",
    "python -m pip install {0}",
    "python3 -m pip --disable-pip-version-check install {0}",
    "uv pip install {0}",
]


@pytest.mark.parametrize("i", range(len(COMMANDS)))
def test_commands(gateway, one, i):
    name = NAMES[21 + i]
    command = f"{COMMANDS[i].format(name)} && python -c 'import {name}; print({name}.VERSION)'"
    answer = shell(gateway, one, command)
    assert answer["exit_code"] == 0 and answer["stdout"].endswith("1.0\n"), answer
    assert f"Successfully installed {name}-1.0" in answer["stdout"] and answer["stderr"] == ""


def test_what_others_install_is_the_same(gateway, session):
    """The gateway's own installations use the real pip; versions are those that it lists."""
    run(gateway, session, "%pip install kgtwo")
    path = f"/api/v1/sessions/{session}/packages"
    shown = gateway.client.get(f"{path}/kgtwo").json()
    assert shown == {"name": "kgtwo", "status": "installed", "version": "2.0"}
    answer = gateway.client.post(f"{path}?wait=1", json={"packages": ["kgone==1.1"]}, timeout=60)
    assert answer.json()["status"] == "ok", answer.text
    out, _ = run(gateway, session, "import kgone, kgtwo; print(kgone.VERSION)")
    assert out == "1.1\n"


@pytest.mark.once
def test_a_note_where_another_version_is_loaded(gateway, session):
    out, _ = run(gateway, session, "%pip install kgone==1.0\nimport kgone")
    assert "restart" not in out
    out, _ = run(gateway, session, "%pip install kgone==1.1")
    assert out.endswith("Note: restart the kernel to use kgone 1.1: another version is loaded.\n")


@pytest.mark.once
def test_what_cannot_be_had(gateway, session):
    answer = shell(gateway, session, "pip install kgnothing")
    assert answer["exit_code"] == 1
    assert "ERROR: no wheel fits kgnothing: there is no such package" in answer["stderr"]
    out, err = run(gateway, session, "%pip install kgnothing\n_exit_code")
    assert "no wheel fits kgnothing" in err


REFUSED = {
    "pip install -e .": "folders of sources are not built here",
    "pip install .": "folders and archives of sources",
    "pip install ./kgone-1.0.tar.gz": "folders and archives of sources",
    "pip install git+https://example.org/x": "not from URLs",
    "pip install 'kgone @ https://example.org/x.whl'": "not from URLs",
    "pip install https://example.org/x.whl": "not from URLs",
    "pip install --index-url https://example.org kgone": "the gateway's index",
    "pip install --extra-index-url=https://example.org kgone": "the gateway's index",
    "pip install -t /tmp/x kgone": "leave the option out",
    "pip install --pre kgone": "the option --pre is not possible here",
    "pip install nothing.whl": "there is no file nothing.whl",
    "pip install -r nothing.txt": "Could not open requirements file",
    "pip install": "at least one requirement",
    "pip install 'kgone==$(id)'": "is not a requirement",
    "pip download kgone": "no network in this sandbox",
    "uv add kgone": "only `uv pip install NAME` works",
}


@pytest.mark.once
def test_what_is_refused(gateway, index, session):
    before = len(index.asked)
    for command, why in REFUSED.items():
        answer = shell(gateway, session, command)
        assert answer["exit_code"] in (1, 2) and answer["stdout"] == "", (command, answer)
        assert answer["stderr"].startswith("ERROR: ") and why in answer["stderr"], (command, answer)
    assert len(index.asked) == before
    _, err = run(gateway, session, "%pip install git+https://example.org/x")
    assert "not from URLs" in err


@pytest.mark.once
def test_the_real_pip_does_all_else(gateway, session):
    shell(gateway, session, "pip install kgone==1.0")
    for command, said in {
        "pip list": "kgone ",
        "pip show kgone": "Version: 1.0",
        "pip freeze": "kgone",
        "python -m pip freeze": "kgone",
        "pip --version": "pip 2",
        "pip check": "No broken requirements",
        "pip install --help": "--index-url",
        "pip": "Commands:",
        "uv pip list": "kgone ",
    }.items():
        answer = shell(gateway, session, command)
        assert answer["exit_code"] == 0 and said in answer["stdout"], (command, answer)
    out, _ = run(gateway, session, "%pip show kgone")
    assert "Version: 1.0" in out


@pytest.mark.once
def test_files_of_requirements(gateway, session):
    text = (
        f"# mine\n{NAMES[26]}==1.0  # why\n\nkgnothing; python_version < '3'\n-r more.txt\n"
        f"{NAMES[27]} ; python_version >= '3'\n--no-cache-dir\n"
    )
    files = f"open('r.txt', 'w').write({text!r}); open('more.txt', 'w').write('{NAMES[28]}>=1, \\\\\\n <2')"
    run(gateway, session, files)
    answer = shell(gateway, session, "pip install -r r.txt")
    assert answer["exit_code"] == 0, answer
    for name in NAMES[26:29]:
        assert f"{name}-1.0" in answer["stdout"]
    run(gateway, session, "open('bad.txt', 'w').write('--index-url http://example.org\\nkgone')")
    answer = shell(gateway, session, "pip install -r bad.txt")
    assert answer["exit_code"] == 1 and "bad.txt: --index-url" in answer["stderr"]
    # More than the gateway takes at a time.
    many = "\\n".join(f"numpy>={i / 100}" for i in range(70))
    answer = shell(gateway, session, f"printf '{many}' > many.txt; pip install -r many.txt")
    assert answer["exit_code"] == 0 and answer["stdout"].count("already satisfied") == 70, answer


@pytest.mark.once
def test_a_wheel_of_ones_own(gateway, session):
    data = wheel("kgmine", "0.1", {"kgmine/__init__.py": "import kgone"}, ["kgone<1.1", "numpy"])
    path = "kgmine-0.1-py3-none-any.whl"
    code = f"open({path!r}, 'wb').write({data!r})"
    run(gateway, session, code)
    out, _ = run(
        gateway, session, f"%pip install ./{path}\nimport kgmine; print(kgmine.kgone.VERSION)"
    )
    assert out.endswith("1.0\n") and "Successfully installed kgmine-0.1" in out
    run(gateway, session, "open('bad.whl', 'w').write('x')")
    answer = shell(gateway, session, "pip install bad.whl")
    assert answer["exit_code"] == 1 and "bad.whl is not a wheel" in answer["stderr"]


@pytest.mark.once
def test_other_interpreters_load_nothing_of_it(gateway, session):
    for arguments in ("-c 'import sys; print(sorted(sys.modules))' pip", "-m this pip"):
        answer = shell(
            gateway, session, f"python -v {arguments} 2>&1 | grep -c 'import .pip[._]'; true"
        )
        assert answer["stdout"] == "0\n", answer
    answer = shell(gateway, session, "python -v -c pass 2>&1 | grep -c kernelgate_pip; true")
    assert answer["stdout"] == "0\n"


@pytest.mark.once
def test_where_nobody_answers(gateway, session):
    code = (
        "import kernelgate_pip as k; k.SOCKET = '\\0nothing'; print(k.main(['install', 'kgone']))"
    )
    out, err = run(gateway, session, code)
    assert out == "1\n" and "does not answer" in err and "POST /api/v1/sessions/" in err
    answer = shell(gateway, session, "KERNELGATE_REAL_PIP=1 pip install kgone")
    assert answer["exit_code"] == 1 and "Retrying" not in answer["stderr"]


# ---- Ends


@pytest.mark.once
def test_the_session_ends_meanwhile(gateway, index):
    index.answers["/simple/kgnever/"] = lambda handler: time.sleep(20)
    session_id = gateway.create_session()
    index.asked.clear()
    with gateway.stream("%pip install kgnever", session_id=session_id, timeout=60) as reader:
        wait_for(lambda: "/simple/kgnever/" in index.asked)
        gateway.delete_session(session_id)
        assert reader.rest().status == "died"
    assert gateway.client.get("/healthz").status_code == 200


@pytest.mark.once
def test_the_gateway_ends_meanwhile(start_gateway, index):
    """Code hears of it at once, and can ask the next one."""
    index.answers["/simple/kgnever/"] = lambda handler: time.sleep(20)
    gateway = start_gateway(*FLAGS, "--pypi-index-url", index.simple)
    session_id = gateway.create_session()
    index.asked.clear()
    code = (
        "import subprocess, sys\nopen('said.txt', 'w').write(subprocess.run([sys.executable, '-m', 'pip',"
        "'install', 'kgnever'], stderr=subprocess.PIPE, text=True).stderr)"
    )
    with gateway.stream(code, session_id=session_id, timeout=60):
        wait_for(lambda: "/simple/kgnever/" in index.asked)
        gateway.kill()
    gateway.start()
    path = f"/api/v1/sessions/{session_id}/files/said.txt"
    wait_for(lambda: gateway.client.get(path).status_code == 200)
    assert "the connection to the gateway has ended" in gateway.client.get(path).text
    out, _ = run(gateway, session_id, f"%pip install {NAMES[0]}\nimport {NAMES[0]}")
    assert "Successfully installed" in out


@pytest.mark.once
def test_the_setting_turns_it_off(start_gateway, index):
    flags = (*FLAGS, "--pypi-index-url", index.simple, "--install-from-code=false")
    gateway = start_gateway(*flags)
    session_id = gateway.create_session()
    index.asked.clear()
    answer = shell(gateway, session_id, "pip install kgone")
    assert answer["exit_code"] == 1 and answer["stdout"] == ""
    for said in (
        "install-from-code",
        f"/sessions/{session_id}/packages",
        "install_packages",
        "administrator",
    ):
        assert said in answer["stderr"], answer
    _, err = run(gateway, session_id, "%pip install kgone")
    assert "install-from-code" in err
    assert index.asked == []
    path = f"/api/v1/sessions/{session_id}/packages?wait=1"
    answer = gateway.client.post(path, json={"packages": ["kgone==1.0"]}, timeout=60)
    assert json.loads(answer.text)["status"] == "ok"
