"""A server of the official SDK, by Streamable HTTP, whose tool asks a person in the middle of a call."""

import argparse
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options = options.parse_args()

server = MCPServer("tools")


class Branch(BaseModel):
    name: str


async def which_branch():
    return Elicit("Which branch?", Branch)


@server.tool()
def delete(branch: Annotated[ElicitationResult[Branch], Resolve(which_branch)]) -> str:
    """Deletes a branch."""
    return f"deleted {branch.data.name}" if isinstance(branch, AcceptedElicitation) else f"kept: {branch.action}"


uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=options.port, log_level="warning")
