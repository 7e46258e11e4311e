# SPDX-License-Identifier: Apache-2.0
"""Branches as kernels of Jupyter's API."""

import concurrent.futures

import pytest
from jupyter_wire import Channels, connections, execution_of, failure, list_kernels, one, start_kernel, text
from kernelgate import wait_for
from session_savepoints import Savepoints, value


@pytest.fixture
def session(gateway):
    """One that Jupyter's API has made: its kernel's id."""
    kernel = start_kernel(gateway)
    yield kernel
    gateway.client.delete(f"/api/kernels/{kernel}")


@pytest.fixture
def kernel(session):
    return session


def result(messages):
    return one(messages, "execute_result")["content"]["data"]["text/plain"]


def test_a_branch_is_a_kernel(gateway, kernel, run, savepoints):
    run("x = [1]")
    savepoints.branch("try-1")
    branch = f"{kernel}_try_d1"
    listed = list_kernels(gateway)
    assert {kernel, branch} <= listed.keys()
    assert listed[branch]["name"] == "python3" and listed[branch]["execution_state"] == "idle"
    assert gateway.client.get(f"/api/kernels/{branch}").json()["id"] == branch
    with Channels(gateway, kernel) as main, Channels(gateway, branch) as channels:
        assert connections(gateway, branch) == connections(gateway, kernel) == 1
        assert result(channels.run("x.append(2); x")) == "[1, 2]"
        assert result(main.run("x")) == "[1]"
        # One sees the code of the other interfaces in its kernel, and not that of other kernels.
        assert value(run, "x", branch="try-1") == "[1, 2]"
        printed = (
            channels.until_printed("from the API") if run("print('from the API')", branch="try-1") else 0
        )
        assert "from the API" in text(printed)
        sent = channels.execute("print('on')\nwhile True: pass")
        channels.until_printed("on\n")
        wait_for(lambda: list_kernels(gateway)[branch]["execution_state"] == "busy")
        assert list_kernels(gateway)[kernel]["execution_state"] == "idle"
        assert execution_of(gateway, kernel, sent)["state"] == "running"
        # The main kernel's interrupt does not reach it.
        running = main.execute("print('also')\nimport time; time.sleep(1000)")
        main.until_printed("also\n")
        gateway.client.post(f"/api/kernels/{branch}/interrupt").raise_for_status()
        assert one(channels.until_idle(sent), "error")["content"]["ename"] == "KeyboardInterrupt"
        assert list_kernels(gateway)[kernel]["execution_state"] == "busy"
        gateway.client.post(f"/api/kernels/{kernel}/interrupt").raise_for_status()
        assert one(main.until_idle(running), "error")["content"]["ename"] == "KeyboardInterrupt"
        gateway.client.post(f"/api/kernels/{branch}/restart").raise_for_status()
        assert result(main.run("x")) == "[1]"  # which has not restarted
        assert gateway.execute("x", session_id=kernel, branch="try-1").status == "error"
        assert gateway.client.delete(f"/api/kernels/{branch}").status_code == 204
        channels.closing_status()
        assert list(list_kernels(gateway)) == [kernel] and savepoints.branches() == {}
        assert result(main.run("x")) == "[1]"


def test_a_restore_is_a_restart(gateway, kernel, run, savepoints):
    with Channels(gateway, kernel) as channels:
        channels.run("x = 1")
        made = savepoints.make()
        channels.run("x = 2")
        savepoints.restore(made["savepoint"])
        assert result(channels.run("x")) == "1"
        states = [each["content"].get("execution_state") for each in channels.seen]
        # JupyterLab takes `restarting` for the kernel's death.
        assert "restarting" not in states


@pytest.mark.once
def test_ids_of_branches(gateway, kernel, run, savepoints):
    run("x = 1")
    ids = {"a": "a", "a_b": "a__b", "a-b": "a_db", "_": "__", "-": "_d", "_-d": "___dd"}
    for name in ids:
        savepoints.branch(name)
        run(f"x = {name!r}", branch=name)
    assert set(list_kernels(gateway)) == {kernel} | {f"{kernel}_{each}" for each in ids.values()}
    for name, id_ in ids.items():
        with Channels(gateway, f"{kernel}_{id_}") as channels:
            assert result(channels.run("x")) == repr(name)
    for wrong in "b", "python", "", "a_", "a_b", "_x", "a" * 33, "a" * 300, "a b", "ä":
        failure(gateway.client.get(f"/api/kernels/{kernel}_{wrong}"), 404)
        failure(gateway.client.delete(f"/api/kernels/{kernel}_{wrong}"), 404)
    for wrong in kernel[:-1] + "_a", kernel + "a", kernel + "-a", "_a":
        failure(gateway.client.get(f"/api/kernels/{wrong}"), 404)


@pytest.mark.once
def test_a_notebook_changes_to_a_branch(gateway, kernel, run, savepoints):
    run("x = 1")
    savepoints.branch("b")
    client = gateway.client
    body = {"path": f"{kernel}.ipynb", "type": "notebook", "kernel": {"id": kernel}}
    notebook = client.post("/api/sessions", json=body).json()
    url = f"/api/sessions/{notebook['id']}"
    changed = client.patch(url, json={"kernel": {"id": f"{kernel}_b"}}).json()
    assert changed["kernel"]["id"] == f"{kernel}_b"
    assert set(list_kernels(gateway)) == {kernel, f"{kernel}_b"}  # the session of both goes on
    body = {"path": f"{kernel}-2.ipynb", "type": "notebook", "kernel": {"id": f"{kernel}_b"}}
    other = client.post("/api/sessions", json=body).json()
    assert other["kernel"]["id"] == f"{kernel}_b"
    assert client.delete(f"/api/sessions/{other['id']}").status_code == 204
    assert value(run, "x", branch="b") == "1"  # another notebook has it
    assert client.delete(url).status_code == 204
    assert set(list_kernels(gateway)) == {kernel} and value(run, "x") == "1"


def test_the_next_gateway(start_gateway):
    gateway = start_gateway()
    kernel = start_kernel(gateway)
    savepoints = Savepoints(gateway, kernel)
    gateway.execute("x = 5", session_id=kernel)
    savepoints.branch("b")
    gateway.kill()
    gateway.start()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # they wait until the session was asked
        for channels in pool.map(lambda id_: Channels(gateway, id_), (kernel, f"{kernel}_b")):
            with channels:
                assert result(channels.run("x")) == "5"
    gateway.client.delete(f"/api/kernels/{kernel}").raise_for_status()
    assert list_kernels(gateway) == {}
