"""Checks events of a session as the official SDK does in its strict mode. Reads a list of events from standard input, and prints what is wrong."""

import json
import sys
from typing import get_args

from anthropic._models import validate_type
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent

kinds = {member.model_fields["type"].annotation for member in get_args(get_args(BetaManagedAgentsSessionEvent)[0])}
known = {kind for annotation in kinds for kind in get_args(annotation)}
problems = []
for event in json.load(sys.stdin):
    if event["type"] not in known:
        problems.append(f"the API has no `{event['type']}`")
        continue
    try:
        found = validate_type(type_=BetaManagedAgentsSessionEvent, value=event)
        if found.type != event["type"] or found.model_extra:
            problems.append(f"{event}: {found!r}")
    except Exception as error:
        problems.append(f"{event}: {error}")
print(json.dumps(problems))
