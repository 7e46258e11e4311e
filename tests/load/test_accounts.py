# SPDX-License-Identifier: Apache-2.0
"""What changes of accounts cost others, with many accounts."""

import statistics
import threading
import time

import pytest
from account_commands import Accounts

ACCOUNTS = 20_000
PAUSE_S = 0.005


def add_accounts(accounts):
    """As the command would, but at once."""
    names = (
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS}) "
    )
    accounts.sql(f"{names} INSERT INTO users (name, created_ms) SELECT 'user-' || i, 1 FROM n")
    accounts.sql(
        "INSERT INTO keys (id, user_id, name, hash, created_ms) "
        "SELECT printf('%010d', id), id, '', randomblob(32), 1 FROM users WHERE name LIKE 'user-%'"
    )


def waits(client, seconds):
    """How long requests take, in milliseconds."""
    taken, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        asked = time.monotonic()
        assert client.get("/api/v1/sessions").status_code == 200
        taken.append((time.monotonic() - asked) * 1000)
        time.sleep(PAUSE_S)
    return taken


class Rotation:
    """Makes keys and revokes them, as fast as it may, until the block ends."""

    def __init__(self, client):
        self.client = client
        self.n = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._ending.is_set():
            made = self.client.post("/api/v1/keys")
            if made.status_code == 429:
                self._ending.wait(min(int(made.headers["Retry-After"]), 0.1))
                continue
            path = f"/api/v1/keys/{made.json()['id']}"
            assert self.client.delete(path).status_code == 200
            self.n += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("per_minute", "times"), [(60, 2), (0, 5)], ids=["as fast as allowed", "without a limit"]
)
def test_changes_of_keys_delay_nobody(start_gateway, clients, tmp_path, per_minute, times):
    """With many accounts, another user's median request takes at most so many times as long as in
    quiet. Without the limit, the test's own two clients share a processor, too."""
    accounts = Accounts(tmp_path / "accounts.db")
    for user in ("alice", "bob"):
        accounts.do("user", "add", user)
    add_accounts(accounts)
    flags = ("--pool-size", "0", "--account-changes-per-minute", str(per_minute))
    gateway = start_gateway(*accounts.flags, *flags)
    alice, bob = (clients(gateway, accounts.key(user)) for user in ("alice", "bob"))
    waits(bob, 1)
    quiet = waits(bob, 4)
    with Rotation(alice) as rotation:
        beside = waits(bob, 6)
    medians = statistics.median(quiet), statistics.median(beside)
    longest = max(quiet), max(beside)
    print(f"{rotation.n} keys: medians {medians[0]:.2f} and {medians[1]:.2f} ms, "
          f"longest {longest[0]:.1f} and {longest[1]:.1f} ms")  # fmt: skip
    assert rotation.n > 20
    assert medians[1] <= times * medians[0]
