# SPDX-License-Identifier: Apache-2.0
"""Bounds on time, pace, memory and processor time: on the release build, on a machine that does nothing
else, one test at a time. The fixtures are those of tests/conftest.py."""

import pathlib

import pytest
from kernelgate import BINARY


@pytest.fixture(scope="session", autouse=True)
def release_build():
    is_sanitized = b"__asan_init" in pathlib.Path(BINARY).read_bytes()
    assert not is_sanitized, "the bounds are the release build's: set KERNELGATE_BIN"
