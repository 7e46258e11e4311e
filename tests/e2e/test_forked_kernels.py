# SPDX-License-Identifier: Apache-2.0
"""Kernels that a zygote forks: they do not differ from kernels started by exec, share no random
numbers, and are started by exec if anything fails."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import threading
import time
import warnings

import httpx
import pytest
from debug_client import DebugClient
from jupyter_wire import Channels, start_kernel, text
from kernelgate import PROJECT, wait_for
from sandboxes import kill, lives, pooled, sandbox_of, sandboxes

WARM_KERNELS = True

pytestmark = [
    pytest.mark.only("oci", "processes enter the sandboxes of this engine only"),
    pytest.mark.not_on("runsc", "its sandboxes have a kernel of their own"),
]

# What a kernel sees of itself. Random names are replaced.
INSIDE = r"""
import ctypes, gc, json, logging, os, pdb, re, resource, signal, stat, sys, threading

TAKES_LONG = True

libc = ctypes.CDLL(None, use_errno=True)

def text(path):
    try:
        with open(path) as file: return file.read()
    except OSError as error: return type(error).__name__

def descriptor(number):
    kind = stat.S_IFMT(os.fstat(number).st_mode)
    target = os.readlink(f"/proc/self/fd/{number}")
    flags = re.search(r"flags:\s+(\d+)", text(f"/proc/self/fdinfo/{number}"))[1]
    return [kind, "" if kind == stat.S_IFIFO else re.sub(r"\d+", "N", target), flags]

def refused(number, *args):
    ctypes.set_errno(0)
    return [libc.syscall(number, *args), ctypes.get_errno()]

def socket_of(*args):
    ctypes.set_errno(0)
    fd = libc.socket(*args)
    error = ctypes.get_errno()
    if fd >= 0: os.close(fd)
    return [fd >= 0, error]

status = dict(line.split(":\t", 1) for line in text("/proc/self/status").splitlines())
counts = r"Vm|Rss|Huge|voluntary|nonvoluntary|Threads|FDSize|SigQ|Pid|PPid|Tgid|NS"
found = {f"status {name}": value for name, value in status.items() if not re.match(counts, name)}
found |= {f"rlimit {line[:26].strip()}": line[26:] for line in text("/proc/self/limits").splitlines()}
found |= {f"variable {name}": value for name, value in os.environ.items()}
found |= {f"signal {number}": str(signal.getsignal(number)) for number in signal.valid_signals()}
found |= {f"descriptor {number}": descriptor(number) for number in (0, 1, 2)}
found |= {f"mount {n}": line.split()[4:6] + line.split(" - ")[1].split(" rw")[0].split()[:1]
          for n, line in enumerate(text("/proc/self/mountinfo").splitlines())}
for name in ("cgroup", "oom_score_adj", "coredump_filter", "loginuid", "sessionid", "setgroups",
             "comm", "timerslack_ns", "personality", "wchan"):
    found[f"file {name}"] = text(f"/proc/self/{name}")
for name, number in dict(dumpable=3, keepcaps=7, securebits=27, timerslack=30, no_new_privs=39,
                         thp_disable=42, io_flusher=58).items():
    found[f"prctl {name}"] = libc.prctl(number, 0, 0, 0, 0)
for name, number in dict(pdeathsig=2, subreaper=37).items():
    value = ctypes.c_int(-1)
    libc.prctl(number, ctypes.byref(value), 0, 0, 0)
    found[f"prctl {name}"] = value.value
calls = dict(ptrace=101, mount=165, unshare=272, setns=308, keyctl=250, bpf=321, perf=298,
             userfaultfd=323, clone3=435, io_uring_setup=425, open_tree=428, newer=1000, reboot=169,
             swapon=167, quotactl=179, kcmp=312, process_vm_readv=310, add_key=248, seccomp=317)
found |= {f"call {name}": refused(number, 0, 0, 0, 0, 0, 0) for name, number in calls.items()}
kinds = [(family, kind | 0o2000000, 0) for family in (1, 2, 10, 16, 30) for kind in range(1, 7)]
found |= {f"socket {args}": socket_of(*args) for args in [*kinds, (2, 1, 6), (2, 1, 132), (2, 2, 17)]}
found |= {
    "parent": os.getppid(), "leads its session": os.getsid(0) == os.getpid(),
    "leads its group": os.getpgid(0) == os.getpid(), "ids": os.getresuid() + os.getresgid(),
    "groups": os.getgroups(), "cwd": os.getcwd(), "root": os.readlink("/proc/self/root"),
    "exe": os.readlink("/proc/self/exe"), "argv": sys.argv[1:], "original argv": sys.orig_argv,
    "name": os.path.basename(sys.argv[0]),
    "command line": text("/proc/self/cmdline"), "environ": sorted(text("/proc/self/environ").split("\0")),
    "path": sys.path, "flags": str(sys.flags), "executable": sys.executable, "prefix": sys.prefix,
    "nice": os.nice(0), "scheduler": os.sched_getscheduler(0), "cpus": sorted(os.sched_getaffinity(0)),
    "blocked": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "umask": os.umask(0o22),
    "gc": [gc.isenabled(), gc.get_threshold()], "recursion": sys.getrecursionlimit(),
    "main": sorted(n for n in vars(sys.modules["__main__"]) if n.startswith("__")),
    "threads": sorted(re.sub(r"\d", "N", thread.name) for thread in threading.enumerate()),
    "streams": [sys.__stdin__.encoding, sys.__stdout__.encoding, sys.__stdout__.line_buffering],
}

# What ipykernel and IPython have made of themselves.
shell = get_ipython()
kernel, app, session = shell.kernel, shell.kernel.parent, shell.kernel.session
parts = [shell, kernel, app, session, shell.displayhook, shell.display_pub, shell.history_manager,
         app.profile_dir, *(each for each in shell.configurables if each is not kernel.comm_manager)]
found |= {f"traits {n}": {name: type(value).__name__ for name, value in part.trait_values().items()}
          for n, part in enumerate(parts)}
found |= {f"config {n}": json.dumps(part.config, default=str, sort_keys=True) for n, part in enumerate(parts)}
found |= {
    "same session": [part.session is session for part in
                     (app, shell.displayhook, shell.display_pub, kernel.debugger, kernel.iopub_thread)],
    "session of messages": [
        session.pid == os.getpid(), session.bsession == session.session.encode(),
        session.key.decode() == json.loads(text(app.abs_connection_file))["key"],
        session.message_count > 0, session.none.decode()],
    "modules known": sorted(shell._sys_modules_keys.difference(sys.builtin_module_names)),
    # A fork has some more of IPython's own, and the zygote's.
    "files without steps": sorted(path for path in set(kernel._kernel_modules)
                                  if not re.search("/(IPython/|kernelgate_zygote.py)", path)),
    "main program": [getattr(sys.modules["__main__"], name, "missing") is None
                     for name in ("__spec__", "__loader__", "__package__", "__file__", "__cached__")],
    "same socket": [part.pub_socket is kernel.iopub_socket for part in (shell.displayhook, shell.display_pub)],
    "debugger": [kernel.debugger.shell_socket is kernel.debug_shell_socket,
                 kernel.debugger.debugpy_stream is kernel.debugpy_stream,
                 kernel.debugger.event_callback == kernel._publish_debug_event,
                 kernel.debugger.just_my_code, kernel.debugger.filter_internal_frames],
    "pdb": [pdb.Pdb.__module__, pdb.set_trace.__module__],
    "log of tornado": [
        [type(handler).__name__, handler.stream is sys.__stderr__, handler.formatter._fmt, handler.level]
        for handler in logging.getLogger("tornado").handlers],
    "extensions": [sorted(shell.extension_manager.loaded), app.default_extensions, app.extensions],
    "magics": [{kind: sorted(names) for kind, names in shell.magics_manager.lsmagic().items()},
               list(shell.magics_manager.registry)],
    "configurables": [type(each).__name__ for each in shell.configurables],
    "same application": [app.shell is shell, app.kernel is kernel, type(app).instance() is app],
    "connection folder": app.connection_dir,
    "streams of the kernel": [kernel._stdout is sys.stdout, kernel._stderr is sys.stderr],
    "main module": sys.modules["__main__"] is shell.user_module,
    "topic": shell.displayhook.topic.replace(kernel.ident.encode(), b"ID").decode(),
    "names": sorted(shell.user_ns), "hidden names": sorted(shell.user_ns_hidden),
    "connection file": app.connection_file,
    "profile": sorted([path, *map(sorted, names)] for path, *names in os.walk(app.ipython_dir)),
    "log": [app.log.level, [type(handler).__name__ for handler in app.log.handlers]],
    "hooks": [sys.excepthook.__qualname__, type(sys.displayhook).__name__],
}
print(re.sub(r"\.kg-python-[a-z2-7]{8}", ".kg-python-ID", json.dumps(found)))
"""


def outside(gateway, session_id):
    """What the machine sees of a session's kernel, compared with the sandbox's agent."""
    sandbox = sandbox_of(gateway, session_id)
    kernel, agent = sandbox.kernel(), sandbox.agent
    proc, agents = pathlib.Path(f"/proc/{kernel}"), pathlib.Path(f"/proc/{agent}")
    found = {f"namespace {path.name}": os.readlink(path) for path in (proc / "ns").iterdir()}
    for name, link in found.items():
        assert link == os.readlink(agents / "ns" / name.split()[1]), name
    assert (proc / "cgroup").read_text() == (agents / "cgroup").read_text()
    root, agents_root = os.stat(proc / "root/."), os.stat(agents / "root/.")
    assert (root.st_dev, root.st_ino) == (agents_root.st_dev, agents_root.st_ino)
    status = dict(
        line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line
    )
    names = "Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters"
    users = (proc / "uid_map").read_text() == (agents / "uid_map").read_text()
    assert users and status["NSpid"].split()[:1] == [str(kernel)]
    identity = {name: status[name] for name in names.split() if name not in ("Uid", "Gid")}
    return identity | {
        "levels": len(status["NSpid"].split()),
        "owner": os.stat(proc).st_uid == int(status["Uid"].split()[0]),
        "parent": status["PPid"] == str(agent),
    }


def forks(gateway):
    """How many kernels have started by a fork."""
    text = gateway.client.get("/metrics").text
    row = r'^kernelgate_kernel_start_seconds_count\{way="fork"\} (\d+)'
    return int(re.search(row, text, re.M)[1])


def wait_for_zygote(gateway, times=1):
    """One that fails is made again; a wait that long is reported with the test's success."""
    start = time.monotonic()
    wait_for(lambda: gateway.log().count("kernels can be forked") >= times, timeout=150)
    if time.monotonic() - start > 60:
        warnings.warn(f"a zygote took long:\n{gateway.log()}", stacklevel=2)


def zygotes(gateway):
    """The process ids of its zygotes."""
    pids = []
    for mark in pathlib.Path(gateway.state_dir, "sb").glob("*/zygote"):
        with contextlib.suppress(OSError, ValueError):  # it is being made, or removed
            pids.append(int((mark.parent / "init.pid").read_text()))
    return [pid for pid in pids if lives(pid)]


def children_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture
def forking(start_gateway):
    gateway = start_gateway("--kernel-start", "fork", "--pool-size", "0", "--log-level", "debug")
    wait_for_zygote(gateway)
    return gateway


def test_a_forked_kernel_differs_in_nothing(start_gateway, forking):
    by_exec = start_gateway("--kernel-start", "exec", "--pool-size", "0")
    found = {}
    for gateway in (by_exec, forking):
        gateway.create_session(session_id="one")
        lines = gateway.execute(INSIDE, session_id="one")
        assert lines.status == "ok", lines
        found[gateway] = json.loads(lines.text()) | outside(gateway, "one")
    assert forks(forking) == 1 and forks(by_exec) == 0
    differences = {
        name: (found[by_exec].get(name), found[forking].get(name))
        for name in found[by_exec].keys() | found[forking].keys()
        if found[by_exec].get(name) != found[forking].get(name)
    }
    # Each sandbox has its own.
    for name in [name for name in differences if name.startswith("namespace ")]:
        del differences[name]
    assert differences == {}, json.dumps(differences, indent=1)


def test_sessions_share_no_random_numbers(forking):
    """Random values from all common modules, in sessions that one zygote has forked."""
    code = """
import json, multiprocessing, numpy, os, random, secrets, ssl, tempfile, uuid
print(json.dumps([
    random.random(), random.Random().random(), numpy.random.rand(), secrets.token_hex(),
    numpy.random.default_rng().random(), numpy.random.RandomState().rand(),
    str(uuid.uuid1()), str(uuid.uuid4()), tempfile.mktemp(), ssl.RAND_bytes(16).hex(),
    bytes(multiprocessing.current_process().authkey).hex(), os.urandom(8).hex(),
    get_ipython().kernel.ident, get_ipython().kernel.session.session,
]))
"""
    drawn = [json.loads(forking.execute(code).text()) for _ in range(3)]
    assert forks(forking) == 3
    for values in zip(*drawn):
        assert len(set(values)) == 3, values


def test_a_figure_and_a_table_show(forking):
    lines = forking.execute(
        "import matplotlib.pyplot as plt, pandas as pd\nplt.plot([1, 2]); plt.show()\n"
        "pd.DataFrame({'a': [1]})"
    )
    assert lines.status == "ok", lines
    assert lines.of("display")[0]["image"] and "<table" in json.dumps(lines), lines


@pytest.mark.parametrize("way", ["exec", "fork"])
def test_a_debugger_steps_into_packages(start_gateway, way):
    """It shows the cell's frames alone, and steps into pandas: to a user that is no part of the kernel."""
    gateway = start_gateway("--kernel-start", way, "--pool-size", "0", "--jupyter-api")
    if way == "fork":
        wait_for_zygote(gateway)
    with Channels(gateway, start_kernel(gateway)) as channels:
        # It is loaded when it is used.
        assert text(channels.run("import sys; print('debugpy' in sys.modules)")) == "False\n"
        channels.seen.clear()
        code = "import pandas\ntable = pandas.DataFrame()"
        debug = DebugClient(channels)
        cell = debug.break_at(code, 2)
        channels.execute(code)
        thread = debug.stopped_thread()
        assert [frame["source"]["path"] for frame in debug.frames(thread)] == [cell]
        debug.ask("stepIn", threadId=thread)
        files = [frame["source"]["path"] for frame in debug.frames(debug.stopped_thread())]
        assert files[0].endswith("/pandas/core/frame.py") and files[1:] == [cell], files
        debug.ask("disconnect")
        assert text(channels.run("print(len(table))")) == "0\n"
    assert forks(gateway) == (way == "fork")


def test_an_interrupt_and_a_restart(forking):
    """The agent ends and replaces a forked kernel like one that it has started."""
    session_id = forking.create_session(session_id="one")
    lines = forking.execute("while True: pass", session_id=session_id, timeout=1)
    assert lines.status == "timeout" and not lines.done.get("kernel_restarted"), lines
    lines = forking.execute(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        session_id=session_id,
        timeout=1,
    )
    assert lines.done["kernel_restarted"], lines
    assert forking.execute("print(1)", session_id=session_id).text() == "1\n"
    assert forks(forking) == 2
    sandbox = sandbox_of(forking, session_id)
    assert set(sandbox.pids()) == {sandbox.agent, sandbox.kernel()}


def test_a_kernel_that_dies_is_replaced_by_a_fork(forking):
    session_id = forking.create_session(session_id="one")
    forking.execute("open('kept', 'w').close()", session_id=session_id)
    lines = forking.execute("import os; os.kill(os.getpid(), 11)", session_id=session_id)
    assert lines.status == "died" and "signal 11" in json.dumps(lines), lines
    lines = forking.execute("import os; print(os.listdir())", session_id=session_id)
    assert "kept" in lines.text() and forks(forking) == 2


def test_memory_death_is_reported(start_gateway):
    gateway = start_gateway(
        *("--kernel-start", "fork", "--pool-size", "0", "--memory-mb", "256", "--disk-mb", "1")
    )
    wait_for_zygote(gateway)
    session_id = gateway.create_session(session_id="one")
    code = "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1"
    lines = gateway.execute(code, session_id=session_id)
    assert forks(gateway) == 1
    assert lines.status == "died" and lines.one("error")["ename"] == "OutOfMemory", lines
    # What takes its place is forked as well.
    assert gateway.execute("print(1)", session_id=session_id).text() == "1\n"
    assert forks(gateway) == 2


# Those that docs/security.md lists.
NEEDED = "KILL=5 SETGID=6 SETUID=7 SETPCAP=8 SYS_CHROOT=18 SYS_PTRACE=19 SYS_ADMIN=21"


def test_a_zygote_has_no_more_than_it_needs(forking):
    [zygote] = zygotes(forking)
    forking.create_session(session_id="one")
    agent = sandbox_of(forking, "one").agent
    own, proc, agents = (pathlib.Path("/proc", str(pid)) for pid in ("self", zygote, agent))
    allowed = 0
    if os.readlink(agents / "ns/user") == os.readlink(own / "ns/user"):
        allowed = sum(1 << int(word.split("=")[1]) for word in NEEDED.split())
    status = (proc / "status").read_text()
    sets = re.findall(r"^(Cap\w+):\t(\w+)$", status, re.M)
    assert len(sets) == 5
    for name, value in sets:
        assert int(value, 16) & ~allowed == 0, name
    assert "NoNewPrivs:\t1" in status
    for name in ("net", "mnt", "ipc"):
        assert os.readlink(proc / "ns" / name) != os.readlink(own / "ns" / name)
    interfaces = [line.split()[0] for line in (proc / "net/dev").read_text().splitlines()[2:]]
    assert interfaces == ["lo:"]
    names = re.findall(r"KERNELGATE_\w+", (proc / "environ").read_text())
    assert names in ([], ["KERNELGATE_SOCKET"])  # no settings of the gateway
    unified = " cgroup2 " in (own / "mounts").read_text()  # else nothing can be put into its groups
    for line in (proc / "cgroup").read_text().splitlines():
        if unified or not line.startswith("0::"):
            assert line not in (own / "cgroup").read_text().splitlines()


def test_a_burst_is_forked_into_sandboxes_that_wait(start_gateway):
    """Beyond the warm kernels, sessions get the sandboxes that wait without one."""
    gateway = start_gateway(
        *("--kernel-start", "fork", "--pool-size", "1", "--pool-bare", "4", "--max-sessions", "10")
    )

    def full():
        return gateway.pool()["ready"] == 1 and len(pooled(gateway)) == 5

    wait_for(full, timeout=60)
    waiting = {sandbox.id for sandbox in pooled(gateway)}
    assert sum(len(sandbox.pids()) > 1 for sandbox in pooled(gateway)) == 1
    with concurrent.futures.ThreadPoolExecutor(5) as threads:
        runs = [
            threads.submit(gateway.execute, f"print({i})", session_id=f"s{i}") for i in range(5)
        ]
        assert [run.result().text() for run in runs] == [f"{i}\n" for i in range(5)]
    # One of them had a kernel. If the requests come one by one, a place that was filled again may
    # serve a later one.
    assert len({sandbox_of(gateway, f"s{i}").id for i in range(5)} & waiting) > 1
    # The places are filled again.
    wait_for(full, timeout=60)
    # A session with an environment of its own gets one of these, too.
    waiting = {sandbox.id for sandbox in pooled(gateway)}
    gateway.create_session(session_id="own", env={"COLOUR": "blue"})
    assert sandbox_of(gateway, "own").id in waiting
    assert gateway.pool()["ready"] == 1


def test_a_gateway_takes_up_sandboxes_that_wait(start_gateway):
    gateway = start_gateway("--kernel-start", "fork", "--pool-size", "1", "--pool-bare", "2")

    def full():
        return gateway.pool()["ready"] == 1 and len(pooled(gateway)) == 3

    wait_for(full, timeout=60)
    before = {sandbox.id for sandbox in pooled(gateway)}
    gateway.kill()
    gateway.start()
    wait_for(full, timeout=60)
    assert {sandbox.id for sandbox in pooled(gateway)} == before


def test_what_an_environment_changes_is_started_by_exec(forking):
    session_id = forking.create_session(session_id="one", env={"PYTHONHASHSEED": "0"})
    lines = forking.execute("print(hash('a'))", session_id=session_id)
    assert lines.status == "ok" and forks(forking) == 0


def test_packages_of_a_session_come_before_those_of_the_zygote(forking):
    """A restarted kernel imports installed packages, like one started by exec."""
    session_id = forking.create_session(session_id="one")
    folder = "/mnt/data/.kg-packages"
    forking.execute(
        f"import os; os.mkdir('{folder}'); open('{folder}/numpy.py', 'w').write('mine = 1')",
        session_id=session_id,
    )
    response = forking.client.post(f"/api/v1/sessions/{session_id}/restart")
    assert response.status_code == 200, response.text
    assert forking.execute("import numpy; print(numpy.mine)", session_id=session_id).text() == "1\n"


def test_settings_of_a_session_are_read(forking):
    """By a restarted kernel, although the zygote has read the settings of all."""
    session_id = forking.create_session(session_id="one")
    folder = "/tmp/.ipython/profile_default"
    forking.execute(
        f"open('{folder}/ipython_config.py', 'w').write('get_config().InteractiveShell.ast_node_interactivity = \"all\"')",
        session_id=session_id,
    )
    response = forking.client.post(f"/api/v1/sessions/{session_id}/restart")
    assert response.status_code == 200, response.text
    lines = forking.execute("get_ipython().ast_node_interactivity", session_id=session_id)
    assert lines.one("result")["text"] == "'all'", lines


def test_without_a_zygote_kernels_start_by_exec(forking):
    [zygote] = zygotes(forking)
    os.kill(zygote, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        lines = threads.submit(forking.execute, "print(1)", session_id="one")
        wait_for(lambda: "is asked to fork" in forking.log())
        kill(zygote)
        assert lines.result().text() == "1\n"
    assert forks(forking) == 0
    wait_for_zygote(forking, times=2)
    assert forking.execute("print(2)", session_id="two").text() == "2\n"
    assert forks(forking) == 1


@pytest.mark.once
def test_a_zygote_that_hangs(forking):
    """It is replaced when it has not answered for 20 s, and the kernel is started by exec."""
    os.kill(zygotes(forking)[0], signal.SIGSTOP)
    assert forking.execute("print(1)", session_id="one").text() == "1\n"
    assert "the zygote did not answer in time" in forking.log() and forks(forking) == 0
    wait_for_zygote(forking, times=2)
    assert forking.execute("print(2)", session_id="two").text() == "2\n"
    assert forks(forking) == 1


ZYGOTE = "import kernelgate_zygote as zygote; zygote.REHEARSAL_SECONDS = 5; zygote.main()"
NO_ZYGOTES = [
    (
        {"prepare": "kernelgate_forked_app.missing"},
        "1",
        "AttributeError: module 'kernelgate_forked_app' has no attribute 'missing'",
    ),
    ({}, "import os; os._exit(1)", "the rehearsal has failed: its process has ended"),
    (
        {"argv": ["/opt/kernelgate/python/bin/python", "-c", ZYGOTE]},
        "import time; time.sleep(1000)",
        "TimeoutError: execute_request took more than 5 s; it is in",
    ),
]


@pytest.mark.parametrize("zygote, warmup, reason", NO_ZYGOTES)
def test_a_zygote_that_cannot_be_prepared(start_gateway, tmp_path, zygote, warmup, reason):
    """Kernels are started by exec, and the log has the reason."""
    shutil.copytree(PROJECT / "kernelspec/python", tmp_path / "python")
    path = tmp_path / "python/kernel.json"
    spec = json.loads(path.read_text())
    spec["metadata"]["kernelgate"]["warmup"] = warmup
    spec["metadata"]["kernelgate"]["zygote"] |= zygote
    path.write_text(json.dumps(spec))
    gateway = start_gateway(
        *("--kernel-start", "fork", "--pool-size", "0", "--kernelspec-dir", str(tmp_path))
    )
    wait_for(lambda: reason in gateway.log(), timeout=60)
    assert gateway.execute("print(1)").text() == "1\n" and forks(gateway) == 0


def test_a_gateway_that_is_killed_leaves_no_zygote(forking):
    [zygote] = zygotes(forking)
    forking.execute("x = 1", session_id="one")
    forking.kill()
    wait_for(lambda: not lives(zygote))
    forking.start()
    assert forking.execute("print(x)", session_id="one").text() == "1\n"
    wait_for(lambda: len(zygotes(forking)) == 1)


def test_a_kernel_that_comes_in_unannounced_ends(forking):
    """A gateway is killed before it can say to the agent who has come in."""
    session_id = forking.create_session(session_id="one")
    forking.execute("1", session_id=session_id)
    [zygote] = zygotes(forking)
    sandbox = sandbox_of(forking, session_id)
    os.kill(zygote, signal.SIGSTOP)
    asked = forking.log().count("is asked to fork")

    def restart():
        with contextlib.suppress(httpx.HTTPError):
            forking.client.post(f"/api/v1/sessions/{session_id}/restart")

    def came_in():
        with contextlib.suppress(ValueError):
            return sandbox.kernel()

    restarting = threading.Thread(target=restart)
    restarting.start()
    wait_for(lambda: forking.log().count("is asked to fork") > asked)
    forking.signal(signal.SIGSTOP)
    try:
        os.kill(zygote, signal.SIGCONT)
        stranger = wait_for(came_in)
    finally:
        forking.kill()
    restarting.join()
    assert lives(stranger)
    forking.start()
    assert forking.execute("print(1)", session_id=session_id).text() == "1\n"
    assert not lives(stranger)
    assert set(sandbox.pids()) == {sandbox.agent, sandbox.kernel()}


def test_children_are_reaped(forking):
    """Forks leave no processes other than the kernels, and no zombies."""
    [zygote] = zygotes(forking)
    for number in range(5):
        forking.execute("1", session_id=f"s{number}")
    wait_for(lambda: children_of(zygote) == [])
    for number in range(5):
        sandbox = sandbox_of(forking, f"s{number}")
        assert set(sandbox.pids()) == {sandbox.agent, sandbox.kernel()}


def test_a_kernelspec_of_ones_own(start_gateway, tmp_path):
    """A tiny one as docs/kernelspecs.md has it, beside the project's: each has a zygote of its own, and a
    session's second kernel is forked as the first, also when both are restarted."""
    python = "/opt/kernelgate/python/bin/python"
    tiny = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Tiny",
        "language": "python",
        "metadata": {
            "kernelgate": {
                "warmup": "import csv",
                "zygote": {"argv": [python, "-m", "kernelgate_zygote"]},
            }
        },
    }
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/kernel.json").write_text(json.dumps(tiny))
    shutil.copytree(PROJECT / "kernelspec/python", tmp_path / "python")
    gateway = start_gateway(
        *("--kernel-start", "fork", "--pool-size", "0", "--kernelspec-dir", str(tmp_path))
    )
    wait_for_zygote(gateway, times=2)
    code = "import sys; print('csv' in sys.modules, 'pandas' in sys.modules)"
    loaded = {"tiny": "True False\n", "python": "True True\n"}
    for times in (1, 2):
        for kernel, modules in loaded.items():
            lines = gateway.execute(code, session_id="one", kernel=kernel)
            assert lines.text() == modules, lines
        assert forks(gateway) == 2 * times and len(zygotes(gateway)) == 2
        response = gateway.client.post("/api/v1/sessions/one/restart")
        assert response.status_code == 200, response.text


def test_many_forks_and_ends(forking):
    """Nothing grows with them, and nothing of them is left. KERNELGATE_FORKS sets how many."""
    times = int(os.environ.get("KERNELGATE_FORKS", "30"))
    [zygote] = zygotes(forking)

    def run(times):
        for _ in range(times):
            assert forking.execute("1").status == "ok"
        wait_for(lambda: sandboxes(forking) == [] and children_of(zygote) == [])

    def sizes():
        """The zygote's memory in MiB and descriptors, and the gateway's descriptors."""
        status = pathlib.Path(f"/proc/{zygote}/status").read_text()
        memory = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024
        return memory, len(os.listdir(f"/proc/{zygote}/fd")), forking.open_files()

    run(5)
    memory, files, files_of_gateway = sizes()
    run(times - 5)
    assert forks(forking) == times and zygotes(forking) == [zygote]
    # Those of the gateway were counted while it may still have had the last kernel's sockets open.
    wait_for(lambda: sizes()[1] == files and sizes()[2] <= files_of_gateway)
    assert sizes()[0] <= memory + 1


# Forks again and again, until the sandbox has no room for another process.
FILLER = """
import os, time
while True:
    try: os.fork() or time.sleep(1000)
    except OSError: time.sleep(0.001)
"""


def test_a_sandbox_without_room_for_a_process(start_gateway):
    """A kernel cannot be started there, neither by fork nor by exec, until there is room again."""
    gateway = start_gateway("--kernel-start", "fork", "--pool-size", "0", "--pids", "24")
    wait_for_zygote(gateway)
    session_id = gateway.create_session(session_id="one")
    gateway.execute("1", session_id=session_id)
    url = f"/api/v1/sessions/{session_id}"
    command = f"/opt/kernelgate/python/bin/python -c '{FILLER}'"
    with gateway.client.stream("POST", f"{url}/commands", json={"command": command}) as response:
        assert response.status_code == 200, response.read()
        wait_for(
            lambda: gateway.execute("import os; os.fork()", session_id=session_id).status == "error"
        )
        restart = gateway.client.post(f"{url}/restart")
        assert restart.status_code >= 400 and restart.json()["detail"], restart.text
        assert gateway.execute("print(2)", session_id="two").text() == "2\n"
    wait_for(lambda: gateway.execute("print(1)", session_id=session_id).status == "ok")
    sandbox = sandbox_of(gateway, session_id)
    wait_for(lambda: set(sandbox.pids()) == {sandbox.agent, sandbox.kernel()})
