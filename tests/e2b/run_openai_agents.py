# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Agents SDK: a SandboxAgent whose sandbox is made by its client for E2B."""

import asyncio
import json

from agents import ModelResponse, Runner, Usage
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.models.interface import Model
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)


class Scripted(Model):
    """Asks for one command, and then repeats what it has printed."""

    async def get_response(self, system_instructions, input, *_, **__):
        outputs = [
            it["output"]
            for it in input
            if isinstance(it, dict) and it.get("type") == "function_call_output"
        ]
        if outputs:
            text = ResponseOutputText(text=str(outputs[0]), type="output_text", annotations=[])
            item = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            arguments = json.dumps({"cmd": "cat notes/task.md; python -c 'print(6 * 7)'"})
            item = ResponseFunctionToolCall(
                call_id="c", name="exec_command", arguments=arguments, type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


async def main():
    # The two differ from the client's defaults: a sandbox cannot be paused, and only its user's folder and
    # /tmp are writable.
    options = E2BSandboxClientOptions(sandbox_type="e2b", on_timeout="kill", timeout=600)
    manifest = Manifest(
        root="/home/user/workspace", entries={"notes/task.md": File(content=b"multiply\n")}
    )
    agent = SandboxAgent(
        name="worker", model=Scripted(), instructions="Work.", default_manifest=manifest
    )
    sandbox = SandboxRunConfig(client=E2BSandboxClient(), options=options)
    result = await Runner.run(
        agent, "six times seven?", run_config=RunConfig(sandbox=sandbox, tracing_disabled=True)
    )
    assert "multiply" in result.final_output and "42" in result.final_output, result.final_output


asyncio.run(main())
print("done")
