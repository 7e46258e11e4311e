# SPDX-License-Identifier: Apache-2.0
"""What an agent that analyses data does, from one end to the other, with a real package of the real
index: uploads a CSV, installs a package, runs Python, shells out, reads the chart back. And once
more when the index is gone."""

import json

import pytest
from kernelgate import Gateway
from mcp_clients import client_of

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


LIBRARIES = ["scikit-learn", "statsmodels", "polars", "opencv-python-headless"]
LIBRARIES_CODE = """
import cv2, numpy as np, polars as pl, statsmodels.api as sm
from sklearn.linear_model import LinearRegression
x = np.arange(50.0).reshape(-1, 1)
y = 3 * x[:, 0] + 2
fit = LinearRegression().fit(x, y)
ols = sm.OLS(y, sm.add_constant(x)).fit()
print(round(fit.coef_[0], 6), round(ols.params[0], 6))
print(pl.DataFrame({"x": x[:, 0], "y": y}).filter(pl.col("x") > 47)["y"].to_list())
image = cv2.GaussianBlur(np.full((32, 32, 3), 200, np.uint8), (5, 5), 0)
print(image.shape, cv2.imencode(".png", image)[0])
"""
LIBRARIES_SAY = "3.0 2.0\n[146.0, 149.0]\n(32, 32, 3) True\n"


@pytest.mark.once
def test_large_libraries_together_in_a_session_of_default_size(analyst):
    session_id = analyst.create_session()
    answer = analyst.client.post(
        f"/api/v1/sessions/{session_id}/packages?wait=1", json={"packages": LIBRARIES}, timeout=300
    ).json()
    assert answer["status"] == "ok", answer
    lines = analyst.execute(LIBRARIES_CODE, session_id=session_id, timeout=120)
    assert lines.status == "ok" and lines.text() == LIBRARIES_SAY, lines
    analyst.delete_session(session_id)
    # A model gets them from the cache.
    with client_of("1", "http", analyst) as client:
        session = {"session_id": client.call("create_session").session_id}
        result = client.call("install_packages", {**session, "packages": ", ".join(LIBRARIES)})
        assert not result.is_error and "polars" in result.text, result.text
        result = client.call("run_python_code", {**session, "code": LIBRARIES_CODE})
        assert not result.is_error and "[146.0, 149.0]" in result.text, result.text
        client.call("close_session", session)


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
