# SPDX-License-Identifier: Apache-2.0
"""What ordinary programs do with sockets, terminals and files goes through a sandbox's system call filter."""

import pytest

IPYKERNEL = {
    "addresses": """
import socket
assert ("127.0.0.1", 80) in {found[4] for found in socket.getaddrinfo("localhost", 80)}
assert socket.getaddrinfo("127.0.0.1", 80, flags=socket.AI_ADDRCONFIG)
try: socket.getaddrinfo("no.such.host.invalid", 80)
except socket.gaierror: print("done")
""",
    "interfaces": """
import socket, subprocess, sys
assert (1, "lo") in socket.if_nameindex() and socket.if_indextoname(1) == "lo"
again = "import socket; print(socket.if_nameindex())"
assert "lo" in subprocess.check_output([sys.executable, "-c", again], text=True)
print("done")
""",
    "asyncio over TCP": """
import asyncio
async def echo(reader, writer):
    writer.write(await reader.readexactly(3 << 20)); await writer.drain(); writer.close()
async def client(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(3 << 20))
    data, _ = await asyncio.gather(reader.readexactly(3 << 20), writer.drain())
    writer.close()
    return len(data)
server = await asyncio.start_server(echo, "127.0.0.1", 0)
port = server.sockets[0].getsockname()[1]
assert await asyncio.gather(*[client(port) for _ in range(20)]) == [3 << 20] * 20
server.close()
print("done")
""",
    "options of sockets": """
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # has no effect
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        server.settimeout(5); server.bind(("", 0)); server.listen()
print("done")
""",
    "HTTP": """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen("http://127.0.0.1:%d/" % server.server_port).read(); server.shutdown()
print("done")
""",
    "multiprocessing": """
import multiprocessing as mp, multiprocessing.shared_memory as sm
def work(queue, name):
    shared = sm.SharedMemory(name); shared.buf[0] = 7; shared.close(); queue.put("x" * 200000)
context = mp.get_context("fork")
queue, shared = context.Queue(), sm.SharedMemory(create=True, size=4096)
child = context.Process(target=work, args=(queue, shared.name)); child.start()
assert len(queue.get()) == 200000
child.join(); assert shared.buf[0] == 7; shared.close(); shared.unlink()
with context.Manager() as manager, context.Pool(2) as pool:
    assert sum(pool.map(abs, manager.list([-1, -2]))) == 3
print("done")
""",
    "databases": """
import sqlite3, fcntl
with sqlite3.connect("d.sqlite") as base:
    base.execute("pragma journal_mode=wal"); base.execute("create table t (n)")
    base.executemany("insert into t values (?)", [(n,) for n in range(1000)])
assert sqlite3.connect("d.sqlite").execute("select sum(n) from t").fetchone() == (499500,)
with open("locked", "w") as file: fcntl.flock(file, fcntl.LOCK_EX); fcntl.lockf(file, fcntl.LOCK_EX)
print("done")
""",
    "tables and figures": """
import io, matplotlib.pyplot as plt, pandas as pd
frame = pd.DataFrame({"a": range(10)}); frame.to_parquet("f.parquet"); frame.to_excel("f.xlsx")
assert pd.read_parquet("f.parquet").equals(frame)
figure = plt.figure(); frame.plot(ax=figure.gca()); figure.savefig(io.BytesIO()); plt.close()
print("done")
""",
    "a shell with job control": """
import os, pty, select, signal, subprocess, termios, time, tty
pid, end = pty.fork()
if pid == 0: os.execvp("bash", ["bash", "--norc", "-i"])
output = b""
def until(text):
    global output
    while text not in output:
        assert select.select([end], [], [], 60)[0], output
        output += os.read(end, 4096)
until(b"$ ")  # bash may drop what is typed before it is ready
os.write(end, b"stty rows 33 cols 99; stty size; sleep 600 &\\n"); until(b"33 99")
os.write(end, b"jobs; fg\\n"); until(b"Running")
while b"Stopped" not in output:  # bash may not have given the terminal away yet
    os.write(end, b"\\x1a")  # one at a time: a second one would stop the next command
    enough = time.monotonic() + 2
    while b"Stopped" not in output and select.select([end], [], [], max(0, enough - time.monotonic()))[0]:
        output += os.read(end, 4096)
os.write(end, b"kill %1; wait; tty; echo e''nd\\n"); until(b"end")
assert b"/dev/pts/" in output and b"no job control" not in output, output
os.write(end, b"exit\\n"); os.waitpid(pid, 0)
print("done")
""",
    "a recorded terminal": """
import subprocess
subprocess.run(["script", "-qec", "stty -a; tty", "typed"], stdin=subprocess.DEVNULL, check=True)
assert "/dev/pts/" in open("typed").read()
print("done")
""",
}


@pytest.mark.parametrize("workload", IPYKERNEL)
def test_in_python(gateway, session, workload):
    lines = gateway.execute(IPYKERNEL[workload], session_id=session, timeout=240)
    assert lines.status == "ok", lines
    assert lines.text().endswith("done\n"), lines


@pytest.mark.not_on("kubernetes", "it has the Python kernel's image only")
def test_in_deno(gateway, session):
    lines = gateway.execute(
        """
const server = Deno.listen({ hostname: "127.0.0.1", port: 0 });
const served = (async () => { const c = await server.accept(); await c.write(new Uint8Array(5)); c.close(); })();
const client = await Deno.connect({ hostname: "127.0.0.1", port: (server.addr as Deno.NetAddr).port });
client.setNoDelay(true); client.setKeepAlive(true);
const got = await client.read(new Uint8Array(9)); client.close(); await served; server.close();
const web = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, () => new Response("hello"));
const text = await (await fetch(`http://127.0.0.1:${web.addr.port}/`)).text(); await web.shutdown();
const { stdout } = await new Deno.Command("uname", { stdout: "piped" }).output();
console.log(got, text, new TextDecoder().decode(stdout).trim());
""",
        session_id=session, language="typescript", timeout=240,
    )  # fmt: skip
    assert lines.text() == "5 hello Linux\n", lines
