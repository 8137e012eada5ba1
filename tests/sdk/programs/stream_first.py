from anthropic.lib.sessions._accumulate import accumulate_managed_agents_event
from common import *

client = client()
made = session(client)
with client.beta.sessions.events.stream(made.id, event_deltas=["agent.message"]) as stream:
    send(client, made.id, message("Hello"))
    snapshot, previews, final = None, 0, None
    for event in stream:
        snapshot = accumulate_managed_agents_event(snapshot, event)
        if event.type == "event_delta":
            previews += 1
            shown = "".join(block.text for block in snapshot.content)
            assert "You said: Hello".startswith(shown), shown
        if event.type == "agent.message":
            final = event
        if event.type == "session.status_idle":
            break
assert previews == 4, previews
assert snapshot.id == final.id and texts([final]) == ["You said: Hello"]

# Who comes later has the list, and drops what it has by id.
known = {event.id for event in listed(client, made.id)}
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Again"))
    fresh = until_idle(stream)
assert not known & {event.id for event in fresh}
assert {event.id for event in listed(client, made.id)} == known | {event.id for event in fresh}
