# SPDX-License-Identifier: Apache-2.0
"""The official conformance suites, in two pinned versions: all of it against a server that has the core and
the transport of the gateway and what the suites call, and what needs nothing else against the gateway."""

import re
import subprocess

import component
import pytest
from kernelgate import PROJECT, SANITIZER

NODE = PROJECT / "build/node/bin/node"
SUITES = PROJECT / "build/node/node_modules"
FIXTURES = component.PROGRAMS / "bin/mcp-fixtures"
VERDICT = re.compile(r"^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
# Scenarios that are run and pass, but are not scored.
BEYOND_2025 = {"server-session-lifecycle", "json-schema-2020-12"}
BEYOND_2026 = {
    "http-header-validation",
    "http-custom-header-server-validation",
    "json-schema-2020-12",
}
# What fails, and how often: kernelgate asks clients nothing and reports no changes.
ASKS_2025 = dict.fromkeys(
    [
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "resources-subscribe",
        "resources-unsubscribe",
    ],
    1,
)
ASKS_2026 = {
    "server-stateless": 2,  # a call refused for what the client cannot do, and the status of that
    **dict.fromkeys(
        [
            "input-required-result-basic-elicitation",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-request-state",
            "input-required-result-multiple-input-requests",
            "input-required-result-multi-round",
            "input-required-result-non-tool-request",
            "input-required-result-result-type",
            "input-required-result-tampered-state",
            "input-required-result-capability-check",
        ],
        1,
    ),
}


def run_suite(version, url, *arguments):
    """Runs a suite; returns the scenarios that passed, that failed and how often, that are not scored, and
    its output."""
    assert NODE.exists(), "Node is not there: script/test makes build/node"
    command = [NODE, SUITES / f"conformance-{version}/dist/index.js", "server"]
    done = subprocess.run(
        [*command, "--url", url + "/mcp", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    output = done.stdout + done.stderr
    found = VERDICT.findall(output)
    passed = {name for sign, name, n_passed, _ in found if sign == "✓" and int(n_passed)}
    failed = {name: int(n_failed) for sign, name, _, n_failed in found if sign == "✗"}
    unscored = set(re.findall(r"^  [✓✗] ([\w-]+) \(", output, re.MULTILINE))
    return passed, failed, unscored, output


# ---- With the fixtures


@pytest.fixture(scope="module")
def fixtures():
    """The URL of a server with the fixtures."""
    with subprocess.Popen([FIXTURES], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        try:
            yield server.stdout.readline().decode().strip()
        finally:
            server.terminate()
            _, log = server.communicate(timeout=60)
        assert server.returncode == 0 and not SANITIZER.search(log.decode()), log.decode()


@pytest.mark.parametrize(
    ("version", "arguments", "scenarios", "asks", "beyond"),
    [
        ("1", ("--suite", "all"), 25, ASKS_2025, set()),
        ("2", ("--requirements", "2025-11-25"), 24, ASKS_2025, BEYOND_2025),
        ("2", ("--requirements", "2026-07-28"), 26, ASKS_2026, BEYOND_2026),
    ],
    ids=["0.1.16", "2025-11-25", "2026-07-28"],
)
def test_every_scored_scenario_passes(fixtures, version, arguments, scenarios, asks, beyond):
    passed, failed, unscored, output = run_suite(version, fixtures, *arguments)
    scored = {name: n_failed for name, n_failed in failed.items() if name not in unscored}
    assert scored == asks, output
    assert len(passed - unscored) == scenarios, output
    assert beyond <= passed & unscored, output


# ---- The gateway

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


@pytest.mark.parametrize("revision", WITHOUT_FIXTURES)
def test_the_gateway_passes_what_needs_no_fixtures(gateway, revision):
    arguments = ("--suite", "all", "--spec-version", revision)
    passed, _, _, output = run_suite("2", gateway.url, *arguments)
    assert set(WITHOUT_FIXTURES[revision]) <= passed, output
