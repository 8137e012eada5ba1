import asyncio
import io
import zipfile

from common import *

client = client()
skills = client.beta.skills
bad, missing = anthropic.BadRequestError, anthropic.NotFoundError


def refused(kind, call, *arguments, **named):
    try:
        list(call(*arguments, **named))
    except kind as error:
        return error.body["error"]["message"]
    raise AssertionError("it was not refused")


def directory(name="greeter", body="Say hello."):
    text = f"---\nname: {name}\ndescription: Greets people\n---\n{body}\n"
    return [(f"{name}/SKILL.md", text.encode()), (f"{name}/scripts/run.sh", b"#!/bin/sh\necho hi\n")]


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for path, content in files:
            written.writestr(path, content)
    return buffer.getvalue()


made = skills.create(files=directory(), display_name="A greeter")
assert (made.display_name, made.source.type, made.type) == ("A greeter", "custom", "skill")
zipped = skills.create(files=[("other.zip", archive(directory("other")))])
assert zipped.display_name == "other"
assert skills.retrieve(made.id) == made
first = skills.versions.retrieve(made.latest_version_id, skill_id=made.id)
assert (first.name, first.description, first.skill_id) == ("greeter", "Greets people", made.id)
assert skills.versions.retrieve("latest", skill_id=made.id) == first

second = skills.versions.create(made.id, files=directory(body="Say good evening."))
assert second.name == "greeter"
changed = skills.retrieve(made.id)
assert changed.latest_version_id == second.id and changed.updated_at >= made.updated_at
assert [found.id for found in skills.versions.list(made.id, limit=1)] == [second.id, first.id]
for version, body in [(first, b"Say hello."), (second, b"Say good evening.")]:
    content = skills.versions.download(version.id, skill_id=made.id)
    with zipfile.ZipFile(io.BytesIO(content.read())) as read:
        assert sorted(read.namelist()) == ["greeter/SKILL.md", "greeter/scripts/run.sh"], read.namelist()
        assert body in read.read("greeter/SKILL.md")
    assert 'filename="greeter.zip"' in content.headers["content-disposition"]

assert [found.id for found in skills.list(limit=1)] == [zipped.id, made.id]
assert [found.id for found in skills.list(source="custom")] == [zipped.id, made.id]
assert not list(skills.list(source="anthropic"))

# An agent's skill is pinned to the version that is the latest when it is named.
agent = client.beta.agents.create(name="n", model="any", skills=[{"type": "custom", "skill_id": made.id}])
[pinned] = agent.skills
assert (pinned.skill_id, pinned.version) == (made.id, second.id)
old = client.beta.agents.create(
    name="n", model="any", skills=[{"type": "custom", "skill_id": made.id, "version": first.id}]
)
assert old.skills[0].version == first.id

assert "keep the name" in refused(bad, skills.versions.create, made.id, files=directory("renamed"))
for files in [
    [],
    [("greeter/README.md", b"no skill")],
    [("../greeter/SKILL.md", directory()[0][1])],
    [("greeter/../../SKILL.md", directory()[0][1])],
    [("/greeter/SKILL.md", directory()[0][1])],
    directory() + [("elsewhere/a", b"")],
    [("a.zip", b"PK\x03\x04 is broken")],
    [("a.zip", archive([("greeter/SKILL.md", directory()[0][1]), ("../evil", b"")]))],
]:
    refused(bad, skills.create, files=files)
assert len(list(skills.list())) == 2

deleted = skills.versions.delete(second.id, skill_id=made.id)
assert (deleted.id, deleted.type) == (second.id, "skill_version_deleted")
assert skills.retrieve(made.id).latest_version_id == first.id
assert "delete the skill instead" in refused(bad, skills.versions.delete, first.id, skill_id=made.id)
refused(missing, skills.versions.retrieve, second.id, skill_id=made.id)
refused(missing, skills.versions.retrieve, first.id, skill_id=zipped.id)
deleted = skills.delete(made.id)
assert (deleted.id, deleted.type) == (made.id, "skill_deleted")
refused(missing, skills.retrieve, made.id)
refused(missing, skills.versions.list, made.id)
refused(missing, skills.versions.download, first.id, skill_id=made.id)
refused(missing, skills.retrieve, "nothing")


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        skills = client.beta.skills
        made = await skills.create(files=directory("async-skill"))
        version = await skills.versions.create(made.id, files=directory("async-skill", "Other."))
        assert (await skills.versions.retrieve(version.id, skill_id=made.id)).id == version.id
        assert (await (await skills.versions.download(version.id, skill_id=made.id)).read()).startswith(b"PK")
        assert [found.id async for found in skills.versions.list(made.id, limit=1)][0] == version.id
        assert made.id in [found.id async for found in skills.list()]
        assert (await skills.versions.delete(version.id, skill_id=made.id)).type == "skill_version_deleted"
        assert (await skills.delete(made.id)).type == "skill_deleted"


asyncio.run(main())
