# SPDX-License-Identifier: Apache-2.0
"""A "kernel" that speaks raw ZMTP 3.0 (RFC 23) in place of ipykernel, and then misbehaves.

    fake_kernel.py CONNECTION_FILE MODE

frames   one message of endless frames, on every channel that is connected
frame    one frame that claims to be 2^62 bytes long, and endless data
garbage  random bytes instead of a greeting
silence  a handshake and then nothing
"""

import json
import os
import pathlib
import shutil
import socket
import struct
import sys
import threading

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MEGABYTE = bytes(1 << 20)


def handshake(link, kind):
    link.sendall(GREETING)
    received = b""
    while len(received) < 64:
        received += link.recv(64 - len(received)) or exit()
    name = b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    body = b"\x05READY" + name + b"\x08Identity" + struct.pack(">I", 0)
    link.sendall(b"\x04" + bytes([len(body)]) + body)


def misbehave(link, kind, mode):
    try:
        if mode == "garbage":
            while True:
                link.sendall(os.urandom(1 << 16))
        handshake(link, kind)
        threading.Thread(target=drain, args=(link,), daemon=True).start()
        if mode == "frames":
            while True:
                link.sendall(b"\x03" + struct.pack(">Q", len(MEGABYTE)) + MEGABYTE)
        if mode == "frame":
            link.sendall(b"\x02" + struct.pack(">Q", 1 << 62))
            while True:
                link.sendall(MEGABYTE)
    except OSError:
        link.close()


def drain(link):
    try:
        while link.recv(1 << 16):
            pass
    except OSError:
        pass


def serve(path, kind, mode):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        link, _ = listener.accept()
        threading.Thread(target=misbehave, args=(link, kind, mode), daemon=True).start()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        info = json.load(file)
    kinds = {"shell": b"ROUTER", "iopub": b"PUB", "control": b"ROUTER"}
    threads = [
        threading.Thread(
            target=serve, args=(f"{info['ip']}-{info[f'{name}_port']}", kind, sys.argv[2])
        )
        for name, kind in kinds.items()
    ]
    for thread in threads:
        thread.start()


# ---- For tests


def flags(folder, mode):
    """The flags of a gateway whose kernel is this; `folder` is an empty one."""
    spec, environment = folder / "specs/fake", folder / "kernels/fake"
    spec.mkdir(parents=True)
    environment.mkdir(parents=True)
    shutil.copy(__file__, environment)
    environment.chmod(0o755)
    for parent in (folder, folder / "kernels"):
        parent.chmod(0o755)
    program = f"/opt/kernelgate/fake/{pathlib.Path(__file__).name}"
    about = {
        "argv": ["/usr/bin/python3", program, "{connection_file}", mode],
        "display_name": "Fake",
        "language": "fake",
        "metadata": {"kernelgate": {"transport": "ipc"}},
    }
    spec.joinpath("kernel.json").write_text(json.dumps(about))
    return [
        *("--kernelspec-dir", str(folder / "specs"), "--kernels-dir", str(folder / "kernels")),
        *("--default-kernel", "fake", "--kernel-start-timeout", "5"),
    ]


if __name__ == "__main__":
    main()
