from common import *

TOOL = {
    "type": "custom",
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
client = client()
made = session(client, tools=[TOOL])
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("How is the weather?"))
    waiting = until_idle(stream)
    [call] = [event for event in waiting if event.type == "agent.custom_tool_use"]
    assert (call.name, call.input) == ("get_weather", {"city": "Bern"})
    stop = waiting[-1].stop_reason
    assert stop.type == "requires_action" and stop.event_ids == [call.id], stop
    assert client.beta.sessions.retrieve(made.id).status == "idle"

    # A result for a call that does not wait is refused.
    try:
        send(client, made.id, {"type": "user.custom_tool_result", "custom_tool_use_id": waiting[0].id})
        raise AssertionError("a message is no call")
    except anthropic.BadRequestError:
        pass

    result = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": call.id,
        "content": [{"type": "text", "text": "It snows."}],
    }
    [sent] = send(client, made.id, result)
    # The same result may be sent again.
    [again] = send(client, made.id, result)
    assert again.id == sent.id
    rest = until_idle(stream)
assert texts(rest) == ["The tool said: It snows."], texts(rest)
[told] = [event for event in rest if event.type == "user.custom_tool_result"]
assert told.id == sent.id and told.custom_tool_use_id == call.id
try:
    send(client, made.id, {**result, "content": [{"type": "text", "text": "It rains."}]})
    raise AssertionError("another result is refused")
except (anthropic.BadRequestError, anthropic.ConflictError):
    pass
