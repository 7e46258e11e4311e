# SPDX-License-Identifier: Apache-2.0
"""Code that attacks the gateway by everything that a container and a real kernel let it reach. More of it,
and fake kernels, are in tests/component/test_hostile.py."""

import concurrent.futures
import uuid

import damages
import pytest
from kernelgate import wait_for


@pytest.fixture
def calm(gateway):
    """Another session, which must not be affected."""
    session_id = gateway.create_session()
    gateway.execute("x = 'calm'", session_id=session_id)
    yield
    assert gateway.execute("print(x)", session_id=session_id).text() == "calm\n"
    gateway.delete_session(session_id)


def usable(gateway, session_id):
    """Waits until the session works again, or its id gives a new one."""
    lines = gateway.execute("print(1)")
    assert lines.text() == "1\n"
    gateway.delete_session(lines.headers["X-Session-Id"])

    def works():
        response = gateway.client.post(
            "/api/v1/execute", json={"code": "print(2)", "session_id": session_id}, timeout=300
        )
        return response.status_code == 200 and '"text":"2\\n"' in response.text.replace(": ", ":")

    wait_for(works, timeout=300)


def test_every_socket_that_can_be_reached_is_deleted(gateway, calm):
    lines = gateway.execute(
        """
import os, stat
removed = 0
for top in ('/tmp', '/run', '/mnt/data', '/dev'):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode): os.unlink(path); removed += 1
            except OSError: pass
print(removed)
""",
        session_id="deletes",
    )
    # Established connections need no name.
    assert lines.status == "ok"
    assert gateway.execute("print('still')", session_id="deletes").text() == "still\n"
    gateway.client.post("/api/v1/sessions/deletes/restart")
    usable(gateway, "deletes")
    gateway.delete_session("deletes")


def test_every_socket_that_can_be_reached_is_replaced(gateway, calm):
    lines = gateway.execute(
        """
import os, socket, stat, threading
kept = []
def serve(listener):
    while True:
        try: link, _ = listener.accept()
        except OSError: return
        threading.Thread(target=flood, args=(link,), daemon=True).start()
def flood(link):
    try:
        while True: link.sendall(os.urandom(65536))
    except OSError: pass
for top in ('/tmp', '/run', '/mnt/data'):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if not stat.S_ISSOCK(os.lstat(path).st_mode): continue
                os.unlink(path)
                listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen()
                kept.append(listener)
                threading.Thread(target=serve, args=(listener,), daemon=True).start()
            except OSError: pass
print(len(kept))
""",
        session_id="replaces",
    )
    assert lines.status == "ok"
    gateway.client.post("/api/v1/sessions/replaces/restart", timeout=300)
    usable(gateway, "replaces")
    gateway.delete_session("replaces")


DIAL = """
import glob, socket, time
doors = [p for p in glob.glob('/run/kg/**', recursive=True)]
links, failed = [], 0
for i in range(1000):
    link = socket.socket(socket.AF_UNIX); link.settimeout(0.05)
    try: link.connect(next(p for p in doors if not p.endswith('/'))); links.append(link)
    except OSError: failed += 1
    if i % 3 == 0:
        try: link.sendall(b'OK\\n' * 10)
        except OSError: pass
print(len(links) + failed)
"""


def test_the_door_is_dialled_a_thousand_times(gateway, calm):
    gateway.fill_pool()  # its sandboxes have links, too
    files = gateway.open_files()
    lines = gateway.execute(DIAL, session_id="dials", timeout=300)
    assert lines.status in ("ok", "died"), lines
    assert gateway.open_files() < files + 200
    usable(gateway, "dials")
    gateway.delete_session("dials")
    gateway.fill_pool()
    wait_for(lambda: gateway.open_files() <= files + 20)


def test_messages_of_every_wrong_shape(gateway, calm):
    lines = gateway.execute(
        """
kernel = get_ipython().kernel
session, socket, parent = kernel.session, kernel.iopub_socket, kernel.get_parent()
deep = []
for _ in range(5000): deep = [deep]
for kind in ('stream', 'display_data', 'execute_result', 'error', 'status', 'clear_output',
             'update_display_data', 'execute_input', 'execute_reply', 'nonsense', ''):
    for content in ({}, {'text': 1, 'name': []}, {'data': 'x'}, {'data': {'image/png': {}}},
                    {'data': {'image/png': '!!'}, 'metadata': 3}, {'execution_state': None},
                    {'execution_state': 'busy'}, {'traceback': 'x', 'ename': 1, 'evalue': {}},
                    {'wait': 'x'}, {'name': 'stdout', 'text': 'x' * 10}):
        session.send(socket, kind, content, parent=parent)
def raw(*frames):
    socket.send_multipart([b'topic', b'<IDS|MSG>', *frames])
raw(); raw(b''); raw(b'a', b'b', b'c', b'd', b'e'); socket.send(b'no delimiter')
for text in (b'{', b'[]', b'null', b'\\xff', b'[' * 100000):
    frames = [text] * 4
    raw(session.sign(frames), *frames)
print('end')
""",
        session_id="malformed",
    )
    # It may forge its own output, but not send messages that are invalid.
    assert "end\n" in lines.text() and lines.done
    usable(gateway, "malformed")
    gateway.delete_session("malformed")


# ---- Code that damages its interpreter


def says_the_truth(gateway, name):
    """Runs code that damages its interpreter, and asserts what the next cells say."""
    session = f"t-{uuid.uuid4().hex[:12]}"
    code, kept = damages.KEPT.get(name) or (damages.UNDONE[name], {})
    code, status = code if isinstance(code, tuple) else (code, "ok")
    first = gateway.execute(damages.HEAD + code, session_id=session)
    assert first.status == status, f"{name}: {first}"
    assert len(first.of("error")) == (status != "ok"), f"{name}: {first}"
    enames = {"1 / 0": "ZeroDivisionError", **kept}
    for code, text in {"1 / 0": "", "print(1)": "1\n", "1 + 1": "2", damages.AWAITS: "3"}.items():
        lines = gateway.execute(code, session_id=session)
        if code in enames:
            ended = lines.status, lines.one("error")["ename"]
            assert ended == ("error", enames[code]), f"{name}: {lines}"
        else:
            shown = "".join(line["text"] for line in lines.of("stdout") + lines.of("result"))
            assert (lines.status, shown) == ("ok", text), f"{name}: {lines}"
    gateway.delete_session(session)


def test_damage_to_the_interpreter_ends_with_its_cell(gateway):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for _ in pool.map(lambda name: says_the_truth(gateway, name), damages.UNDONE):
            pass


def test_what_the_user_has_registered_is_kept_and_shown(gateway):
    for name in damages.KEPT:
        says_the_truth(gateway, name)


@pytest.mark.once
def test_damage_to_an_interpreter_started_by_exec(start_gateway):
    gateway = start_gateway("--kernel-start", "exec")
    for name in list(damages.UNDONE)[::8]:
        says_the_truth(gateway, name)
