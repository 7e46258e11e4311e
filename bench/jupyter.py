# SPDX-License-Identifier: Apache-2.0
"""Measures the Jupyter face of the release build beside Jupyter Kernel Gateway and jupyter_server.

(a) warm execute("1") over the WebSocket, beside our REST, and beside no gateway at all
(b) from the request for a kernel to its first result
(c) 100 MB printed in lines
(d) a binary message of 20 MB to the kernel, and back

All three have the same client, which reads each message as v1.kernel.websocket.jupyter.org, and the
same Python environment. Rounds go in turns, so that a change of the machine's load meets all.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import sys
import time
import urllib.error
import urllib.request
import uuid

import report
import websocket
from contestants import PROJECT, BareSocket, Kernelgate, KernelGateway

sys.path.insert(0, str(PROJECT / "tests/support"))
from jupyter_wire import V1, decode_v1, encode_v1  # noqa: E402

PRINT_100_MB = "line = 'y' * 99\nfor i in range(1_000_000): print(line)"
WARM_ROUNDS = 500
STARTS = 5
ECHOES = 5
MESSAGE = 20_000_000
ECHO = """
def echo(comm, message):
    comm.send({}, buffers=message['buffers'])
get_ipython().kernel.comm_manager.register_target('echo', echo)
"""


# ---- The servers


class Peer(KernelGateway):
    """A server of Jupyter's own, without its rate limit, and with room for the large message."""

    def start(self):
        pathlib.Path(self.folder, "config.py").write_text(
            "c.ZMQChannelsWebsocketConnection.limit_rate = False\n"
            "c.ServerApp.tornado_settings = {'websocket_max_message_size': 100_000_000}\n"
        )
        port = self.start_server(self.module, f"--config={self.folder}/config.py", *self.options)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"{self.url}/api").close()
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.title} does not start")


class OldGateway(Peer):
    module = "kernel_gateway"
    options = ("--KernelGatewayApp.port_retries=0",)


class JupyterServer(Peer):
    title = "jupyter_server"
    module = "jupyter_server"
    options = (
        "--no-browser", "--allow-root", "--ServerApp.port_retries=0",
        "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True",
    )  # fmt: skip


def ours(pool):
    return Kernelgate(
        "--jupyter-api", "--pool-size", str(pool), "--max-output-bytes", str(64 << 20)
    )


# ---- The client


def ask(url, method, body=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read()
        return json.loads(text) if text else None


class Notebook:
    """A kernel, and a client that is connected to it."""

    def __init__(self, server):
        name = "bench" if isinstance(server, Peer) else "python3"
        kernels = f"{server.url}/api/kernels"
        self.session = uuid.uuid4().hex
        self.id = ask(kernels, "POST", {"name": name})["id"]
        self.kernel = f"{kernels}/{self.id}"
        self.link = websocket.create_connection(
            f"{self.kernel.replace('http', 'ws', 1)}/channels?session_id={self.session}",
            subprotocols=[V1],
            sockopt=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            timeout=120,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        ask(self.kernel, "DELETE")

    def send(self, kind, content, buffers=()):
        header = {
            "msg_id": uuid.uuid4().hex, "msg_type": kind, "session": self.session,
            "username": "", "version": "5.3", "date": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        message = {
            "channel": "shell", "header": header, "parent_header": {}, "metadata": {},
            "content": content, "buffers": buffers,
        }  # fmt: skip
        self.link.send_binary(encode_v1(message))
        return header["msg_id"]

    def messages(self, request):
        while True:
            message = decode_v1(self.link.recv())
            if message["parent_header"].get("msg_id") == request:
                yield message

    def execute(self, code):
        """Until the kernel has replied and gone idle; returns the bytes of stdout."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        received, left = 0, {"execute_reply", "idle"}
        for message in self.messages(self.send("execute_request", content)):
            if message["header"]["msg_type"] == "stream":
                received += len(message["content"]["text"])
            left -= {message["header"]["msg_type"], message["content"].get("execution_state")}
            if not left:
                return received

    def echo(self, data):
        content = {"comm_id": uuid.uuid4().hex, "target_name": "echo", "data": {}}
        for message in self.messages(self.send("comm_open", content, [data])):
            if message["header"]["msg_type"] == "comm_msg":
                return message["buffers"][0]


# ---- What is measured


def timed(action):
    started = time.perf_counter()
    result = action()
    return (time.perf_counter() - started) * 1000, result


def warm(actions):
    """{name: action}, in turns."""
    times = {name: [] for name in actions}
    for number in range(-WARM_ROUNDS // 10, WARM_ROUNDS):
        for name, action in actions.items():
            milliseconds, _ = timed(action)
            if number >= 0:
                times[name].append(milliseconds)
    cuts = {name: statistics.quantiles(each, n=100) for name, each in times.items()}
    return {
        name: {"p50_ms": round(c[49], 3), "p99_ms": round(c[98], 3)} for name, c in cuts.items()
    }


def first_result(server):
    with Notebook(server) as notebook:
        notebook.execute("1")


def starts(servers):
    rows = {}
    with ours(1) as pooled, ours(0) as bare:
        named = {"kernelgate, out of the pool": pooled, "kernelgate, without a pool": bare}
        named |= {server.title: server for server in servers}
        for name, server in named.items():
            times = []
            for _ in range(STARTS):
                if server is pooled:
                    pooled.fill_pool()
                times.append(timed(lambda server=server: first_result(server))[0])
            rows[name] = {"median_ms": round(statistics.median(times)), "max_ms": round(max(times))}
    return rows


def flood(notebook):
    milliseconds, received = timed(lambda: notebook.execute(PRINT_100_MB))
    return {
        "mb_per_s": round(received / 1000 / milliseconds, 1),
        "received_mb": round(received / 1e6, 1),
    }


def echo(notebook):
    data = os.urandom(MESSAGE)
    notebook.execute(ECHO)
    try:
        results = [timed(lambda: notebook.echo(data)) for _ in range(ECHOES)]
    except (OSError, websocket.WebSocketException) as error:
        return {"median_ms": f"refused ({error})"}
    if any(answer != data for _, answer in results):
        raise RuntimeError("the kernel got, or sent, other bytes")
    return {"median_ms": round(statistics.median(milliseconds for milliseconds, _ in results))}


def measure():
    results = {}
    with contextlib.ExitStack() as stack:
        theirs = [stack.enter_context(kind()) for kind in (OldGateway, JupyterServer)]
        gateway = stack.enter_context(ours(1))
        bare = stack.enter_context(BareSocket())
        notebooks = {
            server.title: stack.enter_context(Notebook(server)) for server in (gateway, *theirs)
        }
        own = notebooks[gateway.title].id
        actions = {
            f"{title}, WebSocket": lambda notebook=notebook: notebook.execute("1")
            for title, notebook in notebooks.items()
        }
        actions["kernelgate, REST"] = lambda: gateway.execute("1", session=own)
        actions[bare.title] = lambda: bare.execute("1")
        results["warm"] = warm(actions)
        results["flood"] = {title: flood(notebook) for title, notebook in notebooks.items()}
        results["echo"] = {title: echo(notebook) for title, notebook in notebooks.items()}
        results["start"] = starts(theirs)
    return results


def goals(results):
    rows = {name: row["p50_ms"] for name, row in results["warm"].items()}
    mine, rest = rows["kernelgate, WebSocket"], rows["kernelgate, REST"]
    kernel = rows[BareSocket.title]
    received = results["flood"][Kernelgate.title]["received_mb"]
    yield "(a) no slower than our REST", f"{mine} ms beside {rest} ms", mine <= rest
    for title in OldGateway.title, JupyterServer.title:
        theirs = rows[f"{title}, WebSocket"]
        yield (
            f"(a) at most a fifth of {title}",
            f"{mine} ms beside {theirs} ms, of which the kernel itself takes {kernel} ms",
            mine <= theirs / 5,
        )
    yield "(c) all of the 100 MB arrives", f"{received} MB", received == 100


TITLES = {
    "warm": f'(a) warm execute("1"), {WARM_ROUNDS} times in turns',
    "start": f"(b) from the request for a kernel to its first result, {STARTS} times",
    "flood": "(c) print of 100 MB in lines of 100 bytes",
    "echo": f"(d) {MESSAGE / 1e6:.0f} MB to the kernel and back, {ECHOES} times",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers go as well")
    arguments = parser.parse_args()
    results = measure()
    for key, title in TITLES.items():
        print(f"\n{title}")
        for name, row in results[key].items():
            values = "  ".join(f"{column} {value}" for column, value in row.items())
            print(f"  {name:36}{values}")
    report.finish(results, goals(results), arguments.json)


main()
