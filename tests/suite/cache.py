# SPDX-License-Identifier: Apache-2.0
"""The folder of what is remembered on this machine, and shared by all work trees."""

import os
import pathlib

CACHE = (
    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kernelgate"
)
