"""An agent with an MCP server that wants a token: confirmations, credentials of the session's vaults, renewed tokens, failures."""

import urllib.request

from common import *

STATIC, ROTATING = sys.argv[2], sys.argv[3]
client = client()
vaults = client.beta.vaults
allow = {"permission_policy": {"type": "always_allow"}}


def agent(url, **toolset):
    """An agent with the server, and an environment."""
    return make(
        client,
        mcp_servers=[{"type": "url", "name": "tools", "url": url}],
        tools=[{"type": "mcp_toolset", "mcp_server_name": "tools", **toolset}],
    )


def opened(url, vault_ids=(), **toolset):
    made, environment = agent(url, **toolset)
    return client.beta.sessions.create(agent=made, environment_id=environment, vault_ids=list(vault_ids)).id


def turn(id, *events):
    with client.beta.sessions.events.stream(id) as stream:
        send(client, id, *(events or [message("Add them.")]))
        return until_idle(stream)


def failure(events):
    [error] = [event.error for event in events if event.type == "session.error"]
    assert error.mcp_server_name == "tools", error
    return error


def calls(events):
    return [event for event in events if event.type == "agent.mcp_tool_use"]


def results(events):
    return [event for event in events if event.type == "agent.mcp_tool_result"]


vault = vaults.create(display_name="Ada")
bearer = {"type": "static_bearer", "token": "t0ken", "mcp_server_url": STATIC}
credential = vaults.credentials.create(vault.id, auth=bearer)
checked = vaults.credentials.mcp_oauth_validate(credential.id, vault_id=vault.id)
assert checked.status == "valid" and checked.mcp_probe is None and not checked.has_refresh_token, checked

# By default each call waits for a person.
id = opened(STATIC, [vault.id])
waiting = turn(id)
[call] = calls(waiting)
assert (call.mcp_server_name, call.name, call.input) == ("tools", "add", {"a": 2, "b": 3}), call
assert call.evaluated_permission == "ask" and waiting[-1].stop_reason.event_ids == [call.id], waiting[-1]
rest = turn(id, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
[result] = results(rest)
assert result.mcp_tool_use_id == call.id and result.content[0].text == "5" and not result.is_error, result
assert texts(rest) == ["The sum is five."], texts(rest)
everything = listed(client, id)
assert [event.id for event in calls(everything)] == [call.id] and len(results(everything)) == 1
assert not [event for event in everything if event.type in ("agent.tool_use", "agent.tool_result")]
assert "t0ken" not in repr(everything), "a secret is in no event"

# Where the policy allows it, nobody is asked; a tool that is switched off is not there.
done = turn(opened(STATIC, [vault.id], default_config=allow))
assert calls(done)[0].evaluated_permission == "allow" and results(done)[0].content[0].text == "5", done
off = turn(opened(STATIC, [vault.id], default_config=allow, configs=[{"name": "add", "enabled": False}]))
assert not [event for event in results(off) if not event.is_error], off

# Without a credential, or with a wrong one, the session says so and goes on.
for vault_ids in [[], [vaults.create(display_name="Empty").id]]:
    error = failure(turn(opened(STATIC, vault_ids, default_config=allow)))
    assert error.type == "mcp_authentication_failed_error" and "vault" in error.message, error
wrong = vaults.create(display_name="Wrong")
credential = vaults.credentials.create(wrong.id, auth={**bearer, "token": "wr0ng"})
checked = vaults.credentials.mcp_oauth_validate(credential.id, vault_id=wrong.id)
assert checked.status == "invalid" and checked.mcp_probe is not None, checked
error = failure(turn(opened(STATIC, [wrong.id], default_config=allow)))
assert error.type == "mcp_authentication_failed_error" and "wr0ng" not in error.message, error
# It is asked at each connection: a new token holds for the next session at once.
vaults.credentials.update(credential.id, vault_id=wrong.id, auth={"type": "static_bearer", "token": "t0ken"})
assert results(turn(opened(STATIC, [wrong.id], default_config=allow)))[0].content[0].text == "5"
# The credential of an archived vault is gone.
vaults.archive(wrong.id)
unreachable = failure(turn(opened("http://127.0.0.1:1/mcp", default_config=allow)))
assert unreachable.type == "mcp_connection_failed_error", unreachable

# Tokens that have ended are renewed, before a connection and in the middle of one.
tokens = {
    "type": "mcp_oauth",
    "access_token": "a1",
    "mcp_server_url": ROTATING + "/mcp",
    "refresh": {
        "client_id": "client",
        "refresh_token": "r1",
        "token_endpoint": ROTATING + "/token",
        "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "s3cret"},
    },
}
renewing = vaults.create(display_name="Renewing")
credential = vaults.credentials.create(renewing.id, auth=tokens)
id = opened(ROTATING + "/mcp", [renewing.id], default_config=allow)
assert results(turn(id))[0].content[0].text == "5"
urllib.request.urlopen(ROTATING + "/revoke").read()
later = turn(id)
assert results(later)[0].content[0].text == "50", later
renewed = vaults.credentials.retrieve(credential.id, vault_id=renewing.id)
assert renewed.auth.expires_at is not None, "the endpoint says when the new token ends"
urllib.request.urlopen(ROTATING + "/revoke").read()
checked = vaults.credentials.mcp_oauth_validate(credential.id, vault_id=renewing.id)
assert checked.status == "valid" and checked.refresh.status == "succeeded", checked
update = {"type": "mcp_oauth", "access_token": "old", "refresh": {"refresh_token": "old"}}
vaults.credentials.update(credential.id, vault_id=renewing.id, auth=update)
checked = vaults.credentials.mcp_oauth_validate(credential.id, vault_id=renewing.id)
assert checked.status == "invalid" and checked.refresh.status == "failed", checked
