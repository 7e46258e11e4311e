# SPDX-License-Identifier: Apache-2.0
"""E2B's SDK for Python from before /v2/sandboxes, which refuses keys of another form than E2B's."""

import pytest
from e2b_clients import OLD_SDK, by_urls, run_script
from kernelgate import Gateway

KEY = "key-of-mine"


@pytest.mark.once
def test_an_old_sdk(engine, tmp_path):
    running = Gateway("--pool-size", "1", "--api-key", KEY, key=KEY, quick=True)
    try:
        running.start()
        key = f"e2b_{KEY.encode().hex()}"
        run_script("python_sdk.py", running, by_urls(running, key), tmp_path, OLD_SDK)
    finally:
        running.clean_up()
