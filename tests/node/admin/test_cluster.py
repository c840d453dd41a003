"""The paths below /v1/cluster, of a node whose cluster is a fake."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headwater.node.admin import cluster as shown
from headwater.node.links import view
from headwater.node.links.cluster import Cluster
from headwater.node.transports.listener import Listener
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


@pytest.mark.parametrize("name", ["NodeView", "LinkView", "ClusterView", "RouteView", "DrainView"])
def test_all_that_can_be_seen_is_shown(name: str) -> None:
    assert list(getattr(shown, name).model_fields) == list(getattr(view, name)._fields)


def test_nodes_and_links(api: Api, fake: FakeCluster) -> None:
    said = api.get("/v1/cluster")
    seen = fake.view()
    assert {name: value for name, value in said.items() if name not in ("nodes", "links")} == {
        name: value for name, value in seen._asdict().items() if name not in ("nodes", "links")
    }
    assert said["nodes"] == [each._asdict() for each in seen.nodes]
    assert said["links"] == [each._asdict() for each in seen.links]
    assert said["links"][1]["round_trip"] is None


def test_what_is_left_of_a_drain(api: Api, fake: FakeCluster) -> None:
    fake.drain("a", False)
    assert api.get("/v1/cluster")["drain"] == {
        "state": "draining",
        "stays": False,
        "clients": 0,
        "sessions": 2,
        "moving": 4,
        "spooled": 6,
        "grouped": 0,
        "wills": 0,
        "waits_for": ["c"],
    }


def test_who_is_not_ready_says_why(api: Api, fake: FakeCluster) -> None:
    api.broker.listeners = [cast(Listener, None)]
    assert api.get("/readyz") == {"status": "ready"}
    fake.not_ready = "draining"
    answer = api.call("GET", "/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "reason": "draining"})


def test_routes_of_a_topic(api: Api) -> None:
    said = api.get("/v1/cluster/routes", params={"topic": "here/1"})
    assert said == {"topic": "here/1", "local": True, "links": ["b"], "is_exact": True, "groups": {}}
    refused = api.call("GET", "/v1/cluster/routes", params={"topic": "here/#"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "the topic name has a wildcard")
    assert api.call("GET", "/v1/cluster/routes").status_code == 422


ORDERS: list[tuple[str, str, Any, tuple[Any, ...]]] = [
    ("POST", "join", {"addresses": ["a:1", "b"]}, ("join", ["a:1", "b"])),
    ("POST", "leave", None, ("leave",)),
    ("POST", "forget", {"node": "c"}, ("forget", "c")),
    ("PUT", "method", {"method": "bloom"}, ("use_method", "bloom")),
    ("POST", "drain", {"node": "a", "stay": True}, ("drain", "a", True)),
    ("POST", "undrain", {"node": "a"}, ("undrain", "a")),
]


@pytest.mark.parametrize(("method", "path", "order", "done"), ORDERS)
def test_orders(api: Api, fake: FakeCluster, method: str, path: str, order: Any, done: tuple[Any, ...]) -> None:
    answer = api.call(method, f"/v1/cluster/{path}", json=order)
    assert (answer.status_code, answer.content) == (204, b"")
    assert fake.orders == [done]


@pytest.mark.parametrize(
    ("method", "path", "order", "detail"),
    [
        ("POST", "join", {"addresses": ["wrong:"]}, "'wrong:' is not of the form host:port"),
        ("POST", "forget", {"node": "b"}, "node b is live; only a dead node, or one that left, can be forgotten"),
        ("PUT", "method", {"method": "shout"}, "there is no method 'shout'"),
        ("POST", "drain", {"node": "b"}, "this is node a: ask node b itself"),
    ],
)
def test_what_cannot_be_done_is_said(api: Api, method: str, path: str, order: Any, detail: str) -> None:
    answer = api.call(method, f"/v1/cluster/{path}", json=order)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


@pytest.mark.parametrize("order", [{}, {"addresses": []}, {"addresses": [""]}, {"addresses": ["a"] * 65}])
def test_orders_that_are_none(api: Api, fake: FakeCluster, order: Any) -> None:
    assert api.call("POST", "/v1/cluster/join", json=order).status_code == 422
    assert fake.orders == []


def test_a_node_that_is_alone_says_so() -> None:
    alone = Api()
    asked = [("GET", "", None, ()), ("GET", "routes?topic=x", None, ()), *ORDERS]
    for method, path, order, _ in asked:
        answer = alone.call(method, f"/v1/cluster/{path}".rstrip("/"), json=order)
        assert (answer.status_code, "--cluster NAME" in answer.json()["detail"]) == (404, True), path


def test_the_token_is_asked_for(api: Api) -> None:
    assert api.call("GET", "/v1/cluster", token=None).status_code == 401
    assert api.call("POST", "/v1/cluster/leave", token=None).status_code == 401


def test_the_paths_are_described() -> None:
    described = Api().app.openapi()["paths"]
    paths = {path: set(operations) for path, operations in described.items() if path.startswith("/v1/cluster")}
    assert paths == {
        "/v1/cluster": {"get"},
        "/v1/cluster/routes": {"get"},
        "/v1/cluster/join": {"post"},
        "/v1/cluster/leave": {"post"},
        "/v1/cluster/forget": {"post"},
        "/v1/cluster/drain": {"post"},
        "/v1/cluster/undrain": {"post"},
        "/v1/cluster/method": {"put"},
    }
    for path in paths:
        for operation in described[path].values():
            assert operation["description"] and {"400", "401", "404"} <= operation["responses"].keys()
