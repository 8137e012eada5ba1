"""The official SDK against the fake. The command is the first argument, what it needs follows as JSON; the answer is
one line of JSON."""

import json
import sys
import warnings

import anthropic
from anthropic.lib.tools import ToolError, beta_tool

warnings.simplefilter("ignore")


def client(given, **more):
    return anthropic.Anthropic(base_url=given["url"], api_key=given["key"], **more)


def events(given):
    """What the SDK's types say of each event: nothing, or why not."""
    from pydantic import TypeAdapter
    from anthropic.types import RawMessageStreamEvent

    adapter = TypeAdapter(RawMessageStreamEvent)
    wrong = []
    for event in given["events"]:
        try:
            adapter.validate_python(event)
        except Exception as error:
            wrong.append(f"{event}: {error}")
    return wrong


def create(given):
    """One call, streamed or not, and how it ended."""
    body = {"model": "m", "max_tokens": 100, "messages": given["messages"]}
    try:
        if given["stream"]:
            with client(given).messages.stream(**body) as stream:
                message = stream.get_final_message()
        else:
            message = client(given).messages.create(**body)
        return {"message": json.loads(message.to_json())}
    except anthropic.APIStatusError as error:
        return {"error": type(error).__name__, "request_id": error.request_id, "text": str(error)}
    except anthropic.APIError as error:
        return {"error": type(error).__name__, "request_id": None, "text": str(error)}


def creates(given):
    return [create(one) for one in given]


def compacted(given):
    """A call under the beta of compaction, streamed and whole."""
    body = {"model": "m", "max_tokens": 100, "messages": given["messages"]}
    body["betas"] = ["compact-2026-01-12"]
    body["context_management"] = {
        "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": given["trigger"]}}]
    }
    messages = client(given).beta.messages
    with messages.stream(**body) as stream:
        streamed = stream.get_final_message()
    return [json.loads(streamed.to_json()), json.loads(messages.create(**body).to_json())]


def runner(given):
    """The SDK's loop over the tools that the test has too."""
    tools = {tool["name"]: tool for tool in given["tools"]}

    def made(name):
        def decorate(function):
            tool = tools[name]
            return beta_tool(name=name, description=tool["description"], input_schema=tool["input_schema"])(function)

        return decorate

    @made("weather")
    def weather(city: str):
        return f"sunny in {city}"

    @made("broken")
    def broken():
        raise ToolError("it broke")

    @made("picture")
    def picture():
        source = {"type": "base64", "media_type": "image/png", "data": given["image"]}
        return [{"type": "text", "text": "a dot"}, {"type": "image", "source": source}]

    by_name = {"weather": weather, "broken": broken, "picture": picture}
    loop = client(given).beta.messages.tool_runner(
        model="m",
        max_tokens=given["max_tokens"],
        messages=[{"role": "user", "content": [{"type": "text", "text": given["question"]}]}],
        tools=[by_name[name] for name in tools],
        stream=given["stream"],
        thread=False,
    )
    if given["stream"]:
        for stream in loop:
            stream.get_final_message()
    else:
        for _ in loop:
            pass


def runners(given):
    for one in given:
        runner(one)


print(json.dumps(globals()[sys.argv[1]](json.load(sys.stdin))))
