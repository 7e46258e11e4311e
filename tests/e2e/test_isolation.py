# SPDX-License-Identifier: Apache-2.0
"""What code inside a sandbox cannot do: to the host, to the gateway, to other sessions."""

import concurrent.futures
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

import docker_engine
import pytest
from account_commands import Accounts
from kernelgate import BINARY, wait_for


@pytest.fixture(scope="module")
def inside(gateway):
    """Runs code in one session of the module and returns the JSON that it printed."""
    session_id = gateway.create_session(session_id="inside")

    def run(code):
        # Some code walks through all folders, which takes long with gVisor on a busy machine.
        lines = gateway.execute("import json, os\n" + code, session_id=session_id, timeout=240)
        assert lines.status == "ok", lines
        return json.loads(lines.text())

    yield run
    gateway.delete_session(session_id)


@pytest.mark.not_on("kubernetes", "a pod has one; test_kubernetes.py tries what it reaches")
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
    interfaces=[name for _, name in socket.if_nameindex()],
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
    capabilities = {name for name in status if name.startswith("Cap")}
    assert capabilities >= {"CapInh", "CapPrm", "CapEff", "CapBnd"}
    assert not any(int(status[name], 16) for name in capabilities)
    assert inside("import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))") == 1
    assert status["Seccomp"] == "2"
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    assert status["Groups"].split() in ([], [status["Gid"].split()[0]])


def test_only_two_places_can_be_written(inside):
    """And /dev/shm, which multiprocessing needs for locks; its size is limited, too. /home/user is
    /mnt/data by another name: a mount, or a link, into which os.walk() does not go."""
    written, shared_memory_size = inside("""
written = []
for folder, names, _ in os.walk('/'):
    if folder == '/': names[:] = [n for n in names if n not in ('proc', 'sys')]
    if folder in ('/mnt/data', '/home/user', '/tmp'): names.clear()
    path = os.path.join(folder, 'probe')
    try:
        open(path, 'w').close(); os.unlink(path); written.append(folder)
    except OSError: pass
shm = os.statvfs('/dev/shm')
print(json.dumps((written, shm.f_blocks * shm.f_frsize)))
""")
    assert sorted({*written} - {"/home/user"}) == ["/dev/shm", "/mnt/data", "/tmp"]
    assert shared_memory_size <= 64 << 20


def test_the_working_folder_has_a_second_name(inside):
    found = inside("""
def numbers(path):
    st, disk = os.stat(path), os.statvfs(path)
    return [st.st_dev, st.st_ino, disk.f_blocks, disk.f_bfree, disk.f_files, disk.f_flag]
with open('/home/user/both', 'w') as f: f.write('x')
print(json.dumps(dict(same=numbers('/home/user') == numbers('/mnt/data'), there=os.path.exists('/mnt/data/both'),
                      link=os.path.islink('/home/user'), home=os.listdir('/home'))))
os.remove('/mnt/data/both')
""")
    linked = docker_engine.PROVISIONER != "oci" or docker_engine.OCI_RUNTIME == "runsc"
    assert found == {"same": True, "there": True, "link": linked, "home": ["user"]}


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
    if docker_engine.OCI_RUNTIME == "runsc":
        harmless += ["fuse", "net/tun"]  # of its own kernel; without privileges they open nothing
    harmless = {f"/dev/{name}" for name in harmless} | {"/sys/kernel/notes"}  # masked by null
    assert {path for path in opened if not path.startswith("/dev/pts/")} <= harmless


@pytest.mark.parametrize(
    "folder, flag", [("/mnt/data", "--disk-mb"), ("/home/user", "--disk-mb"), ("/tmp", None)]
)
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
    """Files of the host, in folders that exist in a sandbox, too."""
    folders = ("/root", "/var", "/run", "/usr/local/etc", "/usr/src")
    paths = [pathlib.Path(top, f"kgt-mark-{os.getpid()}") for top in folders]
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
    own=files('/usr/local/etc') + files('/usr/src'), boot=open('/proc/cmdline').read(),
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
    assert not found["shadow"] and not found["own"]
    if docker_engine.PROVISIONER != "kubernetes":  # nothing in a pod's specification hides it
        # runsc's kernel has a line of its own.
        is_gvisors = docker_engine.OCI_RUNTIME == "runsc" and "gvisor" in found["boot"]
        assert not found["boot"] or is_gvisors
    assert len(found["processes"]) < 10
    assert not any("pytest" in p or "serve" in p for p in found["processes"])
    assert found["host"] != os.uname().nodename


@pytest.mark.not_on("runsc", "its process 1 can be killed from inside; test_runsc.py has the rest")
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
    # A signal to PID 1 from inside its namespace is refused or dropped.
    name = inside("print(json.dumps(open('/proc/1/comm').read()))")
    assert name.startswith(("kg-agent", "kernelgate-agen"))


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
    # ENOSYS: the C library falls back to clone. Newer kernels of gVisor have it: EINVAL.
    assert found.pop("clone3") in ((22, 38) if docker_engine.OCI_RUNTIME == "runsc" else (38,))
    if docker_engine.PROVISIONER == "kubernetes":
        found.pop("io_uring")  # its filter is the container runtime's, and older ones allow that
    assert all(error in (1, 13) for error in found.values()), found


@pytest.mark.not_on("runsc", "its sockets are memory of the sandbox's own kernel")
@pytest.mark.not_on("kubernetes", "it has the filter of its runtime, as doctor says")
def test_sockets_whose_memory_nobody_counts_are_refused(inside):
    """The filter's lists; test_kernel_objects.py shows that they are long enough."""
    found = inside("""
import errno, socket, subprocess, sys
program = b"".join(n.to_bytes(size, "little") for n, size in ((6, 2), (0, 1), (0, 1), (0xffff, 4)))
import ctypes
text = ctypes.create_string_buffer(program)
filter = (1).to_bytes(8, "little") + ctypes.addressof(text).to_bytes(8, "little")
def why(ask):
    try: ask()
    except OSError as error: return errno.errorcode[error.errno]
    return "allowed"
def option(level, name, value):
    with socket.socket() as made: made.setsockopt(level, name, value)
print(json.dumps(dict(
    netlink=why(lambda: socket.socket(16, socket.SOCK_RAW, 0)),
    packet=why(lambda: socket.socket(17, socket.SOCK_RAW, 0)),
    vsock=why(lambda: socket.socket(40, socket.SOCK_STREAM, 0)),
    sctp=why(lambda: socket.socket(2, socket.SOCK_STREAM, 132)),
    attach_filter=why(lambda: option(1, 26, filter)), reuse_port=why(lambda: option(1, 15, 1)),
    timestamping=why(lambda: option(1, 37, 1)), recverr=why(lambda: option(0, 11, 1)),
    nodelay=why(lambda: option(6, 1, 1)))))
""")
    assert found.pop("nodelay") == "allowed" and found.pop("netlink") == "ENOTSUP"  # EOPNOTSUPP
    assert "allowed" not in found.values(), found


CORE_PATTERN = pathlib.Path("/proc/sys/kernel/core_pattern")
# Restores the machine's setting when its input ends, also if the test is killed.
RESTORE = 'cat >/dev/null; printf "%s" "$1" >/proc/sys/kernel/core_pattern; rm -f "$2"'


@pytest.fixture
def crashes(tmp_path):
    """Pipes core_pattern, which the machine has once, to a program, run as the host's root; returns
    what it was run for."""
    record = tmp_path / "record"
    record.touch()
    script = pathlib.Path("/tmp", f"kgt-core-{os.getpid()}")
    script.write_text(f'#!/bin/sh\ncat >/dev/null\necho "$1" >>{record}\n')
    script.chmod(0o755)
    with open(CORE_PATTERN, encoding="utf-8") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)  # of two runs at once, one waits here
        command = ["sh", "-c", RESTORE, "sh", shared.read(), script]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=[shared.fileno()]
        ):
            CORE_PATTERN.write_text(f"|{script} %e")
            yield lambda: record.read_text().split()


@pytest.mark.not_on("kubernetes", "the runtime's filter lets code lower that limit from 1 to 0")
def test_no_crash_inside_starts_a_program_of_the_host(inside, crashes):
    code = """
import resource, shutil, signal, subprocess
shutil.copy('/bin/sleep', '/tmp/kgt-inside')
try: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); lowered = True
except (OSError, ValueError): lowered = False
child = subprocess.Popen(['/tmp/kgt-inside', '60'])
child.send_signal(signal.SIGSEGV)
print(json.dumps((lowered, child.wait(), resource.getrlimit(resource.RLIMIT_CORE))))
"""
    assert inside(code) == [False, -11, [1, 1]]
    # A crash on the host shows that the program is started, and when that has happened.
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        child.send_signal(signal.SIGSEGV)
    wait_for(lambda: "sleep" in crashes())
    assert "kgt-inside" not in crashes()


@pytest.mark.only("oci", "the engine's limits count with others, and not the gateway's")
def test_doctor_says_when_crashes_inside_start_a_program(crashes):
    none = ["prlimit", "--core=0:0"]
    weak = [*none, "setpriv", "--bounding-set=-sys_resource"]
    rights = re.search(r"^CapEff:\s(\w+)", pathlib.Path("/proc/self/status").read_text(), re.M)[1]
    may_raise = bool(int(rights, 16) >> 24 & 1)  # CAP_SYS_RESOURCE
    for started_by, bounded in (([], True), (none, may_raise), (weak, False)):
        result = subprocess.run(
            [*started_by, BINARY, "doctor", "--oci-runtime", "/no/such/runtime"],
            capture_output=True, text=True,
        )  # fmt: skip
        [line] = [line for line in result.stdout.splitlines() if "core_pattern" in line]
        assert line.startswith("ok " if bounded else "-- ") and "is a pipe" in line
        assert ("start kernelgate with a limit of 1" in line) == (not bounded)


@pytest.mark.not_on("runsc", "its kernel is the sandbox's own: nobody else finds them used up")
def test_counters_of_the_kernel_are_bounded(inside):
    """Otherwise one sandbox could exhaust them for the host's root, or for all sandboxes."""
    timers, terminals = inside("""
import ctypes
libc = ctypes.CDLL(None)
ids = []
while len(ids) < 5000:
    timer = ctypes.c_void_p()
    event = (ctypes.c_long * 8)(0, 10)  # SIGEV_SIGNAL
    if libc.timer_create(1, event, ctypes.byref(timer)): break
    ids.append(timer)
for timer in ids: libc.timer_delete(timer)
fds = []
try:
    while len(fds) < 1000: fds.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError: pass
for fd in fds: os.close(fd)
print(json.dumps((len(ids), len(fds))))
""")
    assert 0 < timers <= 1024
    if docker_engine.PROVISIONER == "oci":
        assert 0 < terminals <= 16


def tcp_pages():
    """The host's number of pages in TCP buffers, in all network namespaces."""
    text = pathlib.Path("/proc/net/sockstat").read_text()
    return int(re.search(r"^TCP:.* mem (\d+)", text, re.M)[1])


@pytest.mark.only("oci", "runc ignores Docker's setting of that limit")
@pytest.mark.not_on(
    "runsc", "they are memory of the sandbox's own kernel, whose end is the session's"
)
def test_buffers_of_tcp_are_bounded(inside):
    fill = """
import socket
server = socket.create_server(('127.0.0.1', 0), backlog=512)
ends, sent = [], 0
for _ in range(200):
    end = socket.create_connection(server.getsockname()); ends += [end, server.accept()[0]]
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22); end.setblocking(False)
    try:
        while True: sent += end.send(bytes(1 << 20))
    except OSError: pass
print(json.dumps(sent))
"""

    def used():
        before = tcp_pages()
        inside(fill)
        during = tcp_pages()
        inside("for end in ends + [server]: end.close()\nprint(json.dumps(None))")
        return (during - before) * os.sysconf("SC_PAGE_SIZE")

    # What other tests send meanwhile counts, too, so one of several tries is enough.
    assert any((4 << 20) < used() < (96 << 20) for _ in range(5))


@pytest.mark.only("oci", "test_docker.py reads what the engine is told")
@pytest.mark.not_on("runsc", "its kernel has no such file of the machine's processes")
def test_sandboxes_are_the_first_to_be_killed(inside):
    """The machine's OOM killer takes kernels first, then agents, then what else there is."""
    paths = "/proc/self/oom_score_adj", "/proc/1/oom_score_adj"
    kernel, agent = inside(f"print(json.dumps([int(open(path).read()) for path in {paths}]))")
    assert (kernel, agent) == (900, 500)
    assert int(pathlib.Path("/proc/self/oom_score_adj").read_text()) < agent


@pytest.mark.only("oci", "Docker can be told, but its engine's disks are not known here")
@pytest.mark.not_on("runsc", "its kernel knows no O_DIRECT: what is read comes from memory")
def test_reading_from_the_disk_is_bounded(inside):
    seconds, total = inside("""
import glob, mmap, time
path = max(glob.glob('/opt/kernelgate/python/lib/python3*/site-packages/pyarrow/*.so*'),
           key=os.path.getsize)
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
piece, total, start = mmap.mmap(-1, 1 << 20), 0, time.monotonic()
while total < 400 << 20:
    offset = 0
    while offset + len(piece) <= os.path.getsize(path):
        offset += os.preadv(fd, [piece], offset)
    total += offset
print(json.dumps((time.monotonic() - start, total)))
""")
    assert total / seconds < 260 << 20
    limits = inside("""
import glob
paths = glob.glob('/sys/fs/cgroup/io.max') + glob.glob('/sys/fs/cgroup/blkio/*.read_*_device')
print(json.dumps([open(path).read() for path in sorted(paths)]))
""")
    text = " ".join(limits)
    assert re.search(rf"\d+:\d+ (rbps=)?{200 << 20}\b", text), text
    assert re.search(r"\b(riops=|\d+:\d+ )10000\b", text), text


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


@pytest.mark.not_on(
    "runsc", "its kernel makes nodes for anybody, which open nothing: test_runsc.py"
)
def test_special_files_and_set_user_id_do_nothing(inside):
    found = inside("""
import stat
try: os.mknod('/tmp/device', stat.S_IFBLK | 0o600, os.makedev(8, 0)); device = 'made'
except OSError as error: device = type(error).__name__
raw = ('sd', 'vd', 'nvme', 'kmsg', 'mem', 'loop', 'fuse')
mounts = [line.split()[1:4:2] for line in open('/proc/self/mounts')]
print(json.dumps(dict(device=device, raw=[n for n in os.listdir('/dev') if n.startswith(raw)],
                      mounts={path: options.split(',') for path, options in mounts})))
""")
    assert found["device"] != "made" and found["raw"] == []
    if docker_engine.PROVISIONER == "kubernetes":  # there is no option for it
        return
    places = {"/tmp", "/mnt/data", "/dev/shm"}
    if docker_engine.PROVISIONER == "oci":
        places |= {"/home/user" if docker_engine.OCI_RUNTIME != "runsc" else "/home"}
        places |= {"/usr", "/opt/kernelgate/python", "/opt/kernelgate/packages"}
        places |= {"/"} if docker_engine.OCI_RUNTIME != "crun" else set()
    assert not {path for path in places if not {"nosuid", "nodev"} <= set(found["mounts"][path])}


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
      any('sleep\\x004242' in open(p).read() for p in glob.glob('/proc/[0-9]*/cmdline')))
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
    # A kernel that took the interrupt in time goes on, and so do the processes that it has forked.
    if lines.done.get("kernel_restarted") is not True:
        restarted = gateway.client.post(f"/api/v1/sessions/{session}/restart", timeout=60)
        assert restarted.status_code == 200, restarted.text
    # They end with their kernel.
    wait_for(lambda: gateway.show_session(session)["usage"]["pids"] < 50, timeout=20)


@pytest.mark.not_on("runsc", "it ends the session, as all of a sandbox is one process there")
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


# ---- Owners


@pytest.mark.not_on("kubernetes", "all pods have the same limit of memory")
def test_the_memory_of_an_owners_sandboxes(start_gateway, tmp_path, clients):
    """A quota of an account is enforced, below and above the limit of the settings."""
    accounts = Accounts(tmp_path / "accounts.db")
    quotas = {"small": "256", "large": "1024", "default": "0"}
    for name, memory in quotas.items():
        accounts.do("user", "add", f"of-{name}")
        accounts.do("user", "quota", f"of-{name}", f"max-memory-mb={memory}")
    gateway = start_gateway(
        *accounts.flags, "--pool-size", "1", "--memory-mb", "512", "--disk-mb", "16"
    )
    owner = {name: clients(gateway, accounts.key(f"of-{name}")) for name in quotas}

    def can_have(name, mib):
        """Beside /mnt/data (16 MiB) and /tmp (64), which count, too."""
        session = gateway.create_session(owner[name])
        lines = gateway.execute(
            f"print(len(b'x' * ({mib} << 20)) >> 20)", client=owner[name], session_id=session
        )
        owner[name].delete(f"/api/v1/sessions/{session}")
        return lines.status == "ok" and lines.text() == f"{mib}\n"

    assert [can_have("small", 150), can_have("small", 400)] == [True, False]
    assert [can_have("default", 400), can_have("default", 800)] == [True, False]
    assert [can_have("large", 800), can_have("large", 1200)] == [True, False]
    # Also of a second kernel, and of one that was restarted: it is the sandbox's limit.
    session = gateway.create_session(owner["small"])
    owner["small"].post(f"/api/v1/sessions/{session}/restart").raise_for_status()
    lines = gateway.execute("len(b'x' * (400 << 20))", client=owner["small"], session_id=session)
    assert lines.status != "ok"
