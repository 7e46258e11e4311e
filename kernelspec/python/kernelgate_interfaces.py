# SPDX-License-Identifier: Apache-2.0
"""Makes `socket.if_nameindex()` work in a sandbox.

The C library asks netlink for the list, which a sandbox may not use: what netlink has ready for a
reader counts as nobody's memory.
"""

import kernelgate_imports


def _replace(socket):
    by_netlink = socket.if_nameindex

    def if_nameindex():
        """if_nameindex() -> list of (index, name) of all network interfaces."""
        import errno
        import os

        try:
            return by_netlink()
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return sorted((socket.if_nametoindex(name), name) for name in os.listdir("/sys/class/net"))

    socket.if_nameindex = if_nameindex


kernelgate_imports.at_import("socket", _replace)
