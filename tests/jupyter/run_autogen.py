# SPDX-License-Identifier: Apache-2.0
"""AutoGen's Jupyter executor on the gateway at KG_URL, with the key KG_KEY."""

import asyncio
import os
import pathlib
import urllib.parse

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor
from autogen_ext.code_executors.docker_jupyter._jupyter_server import (
    JupyterConnectionInfo,
)

url = urllib.parse.urlsplit(os.environ["KG_URL"])
server = JupyterConnectionInfo(
    host=url.hostname, use_https=False, port=url.port, token=os.environ["KG_KEY"]
)


async def main():
    async with DockerJupyterCodeExecutor(server, output_dir=pathlib.Path.cwd()) as executor:

        async def run(code):
            block = CodeBlock(code=code, language="python")
            return await executor.execute_code_blocks([block], CancellationToken())

        ran = await run("x = 20\nprint(x + 1)\nx * 2")
        assert (ran.exit_code, ran.output) == (0, "21\n\n40"), ran
        ran = await run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);")
        assert ran.output_files[0].read_bytes().startswith(b"\x89PNG"), ran
        ran = await run("1/0")
        assert ran.exit_code == 1 and "ZeroDivisionError" in ran.output, ran
        await executor.restart()
        ran = await run("print('x' in globals())")
        assert ran.output == "False\n", ran


asyncio.run(main())
print("done")
