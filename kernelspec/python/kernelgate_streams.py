# SPDX-License-Identifier: Apache-2.0
"""A kernel's stdout and stderr: complete text files, and what is written to their descriptors."""

import atexit
import codecs
import contextlib
import fcntl
import io
import os
import select
import sys
import threading
import time

import zmq
from ipykernel import iostream
from zmq.eventloop.zmqstream import ZMQStream

# Size limit of one message, however much is printed in 0.2 seconds. Other users of the gateway wait for
# one piece at a time; larger pieces also cost more per byte, because they exceed the caches.
_PIECE_CHARS = 24 * 1024
# Limit on printed text that has not been passed to the socket: a flood is sent in bursts of this size.
_UNSENT_CHARS = 24 * 1024
# What code that holds the interpreter's lock can write to a descriptor before it waits for its reader,
# which needs that lock. Linux gives no user more without a privilege.
_PIPE_BYTES = 1024 * 1024

# How long a flush waits for what writes to the kernel's sockets.
_SENDERS_S = 1

_BYTES = (bytes, bytearray, memoryview)


# ---- What forks of the kernel print ---------------------------------------------------------

# ipykernel listens for it on a TCP port of loopback, which looks like a server that code has started.


def _listen_for_forks(thread):
    thread._pipe_uuid = os.urandom(16)
    thread._pipe_address = f"ipc://@kernelgate-{os.urandom(16).hex()}"
    pipe = thread.socket.context.socket(zmq.PULL)
    pipe.linger = 0
    pipe.bind(thread._pipe_address)
    thread._pipe_in = ZMQStream(pipe, thread.io_loop)
    thread._pipe_in.on_recv(thread._handle_pipe_msg)


def _connect_fork(thread):
    context = zmq.Context()  # a fork needs one of its own
    pipe = context.socket(zmq.PUSH)
    pipe.linger = 3000
    pipe.connect(thread._pipe_address)
    return context, pipe


iostream.IOPubThread._setup_pipe_in = _listen_for_forks
iostream.IOPubThread._setup_pipe_out = _connect_fork


# ---- Streams --------------------------------------------------------------------------------


class _Buffer(io.RawIOBase):
    """The bytes of a stream: what `sys.stdout.buffer` is."""

    mode = "wb"

    def __init__(self, stream):
        self._stream = stream
        self._decoder = _decoder()
        self.name = f"<{stream.name}>"
        self.raw = self

    def write(self, data):
        view = memoryview(data).cast("B")
        self._stream.write(self._decoder.decode(view))
        return len(view)

    def flush(self):
        if not self._stream.closed:
            self._stream.flush()

    def writable(self):
        return True

    def fileno(self):
        return self._stream.fileno()

    def close(self):
        """A TextIOWrapper closes its buffer when it is collected; the stream outlives that."""


class _Senders:
    """ZeroMQ's threads, which write what sockets send. What they have not written yet is lost with the process.

    A message to ourselves goes by the same thread, and comes back after it has seen what was sent before. Of
    large messages it may have written a part only: it sleeps when it has written everything, or as much as the
    system takes. (gVisor also says that it sleeps where it is about to run, so that alone is not enough.)
    """

    _pid = None
    _files = ()

    def __init__(self):
        self._lock = threading.Lock()

    def wait(self, context):
        end = time.monotonic() + _SENDERS_S
        with self._lock:
            if self._pid != os.getpid():
                for file in self._files:
                    with contextlib.suppress(OSError):
                        os.close(file)
                self._pid, self._files = os.getpid(), list(self._open())
                self._connect(context)
            self._here.send(b"")
            if self._there.poll(_SENDERS_S * 1000):
                self._there.recv()
        while any(map(_runs, self._files)) and time.monotonic() < end:
            time.sleep(0.0001)

    def _connect(self, context):
        """The sockets of a process that has forked are left to it."""
        self._here, self._there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        address = f"ipc://@kernelgate-{os.getpid()}-{os.urandom(8).hex()}"
        self._here.bind(address)
        self._there.connect(address)
        for socket in (self._here, self._there):
            socket.linger = 0
            atexit.register(socket.close)  # the kernel ends its context, which waits for that

    def _open(self):
        folder = "/proc/self/task"
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/comm") as comm:
                if comm.read().startswith("ZMQbg/IO"):
                    yield os.open(f"{folder}/{task}/stat", os.O_RDONLY | os.O_CLOEXEC)


def _runs(file):
    """Whether a thread runs or is about to, by the third field of its `stat`."""
    return os.pread(file, 256, 0).rpartition(b") ")[2][:1] == b"R"


class OutStream(iostream.OutStream):
    """Sends printed text in pieces, and waits if it is printed faster than it is read.

    What anything writes to the descriptor comes through a pipe. It is taken over before anything else is
    printed or shown, so it is in order with what this process prints.
    """

    encoding = "utf-8"
    errors = "replace"
    newlines = None
    mode = "w"
    line_buffering = False
    write_through = False
    is_lent = False  # to the user's code: what that has flushed is seen even if the kernel dies
    _senders = _Senders()

    def __init__(self, session, pub_thread, name, *args, **options):
        # When its queue is full, the socket blocks its thread instead of dropping messages silently.
        pub_thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._unsent_chars = 0
        self._forks_text = ""  # lines of several processes are not mixed
        self._is_closed = self._is_sending = self._is_unwaited = False
        super().__init__(session, pub_thread, name, *args, **options)
        self.buffer = _Buffer(self)

    # ---- The descriptor

    def _setup_stream_redirects(self, name):
        self._decoder = _decoder()
        self._take_lock = threading.RLock()
        self._fid, self._pipe = os.pipe()
        with contextlib.suppress(OSError):  # a user may have only so many large pipes
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._written = self._poll()
        self._original_stdstream_fd = getattr(sys, name).fileno()
        self._original_stdstream_copy = os.dup(self._original_stdstream_fd)
        os.dup2(self._pipe, self._original_stdstream_fd)
        self.watch_fd_thread = threading.Thread(target=self._watch_pipe_fd, daemon=True)
        self.watch_fd_thread.start()

    def _poll(self):
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        return poll

    def _watch_pipe_fd(self):
        # ipykernel 7.x decodes each 1,000 bytes for themselves, which cuts characters.
        written = self._poll()
        while written.poll():
            self._take()
            self._limit()

    def _take(self):
        """Takes over what has been written to the descriptor."""
        if not self._should_watch:
            return
        with self._take_lock:
            if self._written.poll(0):
                data = os.read(self._fid, _PIPE_BYTES)
                self._append(self._decoder.decode(data))
                # The gateway has the last words of a kernel that cannot speak for itself.
                os.write(self._original_stdstream_copy, data)

    def repair(self):
        """Undoes what code may have done to the stream, unless it has replaced its descriptor."""
        self._is_closed = False
        try:
            os.fstat(self._original_stdstream_fd)
        except OSError:
            os.dup2(self._pipe, self._original_stdstream_fd)

    # ---- The text file

    def write(self, string):
        if self._is_closed:
            raise ValueError("I/O operation on closed file.")
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        if not self._is_master_process():
            self._forks_text += string
            if "\n" in string:
                self.flush()
            return len(string)
        self._take()
        self._append(string)
        if self.write_through or (self.line_buffering and "\n" in string):
            self.flush()
        else:
            self._limit()
        return len(string)

    def _append(self, string):
        self._unsent_chars += len(string)
        super().write(string)

    def _limit(self):
        if self._unsent_chars > _UNSENT_CHARS:
            super().flush()

    def flush(self):
        if self._is_master_process():
            self._take()
            # To wait for the sending thread costs more than to print.
            if self._buffers or self._is_sending or self._is_unwaited:
                super().flush()
                if self.is_lent:
                    self._wait_until_sent()
            return
        # A fork has the pipe, too. ipykernel 7.x makes a TCP connection for each of its texts.
        text, self._forks_text = self._forks_text, ""
        _write_all(self._original_stdstream_fd, text.encode("utf-8", "replace"))

    def _wait_until_sent(self):
        """Until the system has what was printed, which nobody can lose then, even if the process is killed."""
        sent = threading.Event()
        self._is_unwaited = False
        self.pub_thread.schedule(sent.set)  # ipykernel 7.x sends after it has said that it has flushed
        sent.wait(_SENDERS_S)
        with contextlib.suppress(OSError, zmq.ZMQError):
            self._senders.wait(self.pub_thread.socket.context)

    def _flush(self):
        if not self._is_master_process():
            return  # it has a copy of what the kernel will print itself
        self._is_sending = True
        try:
            super()._flush()
        finally:
            self._is_unwaited = True  # its thread may have sent what nobody waits for
            self._is_sending = False

    def _flush_buffers(self):
        self._unsent_chars = 0
        for parent, text in super()._flush_buffers():
            for start in range(0, len(text), _PIECE_CHARS):
                yield parent, text[start : start + _PIECE_CHARS]

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def fileno(self):
        return self._original_stdstream_fd

    def reconfigure(
        self, *, encoding=None, errors=None, newline=None, line_buffering=None, write_through=None
    ):
        """Messages carry Unicode text, so its encoding is not needed."""
        if line_buffering is not None:
            self.line_buffering = bool(line_buffering)
        if write_through is not None:
            self.write_through = bool(write_through)

    def detach(self):
        return self.buffer

    @property
    def closed(self):
        return self._is_closed

    def close(self):
        """Closes it for the running code; repair() opens it again."""
        self._is_closed = True


class StandardFiles:
    """What `sys` has as stdin, stdout and stderr: the kernel's own, or those that code has put there.

    The user's are there only while code runs, so that whatever they do, the kernel can work.
    """

    _names = ("stdin", "stdout", "stderr")

    def __init__(self, stdout, stderr):
        self._own = {"stdin": sys.stdin, "stdout": stdout, "stderr": stderr}
        self._users = {}

    def take_over(self, old):
        """What code has put there, from the files of the process that was forked."""
        self._users = {
            name: file for name, file in old._users.items() if file is not old._own[name]
        }

    def _streams(self):
        return self._own["stdout"], self._own["stderr"]

    def _lend(self, is_lent):
        for stream in self._streams():
            stream.is_lent = is_lent

    def give(self):
        """Before code runs."""
        for stream in self._streams():
            stream.repair()
        self._lend(True)
        for name, file in self._own.items():
            users = self._users.get(name)
            setattr(sys, name, users if _works(name, users) else file)

    def take(self):
        """After it has run. Everything that it has printed is on its way."""
        self._lend(False)
        self._users = {name: getattr(sys, name, None) for name in self._names}
        for file in (*self._users.values(), sys.__stdout__, sys.__stderr__):
            _flush(file)
        for name, file in self._own.items():
            setattr(sys, name, file)
        self.flush()

    @contextlib.contextmanager
    def lent(self):
        """For what the kernel does while code runs."""
        was_lent = self._own["stdout"].is_lent
        self._lend(False)
        users = {name: getattr(sys, name, None) for name in self._names}
        for file in users.values():
            _flush(file)
        for name, file in self._own.items():
            setattr(sys, name, file)
        try:
            yield
        finally:
            for name, file in users.items():
                setattr(sys, name, file)
            self._lend(was_lent)

    def flush(self):
        for stream in self._streams():
            stream.repair()
            stream.flush()


def _works(name, file):
    method = "readline" if name == "stdin" else "write"
    try:
        return callable(getattr(file, method, None)) and getattr(file, "closed", False) is not True
    except BaseException:
        return False


def _flush(file):
    try:
        if file is not None and file is not sys.__stdin__:
            file.flush()
    except BaseException:
        pass  # it may be anything


def _decoder():
    return codecs.getincrementaldecoder("utf-8")("replace")


def _write_all(descriptor, data):
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
