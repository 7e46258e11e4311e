# SPDX-License-Identifier: Apache-2.0
"""The official conformance suites, in two pinned versions, against the very transport and core that
ship: all of it beside the fixtures that it calls, and what needs none against the release."""

import re
import subprocess

import component
import pytest
from kernelgate import PROJECT, RELEASE, Gateway

NODE = PROJECT / "build/node/bin/node"
SUITES = PROJECT / "build/node/node_modules"
VERDICT = re.compile(r"^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
# Scenarios that are run and pass, but are not scored.
BEYOND_2025 = {"server-sse-polling", "server-session-lifecycle", "json-schema-2020-12"}
BEYOND_2026 = {
    "http-header-validation",
    "http-custom-header-server-validation",
    "json-schema-2020-12",
}


def run_suite(version, gateway, *arguments):
    """Runs a suite; returns the scenarios that passed, failed, are not scored, and its output."""
    assert NODE.exists(), "Node is not there: script/test makes build/node"
    command = [NODE, SUITES / f"conformance-{version}/dist/index.js", "server"]
    done = subprocess.run(
        [*command, "--url", gateway.url + "/mcp", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    output = done.stdout + done.stderr
    found = VERDICT.findall(output)
    passed = {name for sign, name, n_passed, _ in found if sign == "✓" and int(n_passed)}
    failed = {name for sign, name, _, _ in found if sign == "✗"}
    unscored = set(re.findall(r"^  [✓✗] ([\w-]+) \(", output, re.MULTILINE))
    return passed, failed, unscored, output


# ---- With the fixtures


@pytest.mark.parametrize(
    ("version", "arguments", "scenarios", "beyond"),
    [
        ("1", ("--suite", "all"), 32, set()),
        ("2", ("--requirements", "2025-11-25"), 30, BEYOND_2025),
        ("2", ("--requirements", "2026-07-28"), 37, BEYOND_2026),
    ],
    ids=["0.1.16", "2025-11-25", "2026-07-28"],
)
def test_every_scored_scenario_passes(gateway, version, arguments, scenarios, beyond):
    passed, failed, unscored, output = run_suite(version, gateway, *arguments)
    assert not failed - unscored, output
    assert len(passed - unscored) == scenarios, output
    assert beyond <= passed & unscored, output


# ---- The release

WITHOUT_FIXTURES = {
    "2025-11-25": [
        "server-initialize",
        "ping",
        "logging-set-level",
        "completion-complete",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "server-session-lifecycle",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "completion-complete",
        "tools-list",
        "resources-list",
        "prompts-list",
        "sep-2164-resource-not-found",
        "http-header-validation",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
}


@pytest.fixture(scope="module")
def release():
    running = Gateway(*component.FLAGS, binary=RELEASE)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.mark.parametrize("revision", WITHOUT_FIXTURES)
def test_the_release_passes_what_needs_no_fixtures(release, revision):
    passed, _, _, output = run_suite("2", release, "--suite", "all", "--spec-version", revision)
    assert set(WITHOUT_FIXTURES[revision]) <= passed, output


def test_the_release_has_no_fixtures(gateway, release):
    def tools(of):
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/list",
            "params": {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                }
            },
        }
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        answer = of.client.post("/mcp", json=message, headers=headers).json()
        return {tool["name"] for tool in answer["result"]["tools"]}

    fixtures = {name for name in tools(gateway) if name.startswith("test_")}
    assert len(fixtures) > 20
    assert not fixtures & tools(release)
    with open(RELEASE, "rb") as binary:
        code = binary.read()
    assert not [name for name in fixtures if name.encode() in code]
