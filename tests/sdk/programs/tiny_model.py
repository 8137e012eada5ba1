"""The flows of the vendor's examples with a real model: llama.cpp with a tiny model that calls `bash` once and then says what it printed."""

from common import *

TOOLSET = {"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_allow"}}}
ASKING = {"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}}
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
OWN = {"type": "custom", "name": "bash", "description": "Runs a command elsewhere.", "input_schema": SCHEMA}
WORDS = ["I will run it.", "The command printed hello to you."]
client = client()


def said(events):
    return [text.strip() for text in texts(events)]


def only(events, kind):
    [event] = [event for event in events if event.type == kind]
    return event


# Stream first, then send. A second client sees the same.
made = session(client, tools=[TOOLSET])
with client.beta.sessions.events.stream(made.id) as stream, client.beta.sessions.events.stream(made.id) as other:
    send(client, made.id, message("Say hello."))
    events = until_idle(stream)
    assert [event.id for event in until_idle(other)] == [event.id for event in events]
assert said(events) == WORDS, events
assert only(events, "agent.tool_use").input == {"command": "echo hello"}
assert only(events, "agent.tool_result").content[0].text.strip() == "hello"
assert events[-1].stop_reason.type == "end_turn"

# A connection is lost in the middle. The list has the rest.
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Say hello again."))
    seen = {next(iter(stream)).id}
wait_idle(client, made.id)
rest = [event for event in listed(client, made.id) if event.id not in seen | {event.id for event in events}]
assert said(rest) == WORDS, rest

# A person confirms the call.
made = session(client, tools=[ASKING])
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Say hello."))
    call = only(until_idle(stream), "agent.tool_use")
    send(client, made.id, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
    assert said(until_idle(stream)) == WORDS[1:]

# The client runs the tool.
made = session(client, tools=[OWN])
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Say hello."))
    call = only(until_idle(stream), "agent.custom_tool_use")
    result = {"type": "user.custom_tool_result", "custom_tool_use_id": call.id}
    send(client, made.id, {**result, "content": [{"type": "text", "text": "hello"}]})
    assert said(until_idle(stream)) == WORDS[1:]

# A waiting call is interrupted, and the session goes on.
made = session(client, tools=[ASKING])
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Say hello."))
    until_idle(stream)
    send(client, made.id, {"type": "user.interrupt"})
    assert until_idle(stream)[-1].stop_reason.type == "end_turn"
    send(client, made.id, message("Say hello."))
    assert until_idle(stream)[-1].stop_reason.type == "requires_action"
