"""An MCP server on the official SDK whose tools change while it runs."""

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


server.run("stdio")
