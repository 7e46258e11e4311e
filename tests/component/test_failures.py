# SPDX-License-Identifier: Apache-2.0
"""Failures of code, kernels, sandboxes and clients, and how they are reported. Faults of the protocol
are in test_kernel_faults.py."""

import json
import os
import re
import signal
import socket
import time

import httpx
import pytest
from component import HELD, HERE, STUBBORN, cell
from kernelgate import run_until_timeout, wait_for
from sandboxes import pooled, sandbox_of


def test_timeout(run):
    run("set x 1")
    started = time.monotonic()
    lines = run("hang", timeout=1)
    assert time.monotonic() - started > 0.9
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.of("error")[-1]["error"].startswith("TimeoutError")
    assert lines.status == "timeout"
    # The interrupt sufficed: the kernel keeps its variables.
    assert not lines.done.get("kernel_restarted")
    assert run("get x").text() == "1\n"


def test_timeout_of_code_that_ignores_interrupts(run):
    run(cell("set x 1", "write kept k"))
    started = time.monotonic()
    lines = run_until_timeout(
        lambda timeout: run(STUBBORN, timeout=timeout), lambda lines: lines.text() == "deaf\n"
    )
    assert time.monotonic() - started > 3
    assert lines.of("error")[-1]["ename"] == "TimeoutError"
    assert lines.status == "timeout" and lines.done["kernel_restarted"] is True
    lines = run(cell("read kept", "get x"))
    assert lines.text() == "k" and lines.one("error")["ename"] == "NameError"


def test_default_timeout(start_gateway):
    gateway = start_gateway("--max-execution-time", "1")
    assert gateway.execute("hang").status == "timeout"


def test_timeout_counts_from_running_not_from_queued(gateway, session):
    """An execution with the same timeout, which runs in another session, ends meanwhile."""
    other = gateway.create_session()
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        with gateway.stream("print in time", session_id=session, timeout=2) as second:
            assert gateway.execute("hang", session_id=other, timeout=2).status == "timeout"
            gateway.release(session)
            lines = second.rest()
    assert lines.text() == "in time\n" and lines.status == "ok"
    gateway.delete_session(other)


def test_output_before_a_timeout_is_kept(run):
    lines = run_until_timeout(
        lambda timeout: run(cell("print before", "hang"), timeout=timeout),
        lambda lines: lines.text() == "before\n",
    )
    assert lines.status == "timeout"


@pytest.mark.parametrize("step", ["die 1", "kill 11", "kill 9", "die 0"])
def test_kernel_death(gateway, session, run, step):
    run(cell("set x 1", "write kept k"))
    with gateway.stream(cell(HELD, step), session_id=session) as reader:
        reader.next_of("stdout")
        gateway.release(session)
        lines = reader.rest()
    assert lines.text() == "on\n"
    assert lines.one("error")["ename"] == "KernelDied"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    lines = run(cell("read kept", "get x"))
    assert lines.text() == "k" and lines.one("error")["ename"] == "NameError"


def test_exit(run):
    run("write kept k")
    assert run("exit").done["kernel_restarted"] is True
    assert run("read kept").text() == "k"


def test_a_kernel_that_dies_while_idle_is_replaced(gateway, session, run):
    assert run(cell("background", "take go", "die 1")).status == "ok"
    gateway.release(session)
    wait_for(lambda: "replaced" in gateway.show_session(session)["kernels"]["script"])
    assert run("print again").text() == "again\n"


def test_out_of_memory_is_told_apart(run):
    lines = run("oom")
    assert lines.one("error")["ename"] == "OutOfMemory"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    assert run("print 1").text() == "1\n"


def test_container_death(gateway):
    session = gateway.create_session()
    with gateway.stream(HELD, session_id=session) as reader:
        reader.next_of("stdout")
        os.kill(sandbox_of(gateway, session).agent, signal.SIGKILL)
        lines = reader.rest()
    assert lines.of("error")[-1]["ename"] == "KernelDied"
    assert lines.status == "died" and not lines.done.get("kernel_restarted")
    wait_for(lambda: gateway.client.get(f"/api/v1/sessions/{session}").status_code == 404)
    assert gateway.execute("print 2", session_id=session).text() == "2\n"
    gateway.delete_session(session)


def test_an_agent_that_stops_answering(gateway):
    session = gateway.create_session()
    stopped = sandbox_of(gateway, session)
    with gateway.stream(HELD, session_id=session, timeout=4) as reader:
        reader.next_of("stdout")
        os.kill(stopped.agent, signal.SIGSTOP)
        lines = reader.rest()
    assert lines.status in ("timeout", "died")
    # The agent cannot be asked any more; the engine ends the container.
    wait_for(lambda: gateway.client.get(f"/api/v1/sessions/{session}").status_code == 404)
    wait_for(lambda: not stopped.pids())
    assert gateway.execute("print 2", session_id=session).text() == "2\n"
    gateway.delete_session(session)


# ---- Clients that leave


@pytest.fixture
def leave(gateway):
    """Runs code until its first line, and leaves; returns when the gateway has seen that."""

    def leave(code, first_line=True, **fields):
        before = gateway.streams_ended()
        with gateway.stream(code, **fields) as reader:
            if first_line:
                reader.next_of("stdout")
        wait_for(lambda: gateway.streams_ended() > before)
        return reader.response.headers["x-session-id"]

    return leave


def test_a_client_that_leaves_interrupts_its_execution(gateway, session, leave):
    leave(cell("write started x", HELD, "write finished x"), session_id=session)
    wait_for(lambda: not gateway.show_session(session)["is_busy"])
    lines = gateway.execute(cell("exists started", "exists finished"), session_id=session)
    assert lines.text() == "True\nFalse\n"


def test_a_client_that_leaves_an_execution_to_continue(gateway, session, leave):
    leave(cell(HELD, "write finished x"), session_id=session, on_disconnect="continue")
    gateway.release(session)
    assert gateway.execute("exists finished", session_id=session).text() == "True\n"


def test_a_client_that_leaves_the_queue_takes_its_execution_along(gateway, session, leave):
    with gateway.stream(HELD, session_id=session) as first:
        first.next_of("stdout")
        leave("write queued x", first_line=False, session_id=session)
        gateway.release(session)
        first.rest()
    assert gateway.execute("exists queued", session_id=session).text() == "False\n"


def test_a_client_that_leaves_a_session_of_its_own_ends_it(gateway, leave):
    url = f"/api/v1/sessions/{leave(HELD)}"
    wait_for(lambda: gateway.client.get(url).status_code == 404)


# ---- What code says that is not for its execution


def test_children_that_keep_writing(run):
    lines = run(cell("spawn while :; do echo spam; sleep 0.01; done", "print started"))
    assert lines.status == "ok" and "started" in lines.text()
    assert run("result 2").one("result")["text"] == "2"


def test_input_is_a_clear_error(run):
    lines = run("input name? ")
    assert "input" in lines.one("error")["evalue"]
    assert lines.status == "error"  # and not "timeout"


def test_messages_with_a_bad_signature_are_dropped(gateway, run):
    logged = len(gateway.log())
    lines = run(
        cell("bad-signature", "print forged", "bad-signature", "print again", "print genuine")
    )
    assert lines.text() == "genuine\n" and lines.status == "ok"
    assert "signature" in gateway.log()[logged:]


def test_output_after_the_end_is_not_the_next_executions(gateway, session, run):
    run(cell("background", "take late", "print late", "write printed x"))
    with gateway.stream(cell("print on", "wait printed", "print own"), session_id=session) as own:
        own.next_of("stdout")
        url = f"/api/v1/sessions/{session}/files/late"
        assert gateway.client.put(url, content=b"").status_code == 201
        lines = own.rest()
    assert lines.text() == "on\nown\n" and lines.status == "ok"


# ---- Kernels that do not start


def kernelspec(folder, name, argv, **extra):
    path = folder / name
    path.mkdir(parents=True)
    spec = {
        "argv": argv,
        "display_name": name,
        "language": name,
        "interrupt_mode": "signal",
        **extra,
    }
    path.joinpath("kernel.json").write_text(json.dumps(spec))


@pytest.mark.parametrize(
    "argv, status, codes",
    [
        (["/bin/sleep", "1000"], 504, {"kernel_start_timeout"}),
        (["/bin/false"], None, {"kernel_start_timeout", "internal", "provisioner_unavailable"}),
        (
            ["/no/such/program"],
            None,
            {"kernel_start_timeout", "internal", "provisioner_unavailable"},
        ),
    ],
    ids=["silent", "ends", "missing"],
)
def test_kernels_that_never_get_ready(start_gateway, tmp_path, argv, status, codes):
    kernelspec(tmp_path / "specs", "broken", argv)
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path / "specs"), "--kernels-dir", str(tmp_path),
        "--default-kernel", "broken", "--kernel-start-timeout", "2",
    )  # fmt: skip
    response = gateway.client.post("/api/v1/execute", json={"code": "1"})
    assert response.status_code >= 500 and (status is None or response.status_code == status)
    assert response.json()["code"] in codes
    assert gateway.client.get("/healthz").status_code == 200
    wait_for(lambda: not gateway.sandbox_pids())


def test_a_request_that_leaves_while_its_kernel_starts_leaves_nothing(start_gateway, tmp_path):
    # This kernel never gets ready, so the request leaves before it does on any machine.
    kernelspec(tmp_path / "specs", "silent", ["/bin/sleep", "1000"])
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path / "specs"), "--kernels-dir", str(tmp_path),
        "--default-kernel", "silent",
    )  # fmt: skip
    url = httpx.URL(gateway.url)
    with socket.create_connection((url.host, url.port)) as client:
        body = b'{"code": "1"}'
        client.sendall(
            b"POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_for(gateway.sandbox_pids)
    wait_for(lambda: not gateway.sandbox_pids())
    wait_for(lambda: gateway.client.get("/api/v1/sessions").json()["total"] == 0)


def test_what_waits_for_a_warm_up_does_not_disturb_it(start_gateway, tmp_path):
    spec = json.loads((HERE / "kernelspec/script/kernel.json").read_text())
    metadata = spec["metadata"]["kernelgate"] | {"warmup": "take go\nset warm 1"}
    kernelspec(tmp_path, "script", spec["argv"], metadata={"kernelgate": metadata})
    gateway = start_gateway(
        "--kernelspec-dir", str(tmp_path), "--pool-size", "1", "--log-level", "debug"
    )
    wait_for(lambda: re.search("pool entry state .* to=warming", gateway.log()))
    [warming] = pooled(gateway)
    with gateway.stream("print ran", session_id="w"):
        pass  # the client leaves
    # A timeout does not run yet either, and no interrupt hits the warm-up.
    with gateway.stream("get warm", session_id="w", timeout=0.5) as reader:
        assert gateway.execute("hang", session_id="other", timeout=0.5).status == "timeout"
        with open(f"/proc/{warming.agent}/root/mnt/data/go", "w"):
            pass
        lines = reader.rest()
    assert lines.status == "ok" and lines.text() == "1\n", lines
