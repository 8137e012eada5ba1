from common import *

TOOLS = [
    {
        "type": "agent_toolset_20260401",
        "default_config": {"permission_policy": {"type": "always_ask"}},
    }
]
client = client()
made = session(client, tools=TOOLS)
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Run it."))
    waiting = until_idle(stream)
    [call] = [event for event in waiting if event.type == "agent.tool_use"]
    assert call.name == "bash" and call.evaluated_permission == "ask", call
    assert waiting[-1].stop_reason.event_ids == [call.id]
    send(client, made.id, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
    rest = until_idle(stream)
[result] = [event for event in rest if event.type == "agent.tool_result"]
assert result.tool_use_id == call.id and not result.is_error
assert "forty-two" in result.content[0].text, result
assert texts(rest) == ["It ran."], texts(rest)

denied = session(client, tools=TOOLS)
with client.beta.sessions.events.stream(denied.id) as stream:
    send(client, denied.id, message("Run it."))
    waiting = until_idle(stream)
    [call] = [event for event in waiting if event.type == "agent.tool_use"]
    [sent] = send(
        client,
        denied.id,
        {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "deny", "deny_message": "Not now."},
    )
    assert sent.deny_message == "Not now."
    rest = until_idle(stream)
[result] = [event for event in rest if event.type == "agent.tool_result"]
assert result.is_error and "Not now." in result.content[0].text, result
