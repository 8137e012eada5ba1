"""A server of the official SDK, by standard streams or by HTTP, with every kind of content."""

import argparse
import base64
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, help="serve Streamable HTTP there, instead of standard streams")
options.add_argument("--token", help="the bearer token that clients must send")
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

    async def guarded(scope, receive, send):
        """What an authorization server would have us check."""
        headers = dict(scope.get("headers") or [])
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
