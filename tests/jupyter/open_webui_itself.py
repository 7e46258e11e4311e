# SPDX-License-Identifier: Apache-2.0
"""Open WebUI's own client of the gateway at KG_URL, with KG_KEY: `open_webui_itself.py WHEEL`.

No test runs it, since the wheel has more than 100 MB. Only the client's module is loaded from it; what
that imports of the package would load the rest, and is replaced."""

import asyncio
import json
import os
import sys
import types


def stand_in(name, **values):
    module = types.ModuleType(name)
    module.__path__ = [f"{sys.argv[1]}/{name.replace('.', '/')}"]
    vars(module).update(values)
    sys.modules[name] = module


stand_in("open_webui")
stand_in("open_webui.utils")
stand_in("open_webui.env", AIOHTTP_CLIENT_ALLOW_REDIRECTS=True)
stand_in("open_webui.utils.json_codec", JSONCodec=json)  # as it is by default
from open_webui.utils.code_interpreter import execute_code_jupyter  # noqa: E402


def run(code):
    return asyncio.run(execute_code_jupyter(os.environ["KG_URL"], code, os.environ["KG_KEY"]))


for _ in range(2):  # each in a kernel of its own
    result = run("print('x' in globals())\nx = 42\nx")
    assert result == {"stdout": "False", "stderr": "", "result": "42"}, result
result = run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);")
assert result["result"].startswith("data:image/png;base64,"), result
result = run("1/0")
assert "ZeroDivisionError" in result["stderr"], result
print("done")
