"""Each key may make so many requests in a minute: the SDK waits and repeats. And the metrics that tell of it."""

import urllib.error
import urllib.request

from common import *

ADMIN, READER = sys.argv[2:]


def client_of(key, **options):
    options = {"max_retries": 0, **options}
    return anthropic.Anthropic(base_url=URL, api_key=key, _strict_response_validation=True, timeout=60, **options)


reader = client_of(READER)
answered = 0
try:
    while answered < 1_000:
        reader.beta.agents.list()
        answered += 1
except anthropic.RateLimitError as error:
    assert error.body["error"]["type"] == "rate_limit_error", error
    assert int(error.response.headers["retry-after"]) >= 1, error.response.headers
# A minute's worth came at once, and a few more while it went on.
assert 120 <= answered < 1_000, answered
# The SDK waits for as long as it is told, and repeats.
assert client_of(READER, max_retries=5).beta.agents.list().data == []
# Another key has its own minute.
assert client_of(ADMIN).beta.agents.list().data == []


def metrics(key):
    request = urllib.request.Request(URL + "/metrics", headers={"x-api-key": key})
    return urllib.request.urlopen(request)


try:
    metrics(READER)
    raise AssertionError("the key lacks the scope")
except urllib.error.HTTPError as error:
    assert error.code in (403, 429), error
answer = metrics(ADMIN)
assert answer.headers["content-type"].startswith("text/plain")
samples = {}
for line in answer.read().decode().splitlines():
    if line and not line.startswith("#"):
        name, value = line.rsplit(" ", 1)
        samples[name] = float(value)
refused = 'conjure_http_requests_total{route="/v1/agents",method="GET",status="429"}'
listed = 'conjure_http_requests_total{route="/v1/agents",method="GET",status="200"}'
assert samples[refused] >= 1 and samples[listed] >= answered, {k: v for k, v in samples.items() if "requests" in k}
assert any(name.startswith("conjure_http_request_duration_seconds_bucket") for name in samples)
assert any(name.startswith("conjure_admission_admitted") for name in samples), sorted(samples)
print("done")
