"""Talks with a server that is killed again and again, and keeps what was acknowledged."""

import queue
import threading

import common
from common import *

addresses = queue.Queue()


def read():
    for line in sys.stdin:
        addresses.put(line.strip())


threading.Thread(target=read, daemon=True).start()
acknowledged = {}
ended = False


def connect(url):
    common.URL = url
    return common.client()


connected = connect(URL)


def request(call):
    """What `call` returns of a server that lives; a lost answer is asked for again from the next server."""
    global connected, ended
    while True:
        print("request", flush=True) if not ended else None
        try:
            return call(connected)
        except (anthropic.APIConnectionError, anthropic.InternalServerError):
            url = addresses.get(timeout=60)
            if url == "end":
                ended = True
            else:
                connected = connect(url)


def replaced():
    """Whether the last server is there: the test has said so."""
    global connected, ended
    while not addresses.empty():
        url = addresses.get()
        if url == "end":
            ended = True
        else:
            connected = connect(url)
    return ended


agent = request(lambda client: client.beta.agents.create(name="An agent", model="any")).id
environment = None
while environment is None:
    try:
        environment = request(lambda client: client.beta.environments.create(name="environment")).id
    except anthropic.ConflictError:
        # The answer was lost, and it is there.
        environment = request(lambda client: client.beta.environments.list()).data[0].id
while not replaced():
    made = request(lambda client: client.beta.sessions.create(agent=agent, environment_id=environment)).id
    acknowledged[made] = []
    for text in ["one", "two"]:
        sent = request(lambda client: send(client, made, message(text)))
        acknowledged[made] += [event.id for event in sent]

for id, sent in acknowledged.items():
    found = wait_idle(connected, id)
    assert found.status == "idle", found
    events = listed(connected, id)
    missing = set(sent) - {event.id for event in events}
    assert not missing, (id, missing)
    messages = [event for event in events if event.type == "user.message"]
    assert all(event.processed_at for event in messages), messages
    assert events[-1].type == "session.status_idle" if events else not sent, events
    ids = [event.id for event in events]
    assert len(ids) == len(set(ids)), "each event once"
# What was created and not acknowledged is whole, too.
for found in connected.beta.sessions.list(limit=100):
    assert wait_idle(connected, found.id).status == "idle"
