# SPDX-License-Identifier: Apache-2.0
"""What MCP costs others: large answers and messages hold nobody up, whichever way they go, and take
little memory, as abandoned sessions do."""

import concurrent.futures
import pathlib
import re

import component
import mcp_large
import pytest
from mcp_wire import BOTH, initialize
from waits import holds_nobody_up

PEAK_MB = 150


@pytest.fixture
def gateway(start_gateway, tmp_path):
    flags = *component.FLAGS, *mcp_large.owners(tmp_path)
    return start_gateway(*flags, key="alice-secret")


# ---- Nobody waits


@pytest.mark.parametrize("form", ["json", "stream", "batch"])
def test_figures(gateway, form):
    ask = {
        "json": mcp_large.figures_as_json,
        "stream": mcp_large.figures_as_a_stream,
        "batch": mcp_large.figures_in_a_batch,
    }[form]
    version = "2025-03-26" if form == "batch" else "2025-11-25"
    client = mcp_large.client_of(gateway, version)
    holds_nobody_up(gateway, "bob-secret", lambda: ask(client))


def test_the_old_transport(gateway):
    with mcp_large.old_transport(gateway) as ask:
        for large in (
            mcp_large.figures_over_the_old_transport,
            mcp_large.large_code_over_the_old_transport,
        ):
            holds_nobody_up(gateway, "bob-secret", lambda large=large: large(ask))


def test_an_image_of_ten_megabytes_as_text(gateway):
    client = mcp_large.text_client_of(gateway)
    holds_nobody_up(gateway, "bob-secret", lambda: mcp_large.large_text(client))


@pytest.mark.parametrize("message, ok", mcp_large.MESSAGES.values(), ids=mcp_large.MESSAGES)
def test_large_messages(gateway, message, ok):
    client = mcp_large.client_of(gateway)
    holds_nobody_up(gateway, "bob-secret", lambda: mcp_large.large_message(client, message, ok))


def test_large_files(gateway):
    holds_nobody_up(gateway, "bob-secret", mcp_large.large_files(mcp_large.client_of(gateway)))


# ---- Memory


def memory_mb(gateway, field):
    status = pathlib.Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024


@pytest.mark.parametrize("form", ["answers", "texts"])
def test_ten_at_once_are_bounded(gateway, form):
    make, ask = {
        "answers": (mcp_large.client_of, mcp_large.figures_as_json),
        "texts": (mcp_large.text_client_of, mcp_large.large_text),
    }[form]
    clients = [make(gateway) for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(ask, clients))
    assert memory_mb(gateway, "VmHWM") < PEAK_MB


def test_a_thousand_sessions_that_nobody_ends(start_gateway):
    gateway = start_gateway("--pool-size", "0")

    def open_many(n):
        for _ in range(n):
            answer = gateway.client.post("/mcp", json=initialize(), headers=BOTH)
            assert answer.status_code == 200

    open_many(100)
    before = gateway.rss_mb()
    open_many(1000)
    assert gateway.rss_mb() - before < 8
