# SPDX-License-Identifier: Apache-2.0
"""The descriptors of a kernel that forks itself: which are its own, and what a fork has of the others.

A fork does not need the kernel's sockets, and has new ones: it closes them, so that a hundred forks of forks
have not a hundred times as many. What code has opened keeps its number, since objects remember that.
"""

import contextlib
import os
import socket
import stat

from tornado.ioloop import IOLoop

# Devices that are memory only (null, zero, random). Others are terminals, which have another end.
_MEMORY_DEVICES = 1


class Own:
    """A kernel's own descriptors."""

    def __init__(self, contexts):
        """Those that there are before code runs, and later those of ZeroMQ's `contexts`."""
        self._contexts = contexts
        self._links = dict(_links())
        self.network_sockets = set(network_sockets())

    def numbers(self):
        """Those of the process, or of the one that it was forked from."""
        now = dict(_links())
        own = {number for number, link in now.items() if self._links.get(number) == link}
        for context in self._contexts:
            with contextlib.suppress(Exception):  # of objects that code has changed
                own.update(each.FD for each in context._sockets if not each.closed)
        loops = {loop._selector.fileno() for loop in _loops()}  # in which code's may be, too
        for number in own - loops:
            own.update(_watched(number))
        return {number for number in own if number > 2 and _has_another_end(number)}

    def close(self):
        """In a fork."""
        own = self.numbers()
        for loop in _loops():
            if loop._csock.fileno() in own:
                _forget(loop)
        for number in own:
            with contextlib.suppress(OSError):
                os.close(number)


def _loops():
    """The open event loops that Tornado has been used with: the kernel's, and maybe some of code."""
    return [loop for loop in IOLoop._ioloop_for_asyncio if getattr(loop, "_csock", None)]


def _forget(loop):
    """Takes the descriptors of an event loop that runs no more, in which objects of code may still be."""
    with contextlib.suppress(Exception):
        loop._csock.close()
        loop._ssock.close()
        loop._csock = None  # so nothing is written to what has its number
        loop._selector.close()


def _watched(number):
    """What a descriptor of epoll waits for."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{number}") as info:
        return [int(line.split()[1]) for line in info if line.startswith("tfd:")]
    return []


def _links():
    for number in _numbers():
        with contextlib.suppress(OSError):
            yield number, os.readlink(f"/proc/self/fd/{number}")


def _numbers():
    """Those that are open; the listing's own is not."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            yield int(name)


def network_sockets():
    """The inodes of the process's network sockets."""
    for number in _numbers():
        with contextlib.suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISSOCK(status.st_mode):
                with socket.socket(fileno=os.dup(number)) as copy:
                    if copy.family in (socket.AF_INET, socket.AF_INET6):
                        yield status.st_ino


# ---- In a fork ------------------------------------------------------------------------------


def leave(output):
    """What code has opened: files and folders get positions of their own. What has another end becomes
    /dev/null: that end is with the parent. The standard files become `output`, a path."""
    _set(0, os.devnull, os.O_RDWR)
    for number in 1, 2:
        _set(number, output, os.O_WRONLY | os.O_NOFOLLOW)
    for number in _numbers():
        if number <= 2:
            continue
        if _has_another_end(number):
            _set(number, os.devnull, os.O_RDWR)
        else:
            _open_again(number)


def close_all_with_another_end():
    """In a fork of a fork: they are that one's, none is of code."""
    for number in _numbers():
        if number > 2 and _has_another_end(number):
            os.close(number)


def _has_another_end(number):
    with contextlib.suppress(OSError):
        status = os.fstat(number)
        if stat.S_ISCHR(status.st_mode):
            return os.major(status.st_rdev) != _MEMORY_DEVICES
        return not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
    return False


def _set(number, path, flags):
    file = os.open(path, flags | os.O_CLOEXEC)
    inheritable = number <= 2 or os.get_inheritable(number)
    if file == number:
        os.set_inheritable(number, inheritable)
        return
    os.dup2(file, number, inheritable)
    os.close(file)


def _open_again(number):
    kept = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DIRECTORY
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/self/fdinfo/{number}") as info:
            flags = int(info.read().split("flags:")[1].split()[0], 8)
        if flags & os.O_PATH:
            return
        position = os.lseek(number, 0, os.SEEK_CUR)
        _set(number, f"/proc/self/fd/{number}", flags & kept)
        os.lseek(number, position, os.SEEK_SET)
