"""What a server has after a reload: the models that clients may name and may not, the skill, and the name in its certificate."""

import json
import socket
import ssl

from common import *

root, name, there, not_there, skill = sys.argv[2:]
port = URL.rsplit(":", 1)[1]
context = ssl.create_default_context(cafile=root)
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(port))), server_hostname="localhost") as connection:
    subject = {key: value for pairs in connection.getpeercert()["subject"] for key, value in pairs}
    assert subject["commonName"] == name, subject
client = anthropic.Anthropic(
    base_url=URL, api_key="none", max_retries=0, timeout=60, http_client=anthropic.DefaultHttpxClient(verify=context)
)
assert client.beta.models.retrieve(there).id == "ollama:" + there
try:
    client.beta.models.retrieve(not_there)
    raise AssertionError(f"{not_there} is there")
except anthropic.NotFoundError:
    pass
skills = [{"type": "anthropic", "skill_id": "greeter"}]
try:
    client.beta.agents.create(name="A", model=there, skills=skills)
    assert skill == "skill"
except anthropic.BadRequestError:
    assert skill == "none"
