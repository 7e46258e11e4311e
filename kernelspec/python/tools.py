# SPDX-License-Identifier: Apache-2.0
"""The name by which code finds kernelgate_tools, unless it has a tools.py of its own."""

import sys

import kernelgate_tools

sys.modules[__name__] = kernelgate_tools
