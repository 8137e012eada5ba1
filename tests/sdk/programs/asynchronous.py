import asyncio

from common import *

made = session(client())


async def main():
    client = anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True, max_retries=0)
    async with await client.beta.sessions.events.stream(made.id) as stream:
        await client.beta.sessions.events.send(made.id, events=[message("Hello")])
        events = []
        async for event in stream:
            events.append(event)
            if event.type == "session.status_idle":
                break
    assert texts(events) == ["You said: Hello"]
    found = [event.id async for event in client.beta.sessions.events.list(made.id, limit=2)]
    assert found == [event.id for event in events]
    assert made.id in [found.id async for found in client.beta.sessions.list()]


asyncio.run(main())
