import asyncio

from common import *

client = client()
environments = client.beta.environments
bad, missing, conflict = anthropic.BadRequestError, anthropic.NotFoundError, anthropic.ConflictError


def refused(kind, call, *arguments, **named):
    try:
        list(call(*arguments, **named))
    except kind as error:
        return error
    raise AssertionError("it was not refused")


plain = environments.create(name="plain")
assert plain.config.type == "cloud" and plain.config.networking.type == "unrestricted"
assert (plain.config.packages.pip, plain.description, plain.metadata, plain.archived_at) == ([], None, {}, None)
assert plain.scope == "organization" and plain.created_at == plain.updated_at
limited = environments.create(
    name="limited",
    description="Reaches little",
    metadata={"a": "1", "b": "2"},
    config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["example.com"]}},
)
assert limited.config.networking.allowed_hosts == ["example.com"]
assert not limited.config.networking.allow_package_managers
workers = environments.create(name="workers", config={"type": "self_hosted"})
assert workers.config.type == "self_hosted"

assert "has this name already" in refused(conflict, environments.create, name="plain").message
refused(conflict, environments.update, limited.id, name="plain")
changed = environments.update(
    limited.id,
    name="renamed",
    description="",
    metadata={"a": None, "b": "", "c": "3"},
    config={"type": "cloud", "networking": {"type": "limited", "allow_package_managers": True}, "packages": {"pip": ["attrs"]}},
)
assert (changed.name, changed.description, changed.metadata) == ("renamed", "", {"c": "3"})
networking = changed.config.networking
assert (networking.allowed_hosts, networking.allow_package_managers) == (["example.com"], True)
assert changed.config.packages.pip == ["attrs"]
assert environments.update(limited.id, description=None).description is None
assert environments.create(name="limited").name == "limited", "a name that was given up is free"
error = refused(bad, environments.update, limited.id, config={"type": "self_hosted"})
assert error.error_code == "invalid_config_type_change", error.body
error = refused(bad, environments.create, name="much", metadata={str(number): "" for number in range(17)})
assert error.error_code == "invalid_metadata", error.body
refused(bad, environments.create, name="account", scope="account")
for packages, place in [({"npm": ["left-pad"]}, "npm"), ({"pip": ["attrs", "--pre"]}, "pip.1"), ({"pip": ["./attrs"]}, "pip.0")]:
    for call, named in [(environments.create, {"name": "packages"}), (environments.update, {"environment_id": plain.id})]:
        error = refused(bad, call, **named, config={"type": "cloud", "packages": packages})
        assert f"config.packages.{place}: " in error.message, error.message
assert environments.retrieve(plain.id).config.packages.npm == []
narrow = {"type": "cloud", "networking": {"type": "limited"}, "packages": {"pip": ["attrs"]}}
refused(bad, environments.create, name="narrow", config=narrow)

made = [environments.create(name=f"number {number}").id for number in range(5)]
everything = [found.id for found in environments.list(limit=2)]
assert everything[:5] == made[::-1] and len(everything) == 9 and len(set(everything)) == 9
archived = environments.archive(made[0])
assert archived.archived_at is not None and environments.archive(made[0]).archived_at == archived.archived_at
assert made[0] not in [found.id for found in environments.list()]
assert made[0] in [found.id for found in environments.list(include_archived=True)]
assert refused(bad, environments.update, made[0], name="late").error_code == "environment_archived"
agent = client.beta.agents.create(name="An agent", model="any")
refused(bad, client.beta.sessions.create, agent=agent.id, environment_id=made[0])

deleted = environments.delete(made[1])
assert (deleted.id, deleted.type) == (made[1], "environment_deleted")
for call in [environments.retrieve, environments.delete, environments.archive, environments.update]:
    refused(missing, call, made[1])
refused(missing, environments.retrieve, "nothing")


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        environments = client.beta.environments
        made = await environments.create(name="async")
        assert (await environments.update(made.id, name="renamed again")).name == "renamed again"
        assert (await environments.retrieve(made.id)).name == "renamed again"
        assert made.id in [found.id async for found in environments.list(limit=3)]
        assert (await environments.archive(made.id)).archived_at is not None
        assert (await environments.delete(made.id)).type == "environment_deleted"
        # Of many with one name at once, one is made.
        found = await asyncio.gather(*[environments.create(name="once") for _ in range(8)], return_exceptions=True)
        assert sum(isinstance(one, anthropic.ConflictError) for one in found) == 7, found


asyncio.run(main())
