# SPDX-License-Identifier: Apache-2.0
"""Files that an execution creates or changes: `file` lines before `done`."""

import urllib.parse

from kernelgate import run_until_timeout


def names(lines):
    return [line["file"] for line in lines.of("file")]


def test_a_chart_is_a_file_with_a_link(gateway, session, run):
    lines = run(
        "import matplotlib; matplotlib.use('Agg')\n"
        "import matplotlib.pyplot as plt, os\n"
        "plt.plot([1, 2]); os.makedirs('out/deep', exist_ok=True)\n"
        "plt.savefig('out/deep/chart.png'); print('drawn')",
        timeout=60,
    )
    line = lines.one("file")
    assert lines[-2] is line and lines[-1]["type"] == "done" and lines.text() == "drawn\n"
    assert line["file"] == "out/deep/chart.png" and line["mime"] == "image/png"
    image = gateway.client_for(None).get(line["url"])
    assert image.status_code == 200 and len(image.content) == line["size"]
    assert image.content[:4] == b"\x89PNG"
    assert urllib.parse.urlsplit(line["url"]).path == f"/files/{session}/out/deep/chart.png"


def test_however_an_execution_ends(run):
    lines = run("open('error', 'w').close(); 1 / 0")
    assert lines.status == "error" and names(lines) == ["error"]
    code = "open('late', 'w').close(); print('on', flush=True)\nwhile True: pass"
    lines = run_until_timeout(lambda timeout: run(code, timeout=timeout), lambda it: it.text())
    assert lines.status == "timeout" and names(lines) == ["late"]
    lines = run("open('dead', 'w').close(); import os; os._exit(3)")
    assert lines.status == "died" and names(lines) == ["dead"]
    assert lines.done["kernel_restarted"]
    assert names(run("open('alive', 'w').close()")) == ["alive"]
