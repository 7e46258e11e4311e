# SPDX-License-Identifier: Apache-2.0
"""Real code that calls tools of real MCP servers behind the gateway: one of the official SDK's over HTTP, and one
from PyPI over stdio. tests/component/test_tool_servers.py has servers that are not as they should be."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import leftovers
import pytest
from jupyter_wire import Channels, start_kernel
from kernelgate import BINARY, PROJECT, free_port, wait_for
from mcp_clients import WireClient
from session_commands import Commands
from tool_client import errors_of
from tool_servers import write_file

pytestmark = pytest.mark.once
SECRET = "a-token-that-nobody-may-see"


class RealServer:
    """Over HTTP; it can be started again at the same port."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process = None
        self.log = tempfile.TemporaryFile("w+")

    def start(self):
        program = PROJECT / "tests/support/real_mcp_server.py"
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self.is_listening)
        return self

    def is_listening(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def waits_begun(self):
        """How many calls of the tool `wait` have come."""
        return os.pread(self.log.fileno(), 1 << 20, 0).count(b"waiting\n")

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server():
    server = RealServer().start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def time_server():
    """A program that any user may start: the command and its arguments."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=leftovers.PREFIX))
    folder.chmod(0o755)
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin/pip"), "install", "--quiet", "mcp-server-time"]
    subprocess.run(install, check=True, timeout=280)
    yield {
        "command": str(folder / "bin/python"),
        "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
    }
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def gateway_flags(tmp_path_factory, server, time_server):
    path = write_file(
        tmp_path_factory.mktemp("servers"),
        stock={"url": server.url, "headers": {"Authorization": f"Bearer {SECRET}"}},
        time={**time_server, "env": {"TOKEN": SECRET}},
    )
    return ["--mcp-servers", path, "--max-tool-calls", "300"]


@pytest.fixture
def ready(gateway, run):
    """Runs code once both servers have listed their tools."""
    code = "import tools; print(len(tools.find()))"
    wait_for(lambda: int(run(code).text()) >= 7, interval=0.2)
    return run


def test_two_servers(ready):
    lines = ready("""
import pandas as pd, tools
print(dir(tools.stock), dir(tools.time))
table = pd.DataFrame(tools.stock.stock()["result"])
print(table.cents.sum(), tools.stock.price(item="plum", count=3))
now = tools.time.get_current_time(timezone="Asia/Tokyo")
print(type(now).__name__, "Asia/Tokyo" in str(now))
help(tools.time.get_current_time)
""")
    assert lines.status == "ok", lines
    text = lines.text()
    assert (
        "['learn', 'out_of_stock', 'price', 'stock', 'wait'] ['convert_time', 'get_current_time']"
        in text
    )
    assert "12 {'item': 'plum', 'cents': 12}" in text and "True" in text
    assert "get_current_time(*, timezone: str)" in text
    results = lines.of("tool_result")
    assert [(line["name"], line["server"], line["status"]) for line in results] == [
        ("stock.stock", "stock", "ok"),
        ("stock.price", "stock", "ok"),
        ("time.get_current_time", "time", "ok"),
    ]
    assert not lines.of("tool_call")


def test_from_javascript(ready):
    code = "const p = await tools.stock.price({item: 'plum', count: 3}); p.cents"
    lines = ready(code, language="javascript")
    assert lines.one("result")["text"] == "12", lines
    [error] = errors_of(ready("await tools.stock.buy({item: 'x'})", language="javascript"))
    assert 'the MCP server stock offers no tool "buy"' in error


def test_errors(ready):
    [error] = errors_of(ready("tools.stock.out_of_stock()"))
    assert error.startswith("ToolError: ") and "out_of_stock" in error
    [error] = errors_of(ready("tools.time.get_current_time(timezone=1)"))
    assert "arguments.timezone: must be a string, not an integer" in error
    [error] = errors_of(ready("tools.stock.buy(item='x')"))
    assert "the server stock has no tool buy: there are price, stock" in error
    [error] = errors_of(ready("tools.call('stock.buy', item='x')"))
    assert 'the MCP server stock offers no tool "buy"' in error


def test_fifty_side_by_side_and_a_row(ready):
    lines = ready("""
import asyncio, time, tools
began = time.monotonic()
await asyncio.gather(*[tools.aio.stock.wait(seconds=0.1) for _ in range(50)])
print(time.monotonic() - began)
print(sum(tools.stock.price(item="ab", count=n)["cents"] for n in range(200)))
""")
    assert lines.status == "ok", lines
    took, total = lines.text().split()
    assert float(took) < 5 and total == "39800"
    assert len(lines.of("tool_result")) == 250


def test_the_number_of_calls(ready):
    lines = ready("import tools\nfor n in range(301): tools.stock.price(item='x')")
    assert "an execution may make 300 calls of tools" in errors_of(lines)[0]


def test_waiting_does_not_use_up_the_time_limit(ready):
    lines = ready("import tools; tools.stock.wait(seconds=2.5)", timeout=1)
    assert lines.status == "ok" and "waited" in lines.one("result")["text"]


def test_an_interrupt(gateway, server, session, ready):
    code = "import tools\nprint('on', flush=True)\ntools.stock.wait(seconds=60)"
    begun = server.waits_begun()
    with gateway.stream(code, session_id=session) as reader:
        reader.next_of("stdout")
        wait_for(lambda: server.waits_begun() == begun + 1)
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        lines = reader.rest()
    assert lines.status == "interrupted"
    assert lines.one("tool_result")["status"] == "cancelled"
    assert ready("tools.stock.price(item='x')").status == "ok"


def test_from_commands_and_children(gateway, session, ready):
    shell = Commands(gateway, session)
    answer = shell.wait("kg-tool stock.price --item fig --count 2 && kg-tool | sort")
    assert answer["exit_code"] == 0, answer
    first, *names = answer["stdout"].splitlines()
    assert json.loads(first) == {"item": "fig", "cents": 6}
    assert [name.split("\t")[0] for name in names][-1] == "time.get_current_time"
    lines = ready("!kg-tool stock.price --item fig")
    assert '"cents": 3' in lines.text()


def test_from_jupyter_and_mcp(gateway, ready):
    code = "import tools; print(tools.stock.price(item='fig')['cents'])"
    with Channels(gateway, start_kernel(gateway)) as channels:
        messages = channels.run(code)
    assert any(
        each["content"].get("text") == "3\n" for each in messages if "text" in each["content"]
    )
    with WireClient(gateway) as client:
        answer = client.call("run_python_code", {"code": code})
    assert answer.text == "3\n"


def test_a_list_that_changes(ready):
    ready("import tools; tools.stock.learn(name='juggle')")
    wait_for(
        lambda: "juggle" in ready("import tools; print(dir(tools.stock))").text(), interval=0.2
    )
    assert "I am juggle" in ready("tools.stock.juggle()").one("result")["text"]


def test_secrets_are_not_in_a_sandbox(gateway, ready):
    lines = ready(f"""
import os, pathlib, tools
tools.stock.price(item="x"), tools.time.get_current_time(timezone="UTC")
needle = {SECRET[:8]!r} + {SECRET[8:]!r}
found = []
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found += [str(path)] if needle.encode() in path.read_bytes() else []
    except OSError:
        pass
try:
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        if "r" in mode and "[v" not in line:
            start, end = (int(each, 16) for each in span.split("-"))
            with open("/proc/self/mem", "rb", 0) as memory:
                memory.seek(start)
                found += [line] if f"Bearer {{needle}}".encode() in memory.read(min(end - start, 1 << 24)) else []
except (OSError, ValueError):
    pass
print(found)
""")
    assert lines.text().count("\n") == 1 and "proc" not in lines.text(), lines
    assert SECRET not in json.dumps(lines) and SECRET not in gateway.log()


def test_a_program_is_an_unprivileged_user(gateway, ready):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            status = (path / "status").read_text()
        except OSError:
            continue
        if b"mcp_server_time" in command and b"keep-mcp-server" not in command:
            found.append((path, status))
    uids = {int(status.split("Uid:\t")[1].split()[0]) for _, status in found}
    assert uids == {61101} if os.geteuid() == 0 else uids == {os.geteuid()}
    assert all(
        "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status for _, status in found
    )


def test_a_server_that_is_started_again(start_gateway, tmp_path):
    server = RealServer().start()
    path = write_file(tmp_path, stock={"url": server.url})
    gateway = start_gateway("--mcp-servers", path, "--keep-sandboxes")
    session = gateway.create_session()
    run = lambda code: gateway.execute(code, session_id=session)
    call = "import tools; tools.stock.price(item='x')['cents']"
    try:
        wait_for(lambda: run(call).status == "ok", interval=0.2)
        server.stop()
        [error] = errors_of(run(call))
        assert "ToolError: the MCP server stock is down: it cannot be reached" in error
        assert run("'price' in dir(tools.stock)").one("result")["text"] == "True"
        server.start()
        # By itself: calls would open the connection.
        wait_for(
            lambda: (
                'kernelgate_mcp_server_up{server="stock"} 1' in gateway.client.get("/metrics").text
            )
        )
        assert run(call).status == "ok"
        server.stop()
        server.start()
        assert run(call).status == "ok"  # its session is gone, which nobody notices
        gateway.stop()
        gateway.start()
        wait_for(lambda: run(call).status == "ok", interval=0.2)
        gateway.kill()
        gateway.flags = ("--mcp-servers", path)
        gateway.start()
        wait_for(lambda: run(call).status == "ok", interval=0.2)
    finally:
        server.stop()


def test_doctor(server, time_server, tmp_path):
    path = write_file(
        tmp_path,
        stock={"url": server.url, "allow": ["*"]},
        time=time_server,
        gone={"url": "http://127.0.0.1:9/mcp"},
    )
    state = tmp_path / "state"
    command = [BINARY, "doctor", "--mcp-servers", path, "--state-dir", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = {line[5:29].strip(): line for line in done.stdout.splitlines() if "MCP server" in line}
    assert (
        lines["MCP server stock"].startswith("ok")
        and "offers all of its" in lines["MCP server stock"]
    )
    assert (
        lines["MCP server time"].startswith("ok")
        and "offers all of its 2 tools" in lines["MCP server time"]
    )
    assert lines["MCP server gone"].startswith("--") and "port 9" in lines["MCP server gone"]
    assert done.returncode == 1
