# SPDX-License-Identifier: Apache-2.0
"""What an agent that analyses data does, from one end to the other, with a real package of the real
index: uploads a CSV, installs a package, runs Python, shells out, reads the chart back. And once
more when the index is gone."""

import json

import pytest
from kernelgate import Gateway

PACKAGE = "humanize==4.12.3"  # small, pure Python
NOWHERE = "http://127.0.0.1:9/simple/"
CSV = "city,year,people\nBasel,2020,173863\nBasel,2021,174442\nBern,2020,134591\nBern,2021,134794\n"
CODE = """
import humanize, matplotlib.pyplot as plt, pandas as pd
table = pd.read_csv("cities.csv")
print(table.groupby("city").people.mean().map(humanize.intcomma).to_string())
axes = table.pivot(index="year", columns="city", values="people").plot.bar()
axes.figure.savefig("chart.png")
plt.close(axes.figure)
"""


def analyse(gateway, session_id):
    """Does all of it; returns the lines of the installation."""
    base = f"/api/v1/sessions/{session_id}"
    put = gateway.client.put(f"{base}/files/cities.csv", content=CSV.encode())
    assert put.status_code in (200, 201), put.text
    with gateway.client.stream(
        "POST", f"{base}/packages", json={"packages": [PACKAGE]}, timeout=180
    ) as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1]["status"] == "ok", lines
    ran = gateway.execute(CODE, session_id=session_id, timeout=60)
    assert ran.status == "ok", ran
    assert "Basel" in ran.text() and "174,152" in ran.text(), ran.text()
    command = {"command": "head -1 cities.csv; wc -l < cities.csv; file chart.png || ls chart.png"}
    shell = gateway.client.post(f"{base}/commands?wait=1", json=command).json()
    assert shell["exit_code"] == 0 and shell["stdout"].startswith("city,year,people\n5\n")
    chart = gateway.client.get(f"{base}/files/chart.png")
    assert chart.status_code == 200 and chart.headers["content-type"] == "image/png"
    assert chart.content.startswith(b"\x89PNG") and len(chart.content) > 2000
    drawn = [line for line in ran.of("file") if line["file"] == "chart.png"]
    assert [line["size"] for line in drawn] == [len(chart.content)]
    return lines


@pytest.fixture(scope="module")
def analyst():
    gateway = Gateway("--pool-size", "1")
    try:
        yield gateway.start()
    finally:
        gateway.clean_up()


def test_the_whole_workflow_and_again_without_the_index(analyst):
    lines = analyse(analyst, analyst.create_session(session_id="online"))
    assert "index" in lines[0]["text"]
    analyst.delete_session("online")
    analyst.stop()
    analyst.flags = ("--pool-size", "1", "--pypi-index-url", NOWHERE)
    analyst.start()
    lines = analyse(analyst, analyst.create_session(session_id="offline"))
    assert lines[0]["text"] == "all wheels are in the cache"
    analyst.delete_session("offline")
