# SPDX-License-Identifier: Apache-2.0
"""Three replicas claim the sandboxes of one pool, and names, in the same moments.

KERNELGATE_CLAIMS sets how many claims are made: by default a few, for CI. Sessions end as they go.
"""

import collections
import concurrent.futures
import os
import random
import threading
import time

import cluster
import pytest
from kernelgate import wait_for
from replicas import leader_of, leases, listed, pods

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")

CLAIMS = int(os.environ.get("KERNELGATE_CLAIMS", "15"))
POOL = 3
REPLICAS = 3
SMALL = ("--memory-mb", "96", "--disk-mb", "128", "--cpus", "0.5", "--max-sessions", "30")
# What an earlier session of the same sandbox would have left, in its kernel or in its files.
CLAIM = """
import os
ran = globals().get('ran', 0) + 1
owner = open('owner').read() if os.path.exists('owner') else ''
if not owner:
    open('owner', 'w').write(NAME)
print(ran, owner or 'new')
"""


class Sampler(threading.Thread):
    """Looks all the time for two living pods of one session."""

    def __init__(self, installation):
        super().__init__(daemon=True)
        self.installation = installation
        self.stop = threading.Event()
        self.twice = set()
        self.seen = set()

    def run(self):
        while not self.stop.wait(0.2):
            claimed = [
                pod["metadata"]["labels"]["kernelgate/session"]
                for pod in cluster.Cluster().pods(self.installation)
                if pod["metadata"]["labels"]["kernelgate/state"] == "claimed"
            ]
            self.twice |= {name for name, n in collections.Counter(claimed).items() if n > 1}
            self.seen |= set(claimed)


def claim(gateway, name):
    """Runs CLAIM in that session, which this makes if there is none; a refusal says when to try again."""
    for _ in range(60):
        body = {"session_id": name, "code": CLAIM.replace("NAME", repr(name))}
        answer = gateway.client.post("/api/v1/execute_sync", json=body)
        if answer.status_code != 503:
            break
        time.sleep(float(answer.headers["retry-after"]) * random.uniform(0.2, 1))
    assert answer.status_code == 200, answer.text
    ran, owner = "".join(answer.json()["data"]["texts"]).split()
    return name, int(ran), owner


def end(gateway, name):
    answer = gateway.client.delete(f"/api/v1/sessions/{name}")
    assert answer.status_code == 200, answer.text


def race(replicas, names, pool):
    """Each replica claims one of the names at the same time; each session runs its cells once."""
    claims = list(pool.map(claim, replicas, names))
    for name in set(names):
        of_name = [(ran, owner) for claimed, ran, owner in claims if claimed == name]
        # The first one found a new sandbox, the others that session.
        assert sorted(of_name) == [
            (number + 1, name if number else "new") for number in range(len(of_name))
        ], claims
    ending = random.sample(replicas, len(set(names)))
    list(pool.map(end, ending, set(names)))


def test_claims_of_one_pool(start_replica):
    installation = start_replica.installation
    flags = ("--pool-size", str(POOL), "--log-level", "debug", *SMALL)
    replicas = [start_replica(*flags) for _ in range(REPLICAS)]
    leader_of(replicas).fill_pool()
    sampler = Sampler(installation)
    sampler.start()
    began, sessions = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(REPLICAS) as pool:
        for number in range(-(-CLAIMS // REPLICAS)):
            # By turns one name for all, and one for each.
            names = [f"race-{number}-{i * (number % 2)}" for i in range(REPLICAS)]
            race(replicas, names, pool)
            sessions += len(set(names))
    seconds = time.monotonic() - began
    sampler.stop.set()
    sampler.join()
    print(f"{number * REPLICAS + REPLICAS} claims, {sessions} sessions, {seconds:.0f} s")
    assert not sampler.twice
    assert sampler.seen
    assert all(listed(gateway) == [] for gateway in replicas)
    wait_for(lambda: not pods(installation, "claimed"), timeout=60)
    wait_for(lambda: not leases(installation, "session"), timeout=60)
    wait_for(lambda: len(pods(installation, "free")) == POOL, timeout=60)
    assert len(leases(installation, "replica")) == REPLICAS
