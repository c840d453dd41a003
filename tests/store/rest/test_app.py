"""REST as a whole: health, its description, whatever schemathesis can think of, and what strangers learn: nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from headwater.store.memory import MemoryStore
from headwater.store.rest.app import make_app
from headwater.store.rest.context import Limits
from tests.store.messages import MICROSECONDS, Writer, payload
from tests.store.rest.served import EVERYTHING, Served, SomeGate

# ---- health and description ----------------------------------------------------------------------------------------


def test_health_needs_nobody(quick: Served) -> None:
    for path, said in (("/health", {"status": "ok"}), ("/ready", {"status": "ready"})):
        assert quick.get(path, token=None) == said
        assert quick.call("HEAD", path, token=None).status_code == 200
    quick.gate.ready = False
    try:
        answer = quick.call("GET", "/ready", token=None)
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert quick.call("GET", "/health", token=None).status_code == 200
    finally:
        quick.gate.ready = True


def test_everything_is_described(quick: Served) -> None:
    description = quick.get("/v1/openapi.json", token=None)
    assert set(description["components"]["securitySchemes"]) == {"password", "token"}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            assert ("security" in operation) == (path not in ("/health", "/ready"))
            assert operation.get("description") or method == "get", (path, method)
            for parameter in operation.get("parameters", []):
                assert parameter.get("description") or parameter["in"] == "path", (path, parameter["name"])


def test_errors_have_one_shape(quick: Served) -> None:
    assert quick.refusal("GET", "/nothing") == (404, "Not Found")
    assert quick.refusal("POST", "/v1/messages")[0] == 405
    assert quick.refusal("GET", "/v1/topics/a")[0] == 405
    assert quick.refusal("GET", "/v1/messages/")[0] == 404


def test_a_failure_of_ours_is_told_without_its_reasons(quick: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(query: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(quick.store, "select", broken)
    for form in ("json", "csv"):
        answer = quick.call("GET", "/v1/messages", {"format": form})
        assert (answer.status_code, answer.json()["error"]) == (500, "failed")
        assert b"secret" not in answer.content


# ---- schemathesis --------------------------------------------------------------------------------------------------

TOKEN = {"Authorization": f"Bearer {EVERYTHING}"}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


def some_app() -> Any:
    store = MemoryStore("s1", MICROSECONDS)
    writer = Writer(store)
    for index in range(20):
        writer.take(
            f"t/{index % 3}", payload(value=index) if index % 4 else b"\xff", properties=b'{"user":[["a","b"]]}'
        )
    writer.sync()
    store.commit("lake", 3)
    return make_app(store, SomeGate(store), Limits(page=50))


# A tail has no end: tests/store/rest/test_tail.py.
schema = schemathesis.openapi.from_asgi("/v1/openapi.json", some_app()).exclude(path="/v1/tail")


@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_the_answer_is_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(headers=TOKEN, checks=CHECKS)


# ---- strangers -----------------------------------------------------------------------------------------------------

SECRETS = ["secret/1", "secret/deep/2", "mine-not", "$internal/x"]
PATHS = [
    ("GET", "/v1/messages"),
    ("GET", "/v1/messages?format=ndjson"),
    ("GET", "/v1/messages?format=csv"),
    ("GET", "/v1/messages?format=arrow"),
    ("GET", "/v1/messages?topic=secret/%23"),
    ("GET", "/v1/messages?topic=secret/1&limit=1"),
    ("GET", "/v1/messages?min=0&max=100"),
    ("GET", "/v1/messages?from=2000-01-01&to=2100-01-01"),
    ("GET", "/v1/topics"),
    ("GET", "/v1/topics?filter=secret/%2B"),
    ("GET", "/v1/topics?after=secret"),
    *[("GET", f"/v1/topics/{topic}/latest") for topic in SECRETS],
    *[("HEAD", f"/v1/topics/{topic}/latest") for topic in SECRETS],
    *[("PUT", f"/v1/topics/{topic}") for topic in SECRETS],
    ("GET", "/v1/store"),
    ("GET", "/v1/readers"),
    ("GET", "/v1/readers/secret-reader"),
    ("PUT", "/v1/readers/secret-reader"),
    ("DELETE", "/v1/readers/secret-reader"),
    ("GET", "/v1/tail?after=x"),
]


def answers(served: Served, token: str | None) -> list[tuple[int, dict[str, str], bytes]]:
    found = []
    for method, path in PATHS:
        body = {"content": json.dumps({"position": 0}).encode()} if method == "PUT" else {}
        answer = served.call(method, path, token=token, **body)
        found.append((answer.status_code, dict(answer.headers), answer.content))
    return found


@pytest.mark.parametrize("filters", [None, [], ["mine/#"], ["mine"]], ids=str)
def test_who_may_not_know_of_a_topic_sees_no_difference(quick: Served, filters: list[str] | None) -> None:
    """The same questions to a store with the secrets and to one without them."""
    token = None if filters is None else "eve"
    if filters is not None:
        quick.add("eve", *filters)
    seen = []
    for secrets in (SECRETS, []):
        quick.use(MemoryStore("s1", MICROSECONDS))
        quick.writer.take("mine/1", payload(value=1))
        quick.writer.take("mine", payload(value=2))
        quick.writer.sync()
        for topic in secrets:
            quick.writer.take(topic, payload(value=50), publisher="secret-device")
        quick.writer.sync()
        if secrets:
            quick.store.commit("secret-reader", 3)
        seen.append(answers(quick, token))
    for path, with_secrets, without in zip(PATHS, *seen, strict=True):
        assert with_secrets == without, path
        assert b"secret-device" not in with_secrets[2]
        if filters is None:
            assert with_secrets[0] == 401 and with_secrets[1]["www-authenticate"].startswith("Basic ")
    assert quick.gate.published == []


def test_pages_of_other_web_sites_may_not_ask(quick: Served) -> None:
    for origin, status in (("http://evil.example", 403), ("null", 403), (quick.url, 200)):
        assert quick.call("GET", "/v1/topics", headers={"Origin": origin}).status_code == status
    assert quick.refusal("PUT", "/v1/topics/a", headers={"Origin": "http://evil.example"})[0] == 403
    assert quick.gate.published == []


def test_who_comes_is_told_to_the_gate(quick: Served) -> None:
    quick.call("GET", "/v1/topics")
    approach = quick.gate.approaches[-1]
    assert approach.authorization == f"Bearer {EVERYTHING}"
    assert approach.address.startswith("127.0.0.1:") and approach.host == quick.url.removeprefix("http://")
