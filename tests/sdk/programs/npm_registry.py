"""A registry of npm on 127.0.0.2, with an MCP server as a package. Prints its port. Argument: a file to which each path is written that was asked
for."""

import base64
import hashlib
import http.server
import io
import json
import pathlib
import sys
import tarfile

SERVER = """#!/usr/bin/env node
const answer = (method, params) => {
  if (method === "initialize") {
    const serverInfo = {name: "demo", version: "1.0.0"};
    return {result: {protocolVersion: params.protocolVersion, capabilities: {tools: {}}, serverInfo}};
  }
  if (method === "tools/list") return {result: {tools: [{name: "hello", inputSchema: {type: "object"}}]}};
  if (method === "tools/call") return {result: {content: [{type: "text", text: "hello from a package"}]}};
  return {error: {code: -32601, message: `no method ${method}`}};
};
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const {id, method, params} = JSON.parse(line);
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, ...answer(method, params)}));
});
"""
MANIFEST = {"name": "demo-server", "version": "1.0.0", "bin": {"demo-server": "server.js"}}


def package(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


asked = pathlib.Path(sys.argv[1])
tarball = package({"package.json": json.dumps(MANIFEST), "server.js": SERVER})


class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith(".tgz"):
            return self.answer(200, "application/octet-stream", tarball)
        if self.path != "/demo-server":
            return self.answer(404, "application/json", b"{}")
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        url = f"http://127.0.0.2:{server.server_port}/demo-server/-/demo-server-1.0.0.tgz"
        version = {**MANIFEST, "dist": {"tarball": url, "integrity": integrity}}
        document = {"name": "demo-server", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.answer(200, "application/json", json.dumps(document).encode())

    def answer(self, status, media_type, body):
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        with asked.open("a") as file:
            file.write(self.path + "\n")


server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), Registry)
print(server.server_port, flush=True)
server.serve_forever()
