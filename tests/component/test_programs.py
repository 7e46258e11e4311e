# SPDX-License-Identifier: Apache-2.0
"""What the component layer stands on: the scripted kernel speaks Jupyter's protocol, as its reference
client finds, and the test runtime does what the gateway expects of runc."""

import json
import pathlib
import signal
import subprocess

import pytest
from component import SCRIPT_KERNEL, TEST_RUNTIME, cell
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from kernelgate import wait_for
from sandboxes import lives, sandbox_of

DEADLINE = 60  # seconds, which only a hang reaches


class Kernel:
    """A scripted kernel, and a client of it."""

    def __init__(self, folder, transport):
        ip = f"{folder}/k" if transport == "ipc" else "127.0.0.1"
        path, _ = write_connection_file(f"{folder}/c.json", transport=transport, ip=ip)
        self.process = subprocess.Popen([SCRIPT_KERNEL, path], cwd=folder)
        self.client = BlockingKernelClient(connection_file=path)
        self.client.load_connection_file()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def ask(self, channel, msg_type, content=None, **header):
        """Sends a request; returns its id."""
        message = self.client.session.msg(msg_type, content or {})
        message["header"].update(header)
        getattr(self.client, f"{channel}_channel").send(message)
        return message["header"]["msg_id"]

    def reply(self, channel="shell"):
        return getattr(self.client, f"get_{channel}_msg")(timeout=DEADLINE)

    def published(self, msg_id):
        """What is published about a request, up to idle."""
        found = []
        while not found or found[-1]["content"].get("execution_state") != "idle":
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") == msg_id:
                found.append(message)
        return found

    def run(self, code, **options):
        """Returns the types of what is published, the messages, and the reply."""
        msg_id = self.client.execute(code, **options)
        messages, reply = self.published(msg_id), self.reply()
        assert reply["parent_header"]["msg_id"] == msg_id
        return [message["msg_type"] for message in messages], messages, reply["content"]

    def call(self, channel, msg_type, **content):
        msg_id = self.ask(channel, msg_type, content)
        states = [message["content"]["execution_state"] for message in self.published(msg_id)]
        reply = self.reply(channel)
        assert states == ["busy", "idle"] and reply["parent_header"]["msg_id"] == msg_id
        assert reply["msg_type"] == msg_type.replace("_request", "_reply")
        return reply["content"]

    def close(self):
        self.client.stop_channels()
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=["ipc", "tcp"])
def kernel(request, tmp_path):
    running = Kernel(tmp_path, request.param)
    yield running
    running.close()


# ---- The scripted kernel


def test_cells(kernel):
    kinds, messages, reply = kernel.run(cell("print hello", "stderr e", "result 42"))
    assert kinds == ["status", "execute_input", "stream", "stream", "execute_result", "status"]
    assert messages[2]["content"] == {"name": "stdout", "text": "hello\n"}
    assert messages[4]["content"]["data"] == {"text/plain": "42"}
    assert (reply["status"], reply["execution_count"]) == ("ok", 1)
    kinds, messages, reply = kernel.run("error ValueError no")
    assert kinds == ["status", "execute_input", "error", "status"]
    assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", "ValueError", "no")
    assert reply["traceback"] == messages[2]["content"]["traceback"]
    kinds, _, reply = kernel.run("print quiet", silent=True)
    assert kinds == ["status", "stream", "status"] and reply["execution_count"] == 2


def test_requests(kernel):
    info = kernel.call("shell", "kernel_info_request")
    assert info["language_info"]["name"] == "script" and info["protocol_version"] == "5.5"
    completion = kernel.call("shell", "complete_request", code="stde", cursor_pos=4)
    assert completion["matches"] == ["stderr"]
    assert (completion["cursor_start"], completion["cursor_end"]) == (0, 4)
    assert kernel.call("shell", "inspect_request", code="print", cursor_pos=2)["found"] is True
    assert kernel.call("shell", "is_complete_request", code="a\\")["status"] == "incomplete"
    kernel.run("print once")
    history = kernel.call("shell", "history_request", hist_access_type="tail")["history"]
    assert history[-1][2] == "print once"
    answer = kernel.call(
        "control", "debug_request", type="request", seq=5, command="c", arguments={}
    )
    assert (answer["type"], answer["request_seq"], answer["command"]) == ("response", 5, "c")


def test_comms(kernel):
    opening = {"comm_id": "c", "target_name": "echo", "data": {"a": 1}}
    message = kernel.client.session.msg("comm_open", opening)
    message["buffers"] = [b"abc", b""]
    kernel.client.session.send(
        kernel.client.shell_channel.socket, message, buffers=message["buffers"]
    )
    _, answer, _ = kernel.published(message["header"]["msg_id"])
    assert answer["content"]["data"] == {"lengths": [3, 0], "echo": {"a": 1}}
    assert [bytes(buffer) for buffer in answer["buffers"]] == [b"cba", b""]
    assert kernel.call("shell", "comm_info_request")["comms"] == {"c": {"target_name": "echo"}}
    unknown = kernel.ask("shell", "comm_open", {**opening, "comm_id": "d", "target_name": "x"})
    assert kernel.published(unknown)[1]["msg_type"] == "comm_close"


def test_input(kernel):
    msg_id = kernel.client.execute("input name?", allow_stdin=True)
    assert kernel.reply("stdin")["content"]["prompt"] == "name?"
    kernel.client.input("me")
    assert kernel.published(msg_id)[2]["content"]["text"] == "me\n"
    assert kernel.reply()["content"]["status"] == "ok"
    assert kernel.run("input name?", allow_stdin=False)[2]["ename"] == "StdinNotImplementedError"


@pytest.mark.parametrize("by_message", [True, False])
def test_interrupts(kernel, by_message):
    """Of what runs, and only of that."""

    def interrupt():
        if by_message:
            assert kernel.call("control", "interrupt_request")["status"] == "ok"
        else:
            kernel.process.send_signal(signal.SIGINT)

    interrupt()
    assert kernel.run("print on")[2]["status"] == "ok"
    msg_id = kernel.client.execute(cell("print on", "hang"))
    while kernel.client.get_iopub_msg(timeout=DEADLINE)["content"].get("text") != "on\n":
        pass
    interrupt()
    reply = kernel.reply()
    assert reply["parent_header"]["msg_id"] == msg_id
    assert reply["content"]["ename"] == "KeyboardInterrupt"


def test_abort_after_an_error(kernel, tmp_path):
    first = kernel.client.execute(cell("wait go", "error ValueError stops"))
    queued = [kernel.client.execute(f"write ran{i}") for i in range(2)]
    info = kernel.ask("shell", "kernel_info_request")
    kernel.call("control", "list_subshell_request")  # all of them have been sent
    (tmp_path / "go").touch()
    replies = {
        reply["parent_header"]["msg_id"]: reply for reply in (kernel.reply() for _ in "1234")
    }
    assert replies[first]["content"]["ename"] == "ValueError"
    assert [replies[msg_id]["content"]["status"] for msg_id in queued] == ["aborted"] * 2
    assert replies[info]["msg_type"] == "kernel_info_reply"
    assert not list(tmp_path.glob("ran*"))


def test_subshells(kernel, tmp_path):
    """A subshell's cells run beside the main one, and an interrupt is not theirs."""
    subshell = kernel.call("control", "create_subshell_request")["subshell_id"]
    main = kernel.client.execute(cell("print main", "hang"))
    beside = {"code": cell("print beside", "wait go"), "silent": False}
    msg_id = kernel.ask("shell", "execute_request", beside, subshell_id=subshell)
    texts = set()
    while texts != {"main\n", "beside\n"}:
        texts.add(kernel.client.get_iopub_msg(timeout=DEADLINE)["content"].get("text"))
        texts.discard(None)
    kernel.process.send_signal(signal.SIGINT)
    reply = kernel.reply()
    assert reply["parent_header"]["msg_id"] == main and reply["content"]["status"] == "error"
    (tmp_path / "go").touch()
    reply = kernel.reply()
    assert reply["parent_header"]["msg_id"] == msg_id and reply["content"]["status"] == "ok"
    assert kernel.call("control", "list_subshell_request")["subshell_id"] == [subshell]
    assert kernel.call("control", "delete_subshell_request", subshell_id=subshell)["status"] == "ok"
    assert kernel.call("control", "list_subshell_request")["subshell_id"] == []


def test_shutdown(kernel):
    wait_for(kernel.client.hb_channel.is_beating, DEADLINE)
    assert kernel.call("control", "shutdown_request", restart=False)["status"] == "ok"
    assert kernel.process.wait(DEADLINE) == 0


def test_last_words(kernel):
    """A client that is connected hears all that was said before the end."""
    msg_id = kernel.client.execute(cell("repeat 100 print {i}", "die 9"))
    assert kernel.process.wait(DEADLINE) == 9
    said = []
    while len(said) < 100:
        message = kernel.client.get_iopub_msg(timeout=DEADLINE)
        if message["msg_type"] == "stream":
            assert message["parent_header"]["msg_id"] == msg_id
            said.append(message["content"]["text"])
    assert said == [f"{i}\n" for i in range(100)]


@pytest.mark.parametrize(
    "code",
    ["prnt x", "die", "sleep x", "wait", "send nowhere x {}", "set x nonsense", "frames iopub x"],
)
def test_mistakes_in_a_script(run, code):
    assert run(code).one("error")["ename"] == "StepError"


# ---- The test runtime


def test_sandbox(gateway, session, run):
    """It has its own processes, network, files and control group."""
    assert run("sh id -u; hostname; pwd; ls /proc/1/root >/dev/null 2>&1 || echo no").text() == (
        "1000\nsandbox\n/mnt/data\nno\n"
    )
    assert run("sh cat /proc/1/comm").text() == "kg-agent\n"
    assert run("sh tail -n +3 /proc/net/dev | cut -d: -f1").text().split() == ["lo"]
    sandbox = sandbox_of(gateway, session)
    for pid in sandbox.agent, sandbox.kernel():
        assert f"/{sandbox.container}\n" in pathlib.Path(f"/proc/{pid}/cgroup").read_text()


def test_end_of_a_sandbox(gateway):
    """All its processes end with it, also those that its code has left behind."""
    session = gateway.create_session()
    gateway.execute("spawn exec sleep 1000", session_id=session)
    pids = sandbox_of(gateway, session).pids()
    assert len(pids) == 3
    gateway.delete_session(session)
    wait_for(lambda: not any(map(lives, pids)), DEADLINE)


def test_adoption(start_gateway):
    gateway = start_gateway("--keep-sandboxes")
    gateway.execute("set x 1", session_id="s")
    gateway.kill()
    gateway.start()
    assert gateway.execute("get x", session_id="s").text() == "1\n"
    gateway.stop()
    gateway.start()
    assert gateway.execute("get x", session_id="s").text() == "1\n"
    gateway.delete_session("s")


def test_dialled_agents(start_gateway):
    gateway = start_gateway(env={"KERNELGATE_DOOR": "tcp"})
    assert gateway.execute("print here", session_id="s").text() == "here\n"


def test_failures_of_the_runtime(tmp_path):
    """They are in its log, as the gateway reads it."""
    log = tmp_path / "log"
    command = [TEST_RUNTIME, "--root", tmp_path, "--log", log, "--log-format", "json", "run"]
    command += ["--bundle", tmp_path, "--pid-file", tmp_path / "pid", "x"]
    assert subprocess.run(command, check=False).returncode == 1
    assert "config.json" in json.loads(log.read_text())["msg"]
