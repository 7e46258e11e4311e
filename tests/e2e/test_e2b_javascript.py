# SPDX-License-Identifier: Apache-2.0
"""E2B's SDK for JavaScript, unchanged, by the two URLs."""

import pytest
from e2b_clients import by_urls, run_script
from kernelgate import Gateway

TAKES_LONG = True
KEY = "key-of-e2b"


@pytest.fixture(scope="module")
def keyed(engine):
    running = Gateway("--pool-size", "1", "--api-key", KEY, key=KEY, quick=True)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.mark.parametrize("subject", ["life", "code", "contexts", "files", "commands", "terminals"])
def test_javascript(keyed, tmp_path, subject):
    run_script(f"{subject}.mjs", keyed, by_urls(keyed, KEY), tmp_path)
