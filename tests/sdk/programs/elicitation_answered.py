"""Answers what the sessions of `elicitation_asked.py` wait for, after a restart of the server."""

import json

from common import *

client = client()


def answer(id, *content, **more):
    """The events from the answer on."""
    [asked] = [event for event in listed(client, id) if event.type == "agent.custom_tool_use"]
    [question] = asked.input["questions"]
    texts = [{"type": "text", "text": json.dumps({question: part})} for part in content]
    result = {"type": "user.custom_tool_result", "custom_tool_use_id": asked.id, "content": texts, **more}
    with client.beta.sessions.events.stream(id) as stream:
        [sent] = send(client, id, result)
        [again] = send(client, id, result)
        assert again.id == sent.id, "the same answer may be sent again"
        return until_idle(stream)


def result(events):
    [result] = [event for event in events if event.type == "agent.mcp_tool_result"]
    return result.content[0].text


first, second = sys.argv[2:4]
try:
    answer(first, {"action": "perhaps"})
    raise AssertionError("what is no answer is refused")
except anthropic.BadRequestError as error:
    assert "accept" in str(error), error
done = answer(first, {"action": "accept", "content": {"name": "old"}})
assert result(done) == "deleted old" and texts(done) == ["Done."], done
# A client that knows nothing of such questions answers that it has no such tool.
done = answer(second, is_error=True)
assert result(done) == "kept: cancel", done
