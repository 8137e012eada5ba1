"""The OpenAPI document against the models of the SDK, and against what the server answers."""

import json
import typing
import urllib.error
import urllib.request

from anthropic.types import beta
from anthropic.types.beta import sessions, skills, vaults

from common import *

document = json.load(urllib.request.urlopen(URL + "/openapi.json"))
schemas = document["components"]["schemas"]


def resolve(schema):
    while "$ref" in schema:
        place = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            place = place[part]
        schema = place
    return schema


def every_ref(node):
    if isinstance(node, dict):
        if "$ref" in node:
            resolve(node)
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            every_ref(part)


every_ref(document)


def nullable(schema):
    schema = resolve(schema)
    if "oneOf" in schema:
        return any(nullable(part) for part in schema["oneOf"])
    kinds = schema.get("type", [])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds)


def members(annotation):
    """The classes of a union."""
    if typing.get_origin(annotation) is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    arguments = typing.get_args(annotation)
    return [found for part in arguments for found in members(part)] if arguments else [annotation]


def same(name, schema, model):
    """Each answer of this schema is one of the model: what it lacks may lack there, what is null may be null there."""
    fields = model.model_fields
    unknown = set(schema["properties"]) - set(fields)
    assert not unknown, f"{name}: the SDK has no {unknown}"
    for field, info in fields.items():
        if info.is_required():
            assert field in schema["required"], f"{name}.{field} is required"
            assert not nullable(schema["properties"][field]), f"{name}.{field} is never null"


answers = {
    "Agent": beta.BetaManagedAgentsAgent,
    "AgentSkill": beta.BetaManagedAgentsCustomSkill,
    "Budget": beta.BetaManagedAgentsBudgetLimit,
    "CacheCreation": beta.BetaManagedAgentsCacheCreationUsage,
    "CloudConfig": beta.BetaCloudConfig,
    "AnswerText": anthropic.types.TextBlock,
    "CustomTool": beta.BetaManagedAgentsCustomTool,
    "Environment": beta.BetaEnvironment,
    "ExecutionIdentity": beta.BetaManagedAgentsServiceAccountExecutionIdentity,
    "File": beta.BetaFileMetadata,
    "FileResource": sessions.BetaManagedAgentsFileResource,
    "FileScope": beta.BetaFileScope,
    "LimitedNetwork": beta.BetaLimitedNetwork,
    "Credential": vaults.BetaManagedAgentsCredential,
    "CredentialValidation": vaults.BetaManagedAgentsCredentialValidation,
    "McpOauth": vaults.BetaManagedAgentsMCPOAuthAuthResponse,
    "McpProbe": vaults.BetaManagedAgentsMCPProbe,
    "McpServerError": sessions.BetaManagedAgentsMCPAuthenticationFailedErrorObject,
    "McpToolConfig": beta.BetaManagedAgentsMCPToolConfig,
    "McpToolset": beta.BetaManagedAgentsMCPToolset,
    "OAuthRefresh": vaults.BetaManagedAgentsMCPOAuthRefreshResponse,
    "RefreshProbe": vaults.BetaManagedAgentsRefreshObject,
    "StaticBearer": vaults.BetaManagedAgentsStaticBearerAuthResponse,
    "Vault": beta.BetaManagedAgentsVault,
    "McpServer": beta.BetaManagedAgentsMCPServerURLDefinition,
    "Message": anthropic.types.Message,
    "Model": beta.BetaModelInfo,
    "ModelConfig": beta.BetaManagedAgentsModelConfig,
    "ModelUsage": sessions.BetaManagedAgentsSpanModelUsage,
    "Packages": beta.BetaPackages,
    "SearchResultBlock": sessions.BetaManagedAgentsSearchResultBlock,
    "Session": beta.BetaManagedAgentsSession,
    "SessionAgent": beta.BetaManagedAgentsSessionAgent,
    "SessionError": sessions.BetaManagedAgentsUnknownErrorObject,
    "SessionStats": beta.BetaManagedAgentsSessionStats,
    "SessionUsage": beta.BetaManagedAgentsSessionUsage,
    "Skill": beta.BetaSkill,
    "SkillVersion": skills.BetaSkillVersion,
    "TextBlock": sessions.BetaManagedAgentsTextBlock,
    "ToolUseBlock": anthropic.types.ToolUseBlock,
    "Toolset": beta.BetaManagedAgentsAgentToolset20260401,
    "UnrestrictedNetwork": beta.BetaUnrestrictedNetwork,
    "Usage": anthropic.types.Usage,
}
kinds = {}
for model in members(sessions.BetaManagedAgentsStreamSessionEvents):
    kinds[typing.get_args(model.model_fields["type"].annotation)[0]] = model
answers |= {name: kinds[name] for name in schemas if "." in name}
for name, model in answers.items():
    same(name, schemas[name], model)

requests = {
    "AgentCreate": beta.agent_create_params.AgentCreateParams,
    "AgentUpdate": beta.agent_update_params.AgentUpdateParams,
    "CredentialCreate": vaults.credential_create_params.CredentialCreateParams,
    "CredentialUpdate": vaults.credential_update_params.CredentialUpdateParams,
    "EnvironmentCreate": beta.environment_create_params.EnvironmentCreateParams,
    "EnvironmentUpdate": beta.environment_update_params.EnvironmentUpdateParams,
    "EventSend": sessions.event_send_params.EventSendParams,
    "SessionCreate": beta.session_create_params.SessionCreateParams,
    "SessionUpdate": beta.session_update_params.SessionUpdateParams,
    "VaultCreate": beta.vault_create_params.VaultCreateParams,
    "VaultUpdate": beta.vault_update_params.VaultUpdateParams,
}
for name, params in requests.items():
    known = typing.get_type_hints(params, include_extras=True)
    unknown = set(schemas[name]["properties"]) - set(known)
    assert not unknown, f"{name}: the SDK sends no {unknown}"
    # The id of a vault stands in the path.
    known.pop("vault_id", None)
    needed = {field for field, hint in known.items() if typing.get_origin(hint) is typing.Required}
    assert needed == set(schemas[name].get("required", [])), f"{name}: the SDK requires {needed}"


def problem(value, schema, place):
    """Why the value is not of the schema; nothing if it is."""
    schema = resolve(schema)
    if "oneOf" in schema:
        found = [problem(value, part, place) for part in schema["oneOf"]]
        return None if None in found else min(filter(None, found), key=len)
    if "const" in schema:
        return None if value == schema["const"] else f"{place}: {value!r} is not {schema['const']!r}"
    if "enum" in schema:
        return None if value in schema["enum"] else f"{place}: {value!r} is none of {schema['enum']}"
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list}
    kinds["null"] = type(None)
    wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    is_misplaced = isinstance(value, bool) and "boolean" not in wanted
    if is_misplaced or not any(isinstance(value, kinds[kind]) for kind in wanted):
        return f"{place}: {value!r} is not {wanted}"
    if isinstance(value, list) and "maxItems" in schema:
        return None if len(value) <= schema["maxItems"] else f"{place}: too many"
    if isinstance(value, list):
        return next(filter(None, (problem(part, schema["items"], f"{place}[]") for part in value)), None)
    if isinstance(value, dict):
        missing = set(schema.get("required", [])) - set(value)
        if missing:
            return f"{place}: lacks {missing}"
        properties = schema.get("properties")
        if properties is None:
            return None
        unknown = set(value) - set(properties)
        if unknown:
            return f"{place}: the document lacks {unknown}"
        return next(filter(None, (problem(part, properties[name], f"{place}.{name}") for name, part in value.items())), None)
    return None


client = client()
tools = [
    {"type": "agent_toolset_20260401", "configs": [{"name": "bash", "permission_policy": {"type": "always_ask"}}]},
    {"type": "custom", "name": "t", "description": "d", "input_schema": {"type": "object"}},
    {"type": "mcp_toolset", "mcp_server_name": "away"},
]
servers = [{"type": "url", "name": "away", "url": "http://127.0.0.1:1/mcp"}]
agent = client.beta.agents.create(name="A", model="any", tools=tools, mcp_servers=servers, metadata={"a": "b"}).id
networking = {"type": "limited", "allow_mcp_servers": True}
environment = client.beta.environments.create(name="e", config={"type": "cloud", "networking": networking}).id
# The server's sandboxes limit no network.
anywhere = client.beta.environments.create(name="anywhere").id
made = client.beta.sessions.create(agent=agent, environment_id=anywhere, title="T").id
send(client, made, message("Hello"))
wait_idle(client, made)
client.beta.sessions.update(made, title="U", metadata={"a": "b"})
file = client.beta.files.upload(file=("a.txt", b"text")).id
text = b"---\nname: greeter\ndescription: Greets people\n---\nSay hello.\n"
skill = client.beta.skills.create(files=[("greeter/SKILL.md", text)])
parts = {"agent_id": agent, "environment_id": environment, "id": made, "file_id": file, "skill_id": skill.id}
parts |= {"version": skill.latest_version_id, "model_id": "any"}
parts["resource_id"] = client.beta.sessions.resources.add(made, type="file", file_id=file).id
vault = client.beta.vaults.create(display_name="Ada").id
auth = {"type": "static_bearer", "token": "secret", "mcp_server_url": "http://127.0.0.1:1/mcp"}
parts |= {"vault_id": vault, "credential_id": client.beta.vaults.credentials.create(vault, auth=auth).id}
posted = {"model": "any", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
post = urllib.request.Request(URL + "/v1/messages", json.dumps(posted).encode())
found = problem(json.load(urllib.request.urlopen(post)), schemas["Message"], "/v1/messages")
assert found is None, found
answered = 0
for path, methods in document["paths"].items():
    content = methods.get("get", {"responses": {"200": {"content": {}}}})["responses"]["200"]["content"]
    if "application/json" not in content:
        continue
    body = json.load(urllib.request.urlopen(URL + path.format(**parts)))
    found = problem(body, content["application/json"]["schema"], path)
    assert found is None, found
    answered += 1
assert answered >= 16, answered
try:
    urllib.request.urlopen(URL + "/v1/agents/nothing")
    raise AssertionError("there is no such agent")
except urllib.error.HTTPError as error:
    found = problem(json.load(error), schemas["Error"], "an error")
    assert found is None, found
