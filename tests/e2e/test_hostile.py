# SPDX-License-Identifier: Apache-2.0
"""Code and kernels that attack the gateway by everything they can reach."""

import json
import pathlib
import shutil

import pytest
from kernelgate import RELEASE, wait_for

HERE = pathlib.Path(__file__).parent
# The default of max-output-bytes: what one execution, and so one message, may hold.
KEPT_MB = 10


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
    assert gateway.execute("print(1)").text() == "1\n"

    def works():
        response = gateway.client.post(
            "/api/v1/execute", json={"code": "print(2)", "session_id": session_id}, timeout=90
        )
        return response.status_code == 200 and '"text":"2\\n"' in response.text.replace(": ", ":")

    wait_for(works, timeout=60)


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
    gateway.client.post("/api/v1/sessions/replaces/restart", timeout=90)
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
        try: link.sendall({payload})
        except OSError: pass
print(len(links) + failed)
"""


@pytest.mark.parametrize(
    "payload", ["b''", "b'OK\\n' * 10", "b'\\xff' * 100000", "b'GET / HTTP/1.1\\r\\n\\r\\n'"]
)
def test_the_door_is_dialled_a_thousand_times(gateway, calm, payload):
    gateway.fill_pool()  # its sandboxes have links, too
    files = gateway.open_files()
    code = DIAL.format(payload=payload)
    lines = gateway.execute(code, session_id="dials", timeout=90)
    assert lines.status in ("ok", "died"), lines
    assert gateway.open_files() < files + 200
    assert gateway.execute("print(1)").text() == "1\n"
    usable(gateway, "dials")
    gateway.delete_session("dials")
    gateway.fill_pool()
    wait_for(lambda: gateway.open_files() <= files + 20)


def test_a_flood_of_messages(gateway, calm):
    lines = gateway.execute(
        "for i in range(30000): display({'text/plain': str(i)}, raw=True)",
        session_id="floods",
        timeout=100,
    )
    shown, dropped = lines.of("display"), sum(line["messages"] for line in lines.of("dropped"))
    assert len(shown) + dropped == 30000
    assert lines.status == "ok"
    gateway.delete_session("floods")


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


def test_idle_is_forged(gateway, calm):
    """A tenant can end its own execution early, and nothing else."""
    lines = gateway.execute(
        """
kernel = get_ipython().kernel
kernel.session.send(kernel.iopub_socket, 'status', {'execution_state': 'idle'},
                    parent=kernel.get_parent())
import time; time.sleep(3)
""",
        session_id="forges",
    )
    assert lines.status in ("ok", "error")
    usable(gateway, "forges")
    gateway.delete_session("forges")


@pytest.mark.parametrize("mode", ["frames", "frame", "garbage", "silence"])
def test_a_fake_kernel(start_gateway, tmp_path, mode):
    spec, environment = tmp_path / "specs/fake", tmp_path / "kernels/fake"
    spec.mkdir(parents=True)
    environment.mkdir(parents=True)
    shutil.copy(HERE / "fake_kernel.py", environment)
    environment.chmod(0o755)
    for folder in (tmp_path, tmp_path / "kernels"):
        folder.chmod(0o755)
    argv = ["/usr/bin/python3", "/opt/kernelgate/fake/fake_kernel.py", "{connection_file}", mode]
    spec.joinpath("kernel.json").write_text(
        json.dumps(
            {
                "argv": argv,
                "display_name": "Fake",
                "language": "fake",
                "metadata": {"kernelgate": {"transport": "ipc"}},
            }
        )
    )
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path / "specs"), "--kernels-dir", str(tmp_path / "kernels"),
        "--default-kernel", "fake", "--kernel-start-timeout", "5", "--pool-size", "0",
        # Else AddressSanitizer keeps 256 MB of what was freed.
        env={"ASAN_OPTIONS": "quarantine_size_mb=1"},
    )  # fmt: skip
    before = gateway.rss_mb()
    response = gateway.client.post("/api/v1/execute", json={"code": "1"})
    assert response.status_code >= 500, response.text
    assert response.json()["code"] in (
        "kernel_start_timeout",
        "internal",
        "provisioner_unavailable",
    )
    assert gateway.rss_mb() < before + 2 * KEPT_MB
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: not gateway.sandbox_pids(), timeout=20)


def test_a_reader_that_never_reads(start_gateway):
    gateway = start_gateway("--pool-size", "1", binary=RELEASE)  # without sanitizers' memory
    gateway.create_session(session_id="calm")
    before = gateway.rss_mb()
    with gateway.stream(
        "for i in range(300): print('z' * 999_999, flush=True)", session_id="unread", timeout=60
    ) as reader:
        wait_for(lambda: not gateway.show_session("unread")["is_busy"], timeout=90)
        assert gateway.rss_mb() < before + 2 * KEPT_MB
        assert gateway.execute("1", session_id="calm").status == "ok"
        assert reader.rest().of("dropped")
