"""A session stops at its budget, in all turns together, and goes on when the budget is raised or taken away."""

from common import *

client = client()
bad = anthropic.BadRequestError
agent, environment = make(client)


def limit(cents):
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


def ask(id):
    with client.beta.sessions.events.stream(id) as stream:
        send(client, id, message("Go on."))
        events = until_idle(stream)
    return texts(events), events[-1].stop_reason.type


made = client.beta.sessions.create(agent=agent, environment_id=environment, budget=limit(100))
assert made.budget.max_list_cost.amount == "100" and made.usage.list_cost is None
assert ask(made.id) == (["Dear."], "end_turn")
assert client.beta.sessions.retrieve(made.id).usage.list_cost.amount == "60"
# The call that reaches it is finished.
assert ask(made.id) == (["Dear."], "end_turn")
assert client.beta.sessions.retrieve(made.id).usage.list_cost.amount == "120"
assert ask(made.id) == ([], "budget_reached")
raised = client.beta.sessions.update(made.id, budget=limit(150))
assert raised.budget.max_list_cost.amount == "150"
assert ask(made.id) == (["Dear."], "end_turn")
assert ask(made.id) == ([], "budget_reached")
assert client.beta.sessions.update(made.id, budget=None).budget is None
assert ask(made.id) == (["Dear."], "end_turn")
print("done")
