"""An agent with an MCP server whose skill it loads, once the client has confirmed that."""

from common import *

client = client()
servers = [{"type": "url", "name": "shelf", "url": sys.argv[2]}]
made, environment = make(
    client, mcp_servers=servers, tools=[{"type": "mcp_toolset", "mcp_server_name": "shelf"}]
)


def turn(id, *events):
    with client.beta.sessions.events.stream(id) as stream:
        send(client, id, *events)
        return until_idle(stream)


for result in ("deny", "allow"):
    id = client.beta.sessions.create(agent=made, environment_id=environment).id
    waiting = turn(id, message("Greet."))
    [call] = [event for event in waiting if event.type == "agent.tool_use"]
    assert (call.name, call.evaluated_permission, call.input["skill"]) == ("mcp_load_skill", "ask", "minimal-skill"), call
    assert waiting[-1].stop_reason.event_ids == [call.id]
    rest = turn(id, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": result})
    [told] = [event for event in rest if event.type == "agent.tool_result"]
    assert told.is_error == (result == "deny"), told
    assert ("Its words are the server's" in told.content[0].text) == (result == "allow"), told
