# SPDX-License-Identifier: Apache-2.0
"""Code for a sandbox that makes one kind of Linux's objects in bulk, and keeps them."""

PRELUDE = r"""
import array, ctypes, errno, fcntl, gc, mmap, os, select, signal, socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
kept, children = [], []
ENOUGH_SECONDS = 6

def system(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def repeat(make, limit=10**6):
    # Until Linux refuses one, or there are enough.
    end, n = time.monotonic() + ENOUGH_SECONDS, 0
    try:
        while n < limit and (n % 64 or time.monotonic() < end):
            kept.append(make())
            n += 1
    except (OSError, MemoryError):
        pass
    return n

def spread(make, processes=40, limit=10**6):
    # In many processes, as each has its own limits.
    gc.freeze()
    total = 0
    for _ in range(processes):
        reader, writer = os.pipe()
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            os.close(reader)
            try:
                os.write(writer, b"%d\n" % repeat(make, limit))
                os.close(writer)
                while True: signal.pause()
            finally:
                os._exit(0)
        os.close(writer)
        children.append((child, reader))
        if len(children) % 4 == 0:
            total += collect()
    return total + collect()

def collect():
    # What the children have made that have not said so yet.
    total = 0
    while children:
        reader = children.pop()[1]
        total += int(os.read(reader, 64) or 0)
        os.close(reader)
    return total

def fill(send, piece):
    # Until a queue is full.
    total = 0
    try:
        for _ in range(10000): total += send(piece)
    except OSError:
        pass
    return total

def bounded(a_socket):
    a_socket.setblocking(False)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        try: a_socket.setsockopt(socket.SOL_SOCKET, option, 1 << 23)
        except OSError: pass
    return a_socket

FAMILIES = {name: family for name, family in (
    ("unix", 1), ("inet", 2), ("inet6", 10), ("netlink", 16))}
def allowed_sockets():
    # All families, types and protocols that a sandbox may have.
    found = []
    for family in range(46):
        for kind in range(1, 11):
            for protocol in (*range(24), 132, 136, 255, 262):
                try: socket.socket(family, kind, protocol).close()
                except OSError: continue
                found.append((family, kind, protocol))
    return found
"""

# Each prints how many there are.
KINDS = {
    "idle sockets of every kind": r"""
kinds = allowed_sockets()
def one(state=[0]):
    state[0] += 1
    return socket.socket(*kinds[state[0] % len(kinds)])
print(spread(one), kinds)
""",
    "answers of netlink": r"""
request = struct.pack("=IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0)
def one():
    a_socket = bounded(socket.socket(16, 3, 0))
    fill(a_socket.send, request)
    return a_socket
print(repeat(one, 4000))
""",
    "queues of UDP": r"""
def one():
    a_socket = bounded(socket.socket(2, 2)); a_socket.bind(("127.0.0.1", 0))
    a_socket.connect(a_socket.getsockname())
    fill(a_socket.send, bytes(60000))
    return a_socket
print(repeat(one, 4000))
""",
    "error queues of UDP": r"""
def one():
    a_socket = bounded(socket.socket(2, 2)); a_socket.setsockopt(0, 11, 1)
    for _ in range(4000):
        try: a_socket.sendto(bytes(1000), ("127.0.0.1", 9))
        except OSError: pass
    return a_socket
print(repeat(one, 4000))
""",
    "error queues of UDP over IPv6": r"""
def one():
    a_socket = bounded(socket.socket(10, 2)); a_socket.setsockopt(41, 25, 1)
    for _ in range(4000):
        try: a_socket.sendto(bytes(1000), ("::1", 9))
        except OSError: pass
    return a_socket
print(repeat(one, 4000))
""",
    "time stamps of what is sent": r"""
def one():
    a_socket = bounded(socket.socket(2, 1)); server = socket.create_server(("127.0.0.1", 0))
    a_socket.setsockopt(1, 37, 1 << 4 | 1 << 7 | 2)
    a_socket.setblocking(True); a_socket.connect(server.getsockname())
    for _ in range(2000): a_socket.send(b"x")
    return a_socket, server
print(repeat(one, 1000))
""",
    "filters of sockets": r"""
program = (ctypes.c_uint64 * 4096)(*[0x0000000000000000] * 4095, 0x0000ffff_00000006)
for i in range(4095): program[i] = 0x00000004 | i << 32  # A += i
class Fprog(ctypes.Structure): _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
filters = bytes(Fprog(4096, ctypes.addressof(program)))
def one():
    a_socket = socket.socket(1, 2); a_socket.setsockopt(1, 26, filters)
    return a_socket
print(spread(one, 4, 3000))
""",
    "every option of every socket": r"""
def attempt(kind, level, option, value):
    with socket.socket(*kind) as a_socket:
        try: a_socket.setsockopt(level, option, value)
        except (OSError, OverflowError): return False
    return True
values = [struct.pack("i", 1), bytes(64), struct.pack("=IIi", 0x010000e0, 0x0100007f, 1)]
options = []
kinds = allowed_sockets()
for kind in {kind[0]: kind for kind in kinds if kind[1] <= 2}.values():
    for level in range(300):
        for option in range(130):
            if (level, option) != (1, 0):
                options += [(kind, level, option, value) for value in values[:1]
                            if attempt(kind, level, option, value)]
def one(state=[0]):
    state[0] += 1
    kind = kinds[state[0] % len(kinds)]
    a_socket = socket.socket(*kind)
    for family, level, option, value in options:
        if family[0] == kind[0]:
            try: a_socket.setsockopt(level, option, value)
            except OSError: pass
    return a_socket
print(spread(one, 10), [option[1:3] for option in options])
""",
    "queues of TCP, both ways": r"""
server = socket.create_server(("127.0.0.1", 0), backlog=512)
def one():
    end = bounded(socket.socket(2, 1)); end.setblocking(True); end.connect(server.getsockname())
    other = server.accept()[0]
    for a_socket in (end, other):
        bounded(a_socket); fill(a_socket.send, bytes(1 << 16))
    return end, other
print(repeat(one, 1000))
""",
    "connections that nobody accepts": r"""
def one(server=[]):
    if not server or len(kept) % 500 == 0:
        server[:] = [socket.create_server(("127.0.0.1", 0), backlog=1000)]
    socket.create_connection(server[0].getsockname()).close()
    return server[0]
print(repeat(one))
""",
    "data that nobody accepts": r"""
def one(server=[]):
    if not server or len(kept) % 100 == 0:
        server[:] = [socket.create_server(("127.0.0.1", 0), backlog=4096)]
    end = socket.create_connection(server[0].getsockname()); end.setblocking(False)
    fill(end.send, bytes(1 << 15)); end.close()
    return server[0]
print(repeat(one))
""",
    "connections that wait to be forgotten": r"""
server = socket.create_server(("127.0.0.1", 0), backlog=512)
def one():
    end = socket.create_connection(server.getsockname()); other = server.accept()[0]
    end.close(); other.close()
print(repeat(one))
""",
    "queues of Unix sockets": r"""
def one():
    pair = socket.socketpair(1, one.kind)
    for a_socket in pair: bounded(a_socket); fill(a_socket.send, bytes(1 << 12))
    return pair
total = 0
for one.kind in (1, 2, 5): total += repeat(one, 6)
print(total)
""",
    "descriptors on their way": r"""
def one():
    pair = socket.socketpair(1, 2); files = [os.eventfd(0) for _ in range(250)]
    try: socket.send_fds(pair[0], [b"x"], files)
    finally: [os.close(file) for file in files]
    return pair
print(repeat(one, 4000))
""",
    "eventfd": "print(spread(lambda: os.eventfd(0)))",
    "timerfd": "print(spread(lambda: system(283, 1, 0)))",
    "signalfd": r"""
mask = ctypes.c_uint64(512)
print(spread(lambda: system(289, -1, ctypes.byref(mask), 8, 0)))
""",
    "pidfd": "print(spread(lambda: os.pidfd_open(os.getpid())))",
    "memfd": r"""
def one():
    file = os.memfd_create("x"); os.write(file, b"x" * 4096)
    return file
print(spread(one, 20))
""",
    "files": "print(spread(lambda: os.open('/dev/null', os.O_RDONLY)))",
    "files of proc": r"""
def one():
    file = os.open("/proc/self/maps", os.O_RDONLY); os.read(file, 10)
    return file
print(spread(one, 20))
""",
    "pipes": r"""
def one():
    ends = os.pipe(); os.set_blocking(ends[1], False)
    try: fcntl.fcntl(ends[1], 1031, 1 << 20)
    except OSError: pass
    fill(lambda data: os.write(ends[1], data), bytes(1 << 16))
    return ends
print(repeat(one, 2000))
""",
    "epoll": "print(spread(select.epoll))",
    "watches of epoll": r"""
files = [os.eventfd(0) for _ in range(300)]
def one():
    waits = select.epoll()
    for file in files: waits.register(file, select.EPOLLIN)
    return waits
print(repeat(one, 3000))
""",
    "locks": r"""
file = os.open("/tmp/locked", os.O_RDWR | os.O_CREAT)
def one(state=[0]):
    state[0] += 2
    fcntl.lockf(file, fcntl.LOCK_EX, 1, state[0])
print(repeat(one, 20000))
""",
    "locks of open files": r"""
open("/tmp/locked", "w").close()
def one():
    file = os.open("/tmp/locked", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_SH)
    for start in range(0, 8, 2):
        fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, start, 1, 0))
    return file
print(spread(one, 10, 1500))
""",
    "leases and notes of files": r"""
def one(state=[0]):
    state[0] += 1
    file = os.open(f"/tmp/leased{os.getpid()}-{state[0]}", os.O_RDONLY | os.O_CREAT)
    fcntl.fcntl(file, 1024, fcntl.F_RDLCK)
    return file
print(repeat(one, 3000))
folder = os.open("/tmp", os.O_RDONLY)
def one():
    file = os.open("/tmp", os.O_RDONLY); fcntl.fcntl(file, fcntl.F_NOTIFY, 0x8000000f)
    return file
print(spread(one, 20))
""",
    "files that signal": r"""
def one():
    ends = socket.socketpair(); fcntl.fcntl(ends[0], fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    return ends
print(spread(one, 20))
""",
    "POSIX timers": r"""
def one():
    timer = ctypes.c_void_p(); event = (ctypes.c_long * 8)(0, 10)
    if libc.timer_create(1, event, ctypes.byref(timer)): raise OSError
def none():  # without a signal
    timer = ctypes.c_void_p(); event = (ctypes.c_long * 8)(0, 1 << 32)
    if libc.timer_create(1, event, ctypes.byref(timer)): raise OSError
print(spread(one, 10), spread(none, 10, 10**5))
""",
    "queued signals": r"""
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))
def one(): system(129, os.getpid(), 40, (ctypes.c_int * 32)(40, 0, -1))
print(spread(one, 10))
""",
    "watches and events of inotify": r"""
def one(state=[0]):
    state[0] += 1
    if state[0] % 1000 == 1:
        one.file = system(294, 0)
    path = b"/tmp/watched-%d-%d" % (os.getpid(), state[0]); open(path, "w").close()
    system(254, one.file, path, 0xfff)
    for _ in range(20): os.utime(path)
print(repeat(one, 12000))
""",
    "System V IPC": r"""
def semaphores(): return system(64, 0, 250, 0o600)
def messages():
    queue = system(68, 0, 0o600)
    while libc.msgsnd(queue, (ctypes.c_char * 9000)(1), 8000, 0o4000) == 0: pass
    return queue
def undone():
    semaphore = system(64, 0, 250, 0o600)
    system(65, semaphore, struct.pack("hhh", 0, 1, 0x1000), 1)
    return semaphore
print(repeat(semaphores, 6000), repeat(messages, 6000), repeat(undone, 6000),
      repeat(lambda: system(29, 0, 4096, 0o600), 3000))
""",
    "terminals": r"""
def one():
    ends = os.openpty()
    for end in ends: os.set_blocking(end, False); fill(lambda data: os.write(end, data), bytes(4096))
    return ends
print(repeat(one))
""",
    "folders and names": r"""
def one(state=[0]):
    state[0] += 1
    os.mkdir(f"/tmp/{state[0]}"); os.symlink("x" * 200, f"/tmp/{state[0]}/link")
def missing(state=[0]):
    state[0] += 1
    os.path.exists(f"/usr/{'n' * 200}{state[0]}"); os.path.exists(f"/tmp/{'n' * 200}{state[0]}")
print(repeat(one), repeat(missing))
""",
    "attributes of files": r"""
path = "/tmp/attributes"; open(path, "w").close()
def one(state=[0]):
    state[0] += 1
    os.setxattr(path, f"user.{state[0]}", b"x" * 1000)
print(repeat(one, 60000))
""",
    "mappings": r"""
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
def one(state=[0]):
    state[0] += 1
    at = libc.mmap(None, 4096, 1 + state[0] % 2 * 2, 0x22, -1, 0)
    if at == ctypes.c_void_p(-1).value: raise OSError
    libc.prctl(0x53564D41, 0, ctypes.c_void_p(at), ctypes.c_size_t(4096), b"n" * 60 + b"%d" % state[0])
print(spread(one, 12, 60000))
""",
    "page tables": r"""
def one():
    area = mmap.mmap(-1, 1 << 30, 0x4022)  # MAP_NORESERVE
    for at in range(0, 1 << 30, 1 << 21): area[at : at + 1]
    return area
print(repeat(one, 200))
""",
    "threads": r"""
def wait_long(): threading.Event().wait()
def one():
    thread = threading.Thread(target=wait_long, daemon=True)
    try: thread.start()
    except RuntimeError: raise OSError
print(repeat(one, 240))
""",
    "rule sets of Landlock": r"""
rights = ctypes.c_uint64(0x1FFF)
folders = [os.open(path, os.O_PATH) for path in ("/tmp", "/usr", "/etc", "/mnt", "/dev", "/opt")]
def one():
    rules = system(444, ctypes.byref(rights), 8, 0)
    for folder in folders:
        system(445, rules, 1, struct.pack("=Qi", 0xC, folder), 0)
    return rules
print(spread(one, 20))
""",
}
