# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes on a TCP socket: sends what a test says, in the pieces that it says, and splits what comes
into answers by their framing."""

import contextlib
import re
import select
import socket
import struct
import time
import urllib.parse

HANG = 20  # seconds, for what is known to come

# linux/sock_diag.h, linux/inet_diag.h; offsets in struct inet_diag_msg and struct tcp_info.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, INET_DIAG_INFO = 4, 20, 2
ANY_STATE, NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
RQUEUE_AT, ATTRIBUTES_AT, BYTES_RECEIVED_AT = 56, 72, 128


class Answer:
    """One answer: its head, and its body in the pieces that its framing makes of it. A piece is the line with
    the size of a chunk, its bytes, and what is behind; a body that has no chunks is one piece."""

    def __init__(self, head):
        self.head = head
        self.pieces = []
        self.has_chunks = False

    @property
    def status(self):
        found = re.match(rb"HTTP/\d\.\d (\d{3}) ", self.head)
        return int(found[1]) if found else 0

    def header(self, name):
        found = re.search(rb"\r\n%s: *(.*?)\r\n" % re.escape(name), self.head, re.IGNORECASE)
        return found[1] if found else None

    @property
    def body(self):
        return b"".join(piece for _, piece, _ in self.pieces)


def received_and_unread(own, peer):
    """How many bytes the system has received for a TCP socket of this machine, and how many of them its
    program has not read; None: there is no such socket any more."""
    (address, port), (peer_address, peer_port) = own, peer
    wanted = struct.pack(
        "=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, ANY_STATE
    )
    wanted += struct.pack("!HH", port, peer_port)
    wanted += struct.pack("16s16s", socket.inet_aton(address), socket.inet_aton(peer_address))
    wanted += struct.pack("=IQ", 0, NO_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        netlink.send(struct.pack("=IHHII", 16 + len(wanted), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + wanted)
        answer = netlink.recv(1 << 16)
    if struct.unpack_from("=H", answer, 4)[0] != SOCK_DIAG_BY_FAMILY:
        return None
    message = answer[16:]
    (unread,) = struct.unpack_from("=I", message, RQUEUE_AT)
    at = ATTRIBUTES_AT
    while at < len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if kind == INET_DIAG_INFO:
            return *struct.unpack_from("=Q", message, at + 4 + BYTES_RECEIVED_AT), unread
        at += (size + 3) & ~3
    return None


class Connection:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), HANG)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._addresses = self._socket.getpeername(), self._socket.getsockname()
        self._n_sent = 0
        self._buffer = b""
        self.ended = False  # the server has closed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.close()

    # ---- Out

    def send(self, data):
        """A server that has closed already loses what is sent; its answer is what counts."""
        self._n_sent += len(data)
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def half_close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def settle(self):
        """Returns when the server has read all that was sent, so that what is sent next is read apart. A
        server that has answered or closed instead is not waited for."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            found = received_and_unread(*self._addresses)
            if found is None or (found[0] >= self._n_sent and found[1] == 0):
                return
            if select.select([self._socket], [], [], 0.001)[0]:
                return
        raise TimeoutError("the server does not read")

    # ---- In

    def _more(self, patience):
        """Receives; False: the server has closed."""
        if self.ended:
            return False
        if not select.select([self._socket], [], [], patience)[0]:
            raise TimeoutError(f"nothing comes behind {self._buffer!r}")
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.ended = not data
        self._buffer += data
        return bool(data)

    def _take(self, n):
        taken, self._buffer = self._buffer[:n], self._buffer[n:]
        return taken

    def _line(self, patience):
        """A line, or what there is of it."""
        while b"\n" not in self._buffer and self._more(patience):
            pass
        return self._take(self._buffer.find(b"\n") + 1 or len(self._buffer))

    def _bytes(self, n, patience):
        while len(self._buffer) < n and self._more(patience):
            pass
        return self._take(n)

    def waits(self, patience):
        """Whether something comes within the time, be it the end."""
        if self._buffer or self.ended:
            return True
        return bool(select.select([self._socket], [], [], patience)[0])

    @property
    def is_at_end(self):
        """Whether the server has closed; waits() has said that something comes."""
        return not self._buffer and not self._more(HANG)

    def rest(self, patience=HANG):
        """All until the server closes."""
        while self._more(patience):
            pass
        return self._take(len(self._buffer))

    def _head(self, patience=HANG):
        """The head of an answer; what is not HTTP is taken up to the end."""
        head = line = self._line(patience)
        if not line.startswith(b"HTTP/"):
            return head + self.rest(patience)
        while line.endswith(b"\n") and line not in (b"\r\n", b"\n"):
            line = self._line(patience)
            head += line
        return head

    def begin(self, is_head=False, patience=HANG):
        """The head of the next answer, with all of the body unless that is chunked."""
        answer = Answer(self._head(patience))
        length = answer.header(b"Content-Length")
        if is_head or 0 < answer.status < 200 or answer.status in (204, 304):
            return answer
        if answer.header(b"Transfer-Encoding") == b"chunked":
            answer.has_chunks = True
        elif length and length.isdigit():
            answer.pieces.append((b"", self._bytes(int(length), patience), b""))
        else:
            answer.pieces.append((b"", self.rest(patience), b""))
        return answer

    def chunk(self, answer, patience=HANG):
        """Adds the next chunk to an answer. False: it was the last one, or none."""
        size = self._line(patience)
        n = int(size, 16) if re.fullmatch(rb"[0-9a-f]+\r\n", size) else 0
        data = self._bytes(n, patience)
        end = self._bytes(2, patience)
        answer.pieces.append((size, data, end))
        return n > 0 and end == b"\r\n"

    def answer(self, is_head=False, patience=HANG):
        """The next answer, or what there is of it."""
        answer = self.begin(is_head, patience)
        while answer.has_chunks and self.chunk(answer, patience):
            pass
        return answer
