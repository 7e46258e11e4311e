# SPDX-License-Identifier: Apache-2.0
"""Runs the built binary and talks to it: the base of every end-to-end test."""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import contract
import docker_engine
import httpx
import leftovers

PROJECT = contract.PROJECT
BINARY = os.environ.get("KERNELGATE_BIN", str(PROJECT / "build/dev/bin/kernelgate"))
RELEASE = str(PROJECT / "build/release/bin/kernelgate")
# Beside the certificates that this machine is told to trust, a gateway knows only its own settings.
INHERITED = ("PATH", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "PIP_INDEX_URL")
READY_LINE = re.compile(r"kernelgate listening on (http://\S+:\d+)\n")
SANITIZER = re.compile(r"((ERROR|WARNING): \w+Sanitizer|runtime error:|Assertion .* failed)")


# Code that runs until `Gateway.release()`, so that a test can act meanwhile on any machine.
HELD = """
import os, time
print('on', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
os.remove('go')
"""
# Code that an interrupt does not end; it says when that is so.
STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('deaf', flush=True)
while True: pass
"""


@functools.cache
def quick_kernelspecs():
    """A folder with the project's kernelspecs, where Python's does not import in advance what most tests
    do not need: that takes a second of processor time for each place of a pool."""
    folder = PROJECT / "build/quick-kernelspecs"
    for path in PROJECT.glob("kernelspec/*/kernel.json"):
        spec = json.loads(path.read_text())
        if path.parent.name == "python":
            spec["metadata"]["kernelgate"]["warmup"] = "__import__('kernelgate_kernel')"
        copy = folder / path.parent.name / "kernel.json"
        copy.parent.mkdir(parents=True, exist_ok=True)
        new = copy.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(spec))
        new.replace(copy)
    return str(folder)


def wait_for(condition, timeout=60, interval=0.02):
    """Returns the first true value of `condition()`; fails at the timeout, which only a hang reaches."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {timeout} s: {condition}"
        time.sleep(interval)


def run_until_timeout(run, is_set_up):
    """Returns the result of `run(timeout)` with the first timeout that leaves the code time to be set
    up, by `is_set_up(result)`: how long that takes is not known."""
    for timeout in (1, 4, 16):
        result = run(timeout)
        if is_set_up(result):
            return result
    raise AssertionError(f"not set up within {timeout} s: {result}")


def free_port():
    """A port below those that the kernel gives to others (net.ipv4.ip_local_port_range)."""
    while True:
        with contextlib.suppress(OSError):
            with socket.create_server(("127.0.0.1", random.randrange(20000, 32000))) as server:
                return server.getsockname()[1]


class Lines(list):
    """The lines of one execution, their times of arrival, and the response's headers. Keepalives,
    which any execution on a busy machine may have, are only counted."""

    def __init__(self, response):
        super().__init__()
        self.headers = response.headers
        self.times = []
        self.keepalives = 0

    def add(self, text):
        line = json.loads(text)
        if line["type"] == "keepalive":
            self.keepalives += 1
        else:
            self.append(line)
            self.times.append(time.monotonic())

    def of(self, kind):
        return [line for line in self if line["type"] == kind]

    def one(self, kind):
        lines = self.of(kind)
        assert len(lines) == 1, f"{len(lines)} lines of {kind} in {self}"
        return lines[0]

    def text(self, kind="stdout"):
        return "".join(line["text"] for line in self.of(kind))

    def kinds(self):
        """The types of the lines; lines of one type in a row count once, as a text may be split."""
        return [kind for kind, _ in itertools.groupby(self, lambda line: line["type"])]

    @property
    def done(self):
        assert self and self[-1]["type"] == "done", f"the last line is not done: {self[-3:]}"
        assert len(self.of("done")) == 1
        return self[-1]

    @property
    def status(self):
        return self.done["status"]


class Gateway:
    """One `kernelgate serve` with its own state folder. Its kernels are warm as users have them, or with
    `quick` are those of quick_kernelspecs()."""

    def __init__(
        self,
        *flags,
        env=None,
        state_dir=None,
        key=None,
        cwd=None,
        binary=BINARY,
        port=0,
        quick=False,
    ):
        self.state_dir = state_dir or tempfile.mkdtemp(prefix=leftovers.PREFIX)
        self.flags = flags
        self.binary = binary
        self.env = env or {}
        self.key = key
        self.port = port  # 0: any
        self.cwd = cwd
        # A zygote imports in advance only once.
        self.forks = self._forks()
        self.quick = quick and not self.forks
        self.process = None
        self.log_path = os.path.join(self.state_dir, "stderr.log")
        self._groups = set()

    # ---- Start and stop

    def command(self):
        return [
            *(self.binary, "serve", "--port", str(self.port)),
            *("--state-dir", self.state_dir, *self.flags),
        ]

    def start(self, timeout=60):
        logged = len(self.log()) if os.path.isfile(self.log_path) else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **{name: os.environ[name] for name in INHERITED if name in os.environ},
                    **docker_engine.gateway_environment(),
                    **({"KERNELGATE_KERNELSPEC_DIR": quick_kernelspecs()} if self.quick else {}),
                    **self.env,
                },
                cwd=self.cwd or self.state_dir,
            )
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline().decode() if ready else "(nothing)"
        match = READY_LINE.fullmatch(line)
        if not match:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no ready line but {line!r}\n{self.log()}")
        self.url = match[1]
        self.client = self.client_for(self.key)
        # From now on all kernels are forked, except those of kernelspecs without a zygote. A log that
        # is a FIFO has one reader, which is not this.
        if self.forks and os.path.isfile(self.log_path):
            wait_for(lambda: "kernels can be forked" in self.log()[logged:], timeout)
        return self

    def _forks(self):
        """Whether Python's kernels are forked: by the run's choice, or by the flags."""
        chosen = docker_engine.KERNEL_START == "fork" or "fork" in self.flags
        return chosen and not {"--kernelspec-dir", "exec"} & set(self.flags)

    def client_for(self, key):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None)
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=60,
            trust_env=False,
            limits=limits,
            event_hooks={"response": [contract.check_stream]},
        )

    def log(self):
        return pathlib.Path(self.log_path).read_text("utf-8", "replace")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=60):
        code = self.process.wait(timeout)
        self.client.close()
        self.process.stdout.close()
        return code

    def kill(self):
        """Kills it with SIGKILL: its sandboxes keep running."""
        self.process.kill()
        return self.wait()

    def stop(self, timeout=60):
        """Stops it as an operator does; it must leave nothing."""
        self._groups |= leftovers.cgroups_of(self.sandbox_pids())
        self.signal(signal.SIGTERM)
        code = self.wait(timeout)
        assert code == 0, f"exit code {code}\n{self.log()[-4000:]}"
        complaint = SANITIZER.search(self.log())
        assert not complaint, self.log()[complaint.start() - 200 : complaint.start() + 4000]

    def assert_nothing_left(self):
        # The helper of a gateway that was killed ends within a second.
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not leftovers.find(self.state_dir), 1.5)
        left = leftovers.find(self.state_dir)
        left += [f"control group: {group}" for group in self._groups if os.path.exists(group)]
        for path in pathlib.Path(self.state_dir).iterdir():
            content = path.read_text("utf-8", "replace").strip() if path.is_file() else ""
            if re.fullmatch("[a-z2-7]{8}", content):
                if self.process and self.process.returncode == -signal.SIGKILL:
                    leftovers.remove_empty_group(content)
                left += leftovers.groups_of_gateway(content)
                left += leftovers.containers_of_gateway(content)
        assert not left, "\n".join(
            ["left behind:", *left, "The gateway's log ends:", self.log()[-4000:]]
        )

    def clean_up(self):
        """Cleans up after a test, whatever happened in it."""
        try:
            if self.process and self.process.returncode is None:
                self.stop()
            self.assert_nothing_left()
        finally:
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for pid in leftovers.sandbox_pids(self.state_dir):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.state_dir, ignore_errors=True)

    # ---- Files and processes

    @property
    def own_dir(self):
        """The part of the state folder that the gateway writes to, if it has a helper."""
        own = pathlib.Path(self.state_dir, "gateway")
        return own if own.is_dir() else own.parent

    def sandbox_pids(self):
        """Without its zygotes, which are in the machine's PID namespace."""
        own, found = os.readlink("/proc/self/ns/pid"), []
        for pid in leftovers.sandbox_pids(self.state_dir):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(f"/proc/{pid}/ns/pid") != own:
                    found.append(pid)
        return found

    def rss_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def processor_seconds(self):
        """User and system time of the gateway so far."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def processor_share(self, seconds=1):
        """The part of one processor that the gateway takes during that time."""
        before = self.processor_seconds()
        time.sleep(seconds)
        return (self.processor_seconds() - before) / seconds

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    # ---- Requests

    @contextlib.contextmanager
    def stream(self, code, client=None, **fields):
        """Runs code, and yields an iterator over its lines."""
        client = client or self.client
        with client.stream("POST", "/api/v1/execute", json={"code": code, **fields}) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"{response.status_code} {response.text}")
            yield LineReader(response)

    def execute(self, code, client=None, **fields):
        with self.stream(code, client, **fields) as reader:
            return reader.rest()

    def create_session(self, client=None, **fields):
        response = (client or self.client).post("/api/v1/sessions", json=fields)
        assert response.status_code in (200, 201), response.text
        return response.json()["data"]["session_id"]

    def delete_session(self, session_id, client=None):
        return (client or self.client).delete(f"/api/v1/sessions/{session_id}")

    def end_sessions(self):
        """Ends the sessions of those without a key."""
        response = self.client.get("/api/v1/sessions")
        for session_id in response.json()["sessions"] if response.status_code == 200 else ():
            self.delete_session(session_id)

    def release(self, session_id, client=None):
        """Lets HELD end in a session, which may be one that the gateway is only taking up again."""
        url = f"/api/v1/sessions/{session_id}/files/go"
        client = client or self.client
        wait_for(lambda: client.put(url, content=b"").status_code == 201)

    def streams_ended(self):
        """How many requests to execute have ended, by their last line or as the client left."""
        text = self.client.get("/metrics").text
        row = r'^kernelgate_http_requests_total\{.*route="/api/v1/execute".*\} (\d+)'
        return sum(map(int, re.findall(row, text, re.M)))

    def budget_held(self, name):
        """Bytes or places that are taken of a budget (docs/metrics.md)."""
        text = self.client.get("/metrics").text
        row = rf'^kernelgate_budget_held\{{budget="{name}"\}} (\S+)'
        return float(re.search(row, text, re.M)[1])

    def pool(self):
        return self.client.get("/api/v1/health").json()["pool"]

    def fill_pool(self):
        """Waits until every place of the pool is taken by a sandbox that is ready."""
        wait_for(lambda: (pool := self.pool())["ready"] == pool["target"], timeout=60)

    def show_session(self, session_id, client=None):
        response = (client or self.client).get(f"/api/v1/sessions/{session_id}")
        assert response.status_code == 200, response.text
        return response.json()


class LineReader:
    def __init__(self, response):
        self.response = response
        self.lines = Lines(response)
        self._iterator = response.iter_lines()

    def next(self):
        """The next line that is not a keepalive."""
        n_read = len(self.lines)
        while len(self.lines) == n_read:
            self.lines.add(next(self._iterator))
        return self.lines[-1]

    def next_of(self, kind):
        while True:
            line = self.next()
            if line["type"] == kind:
                return line

    def rest(self):
        for text in self._iterator:
            self.lines.add(text)
        return self.lines


def problem(response, status, code):
    """Asserts that a response is a problem document as documented."""
    assert response.status_code == status, f"{response.status_code} {response.text}"
    assert response.headers["content-type"].split(";")[0] == "application/problem+json"
    body = response.json()
    assert body["status"] == status and body["code"] == code, body
    assert isinstance(body["title"], str) and isinstance(body["detail"], str) and "type" in body
    return body


@contextlib.contextmanager
def gateways(quick, layer_flags=()):
    """Yields a function that starts gateways; cleans up after all of them."""
    started = []

    def start(*flags, **options):
        started.append(Gateway(*layer_flags, *flags, **{"quick": quick, **options}))
        return started[-1].start()

    start.started = started
    yield start
    clean_up_all(started)


def clean_up_all(started):
    """Cleans up after gateways, the last one first; then fails if one of them was not in order."""
    errors = []
    for gateway in reversed(list(started)):
        try:
            gateway.clean_up()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)


LOG_SHOWN = 20_000  # characters


def add_logs(report, fixtures):
    """Adds the logs of a test's gateways to the report of its failure: afterwards they are removed."""
    used = [value for value in fixtures.values() if isinstance(value, Gateway)]
    used += getattr(fixtures.get("start_gateway"), "started", [])
    for gateway in dict.fromkeys(used):
        if os.path.isfile(gateway.log_path):
            report.sections.append((gateway.log_path, gateway.log()[-LOG_SHOWN:]))
