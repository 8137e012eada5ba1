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
    # The queue goes on: its message is told again, with the time at which its turn began.
    for event in stream:
        if event.type == "user.message":
            break
    assert event.id == queued.id and event.processed_at is not None
    for event in stream:
        if event.type == "span.model_request_start":
            break
    send(client, made.id, {"type": "user.interrupt"})
    until_idle(stream)
kinds = [event.id for event in listed(client, made.id)]
assert kinds.count(queued.id) == 1, "a list has each event once"
