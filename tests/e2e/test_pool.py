# SPDX-License-Identifier: Apache-2.0
"""The pool: sessions get its sandboxes, and it is filled again."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import time

import pytest
from kernelgate import HELD, problem, wait_for
from sandboxes import kill, pooled, sandbox_of, sandboxes

WARM_KERNELS = True


def fill(gateway):
    """Waits until every place of the pool is taken; returns the ids of its sandboxes."""
    gateway.fill_pool()
    return {sandbox.id for sandbox in pooled(gateway)}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """An OCI runtime that fails while the file `broken` is there."""
    folder = tmp_path_factory.mktemp("runtime")
    script = folder / "runtime"
    real = shutil.which("runc") or shutil.which("crun")
    script.write_text(
        f'#!/bin/sh\nif [ -e {folder}/broken ]; then echo "no container today" >&2; exit 1; fi\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    return script


# ---- Claims


def test_a_session_takes_a_sandbox_that_waits(gateway):
    [waiting] = fill(gateway)
    gateway.execute("x = 1", session_id="claims")
    assert sandbox_of(gateway, "claims").id == waiting
    assert gateway.execute("print(x)", session_id="claims").text() == "1\n"
    # Another one takes its place.
    assert fill(gateway) - {waiting}
    gateway.delete_session("claims")


@pytest.mark.once
def test_the_first_result_from_a_pool_is_quick(start_gateway):
    cold = start_gateway("--pool-size", "0")
    warm = start_gateway("--pool-size", "1")
    fill(warm)

    def first_result(gateway, session_id):
        started = time.monotonic()
        assert gateway.execute("print(1)", session_id=session_id).text() == "1\n"
        return time.monotonic() - started

    quick = []
    for i in range(3):
        fill(warm)
        quick.append(first_result(warm, f"s{i}"))
    slow = [first_result(cold, f"s{i}") for i in range(3)]
    # The best of each, since a busy machine delays some of them.
    assert min(quick) < min(slow) / 4, (quick, slow)


def test_a_pooled_kernel_is_warm(gateway):
    fill(gateway)
    loaded = "import sys; print(all(name in sys.modules for name in ('numpy', 'pandas')))"
    lines = gateway.execute(loaded, session_id="warm")
    assert lines.text() == "True\n"
    # What warmed it is not seen: the first execution is the first, and no name is left behind,
    # as in a kernel that was not warmed.
    assert lines.done["execution_count"] == 1
    names = "import sys; print(sorted(name for name in dir() if name[0] != '_'))"
    warm = gateway.execute(names, session_id="warm").text()
    gateway.client.post("/api/v1/sessions/warm/restart")
    assert gateway.execute(names, session_id="warm").text() == warm
    gateway.delete_session("warm")


def test_a_sandbox_is_never_reused(gateway):
    seen = set()
    look = (
        "import os\n"
        "print('secret' in globals(), os.listdir('/mnt/data'),"
        " [n for n in os.listdir('/tmp') if n.startswith('mine')])"
    )
    for i in range(4):
        session_id = f"reuse-{i}"
        assert gateway.execute(look, session_id=session_id).text() == "False [] []\n"
        used = sandbox_of(gateway, session_id).id
        assert used not in seen
        seen.add(used)
        gateway.execute(
            "secret = 1\nopen('mine', 'w')\nopen('/tmp/mine', 'w')", session_id=session_id
        )
        gateway.delete_session(session_id)
        assert used not in {sandbox.id for sandbox in sandboxes(gateway)}


def test_a_session_of_its_own_leaves_the_pool_full(gateway):
    [before] = fill(gateway)
    assert gateway.execute("print(1)").text() == "1\n"
    wait_for(lambda: before not in {sandbox.id for sandbox in sandboxes(gateway)})
    assert len(fill(gateway)) == 1


@pytest.mark.once
def test_env_of_a_session_with_a_pool(gateway):
    fill(gateway)
    gateway.create_session(session_id="env", env={"COLOUR": "blue"})
    code = (
        "import os, subprocess\n"
        "print(os.getenv('COLOUR'), subprocess.check_output(['printenv', 'COLOUR'], text=True))"
    )
    assert gateway.execute(code, session_id="env").text() == "blue blue\n\n"
    # Another session does not have it; a restarted kernel has.
    assert gateway.execute("import os; print(os.getenv('COLOUR'))").text() == "None\n"
    gateway.client.post("/api/v1/sessions/env/restart")
    assert gateway.execute(code, session_id="env").text() == "blue blue\n\n"
    gateway.delete_session("env")


# ---- Refill


@pytest.mark.parametrize("victim", ["kernel", "agent"])
def test_what_dies_while_it_waits_is_replaced(gateway, victim):
    [dead] = fill(gateway)
    [sandbox] = pooled(gateway)
    kill(sandbox.kernel() if victim == "kernel" else sandbox.agent)
    wait_for(lambda: dead not in {sandbox.id for sandbox in pooled(gateway)})
    [replacement] = wait_for(lambda: fill(gateway))  # an engine may take a while to notice
    assert gateway.execute("print(1)", session_id="after").text() == "1\n"
    assert sandbox_of(gateway, "after").id == replacement
    gateway.delete_session("after")


@pytest.mark.not_on("kubernetes", "its quota and its one node have no room for them")
def test_fifty_sessions_at_once_with_a_pool_of_two(start_gateway):
    gateway = start_gateway(
        "--pool-size", "2", "--max-sessions", "60", "--memory-mb", "192", "--disk-mb", "16"
    )
    fill(gateway)
    gateway.client.timeout = 300  # fifty kernels start at once
    with concurrent.futures.ThreadPoolExecutor(50) as threads:
        runs = [
            threads.submit(gateway.execute, f"x = {i}\nprint(x * x)", session_id=f"s{i}")
            for i in range(50)
        ]
        assert [run.result().text() for run in runs] == [f"{i * i}\n" for i in range(50)]
    assert gateway.client.get("/api/v1/sessions").json()["total"] == 50
    owners = [sandbox.session for sandbox in sandboxes(gateway) if sandbox.session]
    assert sorted(owners) == sorted(f"s{i}" for i in range(50))
    assert gateway.execute("print(x)", session_id="s49").text() == "49\n"
    assert gateway.pool()["target"] == 2
    fill(gateway)


# ---- Readiness


def test_ready_when_the_pool_can_serve(start_gateway):
    gateway = start_gateway("--pool-size", "1", "--drain-timeout", "60")
    problem(gateway.client.get("/readyz"), 503, "provisioner_unavailable")
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200, timeout=60)
    with gateway.stream(HELD, session_id="s") as reader:
        reader.next_of("stdout")
        gateway.signal(signal.SIGTERM)
        wait_for(lambda: gateway.client.get("/readyz").status_code == 503, interval=0.01)
        problem(gateway.client.get("/readyz"), 503, "draining")
        assert gateway.client.get("/api/v1/health").json()["status"] == "draining"
        assert gateway.client.get("/healthz").status_code == 200
        gateway.release("s")
        assert reader.rest().status == "ok"
    assert gateway.wait() == 0


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_a_runtime_that_fails_and_works_again(start_gateway, runtime):
    broken = runtime.parent / "broken"
    gateway = start_gateway("--pool-size", "1", "--oci-runtime", str(runtime))
    fill(gateway)
    broken.touch()
    try:
        # The pooled sandbox is still used; then sessions are refused.
        assert gateway.execute("print(1)", session_id="s").text() == "1\n"
        wait_for(lambda: gateway.client.get("/readyz").status_code == 503)
        problem(gateway.client.get("/readyz"), 503, "provisioner_unavailable")
        started = time.monotonic()
        response = gateway.client.post("/api/v1/execute", json={"code": "1"})
        assert str(runtime) in problem(response, 503, "provisioner_unavailable")["detail"]
        assert time.monotonic() - started < 20
        # Existing sessions are not affected.
        assert gateway.execute("print(2)", session_id="s").text() == "2\n"
        assert gateway.client.get("/api/v1/sessions").json()["total"] == 1
    finally:
        os.unlink(broken)
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200, timeout=60)
    fill(gateway)
    assert gateway.execute("print(3)", session_id="new").text() == "3\n"
    gateway.delete_session("s")


@pytest.mark.only("oci", "it is about runc; test_docker.py has its like")
def test_no_runtime_at_all_is_said_at_the_start(start_gateway, runtime):
    broken = runtime.parent / "broken"
    broken.touch()
    try:
        with pytest.raises(AssertionError, match="no container today"):
            start_gateway("--oci-runtime", str(runtime))
    finally:
        os.unlink(broken)


def test_an_idle_gateway_is_not_woken_up(start_gateway):
    gateway = start_gateway("--pool-size", "1")

    def wake_ups():
        tasks = pathlib.Path(f"/proc/{gateway.process.pid}/task").glob("*/status")
        text = "".join(task.read_text() for task in tasks)
        return re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)

    def sleeps():
        before = wake_ups()
        time.sleep(3)
        return wake_ups() == before

    fill(gateway)
    wait_for(sleeps, timeout=60)
