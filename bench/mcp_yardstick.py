# SPDX-License-Identifier: Apache-2.0
"""What a few lines of Python give: an MCP server (what FastMCP is called in the SDK's version 2) whose
one tool asks a kernel by jupyter_client. Arguments: port, connection file."""

import sys

from jupyter_client import AsyncKernelClient
from mcp.server import MCPServer

server = MCPServer("yardstick", log_level="ERROR")
client = None


@server.tool()
async def run_python_code(code: str) -> str:
    """Runs Python code."""
    global client
    if not client:
        client = AsyncKernelClient(connection_file=sys.argv[2])
        client.load_connection_file()
        client.start_channels(hb=False)
        await client.wait_for_ready(timeout=60)
    request, text = client.execute(code, allow_stdin=False), []
    while True:
        message = await client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        if message["msg_type"] == "stream":
            text.append(content["text"])
        elif message["msg_type"] == "execute_result":
            text.append(content["data"]["text/plain"])
        elif content.get("execution_state") == "idle":
            break
    while (await client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != request:
        pass
    return "".join(text)


server.run("streamable-http", port=int(sys.argv[1]), json_response=True)
