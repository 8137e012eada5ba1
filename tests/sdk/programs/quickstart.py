from common import *

client = client()
agent = client.beta.agents.create(
    name="Coding assistant",
    model="claude-sonnet-4-5",
    system="You are a helpful assistant.",
    tools=[{"type": "agent_toolset_20260401"}],
)
environment = client.beta.environments.create(
    name="quickstart", config={"type": "cloud", "networking": {"type": "unrestricted"}}
)
session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id, title="A quickstart")
assert session.status == "idle" and session.title == "A quickstart"
assert session.agent.id == agent.id and session.agent.version == 1

with client.beta.sessions.events.stream(session.id) as stream:
    sent = send(client, session.id, message("Hello"))
    events = until_idle(stream)

kinds = [event.type for event in events]
assert kinds == [
    "user.message",
    "session.status_running",
    "span.model_request_start",
    "span.model_request_end",
    "agent.message",
    "session.status_idle",
], kinds
assert events[0].id == sent[0].id and events[0].processed_at is not None
assert texts(events) == ["You said: Hello"], texts(events)
assert events[-1].stop_reason.type == "end_turn"
assert events[3].model_request_start_id == events[2].id
assert [event.id for event in listed(client, session.id)] == [event.id for event in events]
