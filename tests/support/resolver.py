# SPDX-License-Identifier: Apache-2.0
"""Names of the tests' own: a resolver for one domain, and how a program gets it and no other."""

import os
import socket
import struct
import threading

A, IN = 1, 1
ANSWER, NO_SUCH_NAME = 0x8180, 0x8183
# Runs a command in a namespace in which /etc/resolv.conf is another file.
WITH_RESOLVER = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


class Resolver:
    """All names in a domain lead to this machine; no other name is there."""

    def __init__(self, domain, folder):
        self._domain = domain
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # An address of this process: libc asks no other port.
        address = f"127.53.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
        self._socket.bind((address, 53))
        self._file = folder / "resolv.conf"
        self._file.write_text(f"nameserver {address}\n")
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._socket.close()

    @property
    def launcher(self):
        """What stands in front of a command that is to use these names."""
        return ("unshare", "--mount", "sh", "-c", WITH_RESOLVER, str(self._file))

    def _serve(self):
        while True:
            try:
                query, client = self._socket.recvfrom(512)
            except OSError:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query):
        """RFC 1035, section 4: the query's first question again, and an address if it asks for one."""
        name, end = question(query)
        is_ours = name == self._domain or name.endswith(f".{self._domain}")
        (kind,) = struct.unpack_from("!H", query, end)
        answers = int(is_ours and kind == A)
        head = query[:2] + struct.pack(
            "!HHHHH", ANSWER if is_ours else NO_SUCH_NAME, 1, answers, 0, 0
        )
        # 0xC00C points to the name in the question.
        record = struct.pack("!HHHIH4s", 0xC00C, A, IN, 60, 4, socket.inet_aton("127.0.0.1"))
        return head + query[12 : end + 4] + record * answers


def question(query):
    """The name of a query's first question, and where its type begins."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    return ".".join(labels), at + 1
