"""Health, readiness, metrics and the description of the API."""

from __future__ import annotations

import asyncio
from typing import cast

import schemathesis
from hypothesis import HealthCheck, settings
from prometheus_client.parser import text_string_to_metric_families

from headwater.message import Message
from headwater.node.admin.app import make_app
from headwater.node.admin.desk import Desk
from headwater.node.admin.local import LocalReach
from headwater.node.admin.token import FixedToken
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.links.cluster import Cluster
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from tests.node.admin.api import TOKEN, Api, admin
from tests.node.fake_cluster import FakeCluster


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_alive_is_not_yet_ready() -> None:
    api = Api()
    assert api.get("/healthz", token=None) == {"status": "ok"}
    answer = api.call("GET", "/readyz", token=None)
    assert (answer.status_code, answer.json()) == (
        503,
        {"status": "not ready", "reason": "the broker has not started, or stops"},
    )


def test_ready_while_it_listens() -> None:
    async def main() -> None:
        api = Api()
        config = Config(host="127.0.0.1", port=0, sys_interval=0)
        async with Broker(config) as broker:
            api.app = make_app(LocalReach(Desk(broker)), FixedToken(admin()))
            assert (await asyncio.to_thread(api.call, "GET", "/readyz", token=None)).status_code == 200
        assert (await asyncio.to_thread(api.call, "GET", "/readyz", token=None)).status_code == 503

    asyncio.run(main())


def test_metrics_need_the_token_unless_they_are_open() -> None:
    api = Api()
    for token in (None, TOKEN + "x"):
        assert api.call("GET", "/metrics", token=token).status_code == 401
    assert api.call("GET", "/metrics").status_code == 200
    api.app = make_app(LocalReach(api.desk), FixedToken(admin(open_metrics=True)))
    assert api.call("GET", "/metrics", token=None).status_code == 200
    assert api.call("GET", "/v1/groups", token=None).status_code == 401


def test_metrics_say_what_the_broker_does() -> None:
    api = Api()
    publisher = api.client("p")
    api.client("a", "x/#", "$share/g/x/+")
    api.client("b", "$share/g/x/+").lose()
    api.broker.publish(Message("x/1", b"abc", 0, True))
    publisher.feed(b"\x30\x06\x00\x03x/1\x00")
    answer = api.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    said = samples(answer.text)
    assert said["headwater_connections",] == 2
    assert said["headwater_subscriptions",] == 2
    assert said["headwater_retained_messages",] == 1
    assert said["headwater_messages_received_total",] == 1
    assert said["headwater_messages_sent_total",] == 4
    assert said["headwater_shared_group_messages_sent_total", "$share/g/x/+"] == 2
    assert said["headwater_shared_group_waiting_messages", "$share/g/x/+"] == 0
    assert said["headwater_shared_group_members", "$share/g/x/+", "ready"] == 1
    assert said["headwater_shared_group_members", "$share/g/x/+", "busy"] == 0
    assert said["headwater_received_bytes_total",] == api.broker.statistics().bytes_received
    assert ("process_resident_memory_bytes",) in said


def test_the_description_names_the_token_and_no_other_server() -> None:
    description = Api().app.openapi()
    assert description["components"]["securitySchemes"] == {
        "HTTPBearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "The token of the setting `admin.token` or `admin.token_file`.",
        }
    }
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in ("/healthz", "/readyz"))


fuzzed = Api()
fuzzed.broker.listeners = [Listener(ListenerSettings(port=0))]  # ready
for name in ("a", "b"):
    fuzzed.client(name, "x/#", "$share/g/jobs/+")
fuzzed.broker.publish(Message("x/1", b"abc", 0, True))
fuzzed.broker.cluster = cast(Cluster, FakeCluster())
# A trace goes on for as long as it is told to: tests/node/protocol/test_tracing.py.
schema = schemathesis.openapi.from_asgi("/openapi.json", fuzzed.app).exclude(path="/v1/trace")

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@schema.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_the_answer_is_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS)
