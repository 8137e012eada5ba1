"""The official SDK as the client of `conjure mcp serve`, in both eras of the protocol."""

import asyncio
import hashlib
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def check(mode, command, arguments):
    parameters = StdioServerParameters(command=command, args=arguments)
    async with Client(parameters, mode=mode) as client:
        newest = client.protocol_version == "2026-07-28"
        assert newest == (mode == "auto"), client.protocol_version
        assert client.server_info.name == "conjure"
        assert "skill_list" in client.instructions

        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        expected = {"bash_tool", "view", "create_file", "str_replace", "skill_list", "skill_read", "skill_run_script", "run_agent"}
        assert expected == set(tools), sorted(tools)

        listed = text(await client.call_tool("skill_list", {}))
        assert "sales-report" in listed, listed
        manual = text(await client.call_tool("skill_read", {"skill": "sales-report"}))
        assert "name: sales-report" in manual, manual
        missing = await client.call_tool("skill_read", {"skill": "none"})
        assert missing.is_error and "the skills are:" in text(missing), missing
        outside = await client.call_tool("skill_read", {"skill": "sales-report", "path": "../../etc/passwd"})
        assert outside.is_error, outside

        # The sandbox keeps its files between calls.
        ran = await client.call_tool("bash_tool", {"command": "echo kept > a.txt; pwd", "description": "Write a file"})
        assert not ran.is_error, ran
        seen = await client.call_tool("view", {"path": "a.txt", "description": "Look at it"})
        assert "kept" in text(seen), seen
        failed = await client.call_tool("bash_tool", {"command": "exit 3", "description": "Fail"})
        assert "3" in text(failed), failed
        try:
            await client.call_tool("none", {})
            raise AssertionError("an unknown tool is an error of the protocol")
        except MCPError as error:
            assert error.code == -32602, error

        prompts = (await client.list_prompts()).prompts
        assert "sales-report" in [prompt.name for prompt in prompts]
        prompt = await client.get_prompt("sales-report")
        assert "Follow the instructions" in prompt.messages[0].content.text

        resources = (await client.list_resources()).resources
        by_uri = {str(resource.uri): resource for resource in resources}
        main = by_uri["skill://sales-report/SKILL.md"]
        read = (await client.read_resource(str(main.uri))).contents[0]
        assert len(read.text.encode()) == main.size, (main, len(read.text))
        try:
            await client.read_resource("skill://sales-report/none.md")
            raise AssertionError("a resource that is not there is an error")
        except MCPError as error:
            assert error.code == -32602, error

        steps = []

        async def told(progress, total, message):
            steps.append(message)

        answer = await client.call_tool("run_agent", {"prompt": "Say hello"}, progress_callback=told)
        assert text(answer) == "You said: Say hello", answer
        assert any("asks the model" in (step or "") for step in steps), steps
    print(mode, hashlib.sha256(manual.encode()).hexdigest()[:8])


async def main():
    command, *arguments = sys.argv[1:]
    for mode in ("auto", "legacy"):
        await check(mode, command, arguments)


asyncio.run(main())
