from common import *

client = client()
agent, environment = make(client)
made = [
    client.beta.sessions.create(agent=agent, environment_id=environment, metadata={"number": str(number)}).id
    for number in range(5)
]
newest_first = [found.id for found in client.beta.sessions.list(agent_id=agent, limit=2)]
assert newest_first == made[::-1], newest_first
oldest_first = [found.id for found in client.beta.sessions.list(agent_id=agent, limit=2, order="asc")]
assert oldest_first == made
first = client.beta.sessions.list(agent_id=agent, limit=2)
assert first.prev_page is None and first.next_page
second = first.get_next_page()
assert [found.id for found in second.data] == made[::-1][2:4]
back = client.beta.sessions.list(agent_id=agent, limit=2, page=second.prev_page)
assert [found.id for found in back.data] == made[::-1][:2] and back.prev_page is None and back.next_page
assert [found.id for found in client.beta.sessions.list(agent_id=agent, statuses=["idle"])] == made[::-1]
assert not list(client.beta.sessions.list(agent_id=agent, statuses=["running"]))
assert not list(client.beta.sessions.list(agent_id=agent, agent_version=2))
try:
    client.beta.sessions.list(agent_id=agent, order="asc", page=first.next_page)
    raise AssertionError("a cursor of another order is refused")
except anthropic.BadRequestError:
    pass

id = made[0]
with client.beta.sessions.events.stream(id) as stream:
    for text in ["one", "two", "three"]:
        send(client, id, message(text))
        until_idle(stream)
everything = [event.id for event in listed(client, id)]
assert [event.id for event in listed(client, id, limit=3)] == everything
assert [event.id for event in listed(client, id, limit=4, order="desc")] == everything[::-1]
words = listed(client, id, types=["user.message", "agent.message"], limit=2)
assert [event.type for event in words] == ["user.message", "agent.message"] * 3
later = listed(client, id, created_at_gt=words[1].processed_at)
assert later and all(event.processed_at > words[1].processed_at for event in later)
