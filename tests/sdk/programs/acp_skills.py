"""The official client of the Agent Client Protocol, as an editor with an MCP server whose skill is used. The server, `conjure mcp serve`, is built on
the official SDK for Rust."""

import asyncio
import hashlib
import json
import pathlib
import sys
import tempfile

import acp
from acp import text_block
from acp.schema import AllowedOutcome, McpServerStdio, RequestPermissionResponse
from acp.stdio import spawn_agent_process

command, *arguments = sys.argv[1:]

FILES = {
    "SKILL.md": "---\nname: greet\ndescription: Greets people.\nlicense: MIT\nlevel: 3\n---\nRun `scripts/greet.sh NAME`.\n",
    "scripts/greet.sh": 'echo "hello $1"\n',
}


def version():
    """As Conjure makes it: of the digests of all files."""
    lines = ["skill://greet/SKILL.md\n"]
    for path, content in sorted(FILES.items()):
        lines.append(f"sha256:{hashlib.sha256(content.encode()).hexdigest()} {path}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Editor:
    """An editor whose user answers as planned."""

    def __init__(self):
        self.texts, self.asked, self.answers = [], [], []

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            self.texts.append(update.content.text)

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call)
        wanted = self.answers.pop(0)
        self.offered = options
        option = next(option for option in options if option.kind == wanted)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    def on_connect(self, connection):
        pass

    async def answer(self, agent, id, prompt, *answers):
        self.texts, self.asked, self.answers = [], [], list(answers)
        answer = await agent.prompt(id, [text_block(prompt)])
        assert answer.stop_reason == "end_turn", answer
        assert not self.answers, (self.answers, self.texts)
        return "".join(self.texts)


async def main(root):
    skill = root / "skills/greet"
    for path, content in FILES.items():
        (skill / path).parent.mkdir(parents=True, exist_ok=True)
        (skill / path).write_text(content)
    load = {"server": "shelf", "skill": "greet", "version": version()}
    directory = f"mcp-skills/shelf/greet-{version()[:16]}"
    run = {"command": f"sh {directory}/scripts/greet.sh Ada", "description": "Greet"}
    calls = [("mcp_load_skill", load), ("mcp_load_skill", load), ("bash_tool", run), ("mcp_load_skill", load)]
    turns = []
    for name, input in calls:
        turns += [{"content": [{"tool_use": {"name": name, "input": input}}]}, {"content": "It says {{result:last}}"}]
    script = root / "script.yaml"
    # JSON is YAML.
    script.write_text(json.dumps({"version": 1, "turns": turns}))
    options = ["--skills", str(root / "skills"), "--sandbox", "local", "--data", str(root / "data")]
    server = McpServerStdio(name="shelf", command=command, args=["mcp", "serve", *options], env=[])
    project = root / "project"
    project.mkdir()
    editor = Editor()
    async with spawn_agent_process(editor, command, *arguments, "--script", str(script)) as (agent, _):
        await agent.initialize(acp.PROTOCOL_VERSION)
        session = await agent.new_session(str(project), mcp_servers=[server])
        id = session.session_id
        said = await editor.answer(agent, id, "Greet her.", "reject_once")
        assert "denied" in said, said
        assert not (project / "mcp-skills").exists()
        said = await editor.answer(agent, id, "Please.", "allow_once")
        assert "Its words are the server's" in said and said.endswith("Run `scripts/greet.sh NAME`."), said
        assert (project / directory / "scripts/greet.sh").read_text() == FILES["scripts/greet.sh"]
        said = await editor.answer(agent, id, "Now run it.", "allow_once")
        assert "hello Ada" in said, said
        # Each load is a decision of its own, and `always` is not offered.
        said = await editor.answer(agent, id, "Load it again.", "allow_once")
        assert [option.kind for option in editor.offered] == ["allow_once", "reject_once"], editor.offered
        assert "Its words are the server's" in said, said
    print("done")


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(pathlib.Path(directory).resolve()))
