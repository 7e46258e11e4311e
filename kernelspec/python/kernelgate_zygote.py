# SPDX-License-Identifier: Apache-2.0
"""A warm Python process that forks kernels into sandboxes: a zygote.

    python -m kernelgate_zygote [anything]

The gateway's helper starts it in a container of its own, with the root and the mounts of a sandbox, the
environment of a kernel, and the privileges that its children need to enter sandboxes. It imports what
a kernel imports, and forks. It runs trusted code only, and nothing that a sandbox or the gateway says
reaches it: so it does not see packages, which the gateway writes.

The kernel's module (`-m MODULE` in the kernelspec's argv) runs in the fork as `python -m` would run
it. The rest of the argument list only makes room for the fork's own command line.
"""

import builtins
import ctypes
import errno
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import types

DOOR = "/run/kg/door.sock"
MESSAGE_MAX = 256 * 1024
MAX_DESCRIPTORS = 32
REHEARSAL_SECONDS = 60
REPORT_SECONDS = 10
LOOK_MS = 50
SANDBOX_USER = 1000

# A typical first cell: it imports what nearly every session imports, and shows results in all ways.
TYPICAL_CELL = """
import sys
print("out"); print("error", file=sys.stderr)
try:
    1 / 0
except ZeroDivisionError:
    get_ipython().showtraceback()
1
"""


class _Spec(ctypes.Structure):
    """struct enter_spec of enter.h."""

    _fields_ = [
        ("pidfd", ctypes.c_int),
        ("groups", ctypes.POINTER(ctypes.c_int)),
        ("n_groups", ctypes.c_size_t),
        ("user_namespace", ctypes.c_int),
        ("folder", ctypes.c_char_p),
        ("output", ctypes.c_char_p),
        ("filter", ctypes.c_char_p),
        ("filter_len", ctypes.c_uint),
        ("user", ctypes.c_uint),
    ]


class Channel:
    """The connection with the helper: one JSON document in each packet, with descriptors."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(DOOR)

    def receive(self):
        """The next message and its descriptors; the process ends if the helper has ended."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, MESSAGE_MAX, MAX_DESCRIPTORS)
        if not data:
            os._exit(0)
        return json.loads(data), descriptors

    def send(self, message):
        self._socket.send(json.dumps(message).encode())

    def fileno(self):
        return self._socket.fileno()

    def forget(self):
        """In a fork, where the descriptor was closed: another file may have its number by now."""
        self._socket.detach()


class Library:
    """The C library that forks into sandboxes; see enter.h."""

    def __init__(self, descriptor, filter_descriptor):
        # A copy in memory: the library's file may be on a file system mounted with noexec, and its path
        # on the machine would be visible in /proc/self/maps of every kernel.
        copy = os.memfd_create("kernelgate-enter")
        _write_all(copy, _content(descriptor))
        self._library = ctypes.PyDLL(f"/proc/self/fd/{copy}", use_errno=True)
        os.close(copy)
        self._library.enter_step_name.restype = ctypes.c_char_p
        self._filter = _content(filter_descriptor)
        if self._library.enter_prepare() != 0:
            raise OSError("this Python cannot be forked from a library")

    def fork(self, request, descriptors):
        """Returns (0, -1) in the child, in its sandbox; here the entrant's process id, and the
        descriptor of its report."""
        spec = _Spec(
            pidfd=descriptors[0],
            groups=(ctypes.c_int * (len(descriptors) - 1))(*descriptors[1:]),
            n_groups=len(descriptors) - 1,
            user_namespace=request["user_namespace"],
            folder=request["folder"].encode(),
            output=request["output"].encode(),
            filter=self._filter,
            filter_len=len(self._filter) // 8,
            user=SANDBOX_USER,
        )
        report = ctypes.c_int(-1)
        pid = self._library.enter_fork(ctypes.byref(spec), ctypes.byref(report))
        if pid < 0:
            raise OSError(ctypes.get_errno(), "cannot fork")
        return pid, report.value

    def read_report(self, descriptor):
        """The members of the answer to a request."""
        data = os.read(descriptor, 12)
        if len(data) != 12:
            return {"error": "has lost its child"}
        pid, step, number = struct.unpack("=iii", data)
        if pid > 0:
            return {"pid": pid}
        name = self._library.enter_step_name(step).decode()
        return {"error": f"cannot {name}: {os.strerror(number)}"}


def _content(descriptor):
    """The content of a file whose offset is shared with other processes; closes the descriptor."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    return content


class Program:
    """The module that a kernel's argv runs, found and compiled once for all forks."""

    def __init__(self, argv):
        at = argv.index("-m")
        name, self.arguments = argv[at + 1], argv[at + 2 :]
        self._argv = argv
        self._spec = importlib.util.find_spec(name)
        if self._spec and self._spec.submodule_search_locations is not None:  # a package
            self._spec = importlib.util.find_spec(f"{name}.__main__")
        if not self._spec:
            raise ImportError(f"{name} cannot be run", name=name)
        self._code = self._spec.loader.get_code(self._spec.name)
        self._module = types.ModuleType("__main__")
        self._module.__spec__, self._module.__loader__ = self._spec, self._spec.loader
        self._module.__file__, self._module.__cached__ = self._spec.origin, self._spec.cached
        self._module.__package__ = self._spec.parent
        self._module.__builtins__ = builtins

    def run(self, connection_file):
        """Does what `python -m MODULE …` does after its start."""

        def completed(parts):
            return [part.replace("{connection_file}", connection_file) for part in parts]

        sys.argv = [self._spec.origin, *completed(self.arguments)]
        sys.orig_argv = completed(self._argv)
        sys.path.insert(0, os.getcwd())
        sys.modules["__main__"] = self._module
        exec(self._code, vars(self._module))


def _read_all(descriptor):
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _write_all(descriptor, data):
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


# ---- Before the first fork ------------------------------------------------------------------


def _loaded():
    """The modules that can be imported again elsewhere. Other names of theirs come with an import."""
    specs = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
    return [name for name, spec in specs.items() if spec and spec.name == name != "__main__"]


def _files():
    """The files of all modules, by their names; None for those that have none."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.copy().items()}
    return {name: file if isinstance(file, str) else None for name, file in files.items()}


def _import_all(names, late):
    """Returns how many could not be imported: those exist only inside a kernel."""
    failed = 0
    for name in names:
        if name in sys.modules or any(name == each or name.startswith(each + ".") for each in late):
            continue
        try:
            importlib.import_module(name)
        except Exception:
            failed += 1
    return failed


def _rehearse(hello, program):
    """Starts a kernel in a child, and runs cells in it. Returns the names of the modules that were then
    loaded, and the files of those that were loaded when the kernel was ready, by their names."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _end_with_report(write_end, _be_rehearsed, hello, program, write_end)
    os.close(write_end)
    text = _read_all(read_end)
    os.waitpid(pid, 0)
    report = json.loads(text) if text else {"error": "its process has ended"}
    if "error" in report:
        raise RuntimeError(f"the rehearsal has failed: {report['error']}")
    return report["loaded"], report["started"]


def _end_with_report(write_end, part, *args):
    """Plays a part of the rehearsal, and ends its process with what the part returns or fails with."""
    try:
        try:
            report = part(*args)
        except BaseException as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        _write_all(write_end, json.dumps(report).encode())
    finally:
        os._exit(0)


def _be_rehearsed(hello, program, write_end):
    import tempfile
    import threading

    signal.alarm(REHEARSAL_SECONDS + 5)  # if not even the client can go on
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    folder = tempfile.mkdtemp()
    connection = {
        "transport": "ipc",
        "ip": os.path.join(folder, "k"),
        "key": "rehearsal",
        "signature_scheme": "hmac-sha256",
        "kernel_name": "rehearsal",
    }
    ports = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
    connection |= {f"{channel}_port": port for channel, port in ports.items()}
    path = os.path.join(folder, "connection.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(connection, file)
    cells = [cell for cell in (hello.get("warmup"), TYPICAL_CELL) if cell]
    client = (write_end, _be_client, connection, cells)
    threading.Thread(target=_end_with_report, args=client, daemon=True).start()
    program.run(path)
    return {"error": "its kernel has ended"}


def _be_client(connection, cells):
    """Runs the cells, and reports the modules."""
    import threading

    import zmq
    from jupyter_client.session import Session

    end = time.monotonic() + REHEARSAL_SECONDS
    session = Session(key=connection["key"].encode())
    context = zmq.Context()
    shell = context.socket(zmq.DEALER)
    shell.connect(f"ipc://{connection['ip']}-{connection['shell_port']}")
    iopub = context.socket(zmq.SUB)
    iopub.subscribe(b"")
    iopub.connect(f"ipc://{connection['ip']}-{connection['iopub_port']}")
    requests = [("kernel_info_request", {})]
    requests += [
        ("execute_request", {"code": cell, "silent": False, "allow_stdin": False}) for cell in cells
    ]
    report = {}
    for kind, content in requests:
        session.send(shell, kind, content)
        if not shell.poll(max(0, end - time.monotonic()) * 1000):
            frame = sys._current_frames()[threading.main_thread().ident]
            where = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
            raise TimeoutError(f"{kind} took more than {REHEARSAL_SECONDS} s; it is in {where}")
        shell.recv_multipart()
        if not report:
            report["started"] = _files()
    report["loaded"] = _loaded()
    return report


def _function(name):
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def _threads():
    return len(os.listdir("/proc/self/task"))


def _end_threads():
    """OpenBLAS, for example, ends its threads at a fork, and starts them again when needed."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _forget_other_folders():
    """Only the interpreter's own folders are alike in the zygote and in the sandboxes."""
    for path in list(sys.path_importer_cache):
        if not path.startswith((sys.prefix, sys.base_prefix)):
            del sys.path_importer_cache[path]


def prepare(hello, program):
    """Does what is alike in all kernels, and keeps the garbage collector away from it: imports what a
    kernel and a first cell load, and calls the kernelspec's own function."""
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    late = hello.get("late", [])
    names, started = _rehearse(hello, program)
    failed = _import_all(names, late)
    if "prepare" in hello:
        _function(hello["prepare"])(program.arguments, started)
    renew_randomness()  # so that in the forks it finds its caches filled
    if _threads() > 1:
        _end_threads()
    _forget_other_folders()
    gc.disable()
    gc.collect()
    gc.freeze()
    return len(names) - failed


# ---- In a fork ------------------------------------------------------------------------------


class CommandLine:
    """The memory that /proc/self/cmdline shows."""

    def __init__(self):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self._start, self._end = int(fields[45]), int(fields[46])  # arg_start, arg_end

    def set(self, argv):
        size = self._end - self._start
        text = b"".join(os.fsencode(part) + b"\0" for part in argv)[:size]
        if self._start and size > 0:
            ctypes.memmove(self._start, text.ljust(size, b"\0"), size)


def renew_randomness():
    """Seeds the generators that neither Python nor libcrypto seeds again after a fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # of the functions without a generator
    if "tempfile" in sys.modules:
        sys.modules["tempfile"]._name_sequence = None
    if "uuid" in sys.modules:
        sys.modules["uuid"]._node = sys.modules["uuid"]._last_timestamp = None
    if "multiprocessing.process" in sys.modules:
        key = sys.modules["multiprocessing.process"].AuthenticationString(os.urandom(32))
        sys.modules["multiprocessing.process"].current_process()._config["authkey"] = key
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)


def _has_packages_of_its_own():
    """Whether the session has installed packages: imported modules may be other versions of them."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return any(folder.startswith("/mnt/") and os.path.exists(folder) for folder in folders)


def become_kernel(hello, request, command_line, program):
    argv = [part.replace("{connection_file}", request["connection_file"]) for part in hello["argv"]]
    if _has_packages_of_its_own():
        os.execv(argv[0], argv)
    command_line.set(argv)
    renew_randomness()
    gc.enable()
    program.run(request["connection_file"])


class Entrants:
    """Children that are entering sandboxes. Their reports are awaited together."""

    def __init__(self, channel, library):
        self._channel = channel
        self._library = library
        self._reports = {}  # descriptor: (id of the request, process id, deadline)
        self._ended = set()  # process ids of children that have reported and must be reaped

    def add(self, number, pid, report):
        self._reports[report] = (number, pid, time.monotonic() + REPORT_SECONDS)

    def wait(self):
        """Waits for a request, and deals with reports meanwhile."""
        while True:
            poll = select.poll()
            for descriptor in (self._channel.fileno(), *self._reports):
                poll.register(descriptor, select.POLLIN)
            busy = self._reports or self._ended
            ready = [descriptor for descriptor, _ in poll.poll(LOOK_MS if busy else None)]
            for descriptor in ready:
                if descriptor in self._reports:
                    self._answer(descriptor, self._library.read_report(descriptor))
            self._give_up()
            self._reap()
            if self._channel.fileno() in ready:
                return

    def _answer(self, report, members):
        number, pid, _ = self._reports.pop(report)
        os.close(report)
        self._ended.add(pid)
        self._channel.send({"id": number, **members})

    def _give_up(self):
        now = time.monotonic()
        for report, (_, pid, deadline) in list(self._reports.items()):
            if deadline < now:
                os.kill(pid, signal.SIGKILL)
                self._answer(report, {"error": "got no report of its child in time"})

    def _reap(self):
        for pid in list(self._ended):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._ended.remove(pid)


def serve(channel, library):
    """Forks for each request. Returns in a fork, with its request."""
    entrants = Entrants(channel, library)
    while True:
        entrants.wait()
        request, descriptors = channel.receive()
        try:
            if _threads() != 1:
                raise OSError(errno.EBUSY, f"has {_threads()} threads")
            pid, report = library.fork(request, descriptors)
        except OSError as error:
            channel.send({"id": request["id"], "error": str(error)})
        else:
            if pid == 0:
                channel.forget()
                return request
            entrants.add(request["id"], pid, report)
        for descriptor in descriptors:
            os.close(descriptor)


def main():
    started = time.monotonic()
    channel = Channel()
    hello, descriptors = channel.receive()
    try:
        command_line = CommandLine()
        library = Library(*descriptors)
        program = Program(hello["argv"])
        modules = prepare(hello, program)
        if _threads() != 1:
            raise OSError(errno.EBUSY, f"{_threads()} threads are left after the imports")
    except Exception as error:
        channel.send({"error": f"{type(error).__name__}: {error}"})
        raise
    channel.send({"ready": modules, "milliseconds": int((time.monotonic() - started) * 1000)})
    request = serve(channel, library)
    become_kernel(hello, request, command_line, program)


if __name__ == "__main__":
    main()
