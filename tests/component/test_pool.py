# SPDX-License-Identifier: Apache-2.0
"""The pool: sessions get its sandboxes, and it is filled again."""

import concurrent.futures
import json
import pathlib
import re
import signal
import time

import pytest
from component import HELD, HERE, TEST_RUNTIME, cell
from kernelgate import problem, wait_for
from sandboxes import kill, pooled, sandbox_of, sandboxes

OWN_GATEWAY = True  # its sandboxes are counted


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--pool-size", "1"]


def fill(gateway):
    """Waits until every place of the pool is taken; returns the ids of its sandboxes."""
    gateway.fill_pool()
    return {sandbox.id for sandbox in pooled(gateway)}


@pytest.fixture
def runtime(tmp_path):
    """An OCI runtime that fails while the file `broken` is beside it, and that starts no sandbox, but
    those of a gateway's own trials, while `hold` is."""
    script = tmp_path / "runtime"
    script.write_text(
        f'#!/bin/sh\nif [ -e {tmp_path}/broken ]; then echo "no container today" >&2; exit 1; fi\n'
        f'case "$*" in *--detach*) while [ -e {tmp_path}/hold ]; do sleep .05; done;; esac\n'
        f'exec {TEST_RUNTIME} "$@"\n'
    )
    script.chmod(0o755)
    yield script
    for name in "broken", "hold":
        script.with_name(name).unlink(missing_ok=True)


# ---- Claims


def test_a_session_takes_a_sandbox_that_waits(gateway):
    [waiting] = fill(gateway)
    gateway.execute("set x 1", session_id="claims")
    assert sandbox_of(gateway, "claims").id == waiting
    assert gateway.execute("get x", session_id="claims").text() == "1\n"
    # Another one takes its place.
    assert fill(gateway) - {waiting}
    gateway.delete_session("claims")


def test_a_pooled_kernel_is_warm(start_gateway, tmp_path):
    spec = json.loads((HERE / "kernelspec/script/kernel.json").read_text())
    spec["metadata"]["kernelgate"]["warmup"] = "add warm 1"
    (tmp_path / "script").mkdir()
    (tmp_path / "script/kernel.json").write_text(json.dumps(spec))
    gateway = start_gateway("--kernelspec-dir", str(tmp_path), "--pool-size", "1")
    fill(gateway)
    lines = gateway.execute("get warm", session_id="warm")
    # The warm-up does not count as an execution.
    assert (lines.text(), lines.done["execution_count"]) == ("1\n", 1)


def test_a_sandbox_is_never_reused(gateway):
    seen = set()
    for i in range(4):
        session_id = f"reuse-{i}"
        look = cell("sh ls /mnt/data", "exists /tmp/mine", "get secret")
        lines = gateway.execute(look, session_id=session_id)
        assert lines.text() == "False\n" and lines.one("error")["ename"] == "NameError"
        used = sandbox_of(gateway, session_id).id
        assert used not in seen
        seen.add(used)
        gateway.execute(
            cell("set secret 1", "write mine x", "write /tmp/mine x"), session_id=session_id
        )
        gateway.delete_session(session_id)
        assert used not in {sandbox.id for sandbox in sandboxes(gateway)}


def test_a_session_of_its_own_leaves_the_pool_full(gateway):
    [before] = fill(gateway)
    assert gateway.execute("print 1").text() == "1\n"
    wait_for(lambda: before not in {sandbox.id for sandbox in sandboxes(gateway)})
    assert len(fill(gateway)) == 1


def test_env_of_a_session_with_a_pool(gateway):
    fill(gateway)
    gateway.create_session(session_id="env", env={"COLOUR": "blue"})
    show = cell("getenv COLOUR", "sh printenv COLOUR")
    assert gateway.execute(show, session_id="env").text() == "blue\nblue\n"
    # Another session does not have it; a restarted kernel has.
    assert gateway.execute("getenv COLOUR").text() == "None\n"
    gateway.client.post("/api/v1/sessions/env/restart")
    assert gateway.execute(show, session_id="env").text() == "blue\nblue\n"
    gateway.delete_session("env")


# ---- Refill


@pytest.mark.parametrize("victim", ["kernel", "agent"])
def test_what_dies_while_it_waits_is_replaced(gateway, victim):
    [dead] = fill(gateway)
    [sandbox] = pooled(gateway)
    kill(sandbox.kernel() if victim == "kernel" else sandbox.agent)
    wait_for(lambda: dead not in {sandbox.id for sandbox in pooled(gateway)})
    [replacement] = wait_for(lambda: fill(gateway))
    assert gateway.execute("print 1", session_id="after").text() == "1\n"
    assert sandbox_of(gateway, "after").id == replacement
    gateway.delete_session("after")


def test_fifty_sessions_at_once_with_a_pool_of_two(start_gateway):
    gateway = start_gateway("--pool-size", "2")
    fill(gateway)
    with concurrent.futures.ThreadPoolExecutor(50) as threads:
        runs = [
            threads.submit(gateway.execute, cell(f"set x {i}", "get x"), session_id=f"s{i}")
            for i in range(50)
        ]
        assert [run.result().text() for run in runs] == [f"{i}\n" for i in range(50)]
    assert gateway.client.get("/api/v1/sessions").json()["total"] == 50
    owners = [sandbox.session for sandbox in sandboxes(gateway) if sandbox.session]
    assert sorted(owners) == sorted(f"s{i}" for i in range(50))
    assert gateway.execute("get x", session_id="s49").text() == "49\n"
    assert gateway.pool()["target"] == 2
    fill(gateway)


# ---- Readiness


def test_ready_when_the_pool_can_serve(start_gateway, runtime):
    hold = runtime.with_name("hold")
    hold.touch()
    gateway = start_gateway(
        "--pool-size", "1", "--drain-timeout", "600", "--oci-runtime", str(runtime)
    )
    problem(gateway.client.get("/readyz"), 503, "provisioner_unavailable")
    assert gateway.client.get("/healthz").status_code == 200
    hold.unlink()
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200)
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


def test_a_runtime_that_fails_and_works_again(start_gateway, runtime):
    broken = runtime.with_name("broken")
    gateway = start_gateway("--pool-size", "1", "--oci-runtime", str(runtime))
    fill(gateway)
    broken.touch()
    # The pooled sandbox is still used; then sessions are refused.
    assert gateway.execute("print 1", session_id="s").text() == "1\n"
    wait_for(lambda: gateway.client.get("/readyz").status_code == 503)
    problem(gateway.client.get("/readyz"), 503, "provisioner_unavailable")
    response = gateway.client.post("/api/v1/execute", json={"code": "print 1"})
    # It names the runtime, at least the end of its path.
    assert str(runtime)[-60:] in problem(response, 503, "provisioner_unavailable")["detail"]
    # Existing sessions are not affected.
    assert gateway.execute("print 2", session_id="s").text() == "2\n"
    assert gateway.client.get("/api/v1/sessions").json()["total"] == 1
    broken.unlink()
    wait_for(lambda: gateway.client.get("/readyz").status_code == 200, timeout=60)
    fill(gateway)
    assert gateway.execute("print 3", session_id="new").text() == "3\n"


def test_no_runtime_at_all_is_said_at_the_start(start_gateway, runtime):
    runtime.with_name("broken").touch()
    with pytest.raises(AssertionError, match="no container today"):
        start_gateway("--oci-runtime", str(runtime))


def test_an_idle_gateway_is_not_woken_up(start_gateway):
    gateway = start_gateway("--pool-size", "1")

    def wake_ups():
        tasks = pathlib.Path(f"/proc/{gateway.process.pid}/task").glob("*/status")
        text = "".join(task.read_text() for task in tasks)
        return re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)

    def sleeps():
        before = wake_ups()
        time.sleep(3)  # for so long nothing may happen; how fast the machine is does not matter
        return wake_ups() == before

    fill(gateway)
    wait_for(sleeps, timeout=60)
