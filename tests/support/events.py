# SPDX-License-Identifier: Apache-2.0
"""Writes what tests do, one JSON object a line, to the file that KGT_EVENTS names: script/test shows
progress and failures from it while pytest runs. With pytest-xdist the controller writes it."""

import json
import os

import pytest


class Events:
    """A pytest plugin. Events: {"total": N} and {"test": ID, "outcome": "passed" | "failed", "log": TEXT}."""

    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def _write(self, **event):
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def pytest_collection_finish(self, session):
        if session.items:
            self._write(total=len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self._write(total=len(ids))

    def pytest_collectreport(self, report):
        if report.failed:
            self._write(test=report.nodeid, outcome="failed", log=str(report.longrepr))

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when == "call":
            self._write(test=report.nodeid, outcome="passed")
        elif not report.passed:
            sections = [f"---- {title}\n{text}" for title, text in report.sections]
            log = "\n".join([report.longreprtext, *sections])
            self._write(test=report.nodeid, outcome="failed", log=log)


def pytest_configure(config):
    path = os.environ.get("KGT_EVENTS")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Events(path), "kgt-events")
