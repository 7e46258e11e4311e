# SPDX-License-Identifier: Apache-2.0
"""Frameworks that run code in E2B sandboxes, by E2B's SDK, with models that say what is written in their
scripts."""

import pytest
from e2b_clients import FRAMEWORKS, by_urls, run_script

pytestmark = [pytest.mark.seldom, pytest.mark.once]


@pytest.mark.parametrize("framework", ["smolagents", "langchain", "openai_agents"])
def test_framework(gateway, tmp_path, framework):
    run_script(f"run_{framework}.py", gateway, by_urls(gateway, "any"), tmp_path, FRAMEWORKS)
