"""An index of packages on 127.0.0.2, with an MCP server as a package. Prints its port. Arguments: a directory for the packages, and a file to which
each path is written that was asked for."""

import http.server
import pathlib
import sys

from wheels import wheel

SERVER = """
import json, sys

def main():
    for line in sys.stdin:
        request = json.loads(line)
        result = answer(request.get("method"), request.get("params") or {})
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **result}), flush=True)

def answer(method, params):
    if method == "initialize":
        info = {"name": "demo", "version": "1.0"}
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": "hello from a package"}]}}
    return {"error": {"code": -32601, "message": f"no method {method}"}}
"""

index, asked = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
wheel(index, "demo-server", "1.0", {"demo_server.py": SERVER}, "[console_scripts]\ndemo-server = demo_server:main\n")


class Index(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=index)

    def log_message(self, *arguments):
        with asked.open("a") as file:
            file.write(self.path + "\n")


server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), Index)
print(server.server_port, flush=True)
server.serve_forever()
