"""A server with a certificate: the SDK trusts its authority, and clients that never complete a handshake hold up nobody."""

import socket
import ssl
import time

from common import *

host, port = URL.removeprefix("https://").split(":")
address = (host, int(port))
trusting = ssl.create_default_context(cafile=sys.argv[2])


def encrypted(context):
    """A client over TLS, without a pool, so that each has a handshake of its own."""
    return anthropic.Anthropic(
        base_url=f"https://localhost:{port}",
        api_key="none",
        _strict_response_validation=True,
        max_retries=0,
        timeout=60,
        http_client=anthropic.DefaultHttpxClient(verify=context),
    )


client = encrypted(trusting)
made = session(client)
with client.beta.sessions.events.stream(made.id) as stream:
    send(client, made.id, message("Hello"))
    assert texts(until_idle(stream)) == ["You said: Hello"]

# Large bodies both ways.
data = bytes(range(256)) * 20_000
file = client.beta.files.upload(file=("a.bin", data))
assert file.size_bytes == len(data)

# Silent clients, broken ones, and one that speaks plain HTTP.
silent = [socket.create_connection(address) for _ in range(50)]
broken = socket.create_connection(address)
broken.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
assert b"HTTP" not in broken.recv(4096), "nothing is answered without TLS"
begun = time.monotonic()
assert encrypted(trusting).beta.sessions.retrieve(made.id).id == made.id
assert time.monotonic() - begun < 5, "another client's handshake holds up nobody"
for connection in silent:
    connection.settimeout(20)
    assert connection.recv(1) == b"", "a handshake has a time limit"

# Who does not trust the authority does not speak to it.
try:
    encrypted(ssl.create_default_context()).beta.sessions.list()
    raise AssertionError("the certificate was trusted")
except anthropic.APIConnectionError as error:
    assert "CERTIFICATE_VERIFY_FAILED" in str(error.__cause__), error.__cause__

# HTTP/1.1, by ALPN.
trusting.set_alpn_protocols(["h2", "http/1.1"])
with trusting.wrap_socket(socket.create_connection(address), server_hostname="localhost") as connection:
    assert connection.selected_alpn_protocol() == "http/1.1" and connection.version() == "TLSv1.3"
