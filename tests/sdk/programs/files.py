import asyncio
import hashlib
import io
import os
import pathlib
import tempfile

from common import *

client = client()
files = client.beta.files
bad, missing = anthropic.BadRequestError, anthropic.NotFoundError


def refused(kind, call, *arguments, **named):
    try:
        list(call(*arguments, **named))
    except kind as error:
        return error
    raise AssertionError("it was not refused")


made = files.upload(file=("data/in.csv", b"a,b\n1,2\n", "text/csv"))
assert (made.filename, made.mime_type, made.size_bytes, made.type) == ("in.csv", "text/csv", 8, "file")
assert (made.scope, made.expires_at, made.downloadable) == (None, None, True)
assert files.retrieve_metadata(made.id) == made
answer = files.download(made.id)
assert answer.read() == b"a,b\n1,2\n" and answer.headers["content-type"] == "text/csv"
assert answer.headers["content-disposition"].startswith('attachment; filename="in.csv"')
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "note.txt"
    path.write_text("A note.")
    note = files.upload(file=path, expires_in_seconds=3600)
    assert (note.filename, note.mime_type) == ("note.txt", "text/plain")
    assert 3_599 <= (note.expires_at - note.created_at).total_seconds() <= 3_601
    files.download(note.id).write_to_file(path)
    assert path.read_text() == "A note."
nameless = files.upload(file=("", b"\x89PNG\r\n\x1a\n0000"))
assert (nameless.filename, nameless.mime_type) == ("unnamed.png", "image/png"), nameless
empty = files.upload(file=("empty.bin", b""))
assert empty.size_bytes == 0 and files.download(empty.id).read() == b""
odd = files.upload(file=('ä"\\.txt', b"odd"))
assert files.download(odd.id).read() == b"odd"

# Larger than what the server keeps in memory at a time, and twice the same content.
large = os.urandom(1 << 20) * 40
for _ in range(2):
    uploaded = files.upload(file=("large.bin", io.BytesIO(large)))
    digest = hashlib.sha256()
    with files.with_streaming_response.download(uploaded.id) as answer:
        for chunk in answer.iter_bytes(1 << 20):
            digest.update(chunk)
    assert digest.digest() == hashlib.sha256(large).digest() and uploaded.size_bytes == len(large)

everything = [found.id for found in files.list(limit=2)]
assert len(everything) == 7 and everything[-1] == made.id and len(set(everything)) == 7
assert [found.id for found in files.list(ids=[made.id, "file_1", note.id, made.id])] == [made.id, note.id]
assert not list(files.list(scope_id="sesn_00000000000000000000000000000001"))
refused(bad, files.list, ids=[made.id], limit=3)
refused(bad, files.list, limit=1001)
refused(bad, files.upload, file=("a", b"a"), expires_in_seconds=10)


# The lists of older clients.
def page(**query):
    return client.get("/v1/files", cast_to=object, options={"params": {"limit": 2, **query}})


first = page()
assert first["has_more"] and (first["first_id"], first["last_id"]) == (everything[0], everything[1])
second = page(after_id=first["last_id"])
assert [found["id"] for found in second["data"]] == everything[2:4] and second["has_more"]
before = page(before_id=everything[3])
assert [found["id"] for found in before["data"]] == everything[1:3] and before["has_more"]
before = page(before_id=everything[2])
assert [found["id"] for found in before["data"]] == everything[:2] and not before["has_more"]

deleted = files.delete(made.id)
assert (deleted.id, deleted.type) == (made.id, "file_deleted")
for call in [files.retrieve_metadata, files.download, files.delete]:
    refused(missing, call, made.id)
    refused(missing, call, "nothing")
    refused(missing, call, "file_00000000000000000000000000000001")


async def main():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=True) as client:
        files = client.beta.files
        made = await files.upload(file=("a.txt", b"async"))
        assert await (await files.download(made.id)).read() == b"async"
        assert (await files.retrieve_metadata(made.id)).filename == "a.txt"
        assert made.id in [found.id async for found in files.list(limit=2)]
        assert (await files.delete(made.id)).type == "file_deleted"


asyncio.run(main())
