# SPDX-License-Identifier: Apache-2.0
"""Clients use sessions while processes are killed at random: zygotes, kernels, agents, whole
sandboxes and the gateway itself. A session that was not hit loses nothing, and at the end nothing
is left.

KERNELGATE_SOAK_SECONDS sets the duration, KERNELGATE_SOAK_SEED repeats a run's choices.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import signal
import time

import leftovers
import pytest
from kernelgate import free_port, wait_for
from sandboxes import kill, lives, pooled, sandboxes
from soak import Client, Kill, Soak
from test_forked_kernels import forks, zygotes

pytestmark = [
    pytest.mark.only("oci", "its processes are killed on this machine"),
    pytest.mark.not_on("runsc", "its sandboxes have a kernel of their own"),
]

SECONDS = float(os.environ.get("KERNELGATE_SOAK_SECONDS", "20"))
SEED = int(os.environ.get("KERNELGATE_SOAK_SEED", time.time_ns() % 1_000_000))

N_CLIENTS = 3
POOL_SIZE, POOL_BARE = 1, 2
FILES_OF_A_KERNEL = 6  # three sockets, with an eventfd each
SLACK_MB, KEPT_KB = 6, 4
KINDS = ("zygote", "kernel", "agent", "sandbox", "gateway")

# ---- The killer


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
            wait_for(
                lambda: can_fork(self.gateway) or not self.soak.goes_on(), timeout=120, interval=0.2
            )
            for kind in self.rng.sample(self.kinds, len(self.kinds)):
                self.wait()
                if self.soak.goes_on():
                    self.kill(kind)

    def wait(self):
        """Waits until the clients have done something, which takes longer on a busy machine."""
        time.sleep(self.rng.uniform(0, 0.5))
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
        time.sleep(self.rng.choice((0, 0.5)))
        self.gateway.start()
        with self.soak.lock:
            self.soak.is_down = False
        return True


# ---- The test


def run_for(soak, seconds, rng, kinds):
    """Runs clients and the killer. At the end all sessions were deleted."""
    soak.end = time.monotonic() + seconds
    actors = [Client(soak, n, random.Random(rng.random())) for n in range(N_CLIENTS)]
    actors.append(Killer(soak, random.Random(rng.random()), kinds))
    with concurrent.futures.ThreadPoolExecutor(len(actors)) as threads:
        runs = [threads.submit(actor.run) for actor in actors]
        done, _ = concurrent.futures.wait(runs, return_when=concurrent.futures.FIRST_EXCEPTION)
        soak.stop()
    for run in [*done, *runs]:
        run.result()


def strays(gateway):
    """Control groups, and containers of the runtime, whose sandbox does not exist."""
    state_dir = pathlib.Path(gateway.state_dir)
    gateway_id = (state_dir / "id").read_text()
    found = {os.path.basename(group) for group in leftovers.groups_of_gateway(gateway_id)}
    found |= {path.name for path in state_dir.glob("oci-*/*")}
    exist = {f"kg-{gateway_id}-{path.name}" for path in (state_dir / "sb").iterdir()}
    return found - exist - {f"kernelgate-{gateway_id}"}


def memory_at_rest(soak):
    """The gateway's memory in MiB when nothing but its pool and a zygote is there: no process,
    descriptor, container or control group of what has ended."""
    gateway = soak.gateway
    assert gateway.client.get("/api/v1/sessions").json()["total"] == 0

    def rests():
        full = gateway.pool()["ready"] == POOL_SIZE and can_fork(gateway)
        return full and len(pooled(gateway)) == len(sandboxes(gateway)) == POOL_SIZE + POOL_BARE

    wait_for(rests, timeout=120)
    # The ZeroMQ sockets of an ended kernel are closed when others are used (src/jupyter/socket.c).
    assert gateway.execute("1").status == "ok"
    wait_for(rests, timeout=120)
    own = {pid for sandbox in pooled(gateway) for pid in sandbox.pids()}
    wait_for(lambda: set(gateway.sandbox_pids()) <= own and not strays(gateway))
    if soak.n_files is None:
        time.sleep(2)  # until all links of the pool are open
        soak.n_files = gateway.open_files()
    wait_for(lambda: gateway.open_files() <= soak.n_files + FILES_OF_A_KERNEL)
    return gateway.rss_mb()


def test_soak(start_gateway):
    print(f"\nsoak: seed {SEED}, {SECONDS:g} s", flush=True)
    rng = random.Random(SEED)
    gateway = start_gateway(
        *("--kernel-start", "fork", "--max-sessions", "30"),
        *("--pool-size", str(POOL_SIZE), "--pool-bare", str(POOL_BARE)),
        port=free_port(),
        # AddressSanitizer would keep 256 MiB of freed memory, which would count.
        env={"ASAN_OPTIONS": "quarantine_size_mb=1"},
    )
    soak = Soak(gateway)
    memory_at_rest(soak)
    soak.missing = set(KINDS)
    run_for(soak, SECONDS / 2, rng, KINDS)
    # From here on the gateway lives, so that its memory can be compared.
    rest = [kind for kind in KINDS if kind != "gateway"]
    warm_up = min(60, SECONDS / 4)
    run_for(soak, warm_up, rng, rest)
    before, n_before = memory_at_rest(soak), soak.counts["executions"]
    run_for(soak, SECONDS / 2 - warm_up, rng, rest)
    after, n_ended = memory_at_rest(soak), soak.counts["executions"] - n_before
    n_forks, n_files = forks(gateway), gateway.open_files()
    gateway.stop()
    wait_for(lambda: not leftovers.find(gateway.state_dir))
    counts = " ".join(f"{name} {count}" for name, count in sorted(soak.counts.items()))
    print(f"soak: {counts}; forks of the last gateway {n_forks}")
    print(f"soak: {before:.1f} MiB, {n_ended} executions later {after:.1f} MiB")
    print(f"soak: {soak.n_files} descriptors at the start, {n_files} at the end")
    # Ended executions are kept for 10 minutes, at most 4,096; one takes about 3 KiB with
    # AddressSanitizer. The rest is for what the allocator keeps.
    assert after - before < SLACK_MB + min(n_ended, 4096) * KEPT_KB / 1024
