# SPDX-License-Identifier: Apache-2.0
"""Real MCP clients with real kernels; every client over every transport is in
tests/component/test_mcp_clients.py."""

import pytest
from mcp_clients import client_of
from mcp_work import PYTHON, work_through

CLIENTS = [("2-auto", "http"), ("python-legacy", "stdio")]


@pytest.mark.parametrize("sdk, transport", CLIENTS, ids=map("-".join, CLIENTS))
def test_a_client_works(gateway, own_gateway, sdk, transport):
    with client_of(sdk, transport, gateway, flags=own_gateway) as client:
        work_through(client, PYTHON)
