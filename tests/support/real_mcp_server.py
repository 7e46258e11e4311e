# SPDX-License-Identifier: Apache-2.0
"""A server of the official SDK over HTTP, as a program of its own: real_mcp_server.py PORT."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

app = MCPServer("stock")
READ = ToolAnnotations(readOnlyHint=True)


class Price(BaseModel):
    item: str
    cents: int


@app.tool(annotations=READ)
def price(item: str, count: int = 1) -> Price:
    """What some of an item cost"""
    return Price(item=item, cents=len(item) * count)


@app.tool(annotations=READ)
def stock() -> list[Price]:
    """All items"""
    return [Price(item=item, cents=len(item)) for item in ("pear", "apple", "fig")]


@app.tool(annotations=READ)
def out_of_stock() -> str:
    """Fails"""
    raise ValueError("nothing is left")


@app.tool(annotations=READ)
async def wait(seconds: float) -> str:
    """Takes a while"""
    import anyio

    print("waiting", flush=True)
    await anyio.sleep(seconds)
    return "waited"


@app.tool(annotations=READ)
async def learn(name: str, context: Context) -> str:
    """Offers one tool more"""

    def learned() -> str:
        """A new tool"""
        return f"I am {name}"

    app.add_tool(learned, name=name, annotations=READ)
    await context.session.send_tool_list_changed()
    return "learned"


@app.tool()
def buy(item: str) -> str:
    """Buys an item"""
    return f"bought {item}"


app.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
