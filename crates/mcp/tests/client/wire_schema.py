"""Checks messages of MCP against the schema of the revision 2026-07-28. Reads a list of `{from, answers, message}` from standard input and prints
what is wrong, as a list. `answers` is the method of the request that a message answers.

The official SDK's types of that revision are generated from the specification's schema; `mcp_types` holds them. Where `CONJURE_MCP_SCHEMA` names
the specification's file itself (`schema/2026-07-28/schema.json`), messages are checked against that too."""

import json
import os
import sys

import jsonschema
from mcp_types import jsonrpc, methods
from pydantic import TypeAdapter, ValidationError

VERSION = "2026-07-28"
# The methods of the extensions for skills and tasks, which the schema does not have.
EXTENSIONS = {"skills/list", "skills/get", "tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result"}


def kind(message):
    if "method" in message:
        return "request" if "id" in message else "notification"
    return "result" if "result" in message else "error"


def sdk_type(sender, answers, message):
    """The type of the message, and the part of it that has this type."""
    what = kind(message)
    if what == "error":
        return jsonrpc.JSONRPCError, message
    if what == "result":
        return methods.SERVER_RESULTS[(answers, VERSION)], message["result"]
    both = {
        ("client", "request"): methods.CLIENT_REQUESTS,
        ("client", "notification"): methods.CLIENT_NOTIFICATIONS,
        ("server", "notification"): methods.SERVER_NOTIFICATIONS,
    }
    return both[(sender, what)][(message["method"], VERSION)], message


def definition(definitions, answers, message):
    """The name of the message's definition in the specification's file, and the part of the message that it is for."""
    what = kind(message)
    if what == "error":
        return "JSONRPCErrorResponse", message
    wanted = answers if what == "result" else message["method"]
    for name, found in definitions.items():
        method = found.get("properties", {}).get("method", {}).get("const")
        # Unions of one member have the same constant.
        if method != wanted or not (name.endswith("Request") or name.endswith("Notification")) or "Client" in name or "Server" in name:
            continue
        if what == "result":
            return name.removesuffix("Request") + "Result", message["result"]
        return name, message
    raise KeyError(wanted)


path = os.environ.get("CONJURE_MCP_SCHEMA")
schema = json.load(open(path)) if path else None
problems = []
for entry in json.load(sys.stdin):
    sender, answers, message = entry["from"], entry["answers"], entry["message"]

    def problem(what):
        problems.append(f"{sender}, {answers or message.get('method')}: {what}: {json.dumps(message)[:600]}")

    if message.get("jsonrpc") != "2.0":
        problem("it is no JSON-RPC 2.0")
    if (answers or message.get("method")) in EXTENSIONS or (
        answers == "tools/call" and message.get("result", {}).get("resultType") == "task"
    ):
        continue
    try:
        model, part = sdk_type(sender, answers, message)
        TypeAdapter(model).validate_json(json.dumps(part), strict=True)
    except KeyError:
        problem("the revision has no such message")
    except ValidationError as error:
        problem(str(error))
    if schema:
        try:
            name, part = definition(schema["$defs"], answers, message)
            validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
            for error in validator.iter_errors(part):
                problem(f"{name}: {error.message} at {error.json_path}")
        except KeyError:
            problem("the schema has no such message")
print(json.dumps(problems))
