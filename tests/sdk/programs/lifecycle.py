from common import *

client = client()
agent, environment = make(client, system="First.")
client.beta.agents.update(agent, version=1, system="Second.")
newest = client.beta.sessions.create(agent=agent, environment_id=environment)
pinned = client.beta.sessions.create(agent={"type": "agent", "id": agent, "version": 1}, environment_id=environment)
other = client.beta.sessions.create(
    agent={"type": "agent_with_overrides", "id": agent, "system": None, "tools": []}, environment_id=environment
)
assert (newest.agent.version, newest.agent.system) == (2, "Second.")
assert (pinned.agent.version, pinned.agent.system) == (1, "First.")
assert (other.agent.version, other.agent.system) == (2, None)

changed = client.beta.sessions.update(newest.id, title="A title", metadata={"a": "1", "b": "2"})
assert (changed.title, changed.metadata) == ("A title", {"a": "1", "b": "2"})
changed = client.beta.sessions.update(newest.id, metadata={"a": None})
assert (changed.title, changed.metadata) == ("A title", {"b": "2"})
assert "session.updated" in [event.type for event in listed(client, newest.id)]

begun = client.beta.sessions.create(
    agent=agent, environment_id=environment, initial_events=[message("Begin."), message("Go on.")]
)
wait_idle(client, begun.id)
archived = client.beta.sessions.archive(newest.id)
assert archived.archived_at is not None
assert client.beta.sessions.archive(newest.id).archived_at == archived.archived_at
assert newest.id not in [found.id for found in client.beta.sessions.list(agent_id=agent)]
assert newest.id in [found.id for found in client.beta.sessions.list(agent_id=agent, include_archived=True)]
try:
    send(client, newest.id, message("Hello"))
    raise AssertionError("an archived session takes nothing")
except anthropic.BadRequestError:
    pass

with client.beta.sessions.events.stream(pinned.id) as stream:
    deleted = client.beta.sessions.delete(pinned.id)
    assert (deleted.id, deleted.type) == (pinned.id, "session_deleted")
    assert [event.type for event in stream] == ["session.deleted"]
for call in [client.beta.sessions.retrieve, client.beta.sessions.delete, client.beta.sessions.archive]:
    try:
        call(pinned.id)
        raise AssertionError("it is gone")
    except anthropic.NotFoundError:
        pass
