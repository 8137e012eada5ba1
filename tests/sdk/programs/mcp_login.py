"""A server of the official SDK that people sign in at: OAuth with discovery, registration and PKCE, all of it the SDK's own."""

import argparse
import secrets
import time

from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("--lifetime", type=int, default=3600, help="how long an access token is accepted, in seconds")
options = options.parse_args()
url = f"http://127.0.0.1:{options.port}"


class Provider:
    """Everything in memory. Everybody who comes is let in."""

    clients, codes, access, refreshes = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        code = secrets.token_hex(20)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issue(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refreshes[refresh_token.token]
        return self.issue(client, scopes or refresh_token.scopes, None)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        pass

    def issue(self, client, scopes, resource):
        token, refresh = "access-" + secrets.token_hex(20), "refresh-" + secrets.token_hex(20)
        end = int(time.time()) + options.lifetime
        self.access[token] = AccessToken(
            token=token, client_id=client.client_id, scopes=scopes, expires_at=end, resource=resource
        )
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes)
        return OAuthToken(
            access_token=token,
            token_type="Bearer",
            expires_in=options.lifetime,
            refresh_token=refresh,
            # As the specification permits: what was asked for was granted, and a renewal leaves it as it was.
            scope=None,
        )


server = MCPServer(
    "tools",
    auth_server_provider=Provider(),
    auth=AuthSettings(
        issuer_url=url,
        resource_server_url=f"{url}/mcp",
        required_scopes=["use"],
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["use", "write"], default_scopes=["use", "write"]),
    ),
)


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


server.run("streamable-http", host="127.0.0.1", port=options.port)
