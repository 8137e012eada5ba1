import json
import urllib.error
import urllib.request

from common import *

client = client()
agent, environment = make(client)


def refused(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        body = error.body
        assert body["type"] == "error" and body["request_id"] == error.response.headers["request-id"]
        assert error.response.headers.get("x-should-retry") == "false", error
        return body["error"]["message"]
    raise AssertionError(f"{call} was not refused")


sessions = client.beta.sessions
bad, missing = anthropic.BadRequestError, anthropic.NotFoundError
refused(missing, sessions.retrieve, "sesn_00000000000000000000000000000001")
refused(missing, sessions.retrieve, "no-id")
refused(missing, sessions.create, agent="agent_00000000000000000000000000000001", environment_id=environment)
refused(missing, sessions.create, agent=agent, environment_id="env_00000000000000000000000000000001")
told = refused(bad, sessions.create, agent=agent, environment_id=environment, extra_body={"deployment": 1})
assert told.startswith("deployment: "), told
# Nothing of these sessions could run as it was asked for.
workers = client.beta.environments.create(name="workers", config={"type": "self_hosted"})
told = refused(bad, sessions.create, agent=agent, environment_id=workers.id)
assert "cannot use workers yet" in told, told
image = {"type": "image", "source": {"type": "file", "file_id": "file_" + "0" * 32}}
events = [message("First."), {"type": "user.message", "content": [image]}]
told = refused(bad, sessions.create, agent=agent, environment_id=environment, initial_events=events)
assert told.startswith("initial_events.1"), told
assert not list(sessions.list())
made = sessions.create(agent=agent, environment_id=environment)
refused(bad, sessions.events.send, made.id, events=[])
refused(bad, sessions.events.send, made.id, events=[{"type": "user.nothing"}])
confirmation = {"type": "user.tool_confirmation", "tool_use_id": "sevt_x", "result": "allow"}
refused(bad, sessions.events.send, made.id, events=[confirmation])
assert not listed(client, made.id), "nothing of a refused request is recorded"


def raw(method, path, headers={}, body=None):
    request = urllib.request.Request(URL + path, method=method, headers=headers, data=body)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


assert raw("GET", "/healthz") == (200, {"status": "ok"})
assert raw("GET", "/readyz") == (200, {"status": "ready"})
for status, kind, method, path, headers in [
    (404, "not_found_error", "GET", "/v1/nothing", {}),
    (405, "invalid_request_error", "DELETE", "/v1/sessions", {}),
    (403, "permission_error", "GET", "/v1/sessions", {"host": "rebound.example.com"}),
    (403, "permission_error", "GET", "/v1/sessions", {"origin": "https://example.com"}),
]:
    found, body = raw(method, path, headers)
    assert (found, body["type"], body["error"]["type"]) == (status, "error", kind), body
assert raw("POST", "/v1/sessions", body=b"{")[0] == 400
assert raw("POST", "/v1/sessions", body=b"x" * (33 << 20))[0] == 413
