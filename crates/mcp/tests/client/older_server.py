"""An MCP server on the official SDK before version 2, which asks its client by requests while a call runs."""

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("older")
asked = anyio.Event()


class Branch(BaseModel):
    name: str


class Reason(BaseModel):
    reason: str


async def ask(context, message, form):
    answer = await context.elicit(message, form)
    return answer.data if answer.action == "accept" else None


@server.tool()
async def delete_branch(context: Context) -> str:
    branch = await ask(context, "Which branch?", Branch)
    if branch is None:
        return "nothing deleted"
    await context.report_progress(1, 2, "half")
    reason = await ask(context, f"Why {branch.name}?", Reason)
    return f"deleted {branch.name}: {reason.reason}" if reason else "nothing deleted"


@server.tool()
async def ask_beside(context: Context) -> str:
    answer = await context.elicit("Which branch?", Branch)
    asked.set()
    return answer.action


@server.tool()
async def wait_for_question() -> str:
    await asked.wait()
    return "asked"


@server.tool()
async def roots(context: Context) -> list[str]:
    listed = await context.session.list_roots()
    return [str(root.uri) for root in listed.roots]


@server.tool()
async def sample(context: Context, last: str = "user") -> str:
    words = lambda role, text: SamplingMessage(role=role, content=TextContent(type="text", text=text))
    messages = [words("user", "one"), words("user", "two"), words("assistant", "three"), words(last, "four")]
    answer = await context.session.create_message(
        messages, max_tokens=10, system_prompt="Be brief.", temperature=0.5, stop_sequences=["."]
    )
    return f"{answer.model} {answer.stopReason}: {answer.content.text}"


server.run()
