"""The official SDK as the oracle. `oracle.py MODE [URL KEY]`; reads JSON from standard input, and writes JSON to standard output."""
import json
import sys

import openai
from pydantic import TypeAdapter, ValidationError

PICTURE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def strings(value):
    """A value with all lazy iterables read, which is when their items are checked."""
    if isinstance(value, dict):
        return {key: strings(item) for key, item in value.items()}
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return value
    return [strings(item) for item in value]


def check(given):
    """Whether each body has the SDK's own types, down to the last item."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    params = {"chat": CompletionCreateParamsStreaming, "responses": ResponseCreateParamsStreaming}
    verdicts = []
    for api, body in given:
        known = set()
        for base in [params[api], *params[api].__orig_bases__]:
            known |= set(base.__annotations__)
        try:
            assert set(body) <= known, set(body) - known
            # The lazy iterables need it for as long as they are read.
            adapter = TypeAdapter(params[api])
            strings(adapter.validate_python(body))
            verdicts.append("ok")
        except (ValidationError, AssertionError) as error:
            verdicts.append(str(error))
    return verdicts


def send(client):
    """Sends what a user of the SDK would write for the conversations of the test."""
    chat_tools = [
        {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": SCHEMA}}
        for name in ("bash", "view")
    ]
    responses_tools = [
        {"type": "function", "name": name, "description": "Does it.", "parameters": SCHEMA, "strict": False}
        for name in ("bash", "view")
    ]
    call = lambda id, name, arguments: {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    system = {"role": "system", "content": "Be brief."}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chats = [
        {"messages": [system, {"role": "user", "content": "Hi"}]},
        {"messages": [system, {"role": "user", "content": "Hi"}], "tools": chat_tools, "max_tokens": 100,
         "parallel_tool_calls": False, "temperature": 0.5},
        {"messages": [
            system,
            {"role": "user", "content": [
                {"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": PICTURE}}]},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                call("a", "bash", '{"command":"ls"}'), call("b", "view", "{}")]},
            {"role": "tool", "tool_call_id": "a", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "b", "content": "seen"},
            {"role": "user", "content": "and hurry"}], "tools": chat_tools},
    ]
    for kwargs in chats:
        for _ in client.chat.completions.create(model="m", **kwargs, **options):
            pass
    plain = {"type": "message", "role": "user", "content": "Hi"}
    fixed = {"instructions": "Be brief.", "store": False, "include": ["reasoning.encrypted_content"], "stream": True}
    responses = [
        {"input": [plain]},
        {"input": [plain], "tools": responses_tools, "max_output_tokens": 100, "parallel_tool_calls": False,
         "temperature": 0.5},
        {"input": [
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "detail": "auto", "image_url": PICTURE}]},
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "a", "name": "bash", "arguments": '{"command":"ls"}'},
            {"type": "function_call", "call_id": "b", "name": "view", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "Error: no"},
            {"type": "function_call_output", "call_id": "b", "output": "seen"},
            {"type": "message", "role": "user", "content": "and hurry"}], "tools": responses_tools},
    ]
    for kwargs in responses:
        for _ in client.responses.create(model="m", **kwargs, **fixed):
            pass
    return "ok"


def told(call):
    """What a call gives, or its error."""
    try:
        return json.loads(call().to_json())
    except openai.APIStatusError as error:
        return {"error": type(error).__name__, "status": error.status_code, "code": error.code, "text": str(error)}
    except openai.APIError as error:
        return {"error": type(error).__name__, "code": error.code, "text": str(error)}
    except RuntimeError as error:
        # The helper for responses does not raise what the service says, only that there is no answer.
        return {"error": type(error).__name__, "text": str(error)}


def read(client, given):
    """Reads answers, streamed by the strict helpers and whole."""
    chat_tools = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
    responses_tools = [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}]
    messages = [{"role": "user", "content": "Hi"}]

    def chat_stream():
        kwargs = {"model": "m", "messages": messages, "tools": chat_tools, "stream_options": {"include_usage": True}}
        with client.chat.completions.stream(**kwargs) as stream:
            return stream.get_final_completion()

    def responses_stream():
        with client.responses.stream(model="m", input="Hi", tools=responses_tools, store=False) as stream:
            return stream.get_final_response()

    calls = {
        "chat-stream": chat_stream,
        "chat": lambda: client.chat.completions.create(model="m", messages=messages, tools=chat_tools),
        "responses-stream": responses_stream,
        "responses": lambda: client.responses.create(model="m", input="Hi", tools=responses_tools, store=False),
    }
    return [told(calls[name]) for name in given]


def events(given):
    """Which events the SDK's types do not accept, with all their required members."""
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent

    adapters = {"chat": TypeAdapter(ChatCompletionChunk), "responses": TypeAdapter(ResponseStreamEvent)}
    refused = []
    for api, event in given:
        try:
            adapters[api].validate_python(event)
        except ValidationError as error:
            refused.append([event, str(error)])
    return refused


def main():
    given = json.load(sys.stdin)
    mode = sys.argv[1]
    if mode in ("check", "events"):
        answer = {"check": check, "events": events}[mode](given)
    else:
        client = openai.OpenAI(base_url=sys.argv[2], api_key=sys.argv[3], max_retries=given.get("retries", 0))
        answer = send(client) if mode == "send" else read(client, given["calls"])
    print(json.dumps(answer))


main()
