"""An uploaded skill is what a session of its agent works with, in the version of its creation."""

from common import *

client = client()
skills = client.beta.skills
bad = anthropic.BadRequestError


def directory(body):
    text = f"---\nname: greeter\ndescription: Greets people\n---\n{body}\n"
    return [("greeter/SKILL.md", text.encode()), ("greeter/scripts/run.sh", b"#!/bin/sh\necho hi\n")]


def used(session):
    with client.beta.sessions.events.stream(session) as stream:
        send(client, session, message("Greet me."))
        events = until_idle(stream)
    assert texts(events)[-1:] == ["The script said: hi."], events
    calls = [event.name for event in events if event.type == "agent.tool_use"]
    assert calls == ["skills_load", "skills_run_script"], calls


made = skills.create(files=directory("Say good evening."))
reference = {"type": "custom", "skill_id": made.id}
agent, environment = make(client, skills=[reference], tools=[{"type": "agent_toolset_20260401"}])
create = lambda: client.beta.sessions.create(agent=agent, environment_id=environment)
session = create()
assert [skill.version for skill in session.agent.skills] == [made.latest_version_id]
used(session.id)

# A later version changes neither the session nor the agent, which has the version of its creation.
later = skills.versions.create(made.id, files=directory("Say good night."))
other = create()
used(other.id)

# What is gone is told; a session that has it keeps it.
waiting = create()
skills.versions.delete(made.latest_version_id, skill_id=made.id)
try:
    create()
    raise AssertionError("a session began without its skill")
except bad as error:
    assert error.body["error"]["message"].startswith("agent.skills.0: "), error
used(waiting.id)

# The vendor's names stand for configured directories.
try:
    make(client, skills=[{"type": "anthropic", "skill_id": "xlsx"}])
    raise AssertionError("a skill that nobody configured was accepted")
except bad as error:
    assert "[serve.skills]" in error.body["error"]["message"], error
print("done")
