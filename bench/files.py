# SPDX-License-Identifier: Apache-2.0
"""Files: 50 MiB up and down beside a plain copy, and how soon they are answered beside a busy kernel."""

import http.client
import json
import os
import pathlib
import statistics
import subprocess
import threading
import time
import urllib.parse

from contestants import Kernelgate

SIZE = 50 << 20
ROUNDS = 10
BUSY_ROUNDS = 30
FILES = "/api/v1/sessions/bench/files"


def connect(gateway):
    url = urllib.parse.urlsplit(gateway.url)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=60)


def request(connection, method, path, body=None):
    connection.request(method, path, body)
    response = connection.getresponse()
    content = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{method} {path}: {response.status} {content[:200]!r}")
    return content


def rate(action):
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return {
        "median_mb_per_s": round(SIZE / 1e6 / statistics.median(times)),
        "best_mb_per_s": round(SIZE / 1e6 / min(times)),
    }


def copy_into(gateway, source):
    """A plain copy, from the host into the container's folder."""
    (pid,) = pathlib.Path(gateway.folder).glob("sb/*/init.pid")
    enter = ["nsenter", "--user", "--mount", "--target", pid.read_text().strip()]
    enter += ["--setuid", "1000", "--setgid", "1000", "--"]
    with source.open("rb") as content:
        subprocess.run(
            [*enter, "dd", "bs=1M", "status=none", "of=/mnt/data/copied"], stdin=content, check=True
        )


def transfers():
    content = os.urandom(1 << 20) * 50
    with Kernelgate("--pool-size", "0") as gateway:
        gateway.execute("1")
        connection = connect(gateway)
        rows = {"upload": rate(lambda: request(connection, "PUT", f"{FILES}/large", content))}
        if request(connection, "GET", f"{FILES}/large") != content:
            raise RuntimeError("what came back is not what was sent")
        rows["download"] = rate(lambda: request(connection, "GET", f"{FILES}/large"))
        source = pathlib.Path("/dev/shm") / f"kgt-bench-{os.getpid()}"
        source.write_bytes(content)
        try:
            rows["plain copy into the container"] = rate(lambda: copy_into(gateway, source))
        finally:
            source.unlink()
        connection.close()
    return rows


def busy():
    """Beside `while True: pass`: what an upload, a download, a listing and the session's end take."""
    small = bytes(10_000)
    times = {"upload 10 kB": [], "download 10 kB": [], "list": [], "end of the session": []}
    with Kernelgate("--pool-size", "0") as gateway:
        for _ in range(3):
            gateway.execute("1")
            runner = connect(gateway)
            code = {"code": "print(1, flush=True)\nwhile True: pass", "session_id": "bench"}
            runner.request("POST", "/api/v1/execute", json.dumps(code))
            answer = runner.getresponse()
            answer.readline()
            rest = threading.Thread(target=answer.read)
            rest.start()
            connection = connect(gateway)
            actions = {
                "upload 10 kB": ("PUT", f"{FILES}/small", small),
                "download 10 kB": ("GET", f"{FILES}/small"),
                "list": ("GET", FILES),
            }
            for _ in range(BUSY_ROUNDS):
                for name, arguments in actions.items():
                    started = time.perf_counter()
                    request(connection, *arguments)
                    times[name].append(time.perf_counter() - started)
            started = time.perf_counter()
            request(connection, "DELETE", "/api/v1/sessions/bench")
            times["end of the session"].append(time.perf_counter() - started)
            rest.join()
            connection.close()
            runner.close()
    return {
        name: {
            "median_ms": round(statistics.median(taken) * 1000, 2),
            "max_ms": round(max(taken) * 1000, 2),
        }
        for name, taken in times.items()
    }
