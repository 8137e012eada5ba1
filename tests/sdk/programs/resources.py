"""Upload a CSV, have a chart made of it, download the chart. And what is refused."""

import sys

from common import *

# Where files are in the sandbox, as its commands have them.
uploads, outputs = sys.argv[2], sys.argv[3]
client = client()
files, sessions = client.beta.files, client.beta.sessions
agent, environment = make(client, tools=[{"type": "agent_toolset_20260401"}])

csv = files.upload(file=("fruit.csv", b"fruit,count\napples,3\npears,2\n", "text/csv"))
note = files.upload(file=("note.txt", b"a note"))
mounted = [
    {"type": "file", "file_id": csv.id},
    {"type": "file", "file_id": note.id, "mount_path": "/workspace/notes/note.txt"},
]
session = sessions.create(agent=agent, environment_id=environment, resources=mounted)
paths = [resource.mount_path for resource in session.resources]
assert paths == [f"/mnt/session/uploads/{csv.id}", "/workspace/notes/note.txt"], paths
assert all(resource.type == "file" and resource.id.startswith("sesrsc_") for resource in session.resources)


def ask(text):
    with client.beta.sessions.events.stream(session.id) as stream:
        send(client, session.id, message(text))
        return "\n".join(texts(until_idle(stream)))


said = ask(f"{uploads}/{csv.id} {outputs}")
assert "apples ###\npears ##" in said, said

# What lies in the directory of outputs is a file of the session; a link is not.
made = {file.filename: file for file in files.list(scope_id=session.id)}
assert set(made) == {"chart.txt", "chart.svg"}, made
chart = made["chart.txt"]
assert chart.scope.id == session.id and chart.scope.type == "session" and chart.downloadable
assert files.download(chart.id).read() == b"apples ###\npears ##\n"
assert made["chart.svg"].mime_type == "image/svg+xml", made["chart.svg"]
assert csv.id not in [file.id for file in files.list(scope_id=session.id)]

# A list makes no file twice; a changed output is another file.
assert {file.id for file in files.list(scope_id=session.id)} == {file.id for file in made.values()}
said = ask(f"notes/note.txt {outputs}")
assert "a note" in said, said
again = {file.filename: file for file in files.list(scope_id=session.id)}
assert set(again) == {"chart.txt", "chart.svg"} and again["chart.txt"].id != chart.id
assert files.download(again["chart.txt"].id).read() == b"changed\n"
assert again["chart.svg"].id == made["chart.svg"].id

# Resources can be listed, added and removed.
resources = sessions.resources
listed = list(resources.list(session.id))
assert sorted(listed, key=str) == sorted(session.resources, key=str)
first = resources.list(session.id, limit=1)
assert len(first.data) == 1 and len(list(first)) == 2
assert resources.retrieve(listed[0].id, session_id=session.id) == listed[0]
late = files.upload(file=("late.txt", b"late"))
added = resources.add(session.id, type="file", file_id=late.id)
assert added.mount_path == f"/mnt/session/uploads/{late.id}"
assert added.id in [resource.id for resource in sessions.retrieve(session.id).resources]
deleted = resources.delete(added.id, session_id=session.id)
assert deleted.id == added.id and deleted.type == "session_resource_deleted"
assert added.id not in [resource.id for resource in sessions.retrieve(session.id).resources]


def refused(kind, part, **resource):
    for call in (
        lambda: sessions.create(agent=agent, environment_id=environment, resources=[{"type": "file", **resource}]),
        lambda: resources.add(session.id, **{"type": "file", **resource}),
    ):
        try:
            call()
        except kind as error:
            assert part in error.body["error"]["message"], error
        else:
            raise AssertionError(f"{resource} was not refused")


bad, missing = anthropic.BadRequestError, anthropic.NotFoundError
refused(missing, "there is no file", file_id="file_" + "0" * 32)
for path in ("/etc/passwd", "/proc/x", "/dev/x", "/usr/x", "/sys/x"):
    refused(bad, "cannot be mounted within", file_id=csv.id, mount_path=path)
for path in ("/workspace/../etc/x", "/workspace//x", "relative", "/workspace/a\nb"):
    refused(bad, "mount_path", file_id=csv.id, mount_path=path)
for path in ("/data/x", "/workspace", "/mnt/session/uploads"):
    refused(bad, "beneath", file_id=csv.id, mount_path=path)
try:
    resources.add(session.id, type="file", file_id=csv.id, mount_path="/workspace/notes/note.txt")
except bad as error:
    assert "something is there already" in error.body["error"]["message"], error
else:
    raise AssertionError("a file was replaced")
twice = [{"type": "file", "file_id": csv.id}] * 2
try:
    sessions.create(agent=agent, environment_id=environment, resources=twice)
except bad as error:
    assert "is there twice" in error.body["error"]["message"], error
else:
    raise AssertionError("one place was taken twice")
# Links that commands put in the places of these directories lead nowhere.
links = "rm -r .session/uploads .session/outputs && ln -s /etc .session/uploads && ln -s /etc .session/outputs"
assert ask(links) == "Done."
try:
    resources.add(session.id, type="file", file_id=late.id)
except bad as error:
    assert "link is in its way" in error.body["error"]["message"], error
else:
    raise AssertionError("a link was followed")
assert {file.id for file in files.list(scope_id=session.id)} == {file.id for file in again.values()}
# A session that was refused is not there.
assert [found.id for found in sessions.list()] == [session.id]
# The outputs of a session are deleted with it; what was uploaded stays.
sessions.delete(session.id)
assert not list(files.list(scope_id=session.id))
for file in again.values():
    try:
        files.download(file.id)
    except missing:
        pass
    else:
        raise AssertionError("an output outlived its session")
assert files.download(csv.id).read() and list(sessions.list()) == []
