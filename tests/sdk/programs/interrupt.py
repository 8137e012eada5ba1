from common import *

client = client()
made = session(client)
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Begin."))
    # What is sent while a turn runs waits in the queue.
    [queued] = send(client, made.id, message("And then."))
    assert queued.processed_at is None
    for event in stream:
        if event.type == "span.model_request_start":
            break
    [interrupt] = send(client, made.id, {"type": "user.interrupt"})
    first = until_idle(stream)
    assert "user.interrupt" in [event.type for event in first], first
    assert interrupt.id in [event.id for event in first]
    second = until_idle(stream)
told = [event for event in second if event.type == "user.message"]
assert [event.id for event in told] == [queued.id] and told[0].processed_at is not None
kinds = [event.id for event in listed(client, made.id)]
assert kinds.count(queued.id) == 1, "a list has each event once"
