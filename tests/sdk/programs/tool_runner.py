import asyncio

from anthropic import beta_async_tool
from common import *

sync = client()
made = session(
    sync,
    tools=[
        {
            "type": "custom",
            "name": "get_weather",
            "description": "The weather of a city.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ],
)


@beta_async_tool
async def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is windy in {city}."


async def main():
    client = anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True)
    runner = client.beta.sessions.events.tool_runner(made.id, tools=[get_weather], max_idle=1)
    calls = []

    async def follow():
        async for call in runner:
            calls.append(call)

    following = asyncio.create_task(follow())
    await client.beta.sessions.events.send(made.id, events=[message("How is the weather?")])
    await asyncio.wait_for(following, 60)
    [call] = calls
    assert call.posted and not call.is_error and call.name == "get_weather"


asyncio.run(main())
assert texts(listed(sync, made.id)) == ["The tool said: It is windy in Bern."]
