"""Keys: who has none is let in from this machine only, until there is one; tenants see nothing of each other."""

import subprocess
import threading

from common import *

PROGRAM, DATA = sys.argv[2:]


def keys(*arguments, code=0):
    done = subprocess.run([PROGRAM, "keys", *arguments, "--data", DATA], capture_output=True, text=True)
    assert done.returncode == code, done
    return done.stdout.strip()


def client_of(key, **options):
    return anthropic.Anthropic(
        base_url=URL, api_key=key, _strict_response_validation=True, max_retries=0, timeout=60, **options
    )


def refused(kind, call, *arguments, **named):
    try:
        result = call(*arguments, **named)
        list(result) if hasattr(result, "__iter__") else result
    except kind as error:
        return error.body["error"]["message"]
    raise AssertionError(f"{call} was not refused")


# Without keys, any key will do.
nobody = client_of("none")
made_before = session(nobody)
assert keys("list") == ""

acme, other = keys("create", "of acme", "--tenant", "acme"), keys("create", "of other", "--tenant", "other")
assert acme.startswith("sk-conjure-") and len(acme) == 108
unauthorised = anthropic.AuthenticationError
for key in ["none", acme[:-1], acme + "0", "sk-conjure-" + "0" * 32 + "-" + acme[-64:], acme[:-64] + other[-64:]]:
    told = refused(unauthorised, client_of(key).beta.agents.list)
    assert acme[-64:] not in told and "key" in told, told
assert client_of(None, auth_token=acme).beta.agents.list().data == []
assert client_of("none", default_headers={"authorization": "", "x-api-key": acme}).beta.agents.list().data == []

# Every kind of object of one tenant is not found by another.
mine, theirs = client_of(acme), client_of(other)
file = mine.beta.files.upload(file=("note.txt", b"mine", "text/plain"))
skill = mine.beta.skills.create(files=[("mine/SKILL.md", b"---\nname: mine\ndescription: Mine.\n---\n# Mine\n")])
agent, environment = make(mine)
held = mine.beta.sessions.create(agent=agent, environment_id=environment)
missing = anthropic.NotFoundError
beta = theirs.beta
for call, arguments in [
    (beta.agents.retrieve, [agent]),
    (beta.agents.archive, [agent]),
    (beta.agents.versions.list, [agent]),
    (beta.environments.retrieve, [environment]),
    (beta.environments.delete, [environment]),
    (beta.sessions.retrieve, [held.id]),
    (beta.sessions.archive, [held.id]),
    (beta.sessions.delete, [held.id]),
    (beta.sessions.events.list, [held.id]),
    (lambda id: beta.sessions.events.send(id, events=[message("hello")]), [held.id]),
    (lambda id: beta.sessions.events.stream(id).__enter__(), [held.id]),
    (beta.files.retrieve_metadata, [file.id]),
    (beta.files.download, [file.id]),
    (beta.files.delete, [file.id]),
    (beta.skills.retrieve, [skill.id]),
    (beta.skills.delete, [skill.id]),
    (lambda id: beta.sessions.create(agent=id, environment_id=environment), [agent]),
]:
    refused(missing, call, *arguments)
for call in [beta.agents.list, beta.environments.list, beta.sessions.list, beta.files.list]:
    assert list(call()) == [], call
assert [found.id for found in beta.skills.list() if found.source == "custom"] == []
refused(missing, mine.beta.sessions.retrieve, made_before.id)

# Scopes.
reader = client_of(keys("create", "reader", "--tenant", "acme", "--scope", "read"))
runner = client_of(keys("create", "runner", "--tenant", "acme", "--scope", "read", "--scope", "run"))
forbidden = anthropic.PermissionDeniedError
assert reader.beta.sessions.retrieve(held.id).id == held.id
told = refused(forbidden, reader.beta.sessions.events.send, held.id, events=[message("hello")])
assert told == "this key lacks the scope `run`", told
told = refused(forbidden, runner.beta.agents.create, name="An agent", model="claude-sonnet-4-5")
assert told == "this key lacks the scope `admin`", told
with runner.beta.sessions.events.stream(held.id) as stream:
    send(runner, held.id, message("hello"))
    assert "hello" in texts(until_idle(stream))[0]

# A key that is revoked is refused at once, and its stream ends with the reason.
listed_keys = keys("list").splitlines()
assert len(listed_keys) == 4 and not any(acme[-64:] in line for line in listed_keys)
id = next(line.split()[0] for line in listed_keys if line.endswith("runner"))
ended = []


def follow():
    try:
        with runner.beta.sessions.events.stream(held.id) as stream:
            opened.set()
            for event in stream:
                ended.append(event)
    except anthropic.APIError as error:
        ended.append(str(error))


opened = threading.Event()
following = threading.Thread(target=follow)
following.start()
opened.wait()
keys("revoke", id)
refused(unauthorised, runner.beta.sessions.retrieve, held.id)
following.join(60)
assert not following.is_alive() and "the key was revoked or has expired" in str(ended[-1]), ended
keys("revoke", id, code=1)
keys("revoke", "key_0", code=2)

# The last key gone opens nothing: the server has seen keys.
for line in keys("list").splitlines():
    keys("revoke", line.split()[0])
refused(unauthorised, nobody.beta.agents.list)
print("done")
