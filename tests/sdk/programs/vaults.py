"""The life of vaults and credentials. No answer has a secret in it."""

from common import *

client = client()
vaults = client.beta.vaults


def refused(error, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except error as found:
        assert "hunter2" not in str(found), found
        return str(found)
    raise AssertionError("it was not refused")


bad, gone, conflict = anthropic.BadRequestError, anthropic.NotFoundError, anthropic.ConflictError
vault = vaults.create(display_name="Ada", metadata={"user": "7", "old": "1"})
assert vault.id.startswith("vlt_") and vault.archived_at is None, vault
assert vaults.retrieve(vault.id) == vault
changed = vaults.update(vault.id, display_name="Grace", metadata={"old": None})
assert (changed.display_name, changed.metadata) == ("Grace", {"user": "7"}), changed
others = [vaults.create(display_name=f"Vault {n}").id for n in range(3)]
assert [found.id for found in vaults.list(limit=2)] == [*reversed(others), vault.id]

url = "https://mcp.example.com/mcp"
bearer = {"type": "static_bearer", "token": "hunter2", "mcp_server_url": url}
credential = vaults.credentials.create(vault.id, auth=bearer, display_name="Issues", metadata={"a": "b"})
assert credential.id.startswith("vcrd_") and credential.vault_id == vault.id, credential
assert credential.auth.type == "static_bearer" and credential.auth.mcp_server_url == url
assert vaults.credentials.retrieve(credential.id, vault_id=vault.id) == credential
# A repeated creation with the same key is the same one; without the key it would be refused.
key = {"Idempotency-Key": "issues of Ada"}
once = {**bearer, "mcp_server_url": "https://once.example.com"}
first = vaults.credentials.create(vault.id, auth=once, extra_headers=key)
assert vaults.credentials.create(vault.id, auth=once, extra_headers=key) == first
vaults.credentials.delete(first.id, vault_id=vault.id)
# One in use for each server, by whatever form of its address.
refused(conflict, vaults.credentials.create, vault.id, auth={**bearer, "mcp_server_url": "https://MCP.example.com:443/mcp/"})
assert vaults.credentials.create(others[0], auth=bearer).id != credential.id
auth = {
    "type": "mcp_oauth",
    "access_token": "hunter2",
    "mcp_server_url": "https://other.example.com",
    "expires_at": "2099-01-01T00:00:00Z",
    "refresh": {
        "client_id": "client",
        "refresh_token": "hunter2",
        "token_endpoint": "https://auth.example.com/token",
        "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "hunter2"},
        "scope": "read",
    },
}
oauth = vaults.credentials.create(vault.id, auth=auth)
assert oauth.auth.expires_at.year == 2099 and oauth.auth.refresh.scope == "read", oauth
assert oauth.auth.refresh.token_endpoint_auth.type == "client_secret_post", oauth
update = {"type": "mcp_oauth", "access_token": "hunter2", "expires_at": "2098-01-01T00:00:00Z", "refresh": {"scope": ""}}
oauth = vaults.credentials.update(oauth.id, vault_id=vault.id, auth=update, display_name="Other", metadata={"c": "d"})
assert oauth.auth.expires_at.year == 2098 and oauth.auth.refresh.scope is None, oauth
assert (oauth.display_name, oauth.metadata) == ("Other", {"c": "d"}), oauth
refused(bad, vaults.credentials.update, oauth.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "hunter2"})
refused(bad, vaults.credentials.update, credential.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "hunter2\n"})
variable = {"type": "environment_variable", "secret_name": "A", "secret_value": "hunter2", "networking": {"type": "unrestricted"}}
assert "environment_variable" in refused(bad, vaults.credentials.create, vault.id, auth=variable)
# A credential is found in its own vault alone.
refused(gone, vaults.credentials.retrieve, credential.id, vault_id=others[0])
refused(gone, vaults.credentials.delete, credential.id, vault_id=others[0])

archived = vaults.credentials.archive(credential.id, vault_id=vault.id)
assert archived.archived_at is not None and archived.auth.mcp_server_url == url
assert vaults.credentials.archive(credential.id, vault_id=vault.id) == archived
refused(bad, vaults.credentials.update, credential.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "hunter2"})
assert [found.id for found in vaults.credentials.list(vault.id)] == [oauth.id]
assert len(list(vaults.credentials.list(vault.id, include_archived=True))) == 2
# Its address is free again.
again = vaults.credentials.create(vault.id, auth=bearer)
assert vaults.credentials.delete(again.id, vault_id=vault.id).type == "vault_credential_deleted"
refused(gone, vaults.credentials.retrieve, again.id, vault_id=vault.id)

made, environment = make(client)
opened = client.beta.sessions.create(agent=made, environment_id=environment, vault_ids=[vault.id, vault.id, others[0]])
assert opened.vault_ids == [vault.id, others[0]], opened
assert client.beta.sessions.retrieve(opened.id).vault_ids == [vault.id, others[0]]
refused(bad, client.beta.sessions.update, opened.id, vault_ids=[others[1]])
refused(gone, client.beta.sessions.create, agent=made, environment_id=environment, vault_ids=["vlt_1"])
assert vaults.archive(vault.id).archived_at is not None
assert vaults.credentials.retrieve(oauth.id, vault_id=vault.id).archived_at is not None
refused(bad, vaults.credentials.create, vault.id, auth=bearer)
refused(bad, client.beta.sessions.create, agent=made, environment_id=environment, vault_ids=[vault.id])
assert [found.id for found in vaults.list()] == list(reversed(others))
assert vaults.delete(vault.id).type == "vault_deleted"
refused(gone, vaults.retrieve, vault.id)
refused(gone, vaults.credentials.list, vault.id)
