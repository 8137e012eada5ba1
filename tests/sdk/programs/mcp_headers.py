"""Raw requests to `/mcp` of `conjure serve`: what the scenarios of the conformance suite check of HTTP itself. Arguments: the server's address and
a key."""

import concurrent.futures
import http.client
import json
import sys
import urllib.parse

ADDRESS, KEY = urllib.parse.urlparse(sys.argv[1]).netloc, sys.argv[2]
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}
HEADER_MISMATCH, UNSUPPORTED_VERSION, METHOD_NOT_FOUND, INVALID_PARAMS = -32020, -32022, -32601, -32602


def post(method, headers, meta=META, number=1, **params):
    """The status and the message that answers, as a stream where there is no error."""
    connection = http.client.HTTPConnection(ADDRESS, timeout=60)
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
    fixed = {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    connection.request("POST", "/mcp", json.dumps(message), {**fixed, **headers})
    answer = connection.getresponse()
    body = answer.read().decode()
    if answer.status == 200:
        assert answer.headers["content-type"] == "text/event-stream", answer.headers
        body = [line[5:] for line in body.splitlines() if line.startswith("data:") and line[5:].strip()][-1]
    return answer.status, json.loads(body)


def of(method, **further):
    return {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, **further}


def refused(expected, code, status_and_message):
    status, message = status_and_message
    assert (status, message["error"]["code"]) == (expected, code), (status, message)
    assert message["id"] == 1, message
    return message["error"]


def accepted(status_and_message, number=1):
    status, message = status_and_message
    assert status == 200 and "result" in message and message["id"] == number, (status, message)
    return message["result"]


# http-header-validation
listed = "tools/list"
tools = accepted(post(listed, of(listed)))["tools"]
for headers in [of("prompts/list"), {"MCP-Protocol-Version": VERSION}, of("TOOLS/LIST")]:
    refused(400, HEADER_MISMATCH, post(listed, headers))
for name in ["mcp-method", "MCP-METHOD"]:
    accepted(post(listed, {"MCP-Protocol-Version": VERSION, name: listed}))
call = {"name": "skill_list", "arguments": {}}
assert call["name"] in [tool["name"] for tool in tools]
for headers in [of("tools/call", **{"Mcp-Name": "wrong"}), of("tools/call")]:
    refused(400, HEADER_MISMATCH, post("tools/call", headers, **call))
accepted(post("tools/call", of("tools/call", **{"Mcp-Name": "  skill_list  "}), **call))

# server-stateless
discover = "server/discover"
for missing in META:
    answer = post(discover, of(discover), {name: value for name, value in META.items() if name != missing})
    if missing.endswith("clientInfo"):
        accepted(answer)
    else:
        refused(400, INVALID_PARAMS, answer)
unknown = {**META, "io.modelcontextprotocol/protocolVersion": "v999.0.0"}
error = refused(400, UNSUPPORTED_VERSION, post(discover, {**of(discover), "MCP-Protocol-Version": "v999.0.0"}, unknown))
assert error["data"]["requested"] == "v999.0.0" and VERSION in error["data"]["supported"], error
refused(400, HEADER_MISMATCH, post(discover, of(discover), unknown))
for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"]:
    refused(404, METHOD_NOT_FOUND, post(method, of(method)))

# server-sse-multiple-streams
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = [(number, pool.submit(post, listed, of(listed), number=number)) for number in range(1000, 1008)]
    for number, answer in answers:
        assert accepted(answer.result(), number)["tools"] == tools
