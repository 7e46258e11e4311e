# SPDX-License-Identifier: Apache-2.0
"""The Jupyter face with real kernels in real containers: what ipykernel and Deno say through it. The rest of
the face is in tests/component."""

import ast
import os

import pytest
from jupyter_wire import Channels, list_kernels, of, one, start_kernel, text
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture(scope="module")
def kernel(gateway):
    """One kernel, for all tests that do not end it."""
    kernel = start_kernel(gateway)
    yield kernel
    gateway.client.delete(f"/api/kernels/{kernel}")


@pytest.fixture(params=[True, False], ids=["v1", "legacy"])
def client(request, gateway, kernel):
    with Channels(gateway, kernel, v1=request.param) as client:
        yield client


def test_the_first_result(client):
    messages = client.run("1 + 1")
    assert one(messages, "execute_result")["content"]["data"]["text/plain"] == "2"
    assert [it["content"]["execution_state"] for it in of(messages, "status")] == ["busy", "idle"]
    assert one(messages, "execute_reply")["channel"] == "shell"
    assert one(messages, "execute_input")["content"]["code"] == "1 + 1"


def test_kernel_info(client):
    messages = client.until_idle(client.send("kernel_info_request", {}))
    assert one(messages, "kernel_info_reply")["content"]["language_info"]["name"] == "python"


def test_outputs(client):
    code = "import sys\nprint('é</\u2028')\nprint('e', file=sys.stderr)\ndisplay(5)\n1/0"
    messages = client.run(code)
    assert text(messages) == "é</\u2028\n" and text(messages, "stderr") == "e\n"
    assert one(messages, "display_data")["content"]["data"]["text/plain"] == "5"
    assert one(messages, "error")["content"]["ename"] == "ZeroDivisionError"
    assert one(messages, "execute_reply")["content"]["status"] == "error"


def test_a_reply_has_the_exit_code(client):
    """As the system would report it; the payload does not ask the client to end the kernel."""
    for code, exit_code in (
        *(("exit()", 0), ("exit", 0), ("quit(3)", 3), ("raise SystemExit", 0)),
        *(
            ("raise SystemExit(-1)", 255),
            ("raise SystemExit('why')", 1),
            ("raise SystemExit(256)", 0),
        ),
    ):
        messages = client.run(code)
        reply = one(messages, "execute_reply")["content"]
        assert (reply["exit_code"], reply["payload"]) == (exit_code, []), code
        assert reply["status"] == ("error" if exit_code else "ok"), code
        assert len(of(messages, "error")) == (exit_code != 0), code
    assert "exit_code" not in one(client.run("1 / 0"), "execute_reply")["content"]


def test_input(client):
    running = client.execute("print(input('who? '))", allow_stdin=True)
    asked = client.until(lambda message: message["channel"] == "stdin")[-1]
    assert asked["content"]["prompt"] == "who? " and asked["parent_header"]["msg_id"] == running
    client.send("input_reply", {"value": "me"}, "stdin", parent_header=asked["header"])
    assert text(client.until_idle(running)) == "me\n"


@pytest.mark.parametrize("size", [3, 200_000])
def test_buffers_both_ways(client, size):
    client.run(
        "def opened(comm, message):\n"
        "    buffers = [bytes(buffer)[::-1] for buffer in message['buffers']]\n"
        "    comm.send({'lengths': [len(buffer) for buffer in buffers]}, buffers=buffers)\n"
        "get_ipython().kernel.comm_manager.register_target('echo', opened)"
    )
    buffers = [os.urandom(size), b"", bytes(range(256))]
    content = {"comm_id": "c", "target_name": "echo", "data": {}}
    client.send("comm_open", content, buffers=buffers)
    message = client.until(lambda message: message["header"]["msg_type"] == "comm_msg")[-1]
    assert message["content"]["data"] == {"lengths": [size, 0, 256]}
    assert message["buffers"] == [buffer[::-1] for buffer in buffers]


DRAW_ON_MESSAGE = """
import matplotlib.pyplot as plt
def opened(comm, message):
    @comm.on_msg
    def draw(message):
        print("drawing")
        plt.plot([1, 2])
        plt.show()
get_ipython().kernel.comm_manager.register_target("draws", opened)
"""


def test_what_a_subshell_shows_beside_a_cell_is_its_own(gateway, kernel):
    """A line and a figure, with a widget's message for their parent: JupyterLab drops others."""
    with Channels(gateway, kernel) as client:
        client.run(DRAW_ON_MESSAGE)
        subshell = client.create_subshell()
        comm = {"comm_id": "c-1", "target_name": "draws", "data": {}}
        client.send("comm_open", comm, subshell=subshell)
        running = client.execute("print('go', flush=True)\nprint(input())", allow_stdin=True)
        client.until_printed("go\n")
        for _ in range(3):
            told = client.send("comm_msg", {"comm_id": "c-1", "data": {}}, subshell=subshell)
            is_shown = client.until(
                lambda message: (
                    message["parent_header"].get("msg_id") == told
                    and message["content"].get("execution_state") == "idle"
                )
            )
            beside = [it for it in is_shown if it["parent_header"].get("msg_id") == told]
            assert text(beside) == "drawing\n"
            assert "image/png" in one(beside, "display_data")["content"]["data"]
        client.send("input_reply", {"value": "end"}, channel="stdin")
        shown = client.until_idle(running)
        assert text(shown) == "end\n" and not of(shown, "display_data")


def test_interrupt_and_restart(gateway, kernel):
    with Channels(gateway, kernel) as client:
        running = client.execute("x = 1\nprint('go', flush=True)\nwhile True: pass")
        client.until_printed("go\n")
        assert list_kernels(gateway)[kernel]["execution_state"] == "busy"
        assert gateway.client.post(f"/api/kernels/{kernel}/interrupt").status_code == 204
        assert one(client.until_idle(running), "error")["content"]["ename"] == "KeyboardInterrupt"
        assert text(client.run("print(x)")) == "1\n"
        response = gateway.client.post(f"/api/kernels/{kernel}/restart", json={})
        assert response.status_code == 200 and response.json()["id"] == kernel
        assert text(client.run("print('x' in globals())")) == "False\n"
        # JupyterLab takes `restarting` for the kernel's death.
        assert all(it["content"].get("execution_state") != "restarting" for it in client.seen)


def test_a_dying_kernel_is_replaced(gateway, kernel):
    with Channels(gateway, kernel) as client:
        client.run("x = 1")
        client.execute("import os; os._exit(3)")
        for state in "restarting", "idle":  # by the gateway: the kernel may have said it too early
            client.until(
                lambda it, state=state: (
                    it["content"].get("execution_state") == state and not it["parent_header"]
                )
            )
        assert text(client.run("print('x' in globals())")) == "False\n"


def test_environment_of_a_kernel(gateway):
    env = {
        "KERNEL_COLOUR": "blue; $(false) {{}}\n",
        "FLAVOUR": "é",
        "KERNEL_WORKING_DIR": "/home/u",
        "KERNEL_USERNAME": "u",
        "KERNEL_LAUNCH_TIMEOUT": "40",
        "KERNEL_ID": "x",
    }
    kernel = start_kernel(gateway, name="python3", env=env, path="a/b.ipynb")
    code = (
        "import os; print({k: v for k, v in os.environ.items() if 'KERNEL_' in k or 'FLAV' in k})"
    )
    with Channels(gateway, kernel) as client:
        printed = ast.literal_eval(text(client.run(code)))
    assert printed.items() >= {"KERNEL_COLOUR": env["KERNEL_COLOUR"], "FLAVOUR": "é"}.items()
    assert printed.keys().isdisjoint(set(env) - {"KERNEL_COLOUR", "FLAVOUR"})
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_notebook_in_javascript(gateway):
    body = {"path": "a.ipynb", "type": "notebook", "kernel": {"name": "javascript"}}
    session = gateway.client.post("/api/sessions", json=body).json()
    kernel = session["kernel"]
    assert kernel["name"] == "javascript"
    with Channels(gateway, kernel["id"]) as client:
        assert text(client.run("console.log(6 * 7)")) == "42\n"
    assert gateway.client.delete(f"/api/sessions/{session['id']}").status_code == 204
    assert kernel["id"] not in list_kernels(gateway)


def test_files_of_a_notebook(gateway, kernel):
    """What changes more than one file, on the file systems of real sandboxes."""
    client, folder = gateway.client, f"/api/contents/{kernel}"
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    body = {"type": "notebook", "format": "json", "content": notebook}
    path = f"{folder}/n/a.ipynb"
    assert client.put(path, json=body).status_code == 201
    assert client.post(path + "/checkpoints").status_code == 201
    assert client.put(path, json={**body, "content": {**notebook, "cells": []}}).status_code == 200
    assert client.post(path + "/checkpoints/checkpoint").status_code == 204
    assert client.get(path).json()["content"] == notebook
    copied = client.post(f"{folder}/n", json={"copy_from": f"{kernel}/n/a.ipynb"}).json()
    assert copied["name"] == "a-Copy1.ipynb"
    assert client.patch(path, json={"path": f"{kernel}/n/b.ipynb"}).status_code == 200
    entries = client.get(f"{folder}/n").json()["content"]
    assert {entry["name"] for entry in entries} == {"a-Copy1.ipynb", "b.ipynb"}
    listed = gateway.execute("import os; print(sorted(os.listdir('n')))", session_id=kernel)
    assert listed.text() == "['.ipynb_checkpoints', 'a-Copy1.ipynb', 'b.ipynb']\n"
    assert client.delete(f"{folder}/n").status_code == 204


def test_a_kernel_outlives_the_gateway(start_gateway):
    gateway = start_gateway("--jupyter-api", "--pool-size", "0")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        client.run("x = 42")
        gateway.kill()
    gateway.start()
    wait_for(lambda: list_kernels(gateway)[kernel]["execution_state"] == "idle")
    with Channels(gateway, kernel) as client:
        assert text(client.run("print(x)")) == "42\n"
