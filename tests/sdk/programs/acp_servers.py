"""The official client of the Agent Client Protocol, as an editor whose user has configured MCP servers there."""

import asyncio
import pathlib
import sys
import tempfile

import acp
from acp import text_block
from acp.schema import (
    AllowedOutcome,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    McpServerStdio,
    RequestPermissionResponse,
    SseMcpServer,
)
from acp.stdio import spawn_agent_process

clock_program, tools_url, token, command, *arguments = sys.argv[1:]

CLOCK = McpServerStdio(
    name="My clock",
    command=clock_program,
    args=["--local-timezone=UTC"],
    env=[EnvVariable(name="CLOCK_TOKEN", value="s3cret-of-the-clock")],
)
TOOLS = HttpMcpServer(
    type="http",
    name="tools",
    url=tools_url,
    headers=[HttpHeader(name="Authorization", value=f"Bearer {token}")],
)
OLD = SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/sse", headers=[])


class Editor:
    """An editor whose user allows every call."""

    def __init__(self):
        self.texts, self.asked = [], []

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            self.texts.append(update.content.text)

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call)
        option = next(option for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    def on_connect(self, connection):
        pass

    async def answer(self, agent, id, prompt):
        """What the agent says, and how often the user was asked before."""
        self.texts, self.asked = [], []
        answer = await agent.prompt(id, [text_block(prompt)])
        assert answer.stop_reason == "end_turn", answer
        return "".join(self.texts), len(self.asked)


async def refused(awaitable, *parts):
    try:
        await awaitable
    except acp.RequestError as error:
        assert error.code == -32602, error.code
        assert all(part in str(error.data) for part in parts), error.data
    else:
        raise AssertionError(f"it was not refused: {parts}")


async def first_life(project):
    editor = Editor()
    async with spawn_agent_process(editor, command, *arguments) as (agent, _):
        begun = await agent.initialize(acp.PROTOCOL_VERSION)
        can = begun.agent_capabilities.mcp_capabilities
        assert can.http and not can.sse, can
        await refused(agent.new_session(project, mcp_servers=[CLOCK, OLD]), "`old`", "`sse`")
        nameless = CLOCK.model_copy(update={"name": "__"})
        await refused(agent.new_session(project, mcp_servers=[nameless]), "cannot be the name")
        await refused(agent.new_session(project, mcp_servers=[CLOCK, CLOCK]), "another server has the name `My_clock`")
        session = await agent.new_session(project, mcp_servers=[CLOCK, TOOLS])
        # The first prompt waits for the tools, and the user decides on each call.
        said, asked = await editor.answer(agent, session.session_id, "What time is it in Tokyo?")
        assert "+9.0h" in said and asked == 1, (said, asked)
        said, asked = await editor.answer(agent, session.session_id, "And the sum?")
        assert "It says 5" in said and asked == 1, (said, asked)
        return session.session_id


async def second_life(project, id):
    editor = Editor()
    async with spawn_agent_process(editor, command, *arguments) as (agent, _):
        await agent.initialize(acp.PROTOCOL_VERSION)
        # Nothing of the servers was recorded.
        await agent.load_session(project, id, mcp_servers=[])
        said, _ = await editor.answer(agent, id, "The sum again?")
        assert "It says 5" not in said and "mcp__tools__add" in said, said
        # A session that is open gets the servers that the editor has now.
        await agent.load_session(project, id, mcp_servers=[CLOCK])
        said, asked = await editor.answer(agent, id, "The time again?")
        assert "+9.0h" in said and asked == 1, (said, asked)


async def main():
    with tempfile.TemporaryDirectory() as directory:
        project = str(pathlib.Path(directory).resolve())
        id = await first_life(project)
        await second_life(project, id)
    print("done")


asyncio.run(main())
