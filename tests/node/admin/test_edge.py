"""The paths below /v1/edge, of a node whose cluster is a fake."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headwater.edge.status import decode
from headwater.node.links.cluster import Cluster
from tests.node.admin.api import Api
from tests.node.fake_cluster import FakeCluster


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def api(fake: FakeCluster) -> Api:
    api = Api()
    api.broker.cluster = cast(Cluster, fake)
    return api


def test_what_is_answered_can_be_read(api: Api, fake: FakeCluster) -> None:
    assert decode(api.get("/v1/edge")) == fake.edge()


@pytest.mark.parametrize(
    ("path", "order", "done"),
    [
        ("split", {"filter": "plant/1/#", "to": "a"}, ("own", "plant/1/#", "a", False)),
        ("split", {"filter": "plant/1/#", "to": "a", "dry_run": True}, ("own", "plant/1/#", "a", True)),
        ("join", {"filter": "plant/1/#"}, ("own", "plant/1/#", "", False)),
    ],
)
def test_orders(api: Api, fake: FakeCluster, path: str, order: Any, done: tuple[Any, ...]) -> None:
    answer = api.call("POST", f"/v1/edge/{path}", json=order)
    assert (answer.status_code, answer.json()) == (200, {"text": "node a owns plant/1/# from now on"})
    assert fake.orders == [done]


def test_what_cannot_be_done_is_said(api: Api) -> None:
    answer = api.call("POST", "/v1/edge/join", json={"filter": "other/#"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "other/# cannot go to the owner around it")


@pytest.mark.parametrize("order", [{}, {"to": "a"}, {"filter": "", "to": "a"}, {"filter": "x", "to": ""}])
def test_orders_that_are_none(api: Api, fake: FakeCluster, order: Any) -> None:
    assert api.call("POST", "/v1/edge/split", json=order).status_code == 422
    assert fake.orders == []


def test_a_node_of_no_edge(api: Api, fake: FakeCluster) -> None:
    api.broker.cluster = None
    assert api.call("GET", "/v1/edge").status_code == 404
    assert api.call("POST", "/v1/edge/join", json={"filter": "plant/1/#"}).status_code == 404
