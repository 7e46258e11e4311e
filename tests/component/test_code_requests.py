# SPDX-License-Identifier: Apache-2.0
"""What code in a sandbox asks the gateway for, on the agent's socket: what is refused, what is bounded, how
requests end. tests/e2e/test_pip.py has pip."""

import threading
import time

import python_packages
import pytest
from kernelgate import wait_for
from session_commands import Commands, Known
from terminal_wire import terminal
from web import Index

CLIENT = """
import json, socket, threading, time
def dial(data=b""):
    link = socket.socket(socket.AF_UNIX)
    link.connect("\\0kernelgate")
    link.settimeout(60)
    link.sendall(data)
    return link
def request(*packages):
    return json.dumps({"method": "packages", "params": {"packages": packages}}).encode() + b"\\n"
def told(link):
    lines = [json.loads(line) for line in link.makefile()]
    return lines[-1] if lines else None
def patient(data):
    while (answer := told(dial(data))).get("code") == "session_busy":
        time.sleep(0.1)
    return answer
"""


@pytest.fixture(scope="module")
def index():
    server = Index()
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway_flags(tmp_path_factory, index):
    folder = tmp_path_factory.mktemp("packages")
    folder.chmod(0o755)
    of_index = ("--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1")
    return [*python_packages.flags(folder), *of_index]


def ask(gateway, session_id, script):
    """What a command prints that runs a script with CLIENT's functions."""
    answer = gateway.client.post(
        f"/api/v1/sessions/{session_id}/commands?wait=1",
        json={"command": "exec /usr/bin/python3 -c \"$SCRIPT\"", "env": {"SCRIPT": CLIENT + script}},
        timeout=120,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert answer.json()["exit_code"] == 0, answer.json()["stderr"]
    return answer.json()["stdout"]


MALFORMED = [
    b"\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"{}\n",
    b'{"method":"packages"}\n',
    b'{"method":"packages","params":["kgone"]}\n',
    b'{"method":"packages","params":{"packages":"kgone"}}\n',
    b'{"method":"packages","params":{"packages":[1]}}\n',
    b'{"method":"packages","params":{"packages":[]}}\n',
    b'{"method":"packages","params":{"packages":["kgone"],"index":"x"}}\n',
    b'{"method":"shutdown","params":{}}\n',
    b'{"method":"tenant.answer","params":{}}\n',
    b"[" * 9000 + b"\n",
    b"x" * 17000,
    b"\x00" * 16384 + b"\n",
    b"\xff\xfe\n",
]
OUTSIDE = [
    "--index-url=http://evil.example", "-r requirements.txt", "./x.whl", "https://evil.example/x.whl",
    "kgone @ https://evil.example/x.whl", "kgone; python_version > '3'", "kgone\n--no-deps", "../x", "",
    "kgone==$(id)", "x" * 300, "kg\x00one",
]  # fmt: skip


def test_garbage_and_names_outside_the_grammar(gateway, index, session):
    script = f"""
for data in [{", ".join(repr(data) if len(data) < 99 else f"{data[:1]!r} * {len(data) - 1} + {data[-1:]!r}" for data in MALFORMED)}]:
    print(patient(data)["code"])
for name in {OUTSIDE!r}:
    print(patient(request(name))["code"])
print(patient(request(*["kgone"] * 33))["code"], patient(request("numpy"))["status"])
"""
    index.asked.clear()
    lines = ask(gateway, session, script).splitlines()
    assert lines[:-1] == ["invalid_request"] * (len(MALFORMED) + len(OUTSIDE)), lines
    assert lines[-1] == "invalid_request ok" and index.asked == []


def test_connections_that_say_nothing(gateway, session):
    """The oldest make room, and all end; somebody who says something is served meanwhile."""
    script = """
silent = [dial() for _ in range(1000)]
print(told(dial(request("numpy")))["status"], {told(link) for link in silent})
"""
    assert ask(gateway, session, script) == "ok {None}\n"


def test_requests_at_a_time_and_slow_readers(gateway, index, session):
    hold = threading.Event()
    index.answers["/simple/kgheld/"] = lambda handler: hold.wait(60)
    path = f"/api/v1/sessions/{session}/files/held.txt"
    script = """
import select
def hold():
    while True:  # a refusal comes at once
        link = dial(request("kgheld"))
        if not select.select([link], [], [], 0.5)[0]:
            return link
held = [hold() for _ in range(4)]
print(told(dial(request("numpy")))["code"])
held.pop().close()
held.append(hold())
print(told(dial(request("numpy")))["code"])
open("held.txt", "w").close()
print(patient(request("numpy"))["status"])  # after the held ones, none of which has read a byte
print({told(link)["status"] for link in held})
"""
    said = []
    thread = threading.Thread(target=lambda: said.append(ask(gateway, session, script)))
    thread.start()
    try:
        wait_for(lambda: gateway.client.get(path).status_code == 200)
    finally:
        hold.set()
        thread.join()
    assert said == ["session_busy\nsession_busy\nok\n{'error'}\n"]


def test_a_flood_of_requests(gateway, session):
    """Each of the four places takes four requests a second, whatever becomes of them."""
    script = """
end, answers = time.monotonic() + 3, []
while time.monotonic() < end:
    answers.append(told(dial(b'{"method":"nothing","params":{}}\\n'))["code"])
print(4 <= answers.count("invalid_request") <= 4 * 4 * 4, "session_busy" in answers)
print(patient(request("numpy"))["status"])
"""
    assert ask(gateway, session, script) == "True True\nok\n"


def test_code_does_not_keep_its_session(gateway, session):
    """Installing counts as use of the session only while a cell or a command runs."""
    script = """
import os
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    while "message" not in (answer := patient(request("numpy"))):
        time.sleep(0.1)  # the command has not ended yet
    open("later.tmp", "w").write(answer["message"])
    os.rename("later.tmp", "later.txt")
"""
    ask(gateway, session, script)
    path = f"/api/v1/sessions/{session}/files/later.txt"
    wait_for(lambda: gateway.client.get(path).status_code == 200)
    assert "while a cell or a command of the session runs" in gateway.client.get(path).text


def test_a_command_that_lives_on(gateway, session):
    """It may install while a client follows it, and not alone; so may what is typed into a terminal."""
    script = CLIENT + "input(); print(told(dial(request('kgone'))), flush=True); open('asked', 'w')\n" * 2
    body = {
        "command": "exec /usr/bin/python3 -c \"$SCRIPT\"",
        "env": {"SCRIPT": script},
        "stdin": True,
        "background": True,
    }
    url = f"/api/v1/sessions/{session}/commands"
    known = Known(Commands(gateway, session), gateway.client.post(url, json=body).json()["command_id"])
    known.give("\n")
    asked = f"/api/v1/sessions/{session}/files/asked"
    wait_for(lambda: gateway.client.get(asked).status_code == 200)
    with terminal(gateway, session, id=known.name) as screen:
        refused = b"while a cell or a command of the session runs"
        screen.until(refused)
        screen.until(b"\n")  # which it got before this client came
        screen.type("\n")
        assert refused not in screen.until(b"\n")


def test_the_session_ends_meanwhile(gateway, index):
    index.answers["/simple/kgnever/"] = lambda handler: time.sleep(20)
    session_id = gateway.create_session()
    index.asked.clear()
    command = {
        "command": "exec /usr/bin/python3 -c \"$SCRIPT\"",
        "env": {"SCRIPT": CLIENT + 'told(dial(request("kgnever")))'},
    }  # fmt: skip
    path = f"/api/v1/sessions/{session_id}/commands"
    with gateway.client.stream("POST", path, json=command) as response:
        wait_for(lambda: "/simple/kgnever/" in index.asked)
        gateway.delete_session(session_id)
        assert '"status":"died"' in list(response.iter_lines())[-1]
    assert gateway.client.get("/healthz").status_code == 200


def test_the_gateway_ends_meanwhile(start_gateway, gateway_flags, index):
    """Code hears of it at once, and can ask the next one."""
    index.answers["/simple/kgnever/"] = lambda handler: time.sleep(20)
    gateway = start_gateway(*gateway_flags)
    session_id = gateway.create_session()
    index.asked.clear()
    script = """
import os
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    said = told(dial(request("kgnever")))["message"]
    open("said.tmp", "w").write(said)
    os.rename("said.tmp", "said.txt")
    os._exit(0)
while not os.path.exists("asked"): time.sleep(0.05)
"""
    command = threading.Thread(target=ask, args=(gateway, session_id, script))
    command.start()
    wait_for(lambda: "/simple/kgnever/" in index.asked)
    gateway.client.put(f"/api/v1/sessions/{session_id}/files/asked", content=b"")
    command.join()
    gateway.kill()
    gateway.start()
    path = f"/api/v1/sessions/{session_id}/files/said.txt"
    wait_for(lambda: gateway.client.get(path).status_code == 200)
    assert "the connection to the gateway has ended" in gateway.client.get(path).text
    assert ask(gateway, session_id, 'print(patient(request("numpy"))["status"])') == "ok\n"


def test_the_setting_turns_it_off(start_gateway, gateway_flags):
    gateway = start_gateway(*gateway_flags, "--install-from-code=false")
    session_id = gateway.create_session()
    said = ask(gateway, session_id, 'print(told(dial(request("numpy")))["message"])')
    for part in ("install-from-code", f"/sessions/{session_id}/packages", "install_packages"):
        assert part in said
    path = f"/api/v1/sessions/{session_id}/packages?wait=1"
    answer = gateway.client.post(path, json={"packages": ["numpy"]}, timeout=60)
    assert answer.json()["status"] == "ok"


def test_without_a_python_kernelspec(start_gateway):
    gateway = start_gateway()
    said = ask(gateway, gateway.create_session(), 'print(told(dial(request("numpy")))["message"])')
    assert "no kernelspec of this gateway takes packages" in said
