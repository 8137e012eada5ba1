"""The official SDK against the fake. The command is the first argument, what it needs follows as JSON; the answer is one line of
JSON."""

import base64
import json
import sys

from google import genai
from google.genai import errors, types


def client(given):
    options = {"base_url": given["url"], "retry_options": {"attempts": 1}}
    return genai.Client(api_key=given["key"], http_options=options)


def config(given):
    more = given.get("config", {})
    return types.GenerateContentConfig(
        system_instruction={"parts": [{"text": "Be brief."}]},
        tools=[{"function_declarations": given["tools"]}] if given.get("tools") else None,
        automatic_function_calling={"disable": True},
        **more,
    )


def read(given):
    """What the SDK reads of one streamed answer."""
    seen = {"text": "", "thoughts": "", "calls": [], "finish": None, "blocked": None, "usage": None, "signed": []}
    # It must be kept: the SDK closes the connections of a client that is dropped.
    own = client(given)
    try:
        contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
        for chunk in own.models.generate_content_stream(model=given["model"], contents=contents):
            seen["id"], seen["version"] = chunk.response_id, chunk.model_version
            if chunk.prompt_feedback:
                seen["blocked"] = chunk.prompt_feedback.block_reason
            if chunk.usage_metadata:
                usage = chunk.usage_metadata
                seen["usage"] = [usage.prompt_token_count, usage.candidates_token_count]
            for candidate in chunk.candidates or []:
                seen["finish"] = candidate.finish_reason or seen["finish"]
                for part in (candidate.content and candidate.content.parts) or []:
                    if part.thought_signature:
                        seen["signed"].append(base64.b64encode(part.thought_signature).decode())
                    if part.function_call:
                        seen["calls"].append([part.function_call.name, part.function_call.args])
                    if part.text:
                        seen["thoughts" if part.thought else "text"] += part.text
        return seen
    except errors.APIError as error:
        return {"code": error.code, "status": error.status, "message": error.message, "text": seen["text"]}


def reads(given):
    return [read(one) for one in given]


def response(part, given):
    """The result of a call, by its name and the place of the call."""
    name, (key, text, image) = part.function_call.name, given
    more = [types.FunctionResponsePart.from_bytes(data=base64.b64decode(image), mime_type="image/png")] if image else None
    made = types.Part.from_function_response(name=name, response={key: text}, parts=more)
    made.function_response.id = part.function_call.id
    return made


def converse(given):
    """A conversation whose calls get these results; what the user says follows the last of them."""
    contents = [types.Content(role="user", parts=[types.Part.from_text(text=given["question"])])]
    results = iter(given["results"])
    own = client(given)
    while True:
        answer = own.models.generate_content(model=given["model"], contents=contents, config=config(given))
        content = answer.candidates[0].content
        contents.append(content)
        calls = [part for part in content.parts if part.function_call]
        if not calls:
            return len(contents)
        contents.append(types.Content(role="user", parts=[response(part, next(results)) for part in calls]))


def foreign(given):
    """A request with the answer of another model, whose call has no signature."""
    skip = base64.urlsafe_b64decode("skip_thought_signature_validator")
    call = types.FunctionCall(name="view", args={"path_name": "/a"})
    contents = [
        types.Content(
            role="user",
            parts=[
                types.Part.from_text(text="Look."),
                types.Part.from_bytes(data=base64.b64decode(given["image"]), mime_type="image/png"),
            ],
        ),
        types.Content(
            role="model",
            parts=[types.Part.from_text(text="I look."), types.Part(function_call=call, thought_signature=skip)],
        ),
        types.Content(
            role="user",
            parts=[types.Part.from_function_response(name="view", response={"error": "it is gone"})],
        ),
    ]
    own = client(given)
    own.models.generate_content(model=given["model"], contents=contents, config=config(given))


print(json.dumps(globals()[sys.argv[1]](json.load(sys.stdin))))
