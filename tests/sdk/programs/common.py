"""What the programs share: a strict client, an agent in an environment, and the events of a turn."""

import sys
import uuid

import anthropic

URL = sys.argv[1]


def client():
    return anthropic.Anthropic(
        base_url=URL, api_key="none", _strict_response_validation=True, max_retries=0, timeout=60
    )


def make(client, **agent):
    """An agent and an environment, by their ids."""
    agent = {"name": "An agent", "model": "claude-sonnet-4-5", **agent}
    made = client.beta.agents.create(**agent)
    environment = client.beta.environments.create(name=f"environment-{uuid.uuid4()}")
    return made.id, environment.id


def session(client, **agent):
    made, environment = make(client, **agent)
    return client.beta.sessions.create(agent=made, environment_id=environment)


def message(text):
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def send(client, id, *events):
    return client.beta.sessions.events.send(id, events=list(events)).data


def until_idle(stream):
    """The events up to the end of a turn, which is among them."""
    events = []
    for event in stream:
        events.append(event)
        if event.type == "session.status_idle":
            return events
    raise AssertionError(f"the stream ended: {[event.type for event in events]}")


def texts(events):
    return [block.text for event in events if event.type == "agent.message" for block in event.content]


def listed(client, id, **query):
    return list(client.beta.sessions.events.list(id, **query))


def wait_idle(client, id):
    """The session once it is idle, by its stream and then by its state."""
    with client.beta.sessions.events.stream(id) as stream:
        found = client.beta.sessions.retrieve(id)
        if found.status == "idle":
            return found
        until_idle(stream)
    return client.beta.sessions.retrieve(id)
