"""The official client of the Agent Client Protocol, which drives `conjure acp` through its whole life."""

import asyncio
import pathlib
import sys
import tempfile

import acp
from acp import text_block
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse, ResourceContentBlock
from acp.stdio import spawn_agent_process

command, *arguments = sys.argv[1:]


HANGS = "never"


class Editor:
    """An editor whose user answers as planned."""

    def __init__(self):
        self.updates, self.asked, self.answers = [], [], []
        self.updated = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        self.updated.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append((tool_call, options))
        answer = self.answers.pop(0)
        if answer is HANGS:
            await asyncio.Event().wait()
        if answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        option = next(option for option in options if option.kind == answer)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))

    def on_connect(self, connection):
        pass

    def take(self):
        updates, self.updates = self.updates, []
        return updates


def said(updates, kind="agent_message_chunk"):
    return "".join(update.content.text for update in updates if update.session_update == kind)


def calls(updates):
    return [update for update in updates if update.session_update == "tool_call"]


def progress(updates):
    return [update for update in updates if update.session_update == "tool_call_update"]


async def refused(awaitable, part):
    try:
        await awaitable
    except acp.RequestError as error:
        assert part in str(error) + str(error.data), (error, error.data)
    else:
        raise AssertionError(f"it was not refused: {part}")


async def first_life(project):
    editor = Editor()
    async with spawn_agent_process(editor, command, *arguments) as (agent, process):
        begun = await agent.initialize(acp.PROTOCOL_VERSION)
        assert begun.protocol_version == acp.PROTOCOL_VERSION == 1
        assert begun.agent_info.name == "conjure" and begun.agent_capabilities.load_session
        assert begun.agent_capabilities.prompt_capabilities.image

        await refused(agent.new_session("relative"), "not absolute")
        await refused(agent.new_session("/no/such/directory"), "/no/such/directory")
        await refused(agent.prompt("sesn_" + "0" * 32, [text_block("x")]), "is not open")
        session = await agent.new_session(str(project))
        id = session.session_id
        assert id.startswith("sesn_") and session.modes.current_mode_id == "ask"
        assert {mode.id for mode in session.modes.available_modes} == {"ask", "allow"}
        await refused(agent.set_session_mode(id, "never"), "there is no mode")

        # A file is written once the user has allowed it.
        editor.answers = ["allow_once"]
        link = ResourceContentBlock(type="resource_link", uri=f"file://{project}/src/a.rs", name="a.rs")
        answer = await agent.prompt(id, [text_block("Write a note"), link])
        assert answer.stop_reason == "end_turn", answer
        updates = editor.take()
        assert said(updates, "agent_thought_chunk") == "The user wants a note."
        assert said(updates) == "I write it.Written after: Write a note\n[a.rs](src/a.rs)", said(updates)
        [call] = calls(updates)
        assert call.kind == "edit" and call.raw_input["path"] == "notes/note.txt"
        note = project / "notes" / "note.txt"
        assert call.content[0].type == "diff" and call.content[0].path == str(note)
        assert call.content[0].new_text == "a note\n" and call.locations[0].path == str(note)
        assert [update.status for update in progress(updates)] == ["completed"]
        assert note.read_text() == "a note\n"
        asked, options = editor.asked.pop()
        assert asked.tool_call_id == call.tool_call_id
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]

        # A command is never allowed for ever.
        editor.answers = ["allow_once"]
        assert (await agent.prompt(id, [text_block("Read it")])).stop_reason == "end_turn"
        assert "a note" in said(editor.take())
        assert [option.kind for option in editor.asked.pop()[1]] == ["allow_once", "reject_once"]

        # What is rejected does not run.
        editor.answers = ["reject_once"]
        assert (await agent.prompt(id, [text_block("Remove it")])).stop_reason == "end_turn"
        updates = editor.take()
        assert [update.status for update in progress(updates)] == ["failed"]
        assert "the user has rejected this call" in said(updates), said(updates)
        assert note.exists()

        # Nobody is asked in the other mode.
        editor.asked.clear()
        await agent.set_session_mode(id, "allow")
        assert (await agent.prompt(id, [text_block("Write again")])).stop_reason == "end_turn"
        assert not editor.asked and (project / "again.txt").read_text() == "again"

        # A cancel ends the command.
        editor.take()
        editor.updated.clear()
        turn = asyncio.create_task(agent.prompt(id, [text_block("Wait")]))
        while not calls(editor.updates):
            await editor.updated.wait()
            editor.updated.clear()
        await agent.cancel(id)
        assert (await turn).stop_reason == "cancelled"
        await agent.prompt(id, [text_block("Go on")])

        # The editor goes while it asks.
        await agent.set_session_mode(id, "ask")
        editor.answers = [HANGS]
        asking = asyncio.create_task(agent.prompt(id, [text_block("Look around")]))
        while not editor.asked:
            await asyncio.sleep(0.01)
        process.terminate()
        await process.wait()
        asking.cancel()
        return id


async def second_life(project, id):
    editor = Editor()
    async with spawn_agent_process(editor, command, *arguments) as (agent, process):
        await agent.initialize(acp.PROTOCOL_VERSION)
        await refused(agent.load_session(str(project), "sesn_" + "0" * 32), "")
        loaded = await agent.load_session(str(project), id)
        assert loaded.modes.current_mode_id == "ask"
        updates = editor.take()
        assert "Write a note" in said(updates, "user_message_chunk")
        assert "I write it." in said(updates) and len(calls(updates)) == 6, updates
        # What nobody answered blocks nothing.
        assert (await agent.prompt(id, [text_block("Go on")])).stop_reason == "end_turn"
        assert "After the question." in said(editor.take())
        await agent.close_session(id)
        await refused(agent.prompt(id, [text_block("x")]), "is not open")


async def main():
    with tempfile.TemporaryDirectory() as directory:
        project = pathlib.Path(directory).resolve()
        id = await first_life(project)
        await second_life(project, id)
    print("done")


asyncio.run(main())
