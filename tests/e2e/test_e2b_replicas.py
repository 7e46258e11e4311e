# SPDX-License-Identifier: Apache-2.0
"""E2B's sandboxes through any of several gateways: each answers for all."""

import e2b
import pytest
from e2b_code_interpreter import Sandbox
from kernelgate import wait_for

pytestmark = pytest.mark.only("kubernetes", "replicas are gateways of a cluster")


def options(gateway):
    return {"api_url": gateway.url, "sandbox_url": gateway.url, "api_key": "any"}


def test_the_life_of_a_sandbox(shared_pair):
    first, second = shared_pair
    made = Sandbox.create(timeout=600, metadata={"test": "life"}, **options(first))
    there = Sandbox.connect(made.sandbox_id, **options(second))
    assert there.is_running() and there.get_info().metadata == {"test": "life"}
    made.run_code("shared = 5")
    assert there.run_code("shared").text == "5"
    query = e2b.SandboxQuery(metadata={"test": "life"})
    for gateway in shared_pair:
        listed = e2b.Sandbox.list(query=query, **options(gateway)).next_items()
        assert [it.sandbox_id for it in listed] == [made.sandbox_id]
    there.set_timeout(1000)
    assert made.get_info().end_at == there.get_info().end_at
    assert there.kill()
    wait_for(lambda: not made.is_running())
    with pytest.raises(e2b.TimeoutException):
        made.run_code("1")


def test_pages_of_all(shared_pair):
    made = [Sandbox.create(timeout=600, **options(it)) for it in (*shared_pair, shared_pair[0])]
    for gateway in shared_pair:
        pages, paginator = [], e2b.Sandbox.list(limit=1, **options(gateway))
        while paginator.has_next:
            pages += [it.sandbox_id for it in paginator.next_items()]
        assert pages == [it.sandbox_id for it in reversed(made)]
    for each in made:
        assert each.kill()


def test_an_idempotency_key(shared_pair):
    first, second = shared_pair
    body, headers = {"templateID": "base", "timeout": 60}, {"Idempotency-Key": "of-both"}
    one = first.client.post("/v2/sandboxes", json=body, headers=headers)
    other = second.client.post("/v2/sandboxes", json=body, headers=headers)
    assert one.status_code == other.status_code == 201
    assert one.json()["sandboxID"] == other.json()["sandboxID"]
    assert one.json()["envdAccessToken"] == other.json()["envdAccessToken"]
    assert second.client.delete(f"/sandboxes/{one.json()['sandboxID']}").status_code == 204
