# SPDX-License-Identifier: Apache-2.0
"""GET /metrics, parsed as Prometheus does, before and after what it counts."""

import contextlib
import json
import os
import pathlib
import re
import signal
import time
import uuid

import component
import httpx
import pytest
from component import HELD, STUBBORN, cell
from kernelgate import PROJECT, run_until_timeout, wait_for
from prometheus_client.parser import text_string_to_metric_families

OWN_GATEWAY = True  # all that happens in it is counted


class Scrape:
    def __init__(self, gateway):
        response = gateway.client.get("/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families = list(text_string_to_metric_families(response.text))
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name, **labels):
        return self.samples.get((name, frozenset(labels.items())), 0)

    def names(self):
        """The names as they are used in rules: the parser removes a counter's `_total`."""
        suffix = {"counter": "_total"}
        return {family.name + suffix.get(family.type, "") for family in self.families}


def growth(gateway):
    """Returns how much a sample has grown since then."""
    before = Scrape(gateway)
    return lambda name, **labels: Scrape(gateway)(name, **labels) - before(name, **labels)


@pytest.fixture
def grown(gateway):
    return growth(gateway)


# ---- The format


def test_every_metric_is_described_once(gateway):
    families = Scrape(gateway).families
    names = [family.name for family in families]
    assert len(names) == len(set(names)) > 20
    for family in families:
        assert family.type in ("counter", "gauge", "histogram") and family.documentation
        assert re.match("(kernelgate|process)_", family.name)


def test_histograms_are_complete(gateway, run):
    run("result 1")
    histograms = [family for family in Scrape(gateway).families if family.type == "histogram"]
    assert len(histograms) >= 5
    for family in histograms:
        series = {}
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            series.setdefault(tuple(labels.items()), []).append(sample)
        for samples in series.values():
            buckets = [sample.value for sample in samples if sample.name.endswith("_bucket")]
            [count] = [sample.value for sample in samples if sample.name.endswith("_count")]
            assert buckets == sorted(buckets) and buckets[-1] == count
            assert any(sample.name.endswith("_sum") for sample in samples)


def test_metrics_need_no_key(start_gateway):
    gateway = start_gateway("--api-key", "secret")
    assert httpx.get(f"{gateway.url}/metrics", trust_env=False).status_code == 200
    assert httpx.get(f"{gateway.url}/api/v1/sessions", trust_env=False).status_code == 401


def test_the_documentation_lists_every_metric(gateway):
    page = (PROJECT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|(.*?)\| (.*) \|$", page, re.MULTILINE)
    families = {family.name: family for family in Scrape(gateway).families}
    assert {name for name, *_ in rows} == Scrape(gateway).names()
    for name, kind, labels, means in rows:
        family = families[name.removesuffix("_total")]
        assert family.type == kind
        assert family.documentation == f"{means[0].upper()}{means[1:]}.".replace("`", "")
        known = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert not family.samples or known == set(re.findall(r"`(\w+)`", labels)), name


def test_the_documentation_lists_every_budget(gateway):
    page = (PROJECT / "docs/metrics.md").read_text()
    samples = [sample for family in Scrape(gateway).families for sample in family.samples]
    held = {s.labels["budget"] for s in samples if s.name == "kernelgate_budget_held"}
    maxima = {s.labels["budget"]: s.value for s in samples if s.name == "kernelgate_budget_max"}
    assert held == set(maxima) == set(re.findall(r"^  - `(\w+)`: ", page, re.MULTILINE))
    assert all(maxima.values())


def test_the_dashboard_asks_for_metrics_that_exist(gateway):
    dashboard = json.loads((PROJECT / "deploy/grafana/kernelgate.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries = " ".join(target["expr"] for target in targets)
    asked = set(re.findall(r"\b(?:kernelgate|process)_\w+", queries))
    asked = {re.sub("_(bucket|sum|count)$", "", name) for name in asked}
    assert len(asked) > 15
    assert asked <= Scrape(gateway).names()


# ---- Requests


def test_requests_are_counted_by_route_method_and_class(gateway, grown):
    requests = "kernelgate_http_requests_total"
    gateway.client.get("/api/v1/sessions/not-there")
    gateway.client.get("/api/v1/sessions/not-there-either")
    gateway.client.head("/healthz")
    gateway.client.post("/api/v1/execute", content=b"{")
    assert grown(requests, route="/api/v1/sessions/{id}", method="GET", status="4xx") == 2
    assert grown(requests, route="/healthz", method="HEAD", status="2xx") == 1
    assert grown(requests, route="/api/v1/execute", method="POST", status="4xx") == 1
    assert grown("kernelgate_http_problems_total", code="session_not_found") == 2
    assert grown("kernelgate_http_problems_total", code="invalid_request") == 1


def test_what_a_client_chooses_becomes_no_label(gateway, grown):
    before = len(Scrape(gateway).samples)
    for _ in range(20):
        gateway.client.get(f"/{uuid.uuid4()}")
    assert grown("kernelgate_http_requests_total", route="none", method="GET", status="4xx") == 20
    assert len(Scrape(gateway).samples) <= before + 2  # the route "none", the code `not_found`


def test_a_client_that_leaves_is_counted(gateway, session, grown):
    with pytest.raises(httpx.ReadTimeout):
        gateway.client.post(
            "/api/v1/execute_sync",
            json={"code": "hang", "session_id": session, "timeout": 600},
            timeout=1,
        )
    labels = {"route": "/api/v1/execute_sync", "method": "POST", "status": "gone"}
    wait_for(lambda: grown("kernelgate_http_requests_total", **labels) == 1)
    wait_for(lambda: grown("kernelgate_executions_total", status="interrupted") == 1)


# ---- Executions


def test_executions_by_status(gateway, run, grown):
    run("result 1")
    run("result 2")
    run("error ZeroDivisionError division by zero")
    run("hang", timeout=0.5)
    assert grown("kernelgate_executions_total", status="ok") == 2
    assert grown("kernelgate_executions_total", status="error") == 1
    assert grown("kernelgate_executions_total", status="timeout") == 1
    assert grown("kernelgate_executions_total", status="died") == 0
    assert grown("kernelgate_execution_seconds_count") == 4


def test_times_of_an_execution(gateway, session, grown):
    begun = time.monotonic()
    with gateway.stream(HELD, session_id=session) as reader:
        reader.next_of("stdout")
        gateway.client.get("/healthz")  # the metric follows the line
        seen = time.monotonic()
        time.sleep(1.2)  # a longer one is in the same bucket
        gateway.release(session)
        reader.rest()
    gateway.client.get("/healthz")
    ended = time.monotonic()
    assert grown("kernelgate_execution_first_line_seconds_count") == 1
    assert grown("kernelgate_execution_seconds_count") == 1
    assert 0 < grown("kernelgate_execution_first_line_seconds_sum") <= seen - begun
    assert 1.2 < grown("kernelgate_execution_seconds_sum") <= ended - begun
    assert grown("kernelgate_execution_seconds_bucket", le="1") == 0
    assert grown("kernelgate_execution_seconds_bucket", le="+Inf") == 1


def test_output_bytes(run, grown):
    run("print {100000*x}")
    assert 100_000 < grown("kernelgate_output_bytes_total") < 101_000
    assert grown("kernelgate_output_dropped_lines_total") == 0


def test_dropped_lines(start_gateway):
    gateway = start_gateway("--max-output-bytes", "65536")
    code = "repeat 100 print {5000*x}"
    outputs = gateway.client.post("/api/v1/execute_sync", json={"code": code}).json()["data"]
    [dropped] = [line for line in outputs["outputs"] if line["type"] == "dropped"]
    scrape = Scrape(gateway)
    assert scrape("kernelgate_output_dropped_lines_total") == dropped["messages"] > 0
    assert scrape("kernelgate_output_dropped_bytes_total") == dropped["bytes"] > 0


# ---- Kernels


@pytest.mark.parametrize(
    "cause, code",
    [
        ("exit", "die 1"),
        ("signal", "kill 11"),
        ("oom", "oom"),
        ("timeout", STUBBORN),
    ],
)
def test_kernel_deaths_by_cause(run, grown, cause, code):
    if cause == "timeout":
        lines = run_until_timeout(
            lambda timeout: run(code, timeout=timeout), lambda lines: lines.text() == "deaf\n"
        )
    else:
        lines = run(code)
    assert lines.done["kernel_restarted"] is True
    for each in ("exit", "signal", "oom", "timeout", "interrupt", "lost"):
        assert grown("kernelgate_kernel_deaths_total", cause=each) == (each == cause)


def test_a_kernel_that_is_killed_for_an_interrupt(gateway, session, grown):
    with gateway.stream(STUBBORN, session_id=session) as reader:
        reader.next_of("stdout")
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        assert reader.rest().status == "interrupted"
    assert grown("kernelgate_kernel_deaths_total", cause="interrupt") == 1
    assert grown("kernelgate_kernel_deaths_total", cause="timeout") == 0


def test_messages_with_a_bad_signature(run, grown):
    lines = run(cell("bad-signature", "display text/plain lost", "display text/plain seen"))
    assert [line["text"] for line in lines.of("display")] == ["seen"]
    assert grown("kernelgate_kernel_bad_messages_total") == 1


# ---- Sessions, the pool, the engine


def test_sessions_and_the_pool(start_gateway):
    gateway = start_gateway("--pool-size", "1")
    gateway.fill_pool()
    scrape, grown = Scrape(gateway), growth(gateway)
    assert scrape("kernelgate_pool_target") == scrape("kernelgate_pool_ready") == 1
    assert scrape("kernelgate_pool_starting") == 0
    session = gateway.create_session()
    assert grown("kernelgate_sessions") == 1
    assert grown("kernelgate_session_open_seconds_count") == 1
    gateway.execute("result 1", session_id=session)
    assert grown("kernelgate_session_open_seconds_count") == 1  # it was open already
    # Its place in the pool is filled again.
    gateway.fill_pool()
    assert grown("kernelgate_provisioner_call_seconds_count", operation="create") == 1
    gateway.delete_session(session)
    assert grown("kernelgate_sessions") == 0
    assert grown("kernelgate_provisioner_call_seconds_count", operation="destroy") == 1
    assert grown("kernelgate_provisioner_call_seconds_sum", operation="destroy") > 0
    assert grown("kernelgate_provisioner_errors_total", operation="create") == 0


def test_a_container_that_ends(start_gateway):
    gateway = start_gateway()
    gateway.create_session(session_id="s")
    assert Scrape(gateway)("kernelgate_sandboxes_lost_total") == 0
    for pid in gateway.sandbox_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: Scrape(gateway)("kernelgate_sandboxes_lost_total") == 1)
    wait_for(lambda: Scrape(gateway)("kernelgate_sessions") == 0)


def test_an_engine_that_fails(start_gateway, tmp_path):
    broken, runtime = tmp_path / "broken", tmp_path / "runc"
    real = component.FLAGS[component.FLAGS.index("--oci-runtime") + 1]
    runtime.write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec {real} "$@"\n')
    runtime.chmod(0o755)
    gateway = start_gateway("--pool-size", "1", "--oci-runtime", str(runtime))
    gateway.fill_pool()
    broken.touch()
    gateway.create_session()  # takes the one that waits; its place cannot be filled
    wait_for(lambda: Scrape(gateway)("kernelgate_pool_failed_starts_total") >= 2)
    scrape = Scrape(gateway)
    assert scrape("kernelgate_provisioner_errors_total", operation="create") >= 2
    assert scrape("kernelgate_pool_ready") == 0 and scrape("kernelgate_sessions") == 1
    broken.unlink()
    gateway.fill_pool()


# ---- The process


def test_the_process(start_gateway):
    gateway = start_gateway()
    scrape = Scrape(gateway)
    assert abs(scrape("process_resident_memory_bytes") / 2**20 - gateway.rss_mb()) < 20
    assert abs(scrape("process_open_fds") - gateway.open_files()) <= 3
    assert scrape("process_open_fds") < scrape("process_max_fds")
    folder = pathlib.Path(f"/proc/{gateway.process.pid}")
    assert abs(scrape("process_start_time_seconds") - folder.stat().st_mtime) < 60
    assert scrape("process_cpu_seconds_total") > 0
    assert Scrape(gateway)("process_start_time_seconds") == scrape("process_start_time_seconds")


def test_loop_lag(gateway, grown):
    wait_for(lambda: grown("kernelgate_loop_lag_seconds_count") >= 10)
    assert 0 < grown("kernelgate_loop_lag_seconds_sum") < grown("kernelgate_loop_lag_seconds_count")
