import asyncio

from common import *

client = client()
for models in [client.models, client.beta.models]:
    assert [found.id for found in models.list(limit=1)] == ["script"]
    found = models.retrieve("script")
    assert (found.id, found.type, found.lifecycle, found.display_name) == ("script", "model", "active", "script")
    assert models.retrieve("claude-opus-5-5").id == "script", "a name of the vendor's leads to the model that answers"
page = client.beta.models.list()
assert (page.has_more, page.first_id, page.last_id) == (False, "script", "script")
assert not list(client.beta.models.list(lifecycle=["retired"]))
assert not client.beta.models.list(after_id="script").data
try:
    client.beta.models.list(after_id="nothing")
    raise AssertionError("there is no such model")
except anthropic.BadRequestError:
    pass


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        assert [found.id async for found in client.beta.models.list()] == ["script"]
        assert (await client.beta.models.retrieve("script")).id == "script"


asyncio.run(main())
