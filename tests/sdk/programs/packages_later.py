"""The session of `packages.py` after a restart, when the index is gone."""

from common import *

client = client()
with client.beta.sessions.events.stream(sys.argv[2]) as stream:
    send(client, sys.argv[2], message("Again"))
    events = until_idle(stream)
[result] = [event for event in events if event.type == "agent.tool_result"]
assert result.content[-1].text.strip() == "one", result
