# SPDX-License-Identifier: Apache-2.0
"""What a client with a key gets while others without one hold all that they can."""

import contextlib
import statistics
import threading
import time

from account_commands import Accounts
from strangers import Strangers

STRANGERS = 2000
TIMES_SLOWER = 4


def took_ms(action):
    started = time.monotonic()
    action()
    return (time.monotonic() - started) * 1000


def medians(gateway, key, session):
    """Milliseconds of a small execution, and of a new session, each on a connection of its own."""
    warm, new = [], []
    for number in range(60):
        with contextlib.closing(gateway.client_for(key)) as client:

            def execute(session, client=client):
                answer = gateway.execute("1", client=client, session_id=session)
                assert answer.status == "ok", answer.done

            warm.append(took_ms(lambda: execute(session)))
            if number % 6 == 0:
                other = f"new-{number}"
                new.append(took_ms(lambda: execute(other)))
                client.delete(f"/api/v1/sessions/{other}").raise_for_status()
                gateway.fill_pool()
    return statistics.median(warm), statistics.median(new)


def test_strangers_take_no_place_and_little_time(start_gateway, tmp_path):
    accounts = Accounts(tmp_path / "accounts.db")
    accounts.do("user", "add", "alice")
    accounts.do("user", "add", "bob")
    key = accounts.key("bob")
    gateway = start_gateway(*accounts.flags, "--pool-size", "2", "--jupyter-api", key=key)
    session = gateway.create_session()
    gateway.fill_pool()
    quiet = medians(gateway, key, session)
    stop = threading.Event()
    with Strangers(gateway, STRANGERS) as strangers:

        def drip_and_come_back():
            while not stop.wait(0.2):
                strangers.drip()
                strangers.come_back(50)

        thread = threading.Thread(target=drip_and_come_back)
        thread.start()
        try:
            beside = medians(gateway, key, session)
        finally:
            stop.set()
            thread.join()
        assert strangers.count_open() <= 1024
    for name, before, then in zip(("warm 1", "new session"), quiet, beside, strict=True):
        print(f"{name}: {before:.1f} ms, with {STRANGERS} strangers {then:.1f} ms")
        assert then < TIMES_SLOWER * before
