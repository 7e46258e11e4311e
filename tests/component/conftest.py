# SPDX-License-Identifier: Apache-2.0
"""Gateways of the component layer: the built binary, the test runtime, and the scripted kernel. The
fixtures are those of tests/conftest.py; the steps of a cell are in kernel/steps.h."""

import component
import pytest
from port_servers import Port
from port_servers import serving as serving_in
from sandboxes import sandbox_of


@pytest.fixture(scope="session")
def layer_flags():
    return component.FLAGS


@pytest.fixture(scope="module")
def quick():
    return False  # there is no kernel here that could be quicker


@pytest.fixture
def serving(gateway, session):
    """Runs a server in the network of the test's session."""
    return lambda serve, **options: serving_in(sandbox_of(gateway, session).agent, serve, **options)


@pytest.fixture
def open_port(gateway, session):
    """Opens a port: the client has its cookie."""

    def open_(port):
        opened = Port(gateway, session, port)
        opened.open()
        return opened

    return open_
