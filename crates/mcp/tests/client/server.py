"""An MCP server for tests, of the revisions with `initialize`, in the standard library alone. What it does wrong is what real servers do wrong."""

import argparse
import json
import os
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("--tools", type=int, default=0, help="so many more tools")
options.add_argument("--endless", action="store_true", help="a list of tools that never ends")
options.add_argument("--wait-for", help="answers nothing before this file exists")
options.add_argument("--fail-until", help="ends at once before this file exists")
options.add_argument("--large-schema", action="store_true", help="a tool whose schema has 10 MB")
options.add_argument("--noise", action="store_true", help="writes to standard output what is no message")
options = options.parse_args()

writing = threading.Lock()
calls = 0
extra = []


def send(message):
    with writing:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def tool(name, properties=None, **members):
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **members}


def tools():
    text = {"text": {"type": "string"}}
    listed = [
        tool("echo", text, annotations={"readOnlyHint": True}),
        tool("env", text),
        tool("sleep", {"seconds": {"type": "number"}}, annotations={"readOnlyHint": True}),
        tool("crash"),
        tool("big", {"bytes": {"type": "integer"}}),
        tool("count"),
        tool("fail"),
        tool("add_tool"),
        tool("write", text),
        tool("pid"),
    ]
    listed += [tool(f"tool_{number}") for number in range(options.tools)]
    if options.large_schema:
        large = tool("large")
        large["inputSchema"]["description"] = "x" * 10_000_000
        listed.append(large)
    return listed + extra


def text(words, **members):
    return {"content": [{"type": "text", "text": words}], **members}


def call(name, arguments):
    global calls
    calls += 1
    if name == "echo":
        return text(arguments["text"])
    if name == "env":
        return text(os.environ.get(arguments["text"], "(unset)"))
    if name == "sleep":
        time.sleep(arguments["seconds"])
        return text("slept")
    if name == "crash":
        sys.stderr.write("it crashes now\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "big":
        return text("x" * arguments["bytes"])
    if name == "count":
        return text(str(calls))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "fail":
        return text("it failed", isError=True)
    if name == "write":
        with open("from-server.txt", "w") as file:
            file.write(arguments["text"])
        return text(os.getcwd())
    if name == "add_tool":
        extra.append(tool("added"))
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("added")
    return None


def answer(request):
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "test", "version": "1"},
        }
    if method == "tools/list":
        if options.endless:
            page = int((params.get("cursor") or "0"))
            return {"tools": [tool(f"page_{page}")], "nextCursor": str(page + 1)}
        return {"tools": tools()}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    return None


def handle(request):
    result = answer(request)
    if result is None:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no such method or tool"}})
    else:
        send({"jsonrpc": "2.0", "id": request["id"], "result": result})


if options.fail_until and not os.path.exists(options.fail_until):
    sys.exit("its file is missing")
while options.wait_for and not os.path.exists(options.wait_for):
    time.sleep(0.005)
if options.noise:
    print("starting up…", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        threading.Thread(target=handle, args=(request,), daemon=True).start()
