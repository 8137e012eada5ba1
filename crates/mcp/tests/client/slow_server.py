"""An MCP server of the newest revision alone, in the standard library, which reads nothing for the seconds of its argument."""

import json
import sys
import time

NEWEST = "2026-07-28"
CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

time.sleep(float(sys.argv[1]))
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    match message["method"]:
        case "server/discover":
            answer["result"] = {"supportedVersions": [NEWEST], "capabilities": {"tools": {}}, **CACHED}
        case "tools/list":
            answer["result"] = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}], **CACHED}
        case "tools/call":
            answer["result"] = {"resultType": "complete", "content": [{"type": "text", "text": "at last"}]}
        case "initialize":
            answer["error"] = {"code": -32022, "message": "only the newest revision is spoken here"}
        case _:
            continue
    print(json.dumps(answer), flush=True)
