"""A server of the official SDK, by standard streams or by HTTP, with every kind of content."""

import argparse
import base64
import json
import sys
import urllib.parse

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, help="serve Streamable HTTP there, instead of standard streams")
options.add_argument("--token", help="the bearer token that clients must send")
options.add_argument("--rotating", action="store_true", help="be a token endpoint too, with tokens that are renewed")
options = options.parse_args()

server = MCPServer("tools")
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def version(context: Context) -> str:
    """The version of the protocol that the client speaks."""
    return context.request_context.protocol_version


@server.tool()
def mixed() -> list[TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink]:
    """Everything that a result can hold."""
    return [
        TextContent(type="text", text="words"),
        ImageContent(type="image", data=IMAGE, mime_type="image/png"),
        AudioContent(type="audio", data=base64.b64encode(b"sound").decode(), mime_type="audio/wav"),
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="test://note", text="a note", mime_type="text/plain")
        ),
        ResourceLink(type="resource_link", uri="test://link", name="link"),
    ]


@server.tool()
def broken() -> str:
    """Fails."""
    raise ValueError("it is broken")


if options.port is None:
    server.run("stdio")
else:
    import uvicorn

    app = server.streamable_http_app()

    # How often the tokens were renewed, and whether the newest access token is accepted.
    state = {"tokens": 1, "is_revoked": False}

    async def answer(send, status, body):
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    async def rotate(receive, send):
        """A token endpoint: each refresh token is good once."""
        form = urllib.parse.parse_qs((await receive())["body"].decode())
        wanted = {"grant_type": ["refresh_token"], "refresh_token": [f"r{state['tokens']}"]}
        wanted |= {"client_id": ["client"], "client_secret": ["s3cret"]}
        if form != wanted:
            await answer(send, 400, {"error": "invalid_grant"})
            return
        state.update(tokens=state["tokens"] + 1, is_revoked=False)
        new = state["tokens"]
        await answer(send, 200, {"access_token": f"a{new}", "refresh_token": f"r{new}", "expires_in": 3600})

    async def guarded(scope, receive, send):
        """What an authorization server would have us check."""
        headers = dict(scope.get("headers") or [])
        if options.rotating and scope["type"] == "http":
            if scope["path"] == "/token":
                return await rotate(receive, send)
            if scope["path"] == "/revoke":
                state["is_revoked"] = True
                return await answer(send, 200, {})
            options.token = "nobody has it" if state["is_revoked"] else f"a{state['tokens']}"
        wanted = f"Bearer {options.token}".encode()
        if scope["type"] == "http" and options.token and headers.get(b"authorization") != wanted:
            await send(
                {
                    "type": "http.response.start",
                    "status": 401,
                    "headers": [(b"www-authenticate", b'Bearer resource_metadata="http://127.0.0.1/none"')],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    print("ready", file=sys.stderr, flush=True)
    uvicorn.run(guarded, host="127.0.0.1", port=options.port, log_level="warning")
