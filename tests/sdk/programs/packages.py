"""An index of packages, and environments with packages of it. Prints the id of a session that has them."""

import http.server
import pathlib
import threading

from common import *
from wheels import wheel

home, index = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


wheel(index, "greeter", "1.0", {"greeter.py": "GREETING = 'one'\n"})
wheel(index, "greeter", "2.0", {"greeter.py": "GREETING = 'two'\n"})
asked = []


class Index(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=index)

    def log_message(self, *arguments):
        asked.append(self.path)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
threading.Thread(target=server.serve_forever, daemon=True).start()
(home / ".config/pip").mkdir(parents=True)
(home / ".config/pip/pip.conf").write_text(f"[global]\nindex-url = http://127.0.0.1:{server.server_port}\n")

client = client()
agent = client.beta.agents.create(
    name="A", model="claude-sonnet-4-5", tools=[{"type": "agent_toolset_20260401"}]
)


def opened(*packages):
    environment = client.beta.environments.create(
        name=f"environment-{uuid.uuid4()}", config={"type": "cloud", "packages": {"pip": list(packages)}}
    )
    return client.beta.sessions.create(agent=agent.id, environment_id=environment.id).id


def told(id):
    with client.beta.sessions.events.stream(id) as stream:
        send(client, id, message("Go"))
        events = until_idle(stream)
    [result] = [event for event in events if event.type == "agent.tool_result"]
    return result.content[0].text


# Two sessions at once install once, and another list is apart.
results = {}
run = lambda name, id: results.update({name: told(id)})
sessions = {name: opened("greeter < 2") for name in "ab"} | {"c": opened("greeter")}
threads = [threading.Thread(target=run, args=item) for item in sessions.items()]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert [results[name].strip() for name in "abc"] == ["one", "one", "two"], results
fetched = [path for path in asked if path.endswith("greeter-1.0-py3-none-any.whl")]
assert len(fetched) == 1, asked

# What is not there is an error that says so. Once it is there, the next call has it.
missing = opened("greeter==3.0")
failed = told(missing)
assert "could not be installed" in failed and "greeter==3.0" in failed, failed
wheel(index, "greeter", "3.0", {"greeter.py": "GREETING = 'three'\n"})
assert told(missing).strip() == "three"
print(sessions["a"])
