# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's code interpreter on the gateway at KG_URL, with the key KG_KEY: what its README shows."""

import asyncio
import os
import urllib.parse
from datetime import timedelta

from code_interpreter import CodeInterpreter, SupportedLanguage
from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.models.execd import ExecutionHandlers


async def quick_start(sandbox):
    interpreter = await CodeInterpreter.create(sandbox=sandbox)
    context = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
    result = await interpreter.codes.run(
        "import sys\nprint(sys.version)\nresult = 2 + 2\nresult", context=context
    )
    assert result.result[0].text == "4" and result.logs.stdout[0].text.startswith("3.")
    assert result.complete and result.execution_count == 1
    return interpreter


async def state(codes):
    await codes.run("x = 42", language=SupportedLanguage.PYTHON)
    execution = await codes.run("result = x\nresult", language=SupportedLanguage.PYTHON)
    assert execution.result[0].text == "42"
    # The default one, and that of the quick start.
    contexts = await codes.list_contexts("python")
    assert [context.language for context in contexts] == ["python"] * 2
    await codes.delete_context(contexts[1].id)
    assert len(await codes.list_contexts("python")) == 1
    typescript = "const doubled: number = 21 * 2; doubled"
    execution = await codes.run(typescript, language=SupportedLanguage.TYPESCRIPT)
    assert execution.result[0].text == "42", execution


async def streams(codes):
    said = []

    async def on_stdout(message):
        said.append(message.text)

    await codes.run(
        "for i in range(5):\n    print(i, flush=True)",
        handlers=ExecutionHandlers(on_stdout=on_stdout),
    )
    assert "".join(said) == "0\n1\n2\n3\n4\n"
    failed = await codes.run("1/0")
    assert failed.error.name == "ZeroDivisionError" and failed.error.traceback
    assert failed.complete is None


async def interrupt(codes):
    begun = asyncio.Event()
    ids = []

    async def on_init(init):
        ids.append(init.id)

    async def on_stdout(message):
        begun.set()

    handlers = ExecutionHandlers(on_init=on_init, on_stdout=on_stdout)
    code = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)"
    running = asyncio.create_task(codes.run(code, handlers=handlers))
    await begun.wait()
    await codes.interrupt(ids[0])
    assert (await running).error.name == "KeyboardInterrupt"


async def main():
    config = ConnectionConfig(
        domain=urllib.parse.urlsplit(os.environ["KG_URL"]).netloc,
        api_key=os.environ["KG_KEY"],
        request_timeout=timedelta(seconds=60),
    )
    sandbox = await Sandbox.create(
        "opensandbox/code-interpreter:v1.1.0",
        connection_config=config,
        entrypoint=["/opt/code-interpreter/code-interpreter.sh"],
        env={"PYTHON_VERSION": "3.11", "NODE_VERSION": "20"},
    )
    async with sandbox:
        codes = (await quick_start(sandbox)).codes
        await state(codes)
        await streams(codes)
        await interrupt(codes)
        await sandbox.kill()


asyncio.run(main())
print("done")
