# SPDX-License-Identifier: Apache-2.0
"""LiteLLM's code interpreter on the gateway at KG_URL, with the key KG_KEY (or none): its own client, and a
model that is asked twice, and answers first with code to run. KG_PROVIDER is the protocol: opensandbox, which
it is without one, or e2b."""

import asyncio
import http.server
import json
import os
import threading

os.environ["OPEN_SANDBOX_API_BASE"] = os.environ["KG_URL"] + "/v1"
os.environ["OPEN_SANDBOX_API_KEY"] = os.environ["KG_KEY"]
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from litellm.integrations.code_interpreter_interception.handler import (  # noqa: E402
    CodeInterpreterInterceptionLogger,
)
from litellm.sandbox.main import (  # noqa: E402
    acode_interpreter_tool,
    acreate_sandbox,
    adelete_sandbox,
    arun_code,
)
from litellm.sandbox.sandbox_tools import register_sandbox_tools  # noqa: E402

PROVIDER = os.environ.get("KG_PROVIDER", "opensandbox")
# OpenSandbox's have their address and key from the environment.
HERE = (
    {"api_base": os.environ["KG_URL"], "api_key": os.environ["KG_KEY"]} if PROVIDER == "e2b" else {}
)
PICTURE = "png" if PROVIDER == "e2b" else "image/png"


class Model(http.server.BaseHTTPRequestHandler):
    """A model that calls the tool that it is offered, and then repeats what the tool has said."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = [it["content"] for it in asked["messages"] if it["role"] == "tool"]
        message = {"role": "assistant", "content": f"It is {said[-1]}." if said else None}
        if not said:
            arguments = json.dumps({"code": "print(6 * 7)"})
            function = {"name": asked["tools"][0]["function"]["name"], "arguments": arguments}
            message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
        reason = "stop" if said else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


async def code_interpreter():
    """OpenAI's tool `code_interpreter`, which LiteLLM runs in a sandbox."""
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    params = {"sandbox_provider": PROVIDER, **HERE}
    register_sandbox_tools([{"sandbox_tool_name": "kernelgate", "litellm_params": params}])
    litellm.callbacks = [CodeInterpreterInterceptionLogger(sandbox_tool_name="kernelgate")]
    answer = await litellm.acompletion(
        model="openai/m",
        api_base=f"http://127.0.0.1:{model.server_port}",
        api_key="none",
        messages=[{"role": "user", "content": "What is 6 times 7?"}],
        tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
    )
    assert "42" in answer.choices[0].message.content, answer
    model.shutdown()


async def main():
    container = await acreate_sandbox(provider=PROVIDER, timeout=300, **HERE)
    ran = await arun_code(
        provider=PROVIDER, container=container, code="x = 20\nprint(x + 1)\nx * 2"
    )
    assert (ran.stdout, ran.error) == ("21\n", None), ran
    assert ran.results[0]["text"] == "40" and ran.execution_count == 1
    if PROVIDER == "opensandbox":
        # A container that is only known by its id asks for its endpoint each time.
        for _ in range(40):
            ran = await arun_code(provider=PROVIDER, container=container.id, code="x += 1; x")
        assert ran.results[0]["text"] == "60"
    ran = await arun_code(provider=PROVIDER, container=container, code="1/0")
    assert ran.error["name"] == "ZeroDivisionError" and ran.error["traceback"]
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);"
    ran = await arun_code(provider=PROVIDER, container=container, code=figure)
    assert ran.results[-1][PICTURE].startswith("iVBOR"), ran
    assert await adelete_sandbox(provider=PROVIDER, container=container) is True
    assert await adelete_sandbox(provider=PROVIDER, container=container) is False
    ran = await acode_interpreter_tool(provider=PROVIDER, code="print('once')", **HERE)
    assert ran.stdout == "once\n", ran
    await code_interpreter()


asyncio.run(main())
print("done")
