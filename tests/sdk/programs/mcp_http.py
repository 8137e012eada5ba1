"""The official SDK as a client of `/mcp` of `conjure serve`, in both eras of the protocol, with the keys of two tenants and one without the scope."""

import asyncio
import http.client
import json
import sys
import urllib.error
import urllib.request
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Request, RequestParams, Result

URL, ACME, OTHER, READER = sys.argv[1:]
TOOLS = {"bash_tool", "view", "create_file", "str_replace", "skill_list", "skill_read", "skill_run_script", "run_agent"}


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def client(key, mode, extensions=(), **headers):
    client = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}", **headers}, timeout=60)
    return Client(streamable_http_client(f"{URL}/mcp", http_client=client), mode=mode, extensions=extensions)


class CreatedTask(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None


class Task(CreatedTask):
    result_type: Literal["complete"] = "complete"
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskId(RequestParams):
    task_id: str


class TaskRequest(Request[TaskId, str]):
    name_param = "taskId"


def about_task(method, task):
    return TaskRequest(method=f"tasks/{method}", params=TaskId(task_id=task))


class Tasks(ClientExtension):
    """The extension for tasks, which this SDK leaves to others: it waits for the end of a task and returns its result."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self):
        self.seen = []

    def claims(self):
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, created, context):
        while True:
            task = await context.session.send_request(about_task("get", created.task_id), Task)
            self.seen.append(task)
            if task.status != "working":
                assert task.status == "completed", task
                return CallToolResult.model_validate(task.result)
            await asyncio.sleep(0.05)


async def check_tasks():
    tasks = Tasks()
    async with client(ACME, "auto", [tasks]) as mine, client(OTHER, "auto", [tasks]) as theirs:
        answer = await mine.call_tool("run_agent", {"prompt": "Say hello"})
        assert text(answer) == "You said: Say hello", answer
        ended = tasks.seen[-1]
        assert ended.ttl_ms and ended.poll_interval_ms and "asks the model" in ended.status_message, ended
        # What has ended stays for a while, for its own key.
        again = await mine.session.send_request(about_task("get", ended.task_id), Task)
        assert again.result == ended.result, again
        for who, task in [(theirs, ended.task_id), (mine, "00000000-0000-0000-0000-000000000000")]:
            for method in ("get", "cancel"):
                try:
                    await who.session.send_request(about_task(method, task), Result)
                    raise AssertionError("a task of another key")
                except MCPError as error:
                    assert error.code == -32602, error
    # The headers name what the body asks for.
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {Tasks.identifier: {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": ended.task_id, "_meta": meta}}
    for method, name, code in [
        ("tasks/get", ended.task_id, None),
        ("tasks/cancel", ended.task_id, -32020),
        ("tasks/get", "other", -32020),
    ]:
        answer = post(body, mcp_protocol_version="2026-07-28", mcp_method=method, mcp_name=name)[2]
        answer = json.loads(answer.rpartition("data: ")[2])
        assert answer.get("error", {}).get("code") == code, (method, name, answer)
    async with client(ACME, "auto") as without:
        try:
            await without.session.send_request(about_task("get", ended.task_id), Task)
            raise AssertionError("a client without the extension")
        except MCPError as error:
            assert error.code == -32021, error


async def bash(who, command):
    result = await who.call_tool("bash_tool", {"command": command, "description": "Run it"})
    assert not result.is_error, result
    return text(result)


async def check_offer(who):
    assert who.server_info.name == "conjure"
    tools = {tool.name for tool in (await who.list_tools()).tools}
    assert tools == TOOLS, sorted(tools)
    assert "sales-report" in text(await who.call_tool("skill_list", {}))
    assert "name: sales-report" in text(await who.call_tool("skill_read", {"skill": "sales-report"}))
    assert "sales-report" in [prompt.name for prompt in (await who.list_prompts()).prompts]
    assert "Follow the instructions" in (await who.get_prompt("sales-report")).messages[0].content.text
    uris = {str(resource.uri) for resource in (await who.list_resources()).resources}
    assert "skill://sales-report/SKILL.md" in uris, uris
    assert (await who.read_resource("skill://sales-report/SKILL.md")).contents[0].text
    try:
        await who.call_tool("none", {})
        raise AssertionError("an unknown tool is an error of the protocol")
    except MCPError as error:
        assert error.code == -32602, error


async def check_agent(who):
    steps = []

    async def told(progress, total, message):
        steps.append(message)

    answer = await who.call_tool("run_agent", {"prompt": "Say hello"}, progress_callback=told)
    assert text(answer) == "You said: Say hello", answer
    assert any("asks the model" in (step or "") for step in steps), steps


async def check_newest():
    async with client(ACME, "auto") as mine:
        assert mine.protocol_version == "2026-07-28", mine.protocol_version
        await check_offer(mine)
        await bash(mine, "echo mine > a.txt")
        await check_agent(mine)
    # A key is one client, whatever its connections.
    async with client(ACME, "auto") as again, client(OTHER, "auto") as theirs:
        seen = await again.call_tool("view", {"path": "a.txt", "description": "Look at it"})
        assert "mine" in text(seen), seen
        assert "a.txt" not in await bash(theirs, "ls -A; echo theirs > b.txt")
        assert "b.txt" not in await bash(again, "ls -A")
        # Calls of one client run together.
        first = asyncio.create_task(bash(again, "until test -e go; do sleep 0.05; done; echo went"))
        await bash(again, "touch go")
        assert "went" in await asyncio.wait_for(first, 30)


async def check_former():
    async with client(ACME, "legacy") as one, client(ACME, "legacy") as two:
        assert one.protocol_version < "2026-07-28", one.protocol_version
        await check_offer(one)
        await bash(one, "echo one > one.txt")
        assert "one" in await bash(one, "cat one.txt")
        # Each session is a client, also of one key.
        assert "one.txt" not in await bash(two, "ls -A")
        await check_agent(two)


def post(body, key=ACME, method="POST", **headers):
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **({"authorization": f"Bearer {key}"} if key else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}/mcp", data if method == "POST" else None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def announce(size):
    """The status for a body of this size, which is never sent: the server need not read it."""
    connection = http.client.HTTPConnection(URL.removeprefix("http://"), timeout=30)
    headers = {"authorization": f"Bearer {ACME}", "content-type": "application/json", "content-length": str(size)}
    connection.putrequest("POST", "/mcp")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def initialize():
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


def begin(key):
    status, headers, body = post(initialize(), key)
    assert status == 200, (status, body)
    session = headers["mcp-session-id"]
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    status, _, body = post(told, key, mcp_session_id=session)
    assert status == 202, (status, body)
    return session


def check_refusals():
    for key, said in [(None, "the request has no key"), ("sk-conjure-" + "0" * 97, "not known")]:
        status, _, body = post(LIST, key)
        error = json.loads(body)["error"]
        assert status == 401 and error["type"] == "authentication_error" and said in error["message"], (status, body)
    status, _, body = post(LIST, None, x_api_key=ACME)
    assert status != 401, (status, body)
    status, _, body = post(LIST, READER)
    assert status == 403 and "`run`" in body, (status, body)

    # A session belongs to its key, and is found with no other.
    session = begin(ACME)
    assert post(LIST, ACME, mcp_session_id=session)[0] == 200
    for key, other in [(OTHER, session), (ACME, "0" * 36), (ACME, session + "0")]:
        status, _, body = post(LIST, key, mcp_session_id=other)
        assert status == 404 and "Mcp-Session-Id" in body, (status, body)
    assert post(b"", OTHER, "DELETE", mcp_session_id=session)[0] == 404
    assert post(LIST, ACME, mcp_session_id=session)[0] == 200
    assert post(b"", ACME, "DELETE", mcp_session_id=session)[0] == 202
    assert post(LIST, ACME, mcp_session_id=session)[0] == 404

    # More sessions than a key may have end the one that was idle for the longest time.
    sessions = [begin(ACME) for _ in range(17)]
    assert post(LIST, ACME, mcp_session_id=sessions[0])[0] == 404
    assert post(LIST, ACME, mcp_session_id=sessions[1])[0] == 200
    assert post(LIST, ACME, mcp_session_id=sessions[-1])[0] == 200

    for body, codes in [
        (b"", {400, 415, 422}),
        (b"{", {400, 415, 422}),
        (b"[" * 100_000, {400, 415, 422}),
        (b"\xff\xfe", {400, 415, 422}),
        (b"[]", {400, 415, 422}),
        (json.dumps(LIST).encode(), {400}),
    ]:
        status, _, told = post(body)
        assert status in codes, (status, told, body[:40])
    assert post(LIST, accept="text/plain")[0] == 406
    assert announce(33 << 20) == 413


async def main():
    check_refusals()
    await check_newest()
    await check_tasks()
    await check_former()


asyncio.run(main())
