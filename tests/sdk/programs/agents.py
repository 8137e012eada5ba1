import asyncio
import datetime

from common import *

client = client()
agents = client.beta.agents
bad, missing, conflict = anthropic.BadRequestError, anthropic.NotFoundError, anthropic.ConflictError


def refused(kind, call, *arguments, **named):
    try:
        list(call(*arguments, **named))
    except kind as error:
        return error.body["error"]["message"]
    raise AssertionError("it was not refused")


made = agents.create(name="First", model="claude-opus-5-5")
assert (made.version, made.type, made.archived_at) == (1, "agent", None)
assert made.model.id == "script", "the answer tells which model answers"
assert (made.system, made.description, made.tools, made.skills, made.metadata) == (None, None, [], [], {})
assert made.execution_identity.type == "service_account" and made.created_at == made.updated_at

tools = [
    {"type": "agent_toolset_20260401", "configs": [{"name": "bash", "permission_policy": {"type": "always_ask"}}]},
    {"type": "custom", "name": "t", "description": "d", "input_schema": {"type": "object", "properties": {"z": {}, "a": {}}}},
]
second = agents.update(
    made.id,
    version=1,
    name="Second",
    system="Be brief.",
    description="It is brief.",
    tools=tools,
    metadata={"team": "blue", "old": "1"},
    model={"id": "claude-opus-5-5", "effort": "high", "speed": "fast"},
)
assert (second.version, second.name, second.system) == (2, "Second", "Be brief.")
assert (second.model.effort.type, second.model.speed) == ("high", "fast")
toolset, custom = second.tools
configs = {config.name: config for config in toolset.configs}
assert configs["bash"].permission_policy.type == "always_ask" and configs["bash"].enabled
assert not configs["web_search"].enabled, "without a provider it is off"
assert list(custom.input_schema.properties) == ["z", "a"], "a schema keeps its order"

told = refused(conflict, agents.update, made.id, version=1, name="Late")
assert told.startswith(f"the agent {made.id} has the version 2, not 1"), told
assert agents.update(made.id, name="Second").version == 2, "what changes nothing makes no version"
third = agents.update(made.id, description=None, system="", tools=[], metadata={"old": None, "new": "2"}, model="other")
assert (third.version, third.description, third.system, third.tools) == (3, None, None, [])
assert third.metadata == {"team": "blue", "new": "2"}
assert third.model.effort.type == "high", "an effort that is left out stays"

assert agents.retrieve(made.id).version == 3
assert agents.retrieve(made.id, version=2).system == "Be brief."
assert refused(missing, agents.retrieve, made.id, version=9).endswith("its newest is 3")
assert [version.version for version in agents.versions.list(made.id, limit=2)] == [3, 2, 1]

others = [agents.create(name=f"Other {number}", model="any").id for number in range(4)]
everything = [made.id, *others][::-1]
assert [found.id for found in agents.list(limit=2)] == everything
assert [found.id for found in agents.list(created_at_lte=made.created_at)] == [made.id]
later = made.created_at + datetime.timedelta(milliseconds=1)
assert made.id not in [found.id for found in agents.list(created_at_gte=later)]
first = agents.list(limit=2)
refused(bad, agents.list, limit=2, include_archived=True, page=first.next_page)
refused(bad, agents.list, page="page_nothing")
refused(bad, agents.list, limit=101)

archived = agents.archive(others[0])
assert archived.archived_at is not None and archived.version == 1
assert agents.archive(others[0]).archived_at == archived.archived_at
assert others[0] not in [found.id for found in agents.list()]
assert others[0] in [found.id for found in agents.list(include_archived=True)]
assert agents.retrieve(others[0], version=1).archived_at == archived.archived_at
refused(bad, agents.update, others[0], name="Later")
environment = client.beta.environments.create(name="for agents")
refused(bad, client.beta.sessions.create, agent=others[0], environment_id=environment.id)

for kind, named in [
    (bad, {"name": ""}),
    (bad, {"name": "n", "multiagent": {"type": "coordinator", "agents": []}}),
    (bad, {"name": "n", "mcp_servers": [{"type": "url", "name": "a", "url": "https://example.com"}]}),
    (bad, {"name": "n", "skills": [{"type": "anthropic", "skill_id": "xlsx"}]}),
    (bad, {"name": "n", "skills": [{"type": "custom", "skill_id": "skill_1"}]}),
    (bad, {"name": "n", "tools": [{"type": "agent_toolset_20260401", "configs": [{"name": "web_search"}]}]}),
    (bad, {"name": "n", "extra_body": {"colour": "red"}}),
]:
    refused(kind, agents.create, model="any", **named)
refused(missing, agents.retrieve, "agent_00000000000000000000000000000001")
refused(missing, agents.retrieve, "nothing")


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        agents = client.beta.agents
        made = await agents.create(name="Async", model="any")
        assert (await agents.update(made.id, version=1, name="Renamed")).version == 2
        assert (await agents.retrieve(made.id)).name == "Renamed"
        assert [version.version async for version in agents.versions.list(made.id)] == [2, 1]
        assert made.id in [found.id async for found in agents.list(limit=2)]
        assert (await agents.archive(made.id)).archived_at is not None
        # Of many updates at once, each becomes a version.
        busy = await agents.create(name="Busy", model="any")
        await asyncio.gather(*[agents.update(busy.id, metadata={str(number): ""}) for number in range(8)])
        last = await agents.retrieve(busy.id)
        assert last.version == 9 and len(last.metadata) == 8


asyncio.run(main())
