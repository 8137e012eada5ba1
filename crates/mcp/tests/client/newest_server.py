"""An MCP server for tests, of the newest revision, in the standard library alone. It writes each line that it gets to a file."""

import json
import sys
import threading

record = open(sys.argv[1], "w")
writing = threading.Lock()


def send(message):
    with writing:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def result(method, params):
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "server/discover":
        return {**cached, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
    if method == "tools/list" and "cursor" not in params:
        return {**cached, "tools": [{"name": "echo", "inputSchema": {"type": "object"}}], "nextCursor": "two"}
    if method == "tools/list":
        return {**cached, "tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}
    if method == "tools/call" and params["name"] == "echo":
        return {"resultType": "complete", "content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    return None


for line in sys.stdin:
    record.write(line)
    record.flush()
    request = json.loads(line)
    # The tool `wait` is not answered.
    if "id" in request and request["params"].get("name") != "wait":
        answer = result(request["method"], request["params"])
        if answer is None:
            error = {"code": -32601, "message": "no such method"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        else:
            send({"jsonrpc": "2.0", "id": request["id"], "result": answer})
