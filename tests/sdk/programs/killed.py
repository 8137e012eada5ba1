"""Talks with a server that is killed again and again, and checks that what it was told stays as it was.

It says each request that it begins, by a line, until standard input ends. The server comes back at the same address.
"""

import threading
import time

import httpx2

from common import *

LOST = (anthropic.APIConnectionError, anthropic.InternalServerError, httpx2.HTTPError)
PER_SESSION = 4
client = client()
ended = threading.Event()
# What was told of each session: events by their ids, and the ids in the order of the last list.
told, orders = {}, {}
# The texts that were sent, by session: those that were acknowledged, with their ids, and those whose answer was lost.
acknowledged, unknown = {}, {}


def read():
    sys.stdin.read()
    ended.set()


def attempt(call):
    """What `call` returns; nothing when its answer was lost."""
    if not ended.is_set():
        print("request", flush=True)
    try:
        return call()
    except LOST:
        time.sleep(0.01)
        return None


def surely(call):
    """What `call`, which may happen twice, returns in the end."""
    while True:
        found = attempt(call)
        if found is not None:
            return found


def note(session, event):
    """An event is told the same at all times; only a message that was queued is taken up later."""
    found = event.model_dump(mode="json")
    known = told[session].setdefault(event.id, found)
    if known["processed_at"] is None:
        known["processed_at"] = found["processed_at"]
    assert found in (known, {**known, "processed_at": None}), (known, found)


def look(session, **query):
    """Lists the events: those that were listed before are there, in the same order."""
    events = attempt(lambda: listed(client, session, **query))
    if events is None:
        return None
    for event in events:
        note(session, event)
    ids = [event.id for event in events]
    assert len(ids) == len(set(ids)), ids
    former = orders.get(session, [])
    assert ids[: len(former)] == former, (former, ids)
    orders[session] = ids
    return events


def follow(session):
    """Notes what a stream tells, until it ends or breaks."""
    try:
        with client.beta.sessions.events.stream(session) as stream:
            for event in stream:
                if hasattr(event, "processed_at"):
                    note(session, event)
                if event.type == "session.status_idle" and ended.is_set():
                    return
    except (*LOST, anthropic.APIStatusError):
        pass


threading.Thread(target=read, daemon=True).start()
agent = surely(lambda: client.beta.agents.create(name="An agent", model="any")).id
environment = None
while environment is None:
    try:
        environment = surely(lambda: client.beta.environments.create(name="environment")).id
    except anthropic.ConflictError:
        # The answer was lost, and it is there.
        environment = surely(lambda: client.beta.environments.list()).data[0].id
while not ended.is_set():
    made = attempt(lambda: client.beta.sessions.create(agent=agent, environment_id=environment))
    if made is None:
        continue
    session = made.id
    told[session], acknowledged[session], unknown[session] = {}, {}, set()
    threading.Thread(target=follow, args=[session], daemon=True).start()
    for _ in range(PER_SESSION):
        text = str(uuid.uuid4())
        sent = attempt(lambda: send(client, session, message(text)))
        if sent is None:
            unknown[session].add(text)
        else:
            acknowledged[session][text] = sent[0].id
            note(session, sent[0])
        look(session)

# Nobody asks for a session: the list tells how far each is.
deadline = time.monotonic() + 60
while True:
    running = [found.id for found in client.beta.sessions.list(limit=100) if found.status != "idle"]
    if not running:
        break
    assert time.monotonic() < deadline, f"they do not end: {running}"
    time.sleep(0.05)
for session, texts_sent in acknowledged.items():
    events = look(session)
    messages = {event.content[0].text: event for event in events if event.type == "user.message"}
    for text, id in texts_sent.items():
        assert messages[text].id == id and messages[text].processed_at, (session, text)
    others = set(messages) - set(texts_sent)
    assert others <= unknown[session], "nobody sent them"
    # Each message has one answer, and each turn that began has ended.
    answers = [text for event in events if event.type == "agent.message" for text in [event.content[0].text]]
    assert sorted(answers) == sorted(f"You said: {text}" for text in messages), (session, answers)
    kinds = [event.type for event in events if event.type.startswith("session.status_")]
    assert kinds == ["session.status_running", "session.status_idle"] * (len(kinds) // 2), (session, kinds)
    assert not messages or events[-1].type == "session.status_idle", events[-1]
    listed_ids = {event.id for event in events}
    lost = set(told[session]) - listed_ids
    assert not lost, (session, lost)
    assert [event.id for event in look(session, limit=3)] == [event.id for event in events], "the pages are the list"
print(f"{len(acknowledged)} sessions, {sum(map(len, acknowledged.values()))} acknowledged messages,"
      f" {sum(map(len, unknown.values()))} lost answers, {sum(map(len, told.values()))} events")
