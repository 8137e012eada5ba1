"""Creations with an `Idempotency-Key`. Before the server is killed: `first`, which prints what it made. Afterwards: `again` and that."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request

from common import *

client = client()


def keyed(key):
    return {"extra_headers": {"Idempotency-Key": key}}


def refused(call, status, part, should_retry="false"):
    try:
        call()
    except anthropic.APIStatusError as error:
        assert error.status_code == status and part in error.body["error"]["message"], error
        assert error.response.headers.get("x-should-retry") == should_retry, error.response.headers
        return error
    raise AssertionError(f"{part}: it was not refused")


def agents(name):
    return [agent.id for agent in client.beta.agents.list() if agent.name == name]


def creations(environment, session, file):
    """Every creation that honours the header, by the same call each time."""
    return [
        lambda: client.beta.agents.create(name="Repeated", model="any", **keyed("agent")),
        lambda: client.beta.environments.create(name="repeated", **keyed("environment")),
        lambda: client.beta.sessions.create(agent=session["agent"], environment_id=environment, **keyed("session")),
        lambda: client.beta.sessions.resources.add(session["id"], type="file", file_id=file, **keyed("resource")),
        lambda: client.beta.sessions.events.send(session["id"], events=[message("Hello")], **keyed("event")),
    ]


if sys.argv[2] == "first":
    agent, environment = make(client)
    made = client.beta.sessions.create(agent=agent, environment_id=environment)
    file = client.beta.files.upload(file=("a.txt", b"text")).id
    arguments = [environment, {"id": made.id, "agent": agent}, file]
    answers = [creation().to_dict(mode="json") for creation in creations(*arguments)]
    assert answers == [creation().to_dict(mode="json") for creation in creations(*arguments)]
    print(json.dumps([arguments, answers]))
    sys.exit()

arguments, answers = json.loads(sys.argv[3])
assert answers == [creation().to_dict(mode="json") for creation in creations(*arguments)], "as before the server was killed"
id = arguments[1]["id"]
wait_idle(client, id)
assert len([event for event in listed(client, id) if event.type == "user.message"]) == 1
assert len(agents("Repeated")) == 1 and len(list(client.beta.sessions.resources.list(id))) == 1

raw = client.beta.agents.with_raw_response.create(name="Repeated", model="any", **keyed("agent"))
assert raw.headers["idempotent-replayed"] == "true" and raw.headers["request-id"], raw.headers
raw = client.beta.agents.with_raw_response.create(name="Repeated", model="any", **keyed("agent, second"))
assert "idempotent-replayed" not in raw.headers and len(agents("Repeated")) == 2

# Another body, keys that are none, and uploads.
refused(lambda: client.beta.agents.create(name="Other", model="any", **keyed("agent")), 400, "another body")
for key in ["", "k" * 256, "a\tb"]:
    refused(lambda: client.beta.agents.create(name="Other", model="any", **keyed(key)), 400, "printable ASCII")
refused(lambda: client.beta.files.upload(file=("a.txt", b"text"), **keyed("file")), 400, "Idempotency-Key")
skill = [("greeter/SKILL.md", b"---\nname: greeter\ndescription: Greets people\n---\nSay hello.\n")]
refused(lambda: client.beta.skills.create(files=skill, **keyed("skill")), 400, "Idempotency-Key")
skill_id = client.beta.skills.create(files=skill).id
refused(lambda: client.beta.skills.versions.create(skill_id, files=skill, **keyed("skill")), 400, "Idempotency-Key")

# The key is one of its route: another route has the same key for itself.
client.beta.environments.create(name="of the same key", **keyed("agent"))

# An error leaves the key free.
refused(lambda: client.beta.sessions.create(agent="agent_" + "0" * 32, environment_id=arguments[0], **keyed("free")), 404, "agent")
client.beta.sessions.create(agent=arguments[1]["agent"], environment_id=arguments[0], **keyed("free"))

# A request that was carried out in part is not carried out again.
unknown = {"type": "user.tool_confirmation", "tool_use_id": listed(client, id)[0].id, "result": "allow"}


def send_part():
    client.beta.sessions.events.send(id, events=[message("Part"), unknown], **keyed("part"))


refused(send_part, 400, "")
refused(send_part, 409, "may have had an effect")
wait_idle(client, id)
messages = [event for event in listed(client, id) if event.type == "user.message"]
assert [event.content[0].text for event in messages].count("Part") == 1, messages

# Many at once: one creates, the others get its answer or are told to repeat.
found = []


def at_once():
    while True:
        try:
            found.append(client.beta.agents.create(name="At once", model="any", **keyed("at once")).id)
            return
        except anthropic.ConflictError as error:
            assert error.response.headers["retry-after"] == "1", error.response.headers
            assert "x-should-retry" not in error.response.headers
            time.sleep(0.05)


threads = [threading.Thread(target=at_once) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 16 and set(found) == set(agents("At once")), found

# A client that goes away does not stop what it began.
host, port = URL.removeprefix("http://").split(":")
body = json.dumps({"name": "Gone", "model": "any"}).encode()
for number in range(20):
    head = f"POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: gone {number}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
    request = lambda: urllib.request.Request(URL + "/v1/agents", body, {"Idempotency-Key": f"gone {number}"})
    while True:
        try:
            json.load(urllib.request.urlopen(request()))
            break
        except urllib.error.HTTPError as error:
            assert error.code == 409 and error.headers["retry-after"] == "1", error.read()
            time.sleep(0.02)
assert len(agents("Gone")) == 20, len(agents("Gone"))

# What is refused says so to the SDK, which would repeat a 409 otherwise.
for method, path, headers in [
    ("GET", "/v1/nothing", {}),
    ("GET", "/v1/agents/%ff", {}),
    ("GET", "/v1/vaults/%ff", {}),
    ("DELETE", "/v1/sessions", {}),
    ("GET", "/v1/agents?limit=0", {}),
    ("POST", "/v1/agents", {}),
    ("POST", "/v1/files", {}),
    ("GET", "/v1/sessions", {"host": "rebound.example.com"}),
    ("GET", "/v1/sessions/" + id + "/events/stream?x=1", {}),
]:
    try:
        urllib.request.urlopen(urllib.request.Request(URL + path, method=method, headers=headers))
        raise AssertionError(f"{method} {path} was not refused")
    except urllib.error.HTTPError as error:
        body = error.read()
        assert error.headers["x-should-retry"] == "false", (path, error.code, error.headers, body)
        assert json.loads(body)["type"] == "error", (path, body)
