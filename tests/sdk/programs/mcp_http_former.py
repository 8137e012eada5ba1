"""The first major version of the official SDK as a client of `/mcp`: it knows the revisions with `initialize` alone."""

import asyncio
import sys

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL, KEY = sys.argv[1:]


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def main():
    http = httpx.AsyncClient(headers={"x-api-key": KEY}, timeout=60)
    async with streamable_http_client(f"{URL}/mcp", http_client=http) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            began = await session.initialize()
            assert began.serverInfo.name == "conjure" and session_id(), began
            tools = {tool.name for tool in (await session.list_tools()).tools}
            assert {"bash_tool", "view", "skill_read", "run_agent"} <= tools, tools
            for command in ["echo kept > a.txt", "cat a.txt"]:
                ran = await session.call_tool("bash_tool", {"command": command, "description": "Run it"})
                assert not ran.isError, ran
            assert "kept" in text(ran), ran
            steps = []

            async def told(progress, total, message):
                steps.append(message)

            answer = await session.call_tool("run_agent", {"prompt": "Say hello"}, progress_callback=told)
            assert text(answer) == "You said: Say hello", answer
            assert any("asks the model" in (step or "") for step in steps), steps
    print("done")


asyncio.run(main())
