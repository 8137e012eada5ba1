"""`web_fetch` reaches no address of this machine or its network, in whatever notation (SSRF)."""

import socket

from common import *

listener = socket.create_server(("0.0.0.0", 0))
port = listener.getsockname()[1]
listener.setblocking(False)
client = client()
networks = [{"type": "unrestricted"}, {"type": "limited", "allowed_hosts": ["example.com"]}]
if sys.argv[2] == "refused":
    networks.pop()
agent = client.beta.agents.create(name="A", model="any", tools=[{"type": "agent_toolset_20260401"}]).id
hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", socket.gethostname()]
urls = [f"https://{host}:{port}/" for host in hosts] + [f"http://127.0.0.1:{port}/"]
urls += ["https://other.invalid/"] if sys.argv[2] == "limited" else []
urls += ["https://169.254.169.254/latest/meta-data/", "https://[fe80::1]/", "https://10.0.0.1/", "file:///etc/passwd"]
urls += [f"https://example.com@127.0.0.1:{port}/", "gopher://127.0.0.1/", "https://metadata.google.internal/"]
for number, network in enumerate(networks):
    config = {"type": "cloud", "networking": network}
    environment = client.beta.environments.create(name=f"network {number}", config=config).id
    for url in urls:
        session = client.beta.sessions.create(agent=agent, environment_id=environment).id
        with client.beta.sessions.events.stream(session) as stream:
            send(client, session, message(url))
            events = until_idle(stream)
        [result] = [event for event in events if event.type == "agent.tool_result"]
        assert result.is_error, (url, result)
        told = result.content[0].text
        assert "root:" not in told, (url, told)
        try:
            connection, _ = listener.accept()
            raise AssertionError(f"{url} was connected to")
        except BlockingIOError:
            pass
        if number == 0 and url.startswith("https://127.0.0.1"):
            assert "is blocked" in told, told
        if url == "https://other.invalid/":
            # Where it is permitted, its name cannot be resolved.
            assert ("is blocked" in told) == (number == 1), told
if sys.argv[2] == "refused":
    config = {"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["example.com"]}}
    environment = client.beta.environments.create(name="refused", config=config).id
    try:
        client.beta.sessions.create(agent=agent, environment_id=environment)
    except anthropic.BadRequestError as error:
        assert "environment_id: " in error.message and "`local`" in error.message and "unrestricted" in error.message, error.message
    else:
        raise AssertionError("a limit that is not kept was accepted")
