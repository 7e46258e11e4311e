# SPDX-License-Identifier: Apache-2.0
"""papermill with jupyter_server's gateway client, on the gateway at KG_URL."""

import os

import nbformat
import papermill
from jupyter_server.gateway.gateway_client import GatewayClient

GatewayClient.instance().url = os.environ["KG_URL"]


def run(*cells):
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    notebook.cells[0].metadata.tags = ["parameters"]
    notebook.metadata.kernelspec = dict(name="python3", display_name="Python 3", language="python")
    nbformat.write(notebook, "in.ipynb")
    return papermill.execute_notebook(
        "in.ipynb",
        "out.ipynb",
        parameters=dict(x=20),
        kernel_manager_class="jupyter_server.gateway.managers.GatewayKernelManager",
        progress_bar=False,
    )


cell = run("x = 1", "print(x + 1)\nx * 2").cells[-1]
assert cell.outputs[0].text == "21\n", cell
assert cell.outputs[1].data["text/plain"] == "40", cell
assert nbformat.read("out.ipynb", 4).cells[-1].outputs == cell.outputs
for code, ename in {"x / 0": "ZeroDivisionError", "import os; os._exit(9)": "KernelDied"}.items():
    try:
        run("x = 1", code)
    except papermill.PapermillExecutionError as error:
        assert error.ename == ename, (code, error.ename)
    else:
        raise AssertionError(f"no error: {code}")
print("done")
