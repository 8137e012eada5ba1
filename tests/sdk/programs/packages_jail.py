"""A session in a jail whose environment names a package that the jail's Python has."""

from common import *

client = client()
agent = client.beta.agents.create(name="A", model="claude-sonnet-4-5", tools=[{"type": "agent_toolset_20260401"}])
config = {
    "type": "cloud",
    "packages": {"pip": ["pip"]},
    "networking": {"type": "limited", "allow_package_managers": True},
}
environment = client.beta.environments.create(name="packages", config=config)
try:
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    assert sys.argv[2] == "permitted"
except anthropic.BadRequestError as error:
    assert sys.argv[2] == "refused" and "`network`" in error.message and "pypi.org" in error.message, error
    sys.exit()
with client.beta.sessions.events.stream(session.id) as stream:
    send(client, session.id, message("Look"))
    events = until_idle(stream)
[result] = [event for event in events if event.type == "agent.tool_result"]
path, refusal, there = result.content[0].text.strip().split("\n")
assert path == "/opt/conjure/python/packages" and "Read-only file system" in refusal and there == "there", result
