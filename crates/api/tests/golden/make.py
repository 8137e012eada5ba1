"""Writes the golden files beside it: what the official SDK (`anthropic==2.12.0`) sends, and objects as it serialises them.

Run it with a Python that has the SDK: `python make.py`.
"""

import datetime
import json
import pathlib

import anthropic
import httpx2
from anthropic.types.beta import BetaEnvironment, BetaFileMetadata, BetaManagedAgentsAgent, BetaManagedAgentsSession
from anthropic.types.beta import BetaSkill
from anthropic.types.beta import BetaManagedAgentsVault
from anthropic.types.beta.skills import BetaSkillVersion
from anthropic.types.beta.vaults import BetaManagedAgentsCredential

HERE = pathlib.Path(__file__).parent
sent = []


def record(request):
    body = request.content.decode()
    sent.append(
        {
            "method": request.method,
            "path": request.url.path,
            "query": request.url.query.decode(),
            "body": json.loads(body) if body else None,
        }
    )
    return httpx2.Response(400, json={"type": "error", "error": {"type": "invalid_request_error", "message": "seen"}})


client = anthropic.Anthropic(
    api_key="key", base_url="http://127.0.0.1", http_client=anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(record))
)


def send(call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
        list(result)
    except anthropic.BadRequestError:
        return
    raise AssertionError("the request was not seen")


beta = client.beta
tools = [
    {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": True, "permission_policy": {"type": "always_ask"}},
        "configs": [
            {"name": "bash", "type": "bash", "enabled": True, "permission_policy": {"type": "always_allow"}},
            {"name": "web_search", "enabled": False},
        ],
    },
    {
        "type": "custom",
        "name": "get_weather",
        "description": "The weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "z": 1, "a": 2},
    },
]
send(beta.agents.create, name="Coder", model="claude-opus-5-5")
send(
    beta.agents.create,
    name="Coder",
    model={"id": "claude-opus-5-5", "effort": "high", "speed": "fast"},
    system="You write code.",
    description="It writes code.",
    tools=tools,
    mcp_servers=[],
    skills=[{"type": "anthropic", "skill_id": "xlsx"}, {"type": "custom", "skill_id": "skill_1", "version": "latest"}],
    metadata={"team": "blue"},
    execution_identity={"type": "service_account"},
    multiagent=None,
)
send(beta.agents.update, "agent_1", version=1, name="Other", system=None, tools=[], metadata={"team": None, "new": "1"})
send(beta.agents.update, "agent_1", model={"id": "m", "effort": {"type": "max"}})
send(beta.agents.retrieve, "agent_1", version=3)
when = datetime.datetime(2026, 11, 26, 8, 0, 0, 123456, tzinfo=datetime.timezone.utc)
send(beta.agents.list, created_at_gte=when, created_at_lte="2026-11-27T00:00:00Z", include_archived=True, limit=5, page="page_1")
send(beta.agents.versions.list, "agent_1", limit=100, page="page_1")

send(beta.environments.create, name="python")
send(
    beta.environments.create,
    name="limited",
    description="A limited one",
    scope="organization",
    metadata={"team": "blue"},
    config={
        "type": "cloud",
        "networking": {"type": "limited", "allowed_hosts": ["example.com"], "allow_package_managers": True, "allow_mcp_servers": None},
        "packages": {"type": "packages", "pip": ["pandas==2.2.0"], "apt": [], "npm": None},
    },
)
send(beta.environments.create, name="workers", config={"type": "self_hosted"})
send(beta.environments.update, "env_1", name="other", description=None, metadata={"team": None})
send(beta.environments.list, include_archived=False, limit=3, page=None)

send(beta.sessions.create, agent="agent_1", environment_id="env_1")
send(
    beta.sessions.create,
    agent={"type": "agent", "id": "agent_1", "version": 2},
    environment_id="env_1",
    title="A title",
    metadata={"a": "b"},
    vault_ids=[],
    budget={"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}},
    resources=[
        {"type": "file", "file_id": "file_1"},
        {"type": "file", "file_id": "file_2", "mount_path": "/mnt/data/in.csv"},
    ],
    initial_events=[{"type": "user.message", "content": [{"type": "text", "text": "Hello"}]}],
)
send(
    beta.sessions.create,
    agent={"type": "agent_with_overrides", "id": "agent_1", "model": "other", "system": None, "tools": tools, "skills": []},
    environment_id="env_1",
)
send(beta.sessions.update, "sesn_1", title=None, metadata={"a": None}, agent={"tools": tools, "mcp_servers": []}, budget=None)
send(
    beta.sessions.list,
    agent_id="agent_1",
    agent_version=2,
    created_at_gt=when,
    created_at_lt=when,
    statuses=["idle", "running"],
    order="asc",
    include_archived=True,
    limit=7,
)
content = [
    {"type": "text", "text": "See"},
    {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "image/png"}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    {"type": "document", "title": "T", "context": None, "source": {"type": "text", "data": "hi", "media_type": "text/plain"}},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
]
result = [
    {
        "type": "search_result",
        "citations": {"enabled": True},
        "content": [{"type": "text", "text": "found"}],
        "source": "https://example.com",
        "title": "Found",
    }
]
send(
    beta.sessions.events.send,
    "sesn_1",
    events=[
        {"type": "user.interrupt"},
        {"type": "user.tool_confirmation", "tool_use_id": "sevt_1", "result": "deny", "deny_message": "no"},
        {"type": "user.tool_confirmation", "tool_use_id": "sevt_2", "result": "allow"},
        {"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_3", "content": result, "is_error": False},
        {"type": "user.tool_result", "tool_use_id": "sevt_4"},
        {"type": "user.message", "content": content},
        {"type": "system.message", "content": [{"type": "text", "text": "Be brief."}]},
    ],
)
send(
    beta.sessions.events.list,
    "sesn_1",
    created_at_gt=when,
    created_at_gte=when,
    created_at_lt=when,
    created_at_lte=when,
    types=["user.message", "agent.tool_use"],
    order="desc",
    limit=1000,
)
send(beta.sessions.events.stream, "sesn_1", event_deltas=["agent.message", "agent.thinking"])
send(beta.sessions.resources.add, "sesn_1", type="file", file_id="file_1")
send(beta.sessions.resources.list, "sesn_1", limit=1000)

send(beta.files.list, ids=["file_1", "file_2"])
send(beta.files.list, scope_id="sesn_1", limit=1000, page="page_1")
send(beta.skills.list, source="custom", limit=1000, page=None)
send(beta.skills.versions.list, "skill_1", limit=1000)
servers = [{"type": "url", "name": "issues", "url": "https://mcp.example.com/mcp"}]
server_tools = [
    {
        "type": "mcp_toolset",
        "mcp_server_name": "issues",
        "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}},
        "configs": [{"name": "delete_issue", "enabled": False}, {"name": "close_issue", "permission_policy": {"type": "always_ask"}}],
    }
]
send(beta.agents.create, name="Triage", model="m", mcp_servers=servers, tools=server_tools)
send(beta.agents.update, "agent_1", version=1, mcp_servers=servers, tools=[{"type": "mcp_toolset", "mcp_server_name": "issues"}])
send(beta.sessions.create, agent="agent_1", environment_id="env_1", vault_ids=["vlt_1", "vlt_2"])
send(beta.vaults.create, display_name="Ada", metadata={"user": "7"})
send(beta.vaults.update, "vlt_1", display_name="Grace", metadata={"user": None})
send(beta.vaults.list, include_archived=True, limit=5, page="page_1")
url = "https://mcp.example.com/mcp"
send(beta.vaults.credentials.create, "vlt_1", auth={"type": "static_bearer", "token": "t", "mcp_server_url": url}, display_name="Issues")
send(
    beta.vaults.credentials.create,
    "vlt_1",
    auth={
        "type": "mcp_oauth",
        "access_token": "a",
        "mcp_server_url": url,
        "expires_at": "2099-01-01T00:00:00Z",
        "refresh": {
            "client_id": "c",
            "refresh_token": "r",
            "token_endpoint": "https://auth.example.com/token",
            "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "s"},
            "resource": url,
            "scope": "read",
        },
    },
    metadata={"a": "b"},
)
send(beta.vaults.credentials.update, "vcrd_1", vault_id="vlt_1", auth={"type": "static_bearer", "token": "u"}, metadata={"a": None})
send(
    beta.vaults.credentials.update,
    "vcrd_1",
    vault_id="vlt_1",
    display_name=None,
    auth={
        "type": "mcp_oauth",
        "access_token": "b",
        "expires_at": "2099-01-01T00:00:00Z",
        "refresh": {"refresh_token": "r", "scope": "", "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "x"}},
    },
)
send(beta.vaults.credentials.list, "vlt_1", include_archived=False, limit=100)
send(beta.models.list, after_id="a", limit=1000, lifecycle=["active", "deprecated"])

with (HERE / "requests.jsonl").open("w") as file:
    for request in sent:
        file.write(json.dumps(request) + "\n")

HEX = "0123456789abcdef0123456789abcdef"
TIME = "2026-11-26T08:00:00.123Z"
policy = {"type": "always_allow"}
agent = {
    "id": f"agent_{HEX}",
    "description": "It writes code.",
    "execution_identity": {"type": "service_account"},
    "mcp_servers": [{"type": "url", "name": "issues", "url": "https://mcp.example.com/mcp"}],
    "model": {"id": "m", "effort": {"type": "high"}, "inference_geo": None, "speed": "standard"},
    "multiagent": None,
    "name": "Coder",
    "skills": [{"skill_id": "xlsx", "type": "anthropic", "version": "1"}],
    "system": None,
    "tools": [
        {
            "type": "agent_toolset_20260401",
            "default_config": {"enabled": True, "permission_policy": policy},
            "configs": [{"name": "bash", "type": "bash", "enabled": False, "permission_policy": {"type": "always_ask"}}],
        },
        {"type": "custom", "name": "t", "description": "d", "input_schema": {"type": "object", "z": 1, "a": 2}},
        {
            "type": "mcp_toolset",
            "mcp_server_name": "issues",
            "default_config": {"enabled": False, "permission_policy": {"type": "always_ask"}},
            "configs": [{"name": "list_issues", "enabled": True, "permission_policy": policy}],
        },
    ],
    "type": "agent",
    "version": 3,
}
times = {"created_at": TIME, "updated_at": TIME, "archived_at": None}
objects = [
    (BetaManagedAgentsAgent, "agent", agent | times | {"metadata": {"a": "b"}}),
    (
        BetaEnvironment,
        "environment",
        times
        | {
            "id": f"env_{HEX}",
            "config": {
                "type": "cloud",
                "networking": {"type": "limited", "allow_mcp_servers": False, "allow_package_managers": True, "allowed_hosts": ["a.b"]},
                "packages": {"type": "packages", "apt": [], "cargo": [], "gem": [], "go": [], "npm": [], "pip": ["pandas"]},
            },
            "description": None,
            "metadata": {},
            "name": "python",
            "type": "environment",
            "scope": "organization",
        },
    ),
    (
        BetaManagedAgentsSession,
        "session",
        times
        | {
            "id": f"sesn_{HEX}",
            "agent": agent,
            "budget": {"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}},
            "environment_id": f"env_{HEX}",
            "metadata": {},
            "outcome_evaluations": [],
            "resources": [
                {
                    "id": f"sesrsc_{HEX}",
                    "type": "file",
                    "created_at": TIME,
                    "updated_at": TIME,
                    "file_id": f"file_{HEX}",
                    "mount_path": "/mnt/session/uploads/a",
                }
            ],
            "stats": {"active_seconds": 1.5, "duration_seconds": 2.5},
            "status": "idle",
            "title": "T",
            "type": "session",
            "usage": {
                "cache_creation": {"ephemeral_1h_input_tokens": 1, "ephemeral_5m_input_tokens": 2},
                "cache_read_input_tokens": 3,
                "input_tokens": 4,
                "output_tokens": 5,
            },
            "vault_ids": [f"vlt_{HEX}"],
            "deployment_id": None,
        },
    ),
    (BetaManagedAgentsVault, "vault", times | {"id": f"vlt_{HEX}", "display_name": "Ada", "metadata": {"a": "b"}, "type": "vault"}),
    (
        BetaManagedAgentsCredential,
        "credential",
        times
        | {
            "id": f"vcrd_{HEX}",
            "auth": {"type": "static_bearer", "mcp_server_url": "https://mcp.example.com/mcp"},
            "display_name": None,
            "metadata": {},
            "type": "vault_credential",
            "vault_id": f"vlt_{HEX}",
        },
    ),
    (
        BetaManagedAgentsCredential,
        "credential",
        times
        | {
            "id": f"vcrd_{HEX}",
            "auth": {
                "type": "mcp_oauth",
                "mcp_server_url": "https://mcp.example.com/mcp",
                "expires_at": TIME,
                "refresh": {
                    "client_id": "c",
                    "token_endpoint": "https://auth.example.com/token",
                    "token_endpoint_auth": {"type": "client_secret_basic"},
                    "resource": None,
                    "scope": "read",
                },
            },
            "display_name": "Issues",
            "metadata": {"a": "b"},
            "type": "vault_credential",
            "vault_id": f"vlt_{HEX}",
        },
    ),
    (
        BetaFileMetadata,
        "file",
        {
            "id": f"file_{HEX}",
            "created_at": TIME,
            "filename": "a.csv",
            "mime_type": "text/csv",
            "size_bytes": 3,
            "type": "file",
            "downloadable": True,
            "expires_at": None,
            "scope": {"id": f"sesn_{HEX}", "type": "session"},
        },
    ),
    (
        BetaSkill,
        "skill",
        {
            "id": f"skill_{HEX}",
            "created_at": TIME,
            "display_name": "S",
            "latest_version_id": f"skillver_{HEX}",
            "source": {"type": "custom"},
            "type": "skill",
            "updated_at": TIME,
        },
    ),
    (
        BetaSkillVersion,
        "skill_version",
        {
            "id": f"skillver_{HEX}",
            "created_at": TIME,
            "description": "d",
            "name": "s",
            "skill_id": f"skill_{HEX}",
            "type": "skill_version",
        },
    ),
]
with (HERE / "objects.jsonl").open("w") as file:
    for model, kind, value in objects:
        dumped = model.model_validate(value).to_dict(mode="json", exclude_unset=True)
        file.write(json.dumps({"kind": kind, "object": dumped}) + "\n")
