# SPDX-License-Identifier: Apache-2.0
"""What is measured: kernelgate, and three other ways to the same kernel.

Each is a context manager with `execute(code)`, which returns when the kernel has both replied and
gone idle, and says how many bytes of stdout came.
"""

import datetime
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import websocket
import zmq
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = PROJECT / "build/kernels/python/bin/python"
BINARY = PROJECT / "build/release/bin/kernelgate"


def kernel_environment(folder):
    spec = json.loads((PROJECT / "kernelspec/python/kernel.json").read_text())
    env = {**spec["env"], "HOME": folder, "IPYTHONDIR": folder, "OMP_NUM_THREADS": "1"}
    return env | {"PATH": os.environ["PATH"]}


def end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Contestant:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="kgb-", dir="/tmp")
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Bare(_Contestant):
    process = client = None

    def start(self):
        path, _ = write_connection_file(
            f"{self.folder}/c.json", transport="ipc", ip=f"{self.folder}/k", key=b"bench"
        )
        self.process = subprocess.Popen(
            [PYTHON, "-m", "ipykernel_launcher", "-f", path],
            env=kernel_environment(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
        )
        self.client = BlockingKernelClient(connection_file=path)
        self.client.load_connection_file()
        self.client.start_channels(hb=False)
        self.client.wait_for_ready(timeout=60)

    def stop(self):
        if self.client:
            self.client.stop_channels()
        if self.process:
            end(self.process)


class BareClient(_Bare):
    title = "bare jupyter_client"

    def execute(self, code):
        request, received = self.client.execute(code, allow_stdin=False), 0
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream":
                received += len(message["content"]["text"])
            elif message["content"].get("execution_state") == "idle":
                break
        while self.client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != request:
            pass
        return received


class BareSocket(_Bare):
    """The kernel's own time and nothing else: replies are told by their bytes, and not parsed."""

    title = "bare ZeroMQ, nothing parsed"

    def execute(self, code):
        session = self.client.session
        shell, iopub = self.client.shell_channel.socket, self.client.iopub_channel.socket
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = session.msg("execute_request", content)
        request = message["msg_id"].encode()
        shell.send_multipart(session.serialize(message))
        for channel, sign in ((iopub, b'"execution_state": "idle"'), (shell, b'"execute_reply"')):
            while True:
                frames = b"".join(zmq.Socket.recv_multipart(channel))
                if request in frames and sign in frames:
                    break


class KernelGateway(_Contestant):
    title = "Jupyter Kernel Gateway"
    process = link = None

    def start(self):
        port = self.start_server(
            "kernel_gateway", "--KernelGatewayApp.port_retries=0",
            "--ZMQChannelsWebsocketConnection.limit_rate=False",
        )  # fmt: skip
        kernel = self.start_kernel(f"127.0.0.1:{port}/api/kernels")
        self.link = websocket.create_connection(
            f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels",
            sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            timeout=60,
        )
        self.count = 0
        self.execute("1")

    def start_server(self, module, *arguments):
        """Starts a server of Jupyter's with the kernelspec "bench"; returns its port."""
        self.write_kernelspec()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [PROJECT / "build/venv/bin/python", "-m", module, f"--port={port}", "--ip=127.0.0.1",
             *arguments],
            env=kernel_environment(self.folder)
            | {"JUPYTER_PATH": self.folder, "JUPYTER_RUNTIME_DIR": self.folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )  # fmt: skip
        return port

    def write_kernelspec(self):
        spec = json.loads((PROJECT / "kernelspec/python/kernel.json").read_text())
        spec["argv"][0] = str(PYTHON)
        spec.pop("env")
        folder = pathlib.Path(self.folder, "kernels/bench")
        folder.mkdir(parents=True)
        folder.joinpath("kernel.json").write_text(json.dumps(spec))

    def start_kernel(self, address):
        request = urllib.request.Request(f"http://{address}", b'{"name":"bench"}')
        for _ in range(300):
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return json.load(response)["id"]
            except ConnectionRefusedError:
                pass
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionRefusedError):
                    raise
            time.sleep(0.1)
        raise RuntimeError("Jupyter Kernel Gateway does not start")

    def stop(self):
        if self.link:
            self.link.close()
        if self.process:
            end(self.process)

    def execute(self, code):
        self.count += 1
        request = f"bench-{self.count}"
        header = {"msg_id": request, "msg_type": "execute_request", "version": "5.3",
                  "username": "", "session": "bench", "date": "2026-01-01T00:00:00Z"}  # fmt: skip
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        self.link.send(
            json.dumps(
                {
                    "header": header,
                    "parent_header": {},
                    "metadata": {},
                    "content": content,
                    "buffers": [],
                    "channel": "shell",
                }
            )  # fmt: skip
        )
        received, replied, idle = 0, False, False
        while not (replied and idle):
            message = json.loads(self.link.recv())
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream":
                received += len(message["content"]["text"])
            replied |= message["msg_type"] == "execute_reply"
            idle |= message["content"].get("execution_state") == "idle"
        return received


class Connection:
    """One client of a gateway."""

    def __init__(self, url):
        self.http = http.client.HTTPConnection(url.removeprefix("http://"))
        self.http.connect()
        self.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def ask(self, method, path, body=None):
        self.http.request(method, path, json.dumps(body) if body is not None else None)
        response = self.http.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read().decode())
        return response

    def execute(self, code, session="bench"):
        body = {"code": code, "timeout": 300}
        if session:
            body["session_id"] = session
        received, line = 0, {}
        for text in self.ask("POST", "/api/v1/execute", body):
            line = json.loads(text)
            if line["type"] == "stdout":
                received += len(line["text"])
        if line.get("status") != "ok":
            raise RuntimeError(f"the execution ended with {line}")
        return received

    def json(self, method, path, body=None):
        return json.load(self.ask(method, path, body))

    def end(self, session):
        self.json("DELETE", f"/api/v1/sessions/{session}")


class Kernelgate(_Contestant):
    title = "kernelgate"
    process = connection = None

    def __init__(self, *flags, binary=BINARY):
        self.binary = binary
        # Quotas of the container are not what is measured: as much processor as the others have.
        self.flags = ["--cpus", str(os.cpu_count()), *flags]

    def start(self):
        self.log = pathlib.Path(self.folder, "log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--port", "0", "--state-dir", self.folder, *self.flags],
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
            )
        line = self.process.stdout.readline().decode()
        self.url = re.fullmatch(r"kernelgate listening on (\S+)\n", line)[1]
        self.connection = Connection(self.url)

    def stop(self):
        if self.connection:
            self.connection.http.close()
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.stdout.close()
            end(self.process)

    def execute(self, code, session="bench"):
        return self.connection.execute(code, session)

    def fill_pool(self):
        """Waits until as many sandboxes are ready as shall be, and nothing is being made."""
        pool = {}
        for _ in range(3000):
            pool = self.connection.json("GET", "/api/v1/health")["pool"]
            if pool["ready"] == pool["target"]:
                return
            time.sleep(0.02)
        raise RuntimeError(f"the pool does not get full: {pool}")

    def memory_kb(self, field):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1])

    def reset_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cold_start(self):
        """Runs code in a new session: [(name of the part that ended, time)], from the debug log."""
        since = self.log.stat().st_size
        marks = [("request", time.time())]
        self.execute("1", session=None)
        answered = time.time()
        with self.log.open("rb") as log:
            log.seek(since)
            events = [json.loads(line) for line in log]
        sandbox = next(e["sandbox"] for e in events if e.get("to") == "ready" and "kernel" not in e)
        for part, event, state in (
            ("container", "provisioner operation", "done"),
            ("agent", "sandbox state", "ready"),
            ("kernel", "kernel channel linked", None),  # until the first channel is open
            ("readiness", "kernel process state", "up"),
        ):
            times = [
                e["time"]
                for e in events
                if e["event"] == event
                and e.get("to") == state
                and e.get("sandbox") in (sandbox, None)
            ]
            at = datetime.datetime.fromisoformat(times[0])
            marks.append((part, at.timestamp()))
        return [*marks, ("execution", answered)]
