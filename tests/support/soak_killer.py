# SPDX-License-Identifier: Apache-2.0
"""A whole soak: clients, a killer of random processes, and what may be there when all have left."""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import signal
import time

import leftovers
from kernelgate import wait_for
from sandboxes import kill, lives, pooled, sandboxes
from soak import Client, Kill, Soak

SECONDS = float(os.environ.get("KERNELGATE_SOAK_SECONDS", "20"))
SEED = int(os.environ.get("KERNELGATE_SOAK_SEED", time.time_ns() % 1_000_000))

N_CLIENTS = 3
FILES_OF_A_KERNEL = 6  # three sockets, with an eventfd each


def forks(gateway):
    """How many kernels have started by a fork."""
    text = gateway.client.get("/metrics").text
    row = r'^kernelgate_kernel_start_seconds_count\{way="fork"\} (\d+)'
    found = re.search(row, text, re.M)
    return int(found[1]) if found else 0


def zygotes(gateway):
    """The process ids of its zygotes."""
    pids = []
    for mark in pathlib.Path(gateway.state_dir, "sb").glob("*/zygote"):
        with contextlib.suppress(OSError, ValueError):  # it is being made, or removed
            pids.append(int((mark.parent / "init.pid").read_text()))
    return [pid for pid in pids if lives(pid)]


def can_fork(gateway):
    """Whether a zygote is ready, as the log says."""
    log = gateway.log()
    since = max(log.rfind("sandboxes are made by"), log.rfind("no zygote: "))
    return log.rfind("kernels can be forked") > since


class Killer:
    def __init__(self, soak, rng, kinds):
        self.soak, self.rng, self.kinds = soak, rng, kinds
        self.gateway = soak.gateway

    def run(self):
        """Kills something of each kind, in a new order each time; a zygote is ready before."""
        while self.soak.goes_on():
            if "zygote" in self.kinds:
                wait_for(lambda: can_fork(self.gateway) or not self.soak.goes_on(), timeout=120)
            for kind in self.rng.sample(self.kinds, len(self.kinds)):
                self.wait()
                if self.soak.goes_on():
                    self.kill(kind)

    def wait(self):
        """Waits until the clients have done something, which takes longer on a busy machine."""
        time.sleep(self.rng.uniform(0, 0.5))  # no moment is expected, any will do
        goal = self.soak.counts["executions"] + self.rng.randrange(30)
        while self.soak.goes_on() and self.soak.counts["executions"] < goal:
            time.sleep(0.02)

    def kill(self, kind):
        act = {"zygote": self.kill_zygote, "gateway": self.kill_gateway}.get(kind)
        if act() if act else self.kill_in_sandbox(kind):
            self.soak.counts[kind] += 1
            self.soak.missing.discard(kind)

    def kill_zygote(self):
        found = zygotes(self.gateway)
        if found:
            kill(self.rng.choice(found))
        return bool(found)

    def kill_in_sandbox(self, kind):
        with self.soak.lock:
            found = [each for each in sandboxes(self.gateway) if lives(each.agent)]
            self.rng.shuffle(found)
            # Rather one with a session.
            found.sort(key=lambda each: each.session is None and self.rng.random() < 0.8)
            for sandbox in found:
                with contextlib.suppress(ValueError, OSError):  # it has no kernel, or ends
                    self.hit(sandbox, kind, self.victims(kind, sandbox))
                    return True
        return False

    def hit(self, sandbox, kind, pids):
        event = Kill(kind, time.monotonic())
        (self.soak.harmed[sandbox.session] if sandbox.session else self.soak.unclaimed).append(
            event
        )
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(lives, pids)), interval=0.001)

    def victims(self, kind, sandbox):
        if kind == "kernel":
            return [sandbox.kernel()]
        if kind == "agent":
            return [sandbox.agent]
        pids = sandbox.pids()
        self.rng.shuffle(pids)
        return pids

    def kill_gateway(self):
        """Some of its sandboxes may be hit while there is no gateway."""
        with self.soak.lock:
            self.soak.is_down = True
            self.soak.generation += 1
            self.gateway.kill()
        if self.rng.random() < 0.3:
            self.kill(self.rng.choice(("kernel", "agent", "sandbox")))
        time.sleep(self.rng.choice((0, 0.5)))  # clients may or may not meet a refused connection
        self.gateway.start()
        with self.soak.lock:
            self.soak.is_down = False
        return True


class Run:
    """A soak of a gateway with that pool; `cells` are those of soak_cells."""

    def __init__(self, gateway, cells, kinds, pool_size, pool_bare=0):
        self.gateway, self.kinds = gateway, kinds
        self.pool_size, self.pool_bare = pool_size, pool_bare
        self.rng = random.Random(SEED)
        self.soak = Soak(gateway, cells)
        self.n_files = None  # descriptors of the gateway at rest
        print(f"\nsoak: seed {SEED}", flush=True)
        self.rest()
        self.soak.missing = set(kinds)

    def run(self, seconds, without=()):
        """Runs clients and the killer. At the end all sessions were deleted."""
        self.soak.end = time.monotonic() + seconds
        kinds = [kind for kind in self.kinds if kind not in without]
        actors = [Client(self.soak, n, self.new_random()) for n in range(N_CLIENTS)]
        actors.append(Killer(self.soak, self.new_random(), kinds))
        with concurrent.futures.ThreadPoolExecutor(len(actors)) as threads:
            runs = [threads.submit(actor.run) for actor in actors]
            done, _ = concurrent.futures.wait(runs, return_when=concurrent.futures.FIRST_EXCEPTION)
            self.soak.stop()
        for run in [*done, *runs]:
            run.result()
        self.rest()

    def new_random(self):
        return random.Random(self.rng.random())

    def rest(self):
        """Waits until nothing but the pool, and a zygote, is there: no process, descriptor, container
        or control group of what has ended."""
        gateway = self.gateway
        assert gateway.client.get("/api/v1/sessions").json()["total"] == 0
        wait_for(self.is_at_rest, timeout=120)
        # The ZeroMQ sockets of an ended kernel are closed when others are used (src/jupyter/socket.c).
        assert gateway.execute(self.soak.cells.once(1).code).status == "ok"
        wait_for(self.is_at_rest, timeout=120)
        own = {pid for sandbox in pooled(gateway) for pid in sandbox.pids()}
        wait_for(lambda: set(gateway.sandbox_pids()) <= own and not strays(gateway))
        if self.n_files is None:
            self.n_files = most_files(gateway)
        wait_for(lambda: gateway.open_files() <= self.n_files + FILES_OF_A_KERNEL)

    def is_at_rest(self):
        size = self.pool_size + self.pool_bare
        full = self.gateway.pool()["ready"] == self.pool_size
        return (
            full
            and ("zygote" not in self.kinds or can_fork(self.gateway))
            and len(pooled(self.gateway)) == len(sandboxes(self.gateway)) == size
        )

    def end(self):
        """Stops the gateway, and says what has happened."""
        n_forks, n_files = forks(self.gateway), self.gateway.open_files()
        self.gateway.stop()
        wait_for(lambda: not leftovers.find(self.gateway.state_dir))
        counts = " ".join(f"{name} {count}" for name, count in sorted(self.soak.counts.items()))
        print(f"soak: {counts}; forks of the last gateway {n_forks}")
        print(f"soak: {self.n_files} descriptors at the start, {n_files} at the end")


def most_files(gateway):
    """The most descriptors that the gateway has had, when a hundred requests in a row have found no
    more: all links of the pool are open then."""
    most, n_same = 0, 0
    while n_same < 100:
        gateway.pool()
        files = gateway.open_files()
        n_same = n_same + 1 if files <= most else 0
        most = max(most, files)
    return most


def strays(gateway):
    """Control groups, and containers of the runtime, whose sandbox does not exist."""
    state_dir = pathlib.Path(gateway.state_dir)
    gateway_id = (state_dir / "id").read_text()
    found = {os.path.basename(group) for group in leftovers.groups_of_gateway(gateway_id)}
    found |= {path.name for path in state_dir.glob("oci-*/*")}
    exist = {f"kg-{gateway_id}-{path.name}" for path in (state_dir / "sb").iterdir()}
    return found - exist - {f"kernelgate-{gateway_id}"}
