"""One conversation with the server in a container: its tool call runs in a jail."""

import sys
import time
import urllib.request

import anthropic

url, key = sys.argv[1:3]
for _ in range(600):
    try:
        urllib.request.urlopen(url + "/healthz", timeout=5).read()
        break
    except OSError:
        time.sleep(0.1)
client = anthropic.Anthropic(base_url=url, auth_token=key, api_key=None, timeout=60, _strict_response_validation=True)
agent = client.beta.agents.create(name="A", model="m", tools=[{"type": "agent_toolset_20260401"}])
environment = client.beta.environments.create(name="E")
session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
with client.beta.sessions.events.stream(session.id) as stream:
    text = [{"type": "text", "text": "Go"}]
    client.beta.sessions.events.send(session.id, events=[{"type": "user.message", "content": text}])
    results = []
    for event in stream:
        if event.type == "agent.tool_result":
            results.append(event)
        if event.type == "session.status_idle":
            break
[result] = results
said = result.content[0].text
assert not result.is_error and said.startswith("ran as "), said
assert "No such file" in said, f"the data of the server is not in the jail: {said}"
try:
    anthropic.Anthropic(base_url=url, auth_token="wrong", api_key=None, max_retries=0).beta.agents.list()
    raise AssertionError("a wrong key is refused")
except anthropic.AuthenticationError:
    pass
print("the tool ran")
