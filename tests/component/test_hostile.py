# SPDX-License-Identifier: Apache-2.0
"""Code and kernels that attack the gateway by everything they can reach."""

import fake_kernel
import pytest
from component import cell
from kernelgate import wait_for


@pytest.fixture
def calm(gateway):
    """Another session, which must not be affected."""
    session_id = gateway.create_session()
    gateway.execute('set x "calm"', session_id=session_id)
    yield
    assert gateway.execute("get x", session_id=session_id).text() == '"calm"\n'
    gateway.delete_session(session_id)


def usable(gateway, session_id):
    """Waits until the session works again, or its id gives a new one."""
    lines = gateway.execute("print 1")
    assert lines.text() == "1\n"
    gateway.delete_session(lines.headers["X-Session-Id"])

    def works():
        response = gateway.client.post(
            "/api/v1/execute", json={"code": "print 2", "session_id": session_id}
        )
        return response.status_code == 200 and '"text":"2\\n"' in response.text.replace(": ", ":")

    wait_for(works, timeout=120)


DIAL = """
import glob, socket, sys
payload = sys.argv[1].encode().decode("unicode_escape").encode("latin1") * int(sys.argv[2])
doors = [p for p in glob.glob("/run/kg/**", recursive=True)]
links, failed = [], 0
for i in range(1000):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(0.05)
    try:
        link.connect(next(p for p in doors if not p.endswith("/")))
        links.append(link)
    except OSError:
        failed += 1
    if i % 3 == 0:
        try:
            link.sendall(payload)
        except OSError:
            pass
print(len(links) + failed)
"""


@pytest.mark.parametrize(
    "payload, times", [("", 1), (r"OK\n", 10), (r"\xff", 100_000), (r"GET / HTTP/1.1\r\n\r\n", 1)]
)
def test_the_door_is_dialled_a_thousand_times(gateway, calm, payload, times):
    gateway.create_session(session_id="dials")
    files = gateway.open_files()
    gateway.client.put("/api/v1/sessions/dials/files/dial.py", content=DIAL.encode())
    code = f"sh python3 dial.py '{payload}' {times}"
    lines = gateway.execute(code, session_id="dials", timeout=300)
    assert lines.status in ("ok", "died"), lines
    assert lines.status == "died" or lines.text() == "1000\n"
    assert gateway.open_files() < files + 200
    usable(gateway, "dials")
    gateway.delete_session("dials")
    wait_for(lambda: gateway.open_files() <= files + 20)


def test_a_flood_of_messages(gateway, calm):
    code = "repeat 30000 display text/plain {i}"
    lines = gateway.execute(code, session_id="floods", timeout=300)
    shown, dropped = lines.of("display"), sum(line["messages"] for line in lines.of("dropped"))
    assert len(shown) + dropped == 30000
    assert lines.status == "ok"
    gateway.delete_session("floods")


def test_idle_is_forged(gateway, calm):
    """A tenant can end its own execution early, and nothing else."""
    lines = gateway.execute(cell("idle", "wait go"), session_id="forges")
    assert lines.status in ("ok", "error")
    gateway.release("forges")
    usable(gateway, "forges")
    gateway.delete_session("forges")


@pytest.mark.parametrize("mode", ["frames", "frame", "garbage", "silence"])
def test_a_fake_kernel(start_gateway, tmp_path, mode):
    """What memory it takes is in tests/load/test_hostile.py."""
    gateway = start_gateway(*fake_kernel.flags(tmp_path, mode))
    response = gateway.client.post("/api/v1/execute", json={"code": "1"})
    assert response.status_code >= 500, response.text
    assert response.json()["code"] in (
        "kernel_start_timeout",
        "internal",
        "provisioner_unavailable",
    )
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: not gateway.sandbox_pids())


def test_a_reader_that_never_reads(gateway, calm):
    """What memory it takes is in tests/load/test_hostile.py."""
    with gateway.stream("flood 60 1000000", session_id="unread", timeout=300) as reader:
        wait_for(lambda: not gateway.show_session("unread")["is_busy"], timeout=300)
        assert reader.rest().of("dropped")
    gateway.delete_session("unread")
