"""An MCP server on the official SDK that asks a person in the middle of a call."""

from typing import Annotated

from mcp.server.mcpserver import (
    AcceptedElicitation,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.request_state import RequestStateSecurity
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

# With a key of its own, a process that is started later reads what an earlier one has left.
server = MCPServer("asking", request_state_security=RequestStateSecurity(keys=["0123456789abcdef0123456789abcdef"]))


class Branch(BaseModel):
    name: str = Field(description="The branch to delete")
    force: bool = False


async def which_branch():
    return Elicit("Which branch?", Branch)


class Reason(BaseModel):
    reason: str


async def why(branch: Annotated[Branch, Resolve(which_branch)]):
    return Elicit(f"Why {branch.name}?", Reason)


async def sampled():
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    return Sample([message], max_tokens=10)


@server.tool()
def delete_branch(remote: str, branch: Annotated[ElicitationResult[Branch], Resolve(which_branch)]) -> str:
    if isinstance(branch, AcceptedElicitation):
        return f"deleted {remote}/{branch.data.name} force={branch.data.force}"
    return f"nothing deleted: {branch.action}"


@server.tool()
def explain(branch: Annotated[Branch, Resolve(which_branch)], reason: Annotated[Reason, Resolve(why)]) -> str:
    return f"{branch.name}: {reason.reason}"


async def listed():
    return ListRoots()


@server.tool()
def sample(words: Annotated[object, Resolve(sampled)]) -> str:
    return words.content.text


@server.tool()
def roots(listed: Annotated[object, Resolve(listed)]) -> list[str]:
    return [str(root.uri) for root in listed.roots]


server.run()
