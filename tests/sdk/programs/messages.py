"""The Messages API of the server: a conversation with a tool, whole and streamed, and refusals.

Arguments: the address, the model's name, and what answers: a service of the Messages API (`service`), one of Chat Completions (`chat`), or
a script (`script`).
"""

import asyncio

from common import *

MODEL, KIND = sys.argv[2], sys.argv[3]
client = client()
tools = [
    {
        "name": "get_weather",
        "description": "The weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
asked = [{"role": "user", "content": "What is the weather in Bern?"}]
named = {"model": MODEL, "max_tokens": 1000, "system": "Be brief.", "tools": tools}


def check_call(message):
    text, call = message.content
    assert (message.type, message.role, message.stop_reason) == ("message", "assistant", "tool_use")
    assert text.text == "You said: What is the weather in Bern?", text
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Bern"}), call
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain"}
    history = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    return history


def check_end(message):
    assert (message.content[0].text, message.stop_reason) == ("The tool said: Rain", "end_turn"), message
    assert message.usage.input_tokens >= 0 and message.usage.output_tokens >= 0


for messages in [client.messages, client.beta.messages]:
    history = check_call(messages.create(messages=asked, **named))
    check_end(messages.create(messages=history, **named))
    with messages.stream(messages=asked, **named) as stream:
        told = "".join(stream.text_stream)
        history = check_call(stream.get_final_message())
    assert told == "You said: What is the weather in Bern?", told
    with messages.stream(messages=history, **named) as stream:
        kinds = [event.type for event in stream]
        check_end(stream.get_final_message())
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds


def refused(kind, call, **changes):
    try:
        call(**{"messages": asked, **named, **changes})
    except kind as error:
        assert error.body["type"] == "error", error.body
        return error.body["error"]["message"]
    raise AssertionError("it was not refused")


refused(anthropic.BadRequestError, client.messages.create, messages=[])
if KIND == "service":
    # The service reads what the server does not know.
    check_call(client.messages.create(messages=asked, **named, extra_body={"metadata": {"user_id": "u"}}))
else:
    create = client.messages.create
    wrong = [{"colour": "red"}, {"temperature": 2}, {"top_k": 5}, {"stop_sequences": [""]}, {"tool_choice": {"type": "tool", "name": "none"}}]
    if KIND == "script":
        wrong += [{"temperature": 0.5}, {"stop_sequences": ["x"]}]
    for field in wrong:
        told = refused(anthropic.BadRequestError, create, extra_body=field)
        assert next(iter(field)) in told, told
    if KIND == "chat":
        choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
        settings = {"temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"]}
        check_call(create(messages=asked, **named, tool_choice=choice, extra_body=settings))
    prefilled = [*asked, {"role": "assistant", "content": "It"}]
    assert "the first and the last message" in refused(anthropic.BadRequestError, create, messages=prefilled)
    broken = [{"role": "user", "content": [{"type": "tool_result"}]}]
    assert refused(anthropic.BadRequestError, create, messages=broken).startswith("messages.0.content: ")
    count = {"model": MODEL, "messages": asked}
    try:
        client.messages.count_tokens(**count)
        raise AssertionError("nobody counts")
    except anthropic.BadRequestError as error:
        assert "counts no tokens" in error.body["error"]["message"]


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        history = check_call(await client.messages.create(messages=asked, **named))
        async with client.messages.stream(messages=history, **named) as stream:
            told = "".join([text async for text in stream.text_stream])
            check_end(await stream.get_final_message())
        assert told == "The tool said: Rain"


asyncio.run(main())
