# SPDX-License-Identifier: Apache-2.0
"""What code inside a sandbox cannot do: to the host, to the gateway, to other sessions."""

import concurrent.futures
import json
import os
import pathlib
import threading

import docker_engine
import pytest
from kernelgate import wait_for


@pytest.fixture(scope="module")
def inside(gateway):
    """Runs code in one session of the module and returns the JSON that it printed."""
    session_id = gateway.create_session(session_id="inside")

    def run(code):
        lines = gateway.execute("import json, os\n" + code, session_id=session_id)
        assert lines.status == "ok", lines
        return json.loads(lines.text())

    yield run
    gateway.delete_session(session_id)


def test_no_route_out(inside, gateway):
    port = gateway.url.rsplit(":", 1)[1]
    found = inside(f"""
import socket
def attempt(family, address):
    # A datagram socket's connect asks for a route and sends nothing.
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s: s.connect((address, 9))
    except OSError as error: return type(error).__name__
    return 'route'
def gateway(address):
    try: socket.create_connection((address, {port}), 1).close()
    except OSError: return 'none'
    return 'reached'
print(json.dumps(dict(
    routes=open('/proc/net/route').read().splitlines()[1:],
    interfaces=os.listdir('/sys/class/net'),
    v4=attempt(socket.AF_INET, '192.0.2.1'), v6=attempt(socket.AF_INET6, '2001:db8::1'),
    gateway=gateway('127.0.0.1'))))
""")
    assert found["routes"] == []
    assert set(found["interfaces"]) <= {"lo"}
    assert found["v4"] != "route" and found["v6"] != "route"
    assert found["gateway"] == "none"


def test_no_capability_no_new_privileges_a_filter_and_no_root(inside):
    status = inside(
        "lines = open('/proc/self/status').read().splitlines()\n"
        "print(json.dumps(dict(line.split(':\\t', 1) for line in lines)))"
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    assert status["Groups"].split() in ([], [status["Gid"].split()[0]])


def test_only_two_places_can_be_written(inside):
    """And /dev/shm, without which multiprocessing has no locks; it is bounded as well."""
    written, shared_memory_size = inside("""
written = []
for folder, names, _ in os.walk('/'):
    if folder == '/': names[:] = [n for n in names if n not in ('proc', 'sys')]
    if folder in ('/mnt/data', '/tmp'): names.clear()
    path = os.path.join(folder, 'probe')
    try:
        open(path, 'w').close(); os.unlink(path); written.append(folder)
    except OSError: pass
shm = os.statvfs('/dev/shm')
print(json.dumps((written, shm.f_blocks * shm.f_frsize)))
""")
    assert sorted(written) == ["/dev/shm", "/mnt/data", "/tmp"]
    assert shared_memory_size <= 64 << 20


def test_existing_files_cannot_be_written(inside):
    opened = inside("""
opened = []
for top in ('/proc/sys', '/sys', '/etc', '/run', '/dev', '/opt'):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError: continue
            opened.append(path)
print(json.dumps(opened))
""")
    harmless = "null zero full random urandom tty ptmx stdin stdout stderr".split()
    harmless = {f"/dev/{name}" for name in harmless}
    assert {path for path in opened if not path.startswith("/dev/pts/")} <= harmless


@pytest.mark.parametrize("folder, flag", [("/mnt/data", "--disk-mb"), ("/tmp", None)])
def test_the_two_places_are_bounded(start_gateway, folder, flag):
    gateway = start_gateway("--disk-mb", "16", "--pool-size", "0")
    lines = gateway.execute(
        f"""
total = 0
try:
    with open('{folder}/big', 'wb', buffering=0) as f:
        while total < 1 << 30: total += f.write(bytes(1 << 20))
except OSError as error: print(error.errno, total)
""",
        session_id="s",
    )
    number, total = map(int, lines.text().split())
    assert number == 28  # ENOSPC
    assert total <= (17 << 20 if flag else 512 << 20)
    assert gateway.execute("print('alive')", session_id="s").text() == "alive\n"


@pytest.fixture
def marks():
    """Files of the host, below folders that a sandbox may have too."""
    paths = [pathlib.Path(top, f"kgt-mark-{os.getpid()}") for top in ("/root", "/var", "/run")]
    for path in paths:
        path.touch()
    yield {str(path) for path in paths}
    for path in paths:
        path.unlink()


def test_the_host_does_not_show(inside, marks):
    found = inside("""
def files(top):
    return [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
def cmdline(pid):
    try: return open(f'/proc/{pid}/cmdline').read()
    except OSError: return ''
print(json.dumps(dict(
    private=files('/home') + files('/root') + files('/var') + files('/run'),
    shadow=os.access('/etc/shadow', os.R_OK),
    processes=[cmdline(pid) for pid in os.listdir('/proc') if pid.isdigit()],
    host=os.uname().nodename,
    mounts=open('/proc/self/mounts').read())))
""")
    assert not set(found["private"]) & marks
    if docker_engine.PROVISIONER == "oci":
        # Of /var only fontconfig's cache is there, of /run only the agent and the door.
        fonts = "/var/cache/fontconfig/"
        private = {path for path in found["private"] if not path.startswith(fonts)}
        assert private <= {"/run/kg-agent", "/run/kg/door.sock"}
    assert not found["shadow"]
    assert len(found["processes"]) < 10
    assert not any("pytest" in p or "serve" in p for p in found["processes"])
    assert found["host"] != os.uname().nodename


def test_the_agent_can_be_neither_signalled_nor_read(inside):
    found = inside("""
import signal
def attempt(action):
    try: action(); return 'done'
    except OSError as error: return type(error).__name__
print(json.dumps(dict(
    kill=attempt(lambda: os.kill(1, signal.SIGKILL)),
    memory=attempt(lambda: open('/proc/1/mem', 'r+b').close()),
    environ=attempt(lambda: open('/proc/1/environ').read()),
    files=attempt(lambda: os.listdir('/proc/1/fd')),
    alive=os.path.exists('/proc/1'))))
""")
    assert found["memory"] != "done" and found["files"] != "done" and found["environ"] != "done"
    assert found["alive"]
    # A signal to PID 1 of a namespace from inside is dropped, where it is not refused.
    assert inside("print(json.dumps(open('/proc/1/comm').read()))").startswith("kg-agent")


def test_system_calls_that_open_doors_are_refused(inside):
    found = inside("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return ctypes.get_errno() if result == -1 else 0
NEWUSER, NEWNS = 0x10000000, 0x20000
print(json.dumps(dict(
    unshare_user=call(272, NEWUSER), unshare_mount=call(272, NEWNS),
    mount=call(165, b'none', b'/tmp', b'tmpfs', 0, 0), ptrace=call(101, 16, 1, 0, 0),
    keyctl=call(250, 0, 0), bpf=call(321, 0, 0, 0), perf=call(298, 0, 0, -1, -1, 0),
    userfaultfd=call(323, 0), io_uring=call(425, 1, 0), kexec=call(246, 0, 0, 0, 0),
    module=call(313, -1, 0, 0), reboot=call(169, 0, 0, 0, 0), clone3=call(435, 0, 0))))
""")
    assert found.pop("clone3") == 38  # ENOSYS: the C library falls back to clone
    assert all(error in (1, 13) for error in found.values()), found


def test_threads_and_child_processes_work(inside):
    assert inside("""
import threading, multiprocessing, subprocess, concurrent.futures
results = []
threads = [threading.Thread(target=results.append, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
with multiprocessing.get_context('fork').Pool(2) as pool: squares = pool.map(abs, [-1, -2])
print(json.dumps([sorted(results), squares, subprocess.check_output(['uname']).decode()]))
""") == [list(range(8)), [1, 2], "Linux\n"]


def test_special_files_and_set_user_id_do_nothing(inside):
    found = inside("""
import stat
try: os.mknod('/tmp/device', stat.S_IFBLK | 0o600, os.makedev(8, 0)); device = 'made'
except OSError as error: device = type(error).__name__
raw = ('sd', 'vd', 'nvme', 'kmsg', 'mem', 'loop', 'fuse')
print(json.dumps(dict(device=device, raw=[n for n in os.listdir('/dev') if n.startswith(raw)])))
""")
    assert found["device"] != "made" and found["raw"] == []


def test_nothing_of_the_gateways_environment_shows(start_gateway):
    gateway = start_gateway(
        "--pool-size", "0", "--pass-through-env", "KG_PASSED",
        env={"API_KEY": "secret-key", "KG_PASSED": "p", "KG_SECRET": "s"}, key="secret-key",
    )  # fmt: skip
    lines = gateway.execute(
        "import os, glob\n"
        "print(dict(os.environ))\n"
        "for p in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(p).read())\n"
        "    except OSError: pass"
    )
    assert "'KG_PASSED': 'p'" in lines.text()
    assert "KG_SECRET" not in lines.text() and "secret-key" not in lines.text()


def test_the_environment_inside(inside):
    found = inside(
        "import sys\n"
        "print(json.dumps(dict(cwd=os.getcwd(), home=os.environ['HOME'], prefix=sys.prefix,"
        " threads=os.environ['OMP_NUM_THREADS'])))"
    )
    assert found == {
        "cwd": "/mnt/data", "home": "/tmp", "prefix": "/opt/kernelgate/python", "threads": "1",
    }  # fmt: skip


# ---- Sessions beside one another


def test_two_sessions_share_neither_processes_nor_sockets(gateway):
    first, second = gateway.create_session(), gateway.create_session()
    lines = gateway.execute(
        """
import socket, subprocess
tcp = socket.create_server(('127.0.0.1', 4242))
hidden = socket.socket(socket.AF_UNIX); hidden.bind('\\0kg-abstract'); hidden.listen()
child = subprocess.Popen(['sleep', '4242'])
print('listening')
""",
        session_id=first,
    )
    assert lines.text() == "listening\n"
    lines = gateway.execute(
        """
import socket, glob
def reach(family, address):
    with socket.socket(family) as s:
        try: s.connect(address)
        except OSError as error: return type(error).__name__
    return 'reached'
print(reach(socket.AF_INET, ('127.0.0.1', 4242)), reach(socket.AF_UNIX, '\\0kg-abstract'),
      'kg-abstract' in open('/proc/net/unix').read(),
      any('4242' in open(p).read() for p in glob.glob('/proc/[0-9]*/cmdline')))
""",
        session_id=second,
    )
    assert lines.text() == "ConnectionRefusedError ConnectionRefusedError False False\n"
    for session_id in (first, second):
        gateway.delete_session(session_id)


def answers_while(gateway, trouble):
    """Runs `trouble` in one thread and asserts that another session stays usable meanwhile."""
    calm = gateway.create_session()
    assert gateway.execute("x = 1", session_id=calm).status == "ok"
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(trouble)
        future.add_done_callback(lambda _: over.set())
        rounds = 0
        while not over.is_set() or not rounds:
            assert gateway.execute("print(x)", session_id=calm, timeout=20).text() == "1\n"
            assert gateway.client.get("/healthz").status_code == 200
            rounds += 1
        gateway.delete_session(calm)
        return future.result()


def test_a_fork_bomb_hurts_only_its_own_session(gateway, session):
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    lines = answers_while(gateway, lambda: gateway.execute(bomb, session_id=session, timeout=3))
    assert lines.status in ("timeout", "died")
    assert gateway.execute("print('again')", session_id=session).text() == "again\n"
    # What the bomb left was killed with its kernel.
    wait_for(lambda: gateway.show_session(session)["usage"]["pids"] < 50, timeout=20)


def test_too_much_memory_hurts_only_its_own_session(gateway, session):
    gateway.execute("open('kept', 'w').write('k')", session_id=session)
    lines = answers_while(gateway, lambda: gateway.execute("bytearray(10**10)", session_id=session))
    assert lines.one("error")["ename"] == "OutOfMemory"
    assert lines.status == "died" and lines.done["kernel_restarted"] is True
    assert gateway.execute("print(open('kept').read())", session_id=session).text() == "k\n"


def test_a_full_disk_hurts_only_its_own_session(gateway, session):
    code = "with open('/mnt/data/big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))"
    lines = answers_while(gateway, lambda: gateway.execute(code, session_id=session))
    assert lines.status in ("error", "died")
    assert gateway.execute("print('again')", session_id=session).text() == "again\n"


def test_busy_loops_share_the_processor(gateway, session):
    code = """
import threading, time
def spin():
    while True: pass
for _ in range(8): threading.Thread(target=spin, daemon=True).start()
time.sleep(5)
"""
    assert answers_while(gateway, lambda: gateway.execute(code, session_id=session)).status == "ok"
