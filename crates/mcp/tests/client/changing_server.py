"""An MCP server on the official SDK whose tools change while it runs, and that tells how far a call is."""

import asyncio
import pathlib

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("changing")


@server.tool()
async def learn(name: str, context: Context) -> str:
    """Adds a tool of this name."""

    def learned() -> str:
        return f"{name} was learned"

    server.add_tool(learned, name=name, description="What was learned.")
    await context.notify_tools_changed()
    return "learned"


@server.tool()
async def wait(path: str, context: Context) -> str:
    """Tells of its progress until the file is there."""
    step = 0
    while not pathlib.Path(path).exists():
        step += 1
        await context.report_progress(step, 100, f"step \u202e {step}\x1b[2J")
        await asyncio.sleep(0.05)
    return "it is there"


server.run("stdio")
