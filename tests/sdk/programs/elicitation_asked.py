"""Two sessions in which an MCP server asks a person. Prints their ids."""

from common import *

client = client()
allow = {"permission_policy": {"type": "always_allow"}}
made, environment = make(
    client,
    mcp_servers=[{"type": "url", "name": "tools", "url": sys.argv[2]}],
    tools=[{"type": "mcp_toolset", "mcp_server_name": "tools", "default_config": allow}],
)
for _ in range(2):
    id = client.beta.sessions.create(agent=made, environment_id=environment).id
    with client.beta.sessions.events.stream(id) as stream:
        send(client, id, message("Tidy up."))
        events = until_idle(stream)
    [asked] = [event for event in events if event.type == "agent.custom_tool_use"]
    assert asked.name == "elicitation/create" and asked.input["asked_by"] == "tools", asked
    [question] = asked.input["questions"].values()
    assert question["message"] == "Which branch?" and question["mode"] == "form", question
    assert "name" in question["requested_schema"]["properties"], question
    stop = events[-1].stop_reason
    assert stop.type == "requires_action" and stop.event_ids == [asked.id], stop
    print(id)
