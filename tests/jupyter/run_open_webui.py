# SPDX-License-Identifier: Apache-2.0
"""What Open WebUI's engine `jupyter` asks the gateway at KG_URL, in the same order and with the same
libraries. open_webui_itself.py runs its own code."""

import asyncio
import json
import os
import uuid

import aiohttp
import websockets

BASE = os.environ["KG_URL"] + "/"
KEY = {"token": os.environ["KG_KEY"]}


async def run(code):
    async with aiohttp.ClientSession(trust_env=True, base_url=BASE) as session:
        async with session.post(url="api/kernels", params=KEY) as response:
            response.raise_for_status()
            kernel = (await response.json())["id"]
        base = BASE.replace("http", "ws", 1)
        url = f"{base}api/kernels/{kernel}/channels?token={KEY['token']}"
        async with websockets.connect(url, additional_headers={}) as ws:
            outputs = await execute(ws, code)
        async with session.delete(f"api/kernels/{kernel}", params=KEY) as response:
            response.raise_for_status()
        return outputs


async def execute(ws, code):
    msg_id = uuid.uuid4().hex
    header = {
        "msg_id": msg_id,
        "msg_type": "execute_request",
        "username": "user",
        "session": uuid.uuid4().hex,
        "date": "",
        "version": "5.3",
    }
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": True,
    }
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    await ws.send(json.dumps({**message, "channel": "shell"}))
    outputs = []
    while True:
        message = json.loads(await asyncio.wait_for(ws.recv(), 60))
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        outputs.append((message["msg_type"], message["content"]))
        if outputs[-1] == ("status", {"execution_state": "idle"}):
            return outputs


def one(outputs, kind):
    (content,) = [content for msg_type, content in outputs if msg_type == kind]
    return content


for _ in range(2):  # each in a kernel of its own
    outputs = asyncio.run(run("print('x' in globals())\nx = 42\nx"))
    assert one(outputs, "stream") == {"name": "stdout", "text": "False\n"}, outputs
    assert one(outputs, "execute_result")["data"]["text/plain"] == "42", outputs
outputs = asyncio.run(run("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);"))
assert one(outputs, "display_data")["data"]["image/png"], outputs
outputs = asyncio.run(run("1/0"))
assert "ZeroDivisionError" in "".join(one(outputs, "error")["traceback"]), outputs
print("done")
