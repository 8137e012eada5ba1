"""The official SDK against what the fake hosts. Its version is one of the profile that is asked for. What it needs comes as
JSON, what it saw goes out as one line of JSON."""

import json
import sys
import warnings

import anthropic

warnings.simplefilter("ignore")
given = json.load(sys.stdin)
is_current = given["is_current"]
client = anthropic.Anthropic(base_url=given["url"], api_key=given["key"], max_retries=0)
skills = client.skills if is_current else client.beta.skills
files = client.files if is_current else client.beta.files
messages = client.messages if is_current else client.beta.messages
betas = {} if is_current else {"betas": ["code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"]}
tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
seen = {}


def parts(text):
    main = f"---\nname: my-skill\ndescription: {text}\n---\n".encode()
    return [("my-skill/SKILL.md", main), ("my-skill/scripts/a.py", b"print(1)\n")]


def refused(call):
    try:
        call()
    except anthropic.APIStatusError as error:
        return [type(error).__name__, error.message]
    return "nothing was refused"


def title(skill):
    return skill.display_name if is_current else skill.display_title


def address(version):
    return version.id if is_current else version.version


def latest(skill):
    return skill.latest_version_id if is_current else skill.latest_version


# Skills and versions.
skill = skills.create(files=parts("First."), **{"display_name" if is_current else "display_title": "T \u00e4"})
seen["title"] = title(skill)
second = skills.versions.create(skill.id, files=parts("Second."))
seen["is_latest"] = latest(skills.retrieve(skill.id)) == address(second)
seen["described"] = skills.versions.retrieve(address(second), skill_id=skill.id).description
seen["versions"] = [version.description for version in skills.versions.list(skill.id, limit=1)]
for _ in range(3):
    skills.create(files=parts("Another."))
seen["custom"] = len(list(skills.list(source="custom", limit=2)))
seen["anthropic"] = sorted(skill.id for skill in skills.list(source="anthropic"))

# Files, and a container.
data = files.upload(file=("data.csv", b"1,2\n", "text/csv"))
seen["file"] = [data.filename, data.mime_type, data.size_bytes, data.downloadable]
question = [{"role": "user", "content": [
    {"type": "text", "text": "Make a table."}, {"type": "container_upload", "file_id": data.id}]}]
wanted = [{"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
          {"type": "custom", "skill_id": skill.id, "version": "latest"}]


def ask(history, container):
    if given["stream"]:
        with messages.stream(model="m", max_tokens=100, messages=history, tools=tools, container=container, **betas) as stream:
            return stream.get_final_message()
    return messages.create(model="m", max_tokens=100, messages=history, tools=tools, container=container, **betas)


first = ask(question, {"skills": wanted})
seen["stops"] = [first.stop_reason]
seen["loaded"] = [[skill.skill_id, skill.version] for skill in first.container.skills]
seen["is_resolved"] = seen["loaded"][1][1] == address(second)
content = [block.to_dict(mode="json", exclude_unset=True) for block in first.content]
history = question + [{"role": "assistant", "content": content}]
answer = ask(history, {"id": first.container.id, "skills": wanted})
seen["stops"].append(answer.stop_reason)
seen["same_container"] = answer.container.id == first.container.id
results = [block for block in answer.content if block.type == "bash_code_execution_tool_result"]
made = [output.file_id for block in results for output in block.content.content]
seen["names"] = [files.retrieve_metadata(file).filename for file in made]
seen["made"] = [files.download(file).read().decode() for file in made]
seen["text"] = answer.content[-1].text
seen["files"] = len(list(files.list(limit=1)))

# What is refused.
seen["gone"] = refused(lambda: ask(question, {"id": "container_x", "skills": wanted}))
seen["unknown"] = refused(lambda: ask(question, {"skills": [{"type": "custom", "skill_id": "skill_x", "version": "latest"}]}))
seen["versioned"] = refused(lambda: skills.delete(skill.id))
seen["private"] = refused(lambda: files.download(data.id).read())
seen["nothing"] = refused(lambda: files.retrieve_metadata("file_x"))
seen["rootless"] = refused(lambda: skills.create(files=[("a.py", b"1")]))
seen["too_large"] = refused(lambda: skills.create(files=parts("D.") + [("my-skill/a.bin", bytes(30_000_000))]))

# All of it goes.
for version in list(skills.versions.list(skill.id)):
    skills.versions.delete(address(version), skill_id=skill.id)
seen["deleted"] = [skills.delete(skill.id).type, files.delete(data.id).type]
print(json.dumps(seen))
