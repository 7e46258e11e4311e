# SPDX-License-Identifier: Apache-2.0
"""The pool with real kernels in real containers, by exec and by fork. Bounds, readiness, and a runtime
that fails are in tests/component."""

import concurrent.futures

import docker_engine
import pytest
from kernelgate import Gateway, wait_for
from sandboxes import kill, pooled, sandbox_of, sandboxes

# Other engines, and runs that have chosen one, know one way to start kernels.
STARTS = ["exec", "fork"] if docker_engine.SHARED_FORK else [""]
# Most tests run with the way that costs less.
by_exec_and_by_fork = pytest.mark.parametrize("gateway", STARTS, indirect=True, scope="module")


def fill(gateway):
    """Waits until every place of the pool is taken; returns the ids of its sandboxes."""
    gateway.fill_pool()
    return {sandbox.id for sandbox in pooled(gateway)}


@pytest.fixture(scope="module", params=STARTS[-1:])
def gateway(request, engine):
    """Not shared: its sandboxes are counted."""
    flags = ["--kernel-start", request.param] if request.param else []
    running = Gateway("--pool-size", "1", *flags)
    try:
        yield running.start()
    finally:
        running.clean_up()


# ---- Claims


@by_exec_and_by_fork
def test_a_session_takes_a_sandbox_that_waits(gateway):
    [waiting] = fill(gateway)
    gateway.execute("x = 1", session_id="claims")
    assert sandbox_of(gateway, "claims").id == waiting
    assert gateway.execute("print(x)", session_id="claims").text() == "1\n"
    # Another one takes its place.
    assert fill(gateway) - {waiting}
    gateway.delete_session("claims")


@by_exec_and_by_fork
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
    for i in range(3):
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


@by_exec_and_by_fork
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


def test_more_sessions_at_once_than_wait(gateway):
    fill(gateway)
    names = [f"s{i}" for i in range(6)]
    with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
        runs = [
            threads.submit(gateway.execute, f"x = {i}\nprint(x * x)", session_id=name)
            for i, name in enumerate(names)
        ]
        assert [run.result().text() for run in runs] == [f"{i * i}\n" for i in range(len(names))]
    owners = [sandbox.session for sandbox in sandboxes(gateway) if sandbox.session]
    assert sorted(owners) == names
    assert gateway.execute("print(x)", session_id="s5").text() == "5\n"
    for name in names:
        gateway.delete_session(name)
    fill(gateway)
