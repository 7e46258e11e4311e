# SPDX-License-Identifier: Apache-2.0
"""A port of a sandbox through the gateway, beside a client in the same sandbox."""

import argparse
import json
import pathlib
import time
import urllib.parse

from contestants import BINARY, Kernelgate
from report import finish, print_table

SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        body = bytes(100_000_000) if self.path == "/large" else b"hello"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8501), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""

# Runs here and in the sandbox: takes the address and the Host header, and gives the figures.
CLIENT = """
import http.client, json, statistics, time
def ms(since): return (time.perf_counter() - since) * 1000
def get(connection, host, path):
    connection.request("GET", path, headers={"Host": host})
    total, response = 0, connection.getresponse()
    assert response.status == 200, response.status
    while piece := response.read(1 << 20): total += len(piece)
    return total
def measure(address, host):
    new, kept = [], []
    for _ in range(200):
        began = time.perf_counter()
        connection = http.client.HTTPConnection(address)
        get(connection, host, "/")
        new.append(ms(began))
        connection.close()
    connection = http.client.HTTPConnection(address)
    for _ in range(500):
        began = time.perf_counter()
        get(connection, host, "/")
        kept.append(ms(began))
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        total = get(http.client.HTTPConnection(address), host, "/large")
        rates.append(total / 1000 / ms(began))
    return {"GET, new connection": round(statistics.median(new), 2),
            "GET, same connection": round(statistics.median(kept), 2),
            "100 MB, MB/s": round(statistics.median(rates))}
"""


def measure():
    with Kernelgate("--pool-size", "0") as gateway:
        session = "ports"
        gateway.execute(SERVER, session=session)
        code = f"{CLIENT}\nprint(json.dumps(measure('127.0.0.1:8501', 'x')))"
        body = {"code": code, "session_id": session, "timeout": 120}
        answer = gateway.connection.json("POST", "/api/v1/execute_sync", body)["data"]
        inside = "".join(answer["texts"])
        path = f"/api/v1/sessions/{session}/ports/8501"
        made = gateway.connection.json("POST", path, {"public": True})
        host = urllib.parse.urlsplit(made["url"]).netloc
        names = {}
        exec(CLIENT, names)
        outside = names["measure"](gateway.url.removeprefix("http://"), host)
    return {"in the sandbox": json.loads(inside), "through the gateway": outside}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    results = {"ports": measure()}
    print_table("A port of a sandbox (ms, MB/s)", results["ports"])
    direct, ours = results["ports"].values()
    added = ours["GET, new connection"] - direct["GET, new connection"]
    share = ours["100 MB, MB/s"] / direct["100 MB, MB/s"]
    finish(
        results,
        [
            ("added to a GET on a new connection: at most 3 ms", f"{added:+.2f} ms", added <= 3),
            ("100 MB: at least a quarter of the direct rate", f"{share:.2f}", share >= 0.25),
        ],
        arguments.json,
    )


if __name__ == "__main__":
    main()
