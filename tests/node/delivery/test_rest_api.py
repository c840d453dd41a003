"""Whatever schemathesis can think of, asked of a live node: broker, store and REST together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from headwater.message import Message
from headwater.store.disk_store import DiskStore
from tests.node.delivery.node import Node, running

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    store = DiskStore(tmp_path_factory.mktemp("data") / "messages", block_messages=7)
    with running(store=store) as node:
        for index in range(20):
            node.do(lambda index=index: node.broker.publish(Message(f"t/{index % 3}", b'{"value": %d}' % index, 1)))
        yield node
        assert node.broker.failure is None
        assert node.broker.server.stats.failures == 0


def test_whatever_is_asked_the_answer_is_as_described(node: Node) -> None:
    # A tail has no end: tests/store/rest/test_tail.py.
    schema = schemathesis.openapi.from_url(f"{node.url}/v1/openapi.json").exclude(path="/v1/tail")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 16
    for operation in operations:

        @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        ask()
