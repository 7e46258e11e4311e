# SPDX-License-Identifier: Apache-2.0
"""nbclient with jupyter_server's gateway client, on the gateway at KG_URL."""

import os

import nbformat
from jupyter_server.gateway.gateway_client import GatewayClient
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

GatewayClient.instance().url = os.environ["KG_URL"]


def run(*cells, **options):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = dict(name="python3", display_name="Python 3", language="python")
    client = NotebookClient(
        notebook,
        kernel_manager_class="jupyter_server.gateway.managers.GatewayKernelManager",
        **options,
    )
    client.execute()
    return notebook


notebook = run(
    "x = 20",
    "print(x + 1)\nx * 2",
    "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);",
    "from IPython.display import display\nh = display('a', display_id='d')\nh.update('b')",
)
assert notebook.cells[1].outputs[0].text == "21\n"
assert notebook.cells[1].outputs[1].data["text/plain"] == "40"
assert notebook.cells[2].outputs[0].data["image/png"]
assert notebook.cells[3].outputs[0].data["text/plain"] == "'b'"
try:
    run("1/0")
except CellExecutionError as error:
    assert error.ename == "ZeroDivisionError"
else:
    raise AssertionError("no error")
assert run("1/0", allow_errors=True).cells[0].outputs[0].ename == "ZeroDivisionError"
for code, ename in {
    "import os; os._exit(9)": "KernelDied",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "KernelDied",
    "b'x' * (16 << 30)": "OutOfMemory",
    "import signal; signal.raise_signal(signal.SIGINT)": "KeyboardInterrupt",
}.items():
    try:
        run("1", code, "print('not run')")
    except CellExecutionError as error:
        assert error.ename == ename, (code, error.ename)
    else:
        raise AssertionError(f"no error: {code}")
print("done")
