# SPDX-License-Identifier: Apache-2.0
"""Gateways of the component layer: the built binary, the test runtime, and the scripted kernel. The
fixtures are those of tests/conftest.py; the steps of a cell are in kernel/steps.h."""

import component
import pytest


@pytest.fixture(scope="session")
def layer_flags():
    return component.FLAGS


@pytest.fixture(scope="module")
def quick():
    return False  # there is no kernel here that could be quicker
