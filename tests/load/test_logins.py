# SPDX-License-Identifier: Apache-2.0
"""How long passwords keep others waiting."""

import concurrent.futures
import statistics
import time

from account_commands import Accounts

PASSWORD = "correct horse"


def test_hashing_delays_nobody(start_gateway, clients, tmp_path):
    """While many log in, requests with a key of an account are answered. It prints how long the others
    waited; script/bench --neighbours measures that, too."""
    accounts = Accounts(tmp_path / "accounts.db")
    accounts.do("user", "add", "alice")
    accounts.password("alice", PASSWORD)
    gateway = start_gateway(*accounts.flags, "--pool-size", "0")
    key = clients(gateway, accounts.key("alice"))
    body = {"name": "alice", "password": PASSWORD}
    assert key.get("/api/v1/sessions").status_code == 200
    waits = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pages = [clients(gateway, None) for _ in range(8)]
        logins = [pool.submit(page.post, "/api/v1/login", json=body) for page in pages]
        answered = 0
        while not logins[-1].done():
            asked = time.monotonic()
            assert key.get("/api/v1/sessions").status_code == 200
            waits.append((time.monotonic() - asked) * 1000)
            answered += not logins[-1].done()
        assert {login.result().status_code for login in logins} == {200}
    print(f"waits: median {statistics.median(waits):.1f} ms, longest {max(waits):.1f} ms")
    assert answered >= 16  # two for each hash, at the very least
