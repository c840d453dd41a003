"""Each path of the admin API: what it shows and what it changes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.message import Message
from headwater.node.admin import desk, views
from headwater.node.persistence.persistence import Persistence
from headwater.node.persistence.rocks import RocksBackend
from headwater.node.persistence.schema import open_folder
from headwater.wire.packets import Connect, Disconnect, Properties, Publish, Subscribe, SubscribeRequest, Will
from tests.node.admin.api import TOKEN, Api
from tests.node.memory import Client

KEPT = Properties(session_expiry_interval=3600)


@pytest.fixture
def api() -> Api:
    return Api()


def test_statistics(api: Api) -> None:
    api.client("a", "x/#")
    said = api.get("/v1/statistics")
    assert (said["connections"], said["subscriptions"], said["sessions"]) == (1, 1, 1)


def test_a_client(api: Api) -> None:
    api.client("a/b c", "x", username="u", password=b"hidden", keep_alive=30, will=Will("w", b"gone"))
    said = api.get("/v1/clients/a%2Fb%20c")
    assert (said["client_id"], said["username"], said["protocol"], said["keep_alive"]) == ("a/b c", "u", "5.0", 30)
    assert said["address"].startswith("memory:") and said["session"]["will"] == "w"
    assert (said["session"]["subscriptions"], said["session"]["online"]) == (1, True)
    assert "hidden" not in str(said)
    assert api.call("GET", "/v1/clients/z").status_code == 404


def test_clients_are_those_that_are_connected(api: Api) -> None:
    api.client("a", version=4)
    api.client("b", properties=KEPT).lose()
    Client(api.memory)  # has not said CONNECT
    [page] = api.pages("/v1/clients", "offset")
    assert [(each["client_id"], each["protocol"]) for each in page] == [("a", "3.1.1")]
    assert api.call("GET", "/v1/clients/b").status_code == 404


@pytest.mark.parametrize("path", ["/v1/clients", "/v1/sessions"])
def test_pages_are_bounded_and_lead_to_all(api: Api, path: str) -> None:
    names = {f"c{number}" for number in range(25)}
    for name in names:
        api.client(name)
    pages = api.pages(path, "offset", limit=10)
    assert [len(page) for page in pages] == [10, 10, 5]
    assert {each["client_id"] for page in pages for each in page} == names
    assert api.get(path, params={"offset": 1000}) == {"items": [], "next": None}
    assert api.call("GET", path, params={"limit": views.MOST_ITEMS + 1}).status_code == 422
    assert api.call("GET", path, params={"offset": -1}).status_code == 422


def test_a_session_without_its_client(api: Api) -> None:
    client = api.client("a", "x", properties=KEPT)
    client.lose()
    api.broker.publish(Message("x", b"1", 1))
    said = api.get("/v1/sessions/a")
    assert (said["online"], said["queued"], said["expiry_interval"]) == (False, 1, 3600)
    assert 0 < said["expires_in"] <= 3600
    assert api.call("GET", "/v1/sessions/z").status_code == 404


def test_kick_ends_the_connection_and_not_the_session(api: Api) -> None:
    client = api.client("a", properties=KEPT)
    assert api.call("POST", "/v1/kick", json={"client_id": "a"}).status_code == 204
    assert client.packets() == [Disconnect(0x98)]
    assert api.get("/v1/sessions/a")["online"] is False
    assert api.call("POST", "/v1/kick", json={"client_id": "a"}).status_code == 404
    assert api.call("POST", "/v1/kick", json={"client_id": "a", "reason": 0}).status_code == 422


@pytest.mark.parametrize(
    ("kind", "value", "shown"), [("client", "a", "a"), ("user", "u", "u"), ("address", "192.0.2.7", "192.0.2.7")]
)
def test_a_ban_lasts_until_it_is_lifted(api: Api, kind: str, value: str, shown: str) -> None:
    client = api.client("a", username="u")
    client.channel.address = "192.0.2.7:5"
    order = {"kind": kind, "value": value, "seconds": 100, "reason": "noise"}
    answer = api.call("POST", "/v1/bans", json=order)
    assert (answer.status_code, answer.json()["value"], answer.json()["reason"]) == (201, shown, "noise")
    assert isinstance(client.packets()[0], Disconnect)
    [[listed]] = api.pages("/v1/bans", "offset")
    assert 0 < listed["remaining"] <= 100
    again = Client(api.memory)
    again.channel.address = "192.0.2.7:6"
    assert again.connect(Connect("a", 5, username="u")).reason == 0x8A
    assert api.call("DELETE", "/v1/bans", params={"kind": kind, "value": value}).status_code == 204
    assert api.pages("/v1/bans", "offset") == [[]]
    assert Client(api.memory).connect(Connect("a", 5, username="u")).reason == 0
    assert api.call("DELETE", "/v1/bans", params={"kind": kind, "value": value}).status_code == 404


def test_what_cannot_be_banned(api: Api) -> None:
    assert api.call("POST", "/v1/bans", json={"kind": "colour", "value": "a"}).status_code == 422
    assert api.call("POST", "/v1/bans", json={"kind": "client", "value": "a"}).json()["remaining"] is None


@pytest.mark.parametrize("online", [True, False])
def test_a_session_can_be_ended(api: Api, online: bool) -> None:
    client = api.client("a", "x", properties=KEPT)
    if not online:
        client.lose()
    assert api.call("DELETE", "/v1/sessions/a").status_code == 204
    assert api.call("GET", "/v1/sessions/a").status_code == 404
    assert api.broker.statistics().subscriptions == 0
    assert api.call("DELETE", "/v1/sessions/a").status_code == 404


def test_subscriptions_of_all_and_of_one(api: Api) -> None:
    api.client("none")
    api.client("a", *(f"a/{number}" for number in range(7)))
    api.client("b", "$share/g/jobs/#")
    pages = api.pages("/v1/subscriptions", "after", limit=3)
    assert max(len(page) for page in pages) == 3
    assert [each["filter"] for page in pages for each in page] == [*(f"a/{n}" for n in range(7)), "$share/g/jobs/#"]
    [page] = api.pages("/v1/subscriptions", "after", client_id="b")
    assert page == [
        {
            "client_id": "b",
            "filter": "$share/g/jobs/#",
            "qos": 1,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
            "identifier": None,
            "condition": None,
        }
    ]
    pages = api.pages("/v1/subscriptions", "after", client_id="a", limit=3)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert api.call("GET", "/v1/subscriptions", params={"after": "x"}).status_code == 422


def test_a_page_looks_at_a_bounded_number_of_sessions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_LOOKED_AT", 5)
    for number in range(12):
        api.client(f"c{number}", *(["x"] if number == 11 else []))
    assert [len(page) for page in api.pages("/v1/subscriptions", "after")] == [0, 0, 1]


def test_groups_and_their_dispatcher(api: Api) -> None:
    api.client("a", "$share/g/jobs/#")
    [group] = api.get("/v1/groups")
    assert (group["name"], group["dispatcher"]) == ("$share/g/jobs/#", "adaptive")
    assert [member["client_id"] for member in group["members"]] == ["a"]
    answer = api.call("PUT", "/v1/dispatcher", json={"pattern": "$share/g/#", "dispatcher": "random"})
    assert answer.json() == {"changed": 1}
    assert api.get("/v1/groups")[0]["dispatcher"] == "random"
    answer = api.call("PUT", "/v1/dispatcher", json={"pattern": "$share/g/#", "dispatcher": "fair"})
    assert answer.status_code == 400 and "round_robin" in answer.text


def retain(api: Api, topic: str, payload: bytes = b"p", **others: Any) -> None:
    api.broker.publish(Message(topic, payload, 1, True, **others))


def test_retained_messages_by_filter(api: Api) -> None:
    for number in range(7):
        retain(api, f"a/{number}")
    retain(api, "b", content_type="text/plain", user_properties=[("k", "v")])
    retain(api, "$SYS/x")
    pages = api.pages("/v1/retained", "offset", filter="a/+", limit=3)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [each["topic"] for page in pages for each in page] == [f"a/{number}" for number in range(7)]
    [[b]] = api.pages("/v1/retained", "offset", filter="b")
    assert (b["size"], b["content_type"], b["user_properties"], b["expires_in"]) == (
        1,
        "text/plain",
        [["k", "v"]],
        None,
    )
    everything = [each["topic"] for page in api.pages("/v1/retained", "offset") for each in page]
    assert "b" in everything and "$SYS/x" not in everything
    assert api.call("GET", "/v1/retained", params={"filter": "a/#/b"}).status_code == 400


def test_a_page_looks_at_a_bounded_number_of_messages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "MOST_LOOKED_AT", 5)
    for number in range(11):
        retain(api, f"a/{number}")
    retain(api, "z/1")
    assert [len(page) for page in api.pages("/v1/retained", "offset", filter="z/+")] == [0, 0, 1]


def test_what_has_expired_is_not_shown(api: Api) -> None:
    retain(api, "a", expires_at=0.5)
    assert api.pages("/v1/retained", "offset") == [[]]
    assert api.pages("/v1/retained", "offset", filter="a") == [[]]
    assert api.call("GET", "/v1/retained/message", params={"topic": "a"}).status_code == 404


def test_one_retained_message(api: Api) -> None:
    retain(api, "a//b", b"\x00\xff")
    said = api.get("/v1/retained/message", params={"topic": "a//b"})
    assert (said["topic"], base64.b64decode(said["payload_base64"])) == ("a//b", b"\x00\xff")
    watcher = api.client("watcher", "a/#")
    watcher.messages()
    assert api.call("DELETE", "/v1/retained/message", params={"topic": "a//b"}).status_code == 204
    for method in ("GET", "DELETE"):
        assert api.call(method, "/v1/retained/message", params={"topic": "a//b"}).status_code == 404
    [told] = watcher.messages()
    assert (told.topic, told.payload) == ("a//b", b"")
    late = api.client("late")
    late.send(Subscribe(1, [SubscribeRequest("#", 0)]))
    assert late.messages() == []


def test_publish(api: Api) -> None:
    client = api.client("a", "x/#")
    order = {"topic": "x/1", "payload": "é", "qos": 1, "content_type": "t", "user_properties": [["k", "v"]]}
    assert api.call("POST", "/v1/publish", json=order).status_code == 204
    binary = {"topic": "x/2", "payload_base64": base64.b64encode(b"\xff").decode(), "retain": True}
    assert api.call("POST", "/v1/publish", json=binary).status_code == 204
    first, second = client.messages()
    assert (first.topic, first.payload, first.qos) == ("x/1", "é".encode(), 1)
    assert first.properties is not None and first.properties.user_properties == [("k", "v")]
    assert (second.payload, len(api.memory.server.router.retained)) == (b"\xff", 1)


@pytest.mark.parametrize(
    "order",
    [
        {"topic": "a/#"},
        {"topic": ""},
        {"topic": "a", "qos": 3},
        {"topic": "a", "payload_base64": "?"},
        {"topic": "a", "expiry": -1},
        {"topic": "é" * 40_000},
        {"topic": "a", "content_type": "a\0"},
        {"topic": "a", "user_properties": [["a\0", ""]]},
        {},
    ],
)
def test_what_cannot_be_published(api: Api, order: dict[str, Any]) -> None:
    api.client("a", "#")
    assert api.call("POST", "/v1/publish", json=order).status_code in (400, 422)
    assert api.broker.statistics().messages_sent == 0


def test_a_body_is_bounded(api: Api) -> None:
    order = {"topic": "a", "payload": "x" * (1 << 20)}
    assert api.call("POST", "/v1/publish", json=order).status_code == 413
    assert api.broker.statistics().retained == 0


def test_a_body_that_does_not_say_its_length_is_bounded_too(api: Api) -> None:
    given = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(100):
            given += 1
            yield b" " * 100_000

    answer = api.call("POST", "/v1/publish", content=parts(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert given < 20, "the rest is not read"


def test_every_path_below_v1_needs_the_token(api: Api) -> None:
    paths = api.app.openapi()["paths"]
    checked = 0
    for path, operations in paths.items():
        if not path.startswith("/v1/"):
            continue
        for method in operations:
            for token in (None, "", TOKEN + "x", TOKEN[:-1], "é"):
                answer = api.call(method.upper(), path.replace("{client_id}", "a"), token=token, json={})
                assert answer.status_code == 401, (method, path, token)
                checked += 1
    assert checked > 60


def test_the_client_is_none_the_wiser_with_another_scheme(api: Api) -> None:
    for value in (f"Basic {TOKEN}", TOKEN, "Bearer"):
        assert api.call("GET", "/v1/groups", token=None, headers={"Authorization": value}).status_code == 401
    assert api.call("GET", "/v1/groups", token=None, headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_hooks_learn_of_a_removed_retained_message(api: Api) -> None:
    seen: list[Message] = []
    retain(api, "a")
    api.broker.hooks.add("retain_message", seen.append)
    api.call("DELETE", "/v1/retained/message", params={"topic": "a"})
    assert [(each.topic, each.payload) for each in seen] == [("a", b"")]


def test_messages_in_flight_are_counted(api: Api) -> None:
    client = api.client("a", "x")
    client.channel.fast = False
    Client(api.memory).connect(Connect("b", 5))
    api.broker.publish(Message("x", b"1", 1))
    api.memory.turn()
    assert isinstance(client.packets()[0], Publish)
    assert api.get("/v1/sessions/a")["in_flight"] == 1


def test_a_copy_of_what_is_kept(tmp_path: Path) -> None:
    api = Api()
    answer = api.call("POST", "/v1/snapshot")
    assert (answer.status_code, answer.json()) == (409, {"detail": "this broker keeps nothing on disk (data_dir)"})

    folder = tmp_path / "data"
    api = Api(data_dir=str(folder))
    backend = open_folder(folder)
    backend.write([(b"a", b"1")], [])
    api.broker._storage.persistence = cast(
        Persistence, SimpleNamespace(backend=backend, committer=SimpleNamespace(between=Lock()))
    )
    answer = api.call("POST", "/v1/snapshot")
    assert answer.status_code == 201
    said = answer.json()
    assert (said["folder"], said["schema"]) == (str(folder), 1)
    copy = RocksBackend(folder / said["name"] / "store", create=False)
    assert list(copy.scan(b"")) == [(b"a", b"1")]
    copy.close()
    backend.close()
