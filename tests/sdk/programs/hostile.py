"""What no client of good will sends: other hosts, headers within names, paths that lead elsewhere, broken requests and archives."""

import io
import json
import random
import socket
import zipfile

from common import *

client = client()
host, port = URL.removeprefix("http://").split(":")


def raw(request, read=True):
    """Sends bytes; returns the head and the body of the answer."""
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        if not read:
            return b"", b""
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        head, _, body = answer.partition(b"\r\n\r\n")
        return head, body


def ask(path, method="GET", headers=("Host: localhost",), body=b"", version="1.1"):
    """The status and the body of an answer."""
    lines = [f"{method} {path} HTTP/{version}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    head, body = raw("\r\n".join(lines).encode() + body)
    return int(head.split(b" ")[1]) if head else 0, body


# Whoever is not of this machine, by the name that they use (DNS rebinding).
for headers in [
    ["Host: rebound.example.com"],
    [f"Host: rebound.example.com:{port}"],
    ["Host: localhost.example.com"],
    ["Host: 127.0.0.1.nip.io"],
    ["Host: 10.0.0.1"],
    ["Host: "],
    [],
    ["Host: localhost", "Origin: https://example.com"],
    ["Host: localhost", "Origin: null"],
    ["Host: localhost", "Origin: http://localhost.example.com"],
    ["Host: rebound.example.com", "X-Forwarded-Host: localhost"],
    ["Host: rebound.example.com", "Host: localhost"],
    ["Host: localhost", "Host: rebound.example.com"],
]:
    for method in ["GET", "POST"]:
        status, body = ask("/v1/sessions", method, headers)
        assert status in (400, 403) and b"sesn_" not in body, (headers, status, body)
assert ask("/v1/sessions", headers=[], version="1.0")[0] == 403
assert ask("/v1/sessions")[0] == 200 and ask("/v1/sessions", headers=["Host: localhost", f"Origin: {URL}"])[0] == 200

# Paths that lead elsewhere, and ids of another form.
secret = "/etc/passwd"
for id in [
    "..",
    "../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%5c..",
    "%00",
    "file_%00",
    "%ff%fe",
    "%F0%9F%A6%80",
    "a" * 4_000,
    "file_" + "0" * 31,
    "file_" + "0" * 33,
    "FILE_" + "0" * 32,
    "file_" + "G" * 32,
    "sesn_" + "0" * 32,
    "-1",
    "%0d%0aset-cookie:%20a=b",
]:
    for path in [
        f"/v1/files/{id}",
        f"/v1/files/{id}/content",
        f"/v1/skills/{id}",
        f"/v1/skills/{id}/versions/latest/content",
        f"/v1/agents/{id}",
        f"/v1/environments/{id}",
        f"/v1/sessions/{id}",
        f"/v1/sessions/{id}/events",
        f"/v1/sessions/{id}/events/stream",
        f"/v1/models/{id}",
    ]:
        head, body = raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        status = int(head.split(b" ")[1])
        is_model = path.startswith("/v1/models") and status == 200
        assert status in (400, 404, 405) or is_model, (path, head)
        assert b"root:" not in body and b"set-cookie" not in head.lower(), (path, head)

# Names that would be further headers come back as one header.
for name in ['a\r\nset-cookie: a=b', 'a"; filename="b', "a\nb", "ä\u2028b", "a\0b", "a" * 300, "..", "/", "CON.txt"]:
    part = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/html\r\n set-cookie: x'
    body = b"--b\r\n" + part.encode() + b"\r\n\r\ntext\r\n--b--\r\n"
    headers = ["Host: localhost", "Content-Type: multipart/form-data; boundary=b"]
    status, answer = ask("/v1/files", "POST", headers, body)
    assert status in (200, 400), (name, status, answer)
    if status != 200:
        continue
    made = json.loads(answer)
    assert "/" not in made["filename"] and "\n" not in made["filename"], made
    head, content = raw(f"GET /v1/files/{made['id']}/content HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert content == b"text" and b"set-cookie" not in names, head
    assert names.count(b"content-disposition") == 1 and b"x-content-type-options" in names, head

# Archives that lead out of their directory, hold links, or are larger than they look.
SKILL = b"---\nname: greeter\ndescription: Greets people\n---\nSay hello.\n"


def archive(*entries, compression=zipfile.ZIP_DEFLATED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as written:
        written.writestr("greeter/SKILL.md", SKILL)
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = compression
            entry.external_attr = mode << 16
            written.writestr(entry, content)
    return data.getvalue()


def refused(files):
    try:
        client.beta.skills.create(files=files)
    except (anthropic.BadRequestError, anthropic.RequestTooLargeError) as error:
        assert error.body["type"] == "error" and "/tmp" not in str(error.body), error.body
        return
    raise AssertionError(f"{[name for name, _ in files]} was taken")


FILE, LINK, DEVICE = 0o100644, 0o120777, 0o020666
bomb = archive(*[(f"greeter/{number}", b"\0" * 10_000_000, FILE) for number in range(64)])
assert len(bomb) < 1_000_000
for entry in [
    ("../evil", b"", FILE),
    ("greeter/../../evil", b"", FILE),
    ("/evil", b"", FILE),
    ("C:\\evil", b"", FILE),
    ("greeter\\..\\..\\evil", b"", FILE),
    ("greeter/link", b"/etc/passwd", LINK),
    ("greeter/link", b"../../../etc", LINK),
    ("greeter/null", b"", DEVICE),
    ("elsewhere/a", b"", FILE),
    ("greeter/SKILL.md", SKILL, FILE),
]:
    refused([("a.zip", archive(entry))])
refused([("a.zip", bomb)])
refused([("a.zip", archive(*[(f"greeter/{number}", b"", FILE) for number in range(20_000)]))])
refused([("a.tar", b"greeter/SKILL.md".ljust(512, b"\0"))])
refused([("greeter/SKILL.md", SKILL)] + [("greeter/" + "a/" * 100 + "b", b"")])

# Any bytes are a request that is refused, and the server goes on.
numbers = random.Random(25)
good = archive()
for _ in range(300):
    broken = bytearray(good)
    for _ in range(numbers.randint(1, 8)):
        broken[numbers.randrange(len(broken))] = numbers.randrange(256)
    try:
        client.beta.skills.delete(client.beta.skills.create(files=[("a.zip", bytes(broken))]).id)
    except (anthropic.BadRequestError, anthropic.RequestTooLargeError):
        pass
form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ntext\r\n--b--\r\n'
for path in ["/v1/files", "/v1/skills", "/v1/skills/skill_" + "0" * 32 + "/versions"]:
    for _ in range(200):
        broken = bytearray(form)
        for _ in range(numbers.randint(1, 6)):
            place = numbers.randrange(len(broken))
            broken[place : place + numbers.randint(0, 3)] = numbers.randbytes(numbers.randint(0, 3))
        headers = ["Host: localhost", "Content-Type: multipart/form-data; boundary=b"]
        status, answer = ask(path, "POST", headers, bytes(broken))
        assert status in (200, 400, 404, 413), (path, bytes(broken), answer)
posts = ["/v1/agents", "/v1/environments", "/v1/sessions", "/v1/messages", "/v1/messages/count_tokens"]
for path in posts:
    for body in [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":' * 10_000, b"1" * 100_000, numbers.randbytes(500)]:
        status, answer = ask(path, "POST", body=body)
        assert status == 400 and json.loads(answer)["type"] == "error", (path, status, answer)
for _ in range(200):
    raw(numbers.randbytes(numbers.randint(1, 300)) + b"\r\n\r\n")
# A client that goes away in the middle, and one that announces more than it may send.
raw(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", read=False)
head, _ = raw(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\nConnection: close\r\n\r\n{")
assert head.startswith(b"HTTP/1.1 413 "), head
head, _ = raw(b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/agents HTTP/1.1\r\n\r\n")
assert head.startswith(b"HTTP/1.1 400 "), head
assert ask("/healthz")[0] == 200 and ask("/readyz")[0] == 200
