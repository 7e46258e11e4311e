# SPDX-License-Identifier: Apache-2.0
"""How long another client waits beside large output, bodies and logins; what ten sessions take."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from contestants import BINARY, Connection, Kernelgate
from mcp_tool import McpConnection

OUTPUTS = {
    "60 MB of text": "{'text/plain': 'x' * 60_000_000}",
    "a figure of 10 MB": "{'image/png': 'iVBO' * 2_500_000}",
    "1.8 million numbers": "{'application/json': [7] * 1_800_000}",
    "300,000 objects": "{'application/json': [{}] * 300_000}",
    "9 million escapes": "{'text/plain': '\\x85' * 9_000_000}",
}

# All of them for some seconds, in ten sessions, while nobody reads.
WORST = f"""
import time
end = time.time() + 6
while time.time() < end:
    for bundle in [{", ".join(OUTPUTS.values())}]:
        display(bundle, raw=True)
"""

# Over MCP: as images, as large as they are shown (5 MiB each); and within a JSON text.
FIGURES = "for _ in range(2): display({'image/png': 'iVBO' * 1_225_000}, raw=True)"
FIGURE_AS_TEXT = "display({'image/png': 'iVBO' * 2_450_000}, raw=True)"
TEXT_PROFILE = "/mcp?profile=sandbox-mcp"
BODY_BYTES = (9 << 20) - 1024  # with what is around it, the most that is allowed
# All ten answers become ready at the same time.
AT_ONCE_S = 15

LOGINS = "60 logins with passwords"
LOGINS_GOAL_MS = 10
USERS = (
    "alice",
    "bob",
)  # a name may fail ten times, and a login counts as failed until it has ended

# In a process of its own, since a thread would wait for the reader's.
PROBE = """
import http.client, sys, threading, time
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
connection = http.client.HTTPConnection(sys.argv[1])
headers = {"Authorization": f"Bearer {sys.argv[2]}"} if sys.argv[2] else {}
longest = 0
while not stop.is_set():
    began = time.perf_counter()
    connection.request("GET", "/api/v1/sessions", headers=headers)
    connection.getresponse().read()
    longest = max(longest, time.perf_counter() - began)
    time.sleep(0.001)
print(longest * 1000)
"""


def longest_wait_ms(gateway, action, key=""):
    host = gateway.url.removeprefix("http://")
    probe = subprocess.Popen(
        [sys.executable, "-c", PROBE, host, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    time.sleep(0.2)
    action()
    return float(probe.communicate()[0])


def peak_mib(gateway):
    """While ten sessions publish all of it and their clients read nothing."""
    clients = [Connection(gateway.url) for _ in range(10)]
    for i, client in enumerate(clients):
        client.execute("1", f"s{i}")
    gateway.reset_peak()
    started = [
        threading.Thread(
            target=client.ask,
            args=("POST", "/api/v1/execute", {"code": WORST, "session_id": f"s{i}"}),
        )
        for i, client in enumerate(clients)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    while any(
        session["is_busy"]
        for session in gateway.connection.json("GET", "/api/v1/sessions")["sessions"].values()
    ):
        time.sleep(0.2)
    return gateway.memory_kb("VmHWM") / 1024


class JsonClient(McpConnection):
    """One that is answered as JSON, whenever the answer comes."""

    def __init__(self, url, path="/mcp"):
        super().__init__(url, {}, path)
        self.headers["Accept"] = "application/json"


def mcp_waits_ms(gateway):
    client, as_text = JsonClient(gateway.url), JsonClient(gateway.url, TEXT_PROFILE)
    actions = {
        "figures of 10 MB over MCP": lambda: client.execute(FIGURES),
        "a figure of 10 MB over MCP, as text": lambda: as_text.call(
            "execute_python_code", code=FIGURE_AS_TEXT, session_id="figures"
        ),
        "a body of 9 MiB": lambda: client.call("write_file", path="x", content="x" * BODY_BYTES),
    }
    client.execute("1")
    as_text.call("execute_python_code", code="1", session_id="figures")
    return {name: longest_wait_ms(gateway, action) for name, action in actions.items()}


def logins_wait_ms():
    """Twelve clients log in at once, five times; the other one has a key of an account."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--accounts-file", f"{folder}/accounts.db")

        def do(*words, **options):
            command = [BINARY, *words, *flags]
            return subprocess.run(command, check=True, text=True, **options)

        for name in USERS:
            do("user", "add", name)
            do("user", "passwd", name, input="correct horse\n")
        key = do("key", "add", USERS[0], capture_output=True).stdout.strip()
        with Kernelgate("--pool-size", "0", *flags) as gateway:

            def log_in(name):
                client = Connection(gateway.url)
                body = {"name": name, "password": "correct horse"}
                for _ in range(5):
                    client.json("POST", "/api/v1/login", body)

            def at_once():
                threads = [threading.Thread(target=log_in, args=(name,)) for name in USERS * 6]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            return longest_wait_ms(gateway, at_once, key)


def mcp_peak_mib(path, tool, code):
    """While ten sessions answer with 9.8 MB each, all at the same time."""
    with Kernelgate("--pool-size", "1") as gateway:
        clients = [JsonClient(gateway.url, path) for _ in range(10)]
        sessions = [{"session_id": f"s{i}"} for i in range(10)]
        for client, session in zip(clients, sessions, strict=True):
            client.call(tool, code="1", **session)
        gateway.reset_peak()
        end = time.time() + AT_ONCE_S
        wait = f"\nimport time\ntime.sleep(max(0, {end} - time.time()))"
        answers = [b""] * 10

        def ask(i):
            answers[i] = clients[i].call(tool, code=code + wait, timeout=300, **sessions[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any(len(answer) < 9_800_000 for answer in answers):
            raise RuntimeError("an answer lacks its figures")
        return gateway.memory_kb("VmHWM") / 1024


def measure():
    results = {}
    with Kernelgate("--pool-size", "1") as gateway:
        gateway.execute("1")
        for name, bundle in OUTPUTS.items():
            code = f"for _ in range(2): display({bundle}, raw=True)"
            results[name] = longest_wait_ms(gateway, lambda code=code: gateway.execute(code))
        results |= mcp_waits_ms(gateway)
    results[LOGINS] = logins_wait_ms()
    # One that keeps nothing yet for replay, which is up to 32 MiB more.
    with Kernelgate("--pool-size", "1") as gateway:
        results["peak MiB of ten sessions"] = peak_mib(gateway)
    results["peak MiB of ten answers over MCP"] = mcp_peak_mib("/mcp", "run_python_code", FIGURES)
    results["peak MiB of ten answers over MCP, as text"] = mcp_peak_mib(
        TEXT_PROFILE, "execute_python_code", FIGURE_AS_TEXT
    )
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    results = measure()
    print("| another client waits at most, beside | ms |\n|---|---|")
    for name, value in results.items():
        goal = f" (the goal: {LOGINS_GOAL_MS})" if name == LOGINS else ""
        print(f"| {name} | {value:.1f}{goal} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
