"""An MCP server on the official SDK before version 2, which asks its client by requests while a call runs."""

import asyncio
import os

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("older")
asked = anyio.Event()
background = []


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
async def wait_for_question(started: str) -> str:
    open(started, "w").close()
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


@server.tool()
async def sample_after(context: Context, when: str, told: str) -> str:
    """Asks the model once the test says so: when this call has ended, or waits. Writes what came of it to a file."""

    async def ask_model():
        message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
        with open(told, "a") as file:
            for _ in range(3):
                try:
                    await context.session.create_message([message], max_tokens=10)
                    file.write("answered\n")
                except Exception as error:
                    file.write(f"{error}\n")
        os.rename(told, told + ".done")

    async def later():
        while not os.path.exists(told + ".go"):
            await anyio.sleep(0.01)
        await ask_model()

    background.append(asyncio.create_task(later()))
    if when == "held":
        await context.elicit("Which branch?", Branch)
    return "ended"


@server.tool()
async def sample_often(context: Context, times: int) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    for count in range(times):
        try:
            await context.session.create_message([message], max_tokens=10)
        except Exception as error:
            return f"{count}: {error}"
    return f"{times}"


server.run()
