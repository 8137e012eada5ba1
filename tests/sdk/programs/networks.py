"""The `networking` of environments is what sessions have: `networks.py URL`, then `networks.py URL SESSION` after a restart.

The server permits `example.com` with its subdomains, a private address with the port 7 and the public registries. Which refusal is told says which list refused.
"""

from common import *

client = client()
UNLISTED = "not on the list of allowed hosts"
hosts = {"own": "10.1.2.3:7", "sub": "a.example.com:80", "other": "other.invalid:80", "registry": "pypi.org:22", "operator": "10.9.9.9:80"}


def create(networking=None, **agent):
    config = {"type": "cloud"} if networking is None else {"type": "cloud", "networking": networking}
    environment = client.beta.environments.create(name=f"environment-{uuid.uuid4()}", config=config)
    agent = client.beta.agents.create(name="A", model="any", tools=[{"type": "agent_toolset_20260401"}], **agent)
    return environment, agent.id


def tell(session, text):
    with client.beta.sessions.events.stream(session) as stream:
        send(client, session, message(text))
        return "".join(texts(until_idle(stream)))


def refusals(session):
    """What the proxy says of each host."""
    command = "; ".join(f"echo {name}: $(curl -sS --max-time 20 http://{host}/ 2>&1 | head -n 1)" for name, host in hosts.items())
    lines = [line.split(": ", 1) for line in tell(session, command).removeprefix("The tool said: ").splitlines() if ": " in line]
    found = {name: text for name, text in lines if name in hosts}
    assert found.keys() == hosts.keys(), found
    return found


def check_limited(session):
    found = refusals(session)
    # It is listed by both, and then refused as a private address.
    assert UNLISTED not in found["own"] and "refused" in found["own"], found
    for name in ["sub", "other", "operator"]:
        assert UNLISTED in found[name], found
    # This registry is listed, and another port of it asked for.
    assert "not listed" in found["registry"] or "port" in found["registry"], found


if len(sys.argv) > 2:
    check_limited(sys.argv[2])
    sys.exit()

for networking in [None, {"type": "unrestricted"}]:
    environment, agent = create(networking)
    assert environment.config.networking.type == "unrestricted"
    session = client.beta.sessions.create(agent=agent, environment_id=environment.id)
    found = refusals(session.id)
    # All that the operator permits, and nothing else.
    assert UNLISTED not in found["own"] and UNLISTED not in found["sub"], found
    assert UNLISTED in found["other"] and UNLISTED in found["operator"], found

limited = {"type": "limited", "allowed_hosts": ["10.1.2.3:7", "other.invalid", "10.9.9.9:80"], "allow_package_managers": True}
# The operator's list has neither `other.invalid` nor `10.9.9.9`.
environment, agent = create(limited)
networking = environment.config.networking
assert (networking.type, networking.allow_mcp_servers, networking.allow_package_managers) == ("limited", False, True)
session = client.beta.sessions.create(agent=agent, environment_id=environment.id)
check_limited(session.id)
# Other sessions of the environment have what it says by then.
client.beta.environments.update(environment.id, config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["a.example.com"]}})
later = client.beta.sessions.create(agent=agent, environment_id=environment.id)
found = refusals(later.id)
assert UNLISTED in found["own"] and UNLISTED not in found["sub"], found
check_limited(session.id)
empty, agent = create({"type": "limited"})
found = refusals(client.beta.sessions.create(agent=agent, environment_id=empty.id).id)
assert all(UNLISTED in text for text in found.values()), found

for host in ["https://example.com", "example.com/path", "*", "a*.example.com", "user@example.com", "a b"]:
    try:
        create({"type": "limited", "allowed_hosts": ["example.com", host]})
    except anthropic.BadRequestError as error:
        assert error.message.count("config.networking.allowed_hosts.1: ") and host in error.message, error.message
    else:
        raise AssertionError(f"{host} was not refused")
try:
    client.beta.environments.update(environment.id, config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["*"]}})
except anthropic.BadRequestError as error:
    assert "unrestricted" in error.message, error.message
else:
    raise AssertionError("it was not refused")

servers = [{"type": "url", "name": "one", "url": "https://mcp.example.com:8443/mcp"}]
toolset = {"type": "mcp_toolset", "mcp_server_name": "one"}
agent = client.beta.agents.create(name="A", model="any", mcp_servers=servers, tools=[toolset]).id
for networking, allowed in [
    ({"type": "unrestricted"}, True),
    ({"type": "limited"}, False),
    ({"type": "limited", "allow_mcp_servers": True}, True),
    ({"type": "limited", "allowed_hosts": ["mcp.example.com:8443"]}, True),
    ({"type": "limited", "allowed_hosts": ["*.example.com"]}, False),
    ({"type": "limited", "allowed_hosts": ["example.com"], "allow_package_managers": True}, False),
]:
    environment, _ = create(networking)
    try:
        client.beta.sessions.create(agent=agent, environment_id=environment.id)
        assert allowed, networking
    except anthropic.BadRequestError as error:
        assert not allowed, (networking, error.message)
        for part in ["environment_id: ", "mcp_servers.0", "allow_mcp_servers", "mcp.example.com:8443"]:
            assert part in error.message, error.message
print(session.id)
