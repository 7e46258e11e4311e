# SPDX-License-Identifier: Apache-2.0
"""The gateways that tests talk to, each checked when it ends: exit code, sanitizers, leftovers."""

import uuid

import pytest
from kernelgate import Gateway


@pytest.fixture
def start_gateway():
    """Starts gateways with flags of a test's own."""
    started = []

    def start(*flags, **options):
        started.append(Gateway(*flags, **options))
        return started[-1].start()

    yield start
    errors = []
    for gateway in reversed(started):
        try:
            gateway.clean_up()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture(scope="module")
def gateway():
    """One gateway for a module, with default settings but no pool larger than this machine."""
    running = Gateway("--pool-size", "1")
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def session(gateway):
    """A session of one test."""
    session_id = gateway.create_session(session_id=f"t-{uuid.uuid4().hex[:12]}")
    yield session_id
    gateway.delete_session(session_id)


@pytest.fixture
def run(gateway, session):
    """Executes code in the test's session."""
    return lambda code, **fields: gateway.execute(code, session_id=session, **fields)
