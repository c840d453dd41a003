"""Callers of REST: the broker's users, tokens, rules, bans and hooks hold for them, and what they publish is MQTT."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.disk.errors import StorageError
from headwater.message import POSITION_PROPERTY, Message
from headwater.node.access.settings import AccessSettings
from headwater.node.hooks import Hooks, Refusal
from headwater.node.plane.channel import Channel
from headwater.store.memory import MemoryStore
from headwater.wire.packets import Connect, Properties
from tests.node.access.arriving import key_file, rules_file, users_file
from tests.node.access.test_tokens import token
from tests.node.delivery.node import PATIENCE, Node, running

OPERATOR = "0123456789abcdef-operator"
DOLLAR = {"filters": ["#", "$secret/#", "$internal/#"]}
ALICE = ("alice", "secret-of-alice")
BOB = ("bob", "secret-of-bob")
RULES = """
topic read news/#
user alice
topic readwrite home/alice/#
topic deny home/alice/private/#
topic read news/#
topic read $internal/x
user bob
topic readwrite #
pattern write devices/%c/state
pattern readwrite people/%u/#
"""


def users(folder: Path) -> dict[str, Any]:
    return {"password_file": users_file(folder, alice=ALICE[1], bob=BOB[1])}


def publish(node: Node, *topics: str) -> None:
    for topic in topics:
        node.do(lambda topic=topic: node.broker.publish(Message(topic, b"x", 1)))
    until(lambda: node.store.next == node.broker.server.coordinator.intake.next)  # type: ignore[union-attr]


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# ---- who -----------------------------------------------------------------------------------------------------------


def test_users_and_passwords(tmp_path: Path) -> None:
    with running(access=users(tmp_path)) as node:
        for user, status in [
            (ALICE, 200),
            (("alice", BOB[1]), 401),
            (("nobody", ALICE[1]), 401),
            (("alice", ""), 401),
            (("", ""), 401),
            (None, 401),
        ]:
            answer = node.call("GET", "/v1/topics", user=user)
            assert answer.status_code == status, user
            if status == 401:
                assert answer.json()["error"] == "unauthorized"
                assert "Basic" in answer.headers["www-authenticate"] and "Bearer" in answer.headers["www-authenticate"]
        assert "user name and password" in node.call("GET", "/v1/topics").json()["detail"]


@pytest.mark.parametrize(
    "header",
    ["Basic", "Basic !!!", "Basic YWJj", "Basic /w==", "Digest x", "Bearer", "x", "", "Basic " + "YQA6" * 9],
)
def test_what_is_no_authorization(header: str, quiet: Node) -> None:
    assert quiet.status("GET", "/v1/topics", headers={"Authorization": header}) == 401


@pytest.fixture(scope="module")
def quiet() -> Iterator[Node]:
    """Where nobody is asked for a password, on this machine."""
    with running(rest={"token": OPERATOR}) as node:
        yield node


def test_nobody_in_particular_on_this_machine(quiet: Node) -> None:
    assert quiet.status("GET", "/v1/topics") == 200
    assert quiet.status("GET", "/v1/store") == 200  # no rules: everything
    assert quiet.status("GET", "/v1/topics", user=("anybody", "x")) == 200  # as for MQTT, names are trusted
    assert quiet.status("GET", "/v1/topics", token="wrong") == 401  # but what is shown must be right


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:80", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 401),
        ("localhost.evil.example", 401),
    ],
)
def test_a_page_whose_name_points_here_is_nobody(quiet: Node, host: str, status: int) -> None:
    assert quiet.status("GET", "/v1/topics", headers={"Host": host}) == status
    assert quiet.status("GET", "/v1/topics", headers={"Host": host}, token=OPERATOR) == 200


@pytest.mark.parametrize(
    ("of_all", "of_rest", "status"), [(None, None, 200), (False, None, 401), (True, False, 401), (False, True, 200)]
)
def test_anonymous_callers_where_that_is_stated(of_all: bool | None, of_rest: bool | None, status: int) -> None:
    with running(allow_anonymous=of_all, rest={"allow_anonymous": of_rest}) as node:
        assert node.status("GET", "/v1/topics") == status


def test_the_token_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OPERATOR + "\n")
    rules = rules_file(tmp_path, RULES)
    with running(access={**users(tmp_path), "acl_file": rules}, rest={"token_file": str(file)}, stored=DOLLAR) as node:
        publish(node, "home/alice/private/x", "$secret/y")
        for wrong in (OPERATOR[:-1], OPERATOR + "x", OPERATOR.upper(), "x"):
            assert node.status("GET", "/v1/topics", token=wrong) == 401
        assert node.topics(token=OPERATOR) == ["$secret/y", "home/alice/private/x"]
        assert node.status("GET", "/v1/store", token=OPERATOR) == 200
        assert node.status("PUT", "/v1/topics/anything", token=OPERATOR, content=b"1") == 201


def test_tokens_and_what_they_let_do(tmp_path: Path) -> None:
    with running(access={"jwt_key_file": key_file(tmp_path)}) as node:
        publish(node, "a/1", "b/1")
        acl = {"subscribe": ["a/#"], "publish": ["c/%u"]}
        carol = token(sub="carol", exp=time.time() + 100, acl=acl).decode()
        assert node.topics(token=carol) == ["a/1"]
        assert node.status("GET", "/v1/store", token=carol) == 403
        assert node.status("PUT", "/v1/topics/c/carol", token=carol, content=b"1") == 201
        assert node.status("PUT", "/v1/topics/c/dave", token=carol, content=b"1") == 403
        assert node.status("GET", "/v1/topics", token=token(sub="carol", exp=time.time() - 100).decode()) == 401
        assert node.status("GET", "/v1/topics", token=carol[:-3]) == 401
        assert node.status("GET", "/v1/topics") == 401


def test_rights_end_with_the_token(tmp_path: Path) -> None:
    with running(access={"jwt_key_file": key_file(tmp_path)}) as node:
        short = token(sub="carol", exp=time.time() + 2.0).decode()
        with (
            httpx.Client(timeout=PATIENCE) as client,
            client.stream("GET", f"{node.url}/v1/tail", headers={"Authorization": f"Bearer {short}"}) as tail,
        ):
            lines = tail.iter_lines()
            assert next(lines)
            end = time.monotonic() + PATIENCE
            publish(node, "a")
            for line in lines:
                assert time.monotonic() < end
                if line.startswith("id:"):  # each wakes it up for another look
                    publish(node, "a")
        assert node.status("GET", "/v1/topics", token=short) == 401


def test_guards_are_asked() -> None:
    hooks = Hooks()

    async def knows(client: Channel, connect: Connect) -> bool:
        await asyncio.sleep(0)
        return connect.password == b"sesame"

    def may(client: Channel, topic: str, write: bool) -> bool:
        return topic.startswith("w/") if write else not topic.startswith("hidden")

    hooks.add("connect_authenticate", knows)
    hooks.add("acl_check", may)
    with running(hooks) as node:
        publish(node, "seen", "hidden/1")
        assert node.status("GET", "/v1/topics") == 401
        assert node.status("GET", "/v1/topics", user=("x", "wrong")) == 401
        for shown in ({"user": ("x", "sesame")}, {"token": "sesame"}):
            assert [topic for topic in node.topics(**shown) if topic != "w/1"] == ["seen"]
            assert node.status("GET", "/v1/topics/hidden/1/latest", **shown) == 404
            assert node.status("PUT", "/v1/topics/w/1", content=b"1", **shown) == 201
            assert node.status("PUT", "/v1/topics/seen", content=b"1", **shown) == 403


def test_a_guard_of_connections_is_asked() -> None:
    hooks = Hooks()
    hooks.add("connect", lambda client, connect: client.address.startswith("10."))
    with running(hooks) as node:
        assert node.status("GET", "/v1/topics") == 401


# ---- bans and rates ------------------------------------------------------------------------------------------------


def test_who_fails_too_often_is_banned(tmp_path: Path) -> None:
    with running(access={**users(tmp_path), "ban_failures": 3, "ban_exempt": []}) as node:
        for _ in range(3):
            assert node.status("GET", "/v1/topics", user=("alice", "wrong")) == 401
        answer = node.call("GET", "/v1/topics", user=ALICE)
        assert (answer.status_code, answer.json()["error"]) == (403, "banned")
        assert node.do(lambda: node.broker.lift_ban("address", "127.0.0.1"))
        assert node.status("GET", "/v1/topics", user=ALICE) == 200
        node.do(lambda: node.broker.ban("user", "alice"))
        assert node.status("GET", "/v1/topics", user=ALICE) == 403
        assert node.status("GET", "/v1/topics", user=BOB) == 200


def test_wrong_tokens_are_failures_too(tmp_path: Path) -> None:
    access = {"jwt_key_file": key_file(tmp_path), "ban_failures": 3, "ban_exempt": []}
    with running(access=access, rest={"token": OPERATOR}) as node:
        for wrong in ("guess", "eyJ.a.b", "guess"):
            assert node.status("GET", "/v1/topics", token=wrong) == 401
        assert node.status("GET", "/v1/topics", token=OPERATOR) == 403


def test_a_banned_user_is_not_served_on(tmp_path: Path) -> None:
    with (
        running(access=users(tmp_path)) as node,
        httpx.Client(timeout=PATIENCE, auth=ALICE) as client,
        client.stream("GET", f"{node.url}/v1/tail") as tail,
    ):
        lines = tail.iter_lines()
        assert next(lines)
        node.do(lambda: node.broker.ban("user", "alice"))
        publish(node, "a")
        assert not any(line.startswith(":") for line in lines)  # it does not wait, it ends


def test_a_banned_user_with_a_token(tmp_path: Path) -> None:
    with running(access={"jwt_key_file": key_file(tmp_path)}) as node:
        carol = token(sub="carol", exp=time.time() + 100).decode()
        assert node.status("GET", "/v1/topics", token=carol) == 200
        node.do(lambda: node.broker.ban("user", "carol"))
        assert node.status("GET", "/v1/topics", token=carol) == 403


def test_connections_of_an_address_are_counted_not_requests() -> None:
    with running(access={"connection_rate": 0.001, "connection_burst": 2}) as node:
        with httpx.Client(base_url=node.url, timeout=PATIENCE) as client:
            assert [client.get("/v1/topics").status_code for _ in range(5)] == [200] * 5
        assert node.status("GET", "/v1/topics") == 200
        answer = node.call("GET", "/v1/topics")
        assert (answer.status_code, answer.json()["error"], answer.headers["retry-after"]) == (429, "too_many", "1")


# ---- what ----------------------------------------------------------------------------------------------------------

TOPICS = ["news/1", "home/alice/x", "home/alice/private/x", "home/bob", "people/alice/1", "$internal/x", "$internal/y"]


def test_callers_see_what_subscribers_get(tmp_path: Path) -> None:
    """The same user by MQTT and by REST, over a set of topics with denials and patterns."""
    access = {**users(tmp_path), "acl_file": rules_file(tmp_path, RULES)}
    with running(access=access, allow_anonymous=True, stored=DOLLAR) as node:
        seen = {}
        for user in (ALICE, BOB, None):
            options = {} if user is None else {"username": user[0], "password": user[1].encode()}
            with node.client(**options) as client:
                for filter in ("#", "$internal/#"):
                    client.subscribe(filter, qos=1)
                publish(node, *TOPICS, "people/bob/end", "news/end")
                got = []
                for message in client.messages:
                    got.append(message.topic)
                    if message.topic == "news/end":
                        break
            seen[user] = sorted(set(got))
            assert node.topics(user=user) == seen[user]
            answer = node.call("GET", "/v1/messages?format=ndjson", user=user)
            assert {line["topic"] for line in map(_json, answer.text.splitlines())} == set(seen[user])
            for topic in TOPICS:
                status = node.status("GET", f"/v1/topics/{topic}/latest", user=user)
                assert status == (200 if topic in seen[user] else 404), (user, topic)
            assert node.status("GET", "/v1/store", user=user) == (200 if user == BOB else 403)
            assert node.status("GET", "/v1/readers", user=user) == (200 if user == BOB else 403)
        assert seen[ALICE] != seen[BOB] != seen[None]


def test_reading_takes_both_rights(tmp_path: Path) -> None:
    rules = "user alice\ntopic read both/#\ntopic receive only-receive\ntopic subscribe only-subscribe\n"
    with running(access={**users(tmp_path), "acl_file": rules_file(tmp_path, rules)}) as node:
        publish(node, "both/1", "only-receive", "only-subscribe")
        assert node.topics(user=ALICE) == ["both/1"]


def _json(line: str) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(line)
    return found


def test_new_rules_hold_for_what_goes_on(tmp_path: Path) -> None:
    path = rules_file(tmp_path, "user alice\ntopic read a/#\ntopic read b/#\n")
    access = {**users(tmp_path), "acl_file": path}
    with running(access=access) as node, httpx.Client(timeout=PATIENCE, auth=ALICE) as client:
        with client.stream("GET", f"{node.url}/v1/tail") as tail:
            lines = tail.iter_lines()
            publish(node, "a/1")
            assert next(line for line in lines if line.startswith("id:")) == "id: s1:1"
            rules_file(tmp_path, "user alice\ntopic read b/#\n")
            node.do(lambda: node.broker.reload_access(AccessSettings(**access)))
            publish(node, "a/2")
            assert not any(line.startswith(("id:", ":")) for line in lines)  # nor does it only wait
        assert node.topics(user=ALICE) == []


def test_a_user_that_is_gone_is_nobody(tmp_path: Path) -> None:
    with running(access=users(tmp_path)) as node:
        assert node.status("GET", "/v1/topics", user=ALICE) == 200
        users_file(tmp_path, bob=BOB[1])
        node.do(node.broker.reload_access)
        assert node.status("GET", "/v1/topics", user=ALICE) == 401
        assert node.status("GET", "/v1/topics", user=BOB) == 200


# ---- publishing ----------------------------------------------------------------------------------------------------


def test_what_is_published_is_a_message_like_any_other(tmp_path: Path) -> None:
    with running(access=users(tmp_path)) as node:
        asks = Properties(user_properties=[(POSITION_PROPERTY, "yes")])
        with node.client(username="bob", password=BOB[1].encode()) as client:
            client.subscribe("a/#", qos=2, properties=asks, retain_as_published=True)
            answer = node.call(
                "PUT",
                "/v1/topics/a/1?qos=2&expiry=100",
                user=ALICE,
                content=b"\xff21",
                headers=[("Content-Type", "text/x"), ("Headwater-User-Property", f"{POSITION_PROPERTY}=fake:9")],
            )
            assert (answer.status_code, answer.json()) == (201, {"store": "s1", "position": 1})
            message = next(iter(client.messages))
            assert (message.topic, message.payload, message.qos, message.retain) == ("a/1", b"\xff21", 2, True)
            assert message.properties is not None
            assert message.properties.content_type == "text/x"
            assert message.properties.user_properties == [(POSITION_PROPERTY, "s1:1")]
            assert (message.properties.message_expiry_interval or 0) in (99, 100)
        stored = node.call("GET", "/v1/topics/a/1/latest", user=ALICE).json()
        assert (stored["publisher"], stored["payload_base64"], stored["qos"]) == ("rest:alice", "/zIx", 2)
        assert stored["properties"]["content_type"] == "text/x"
        with node.client(username="bob", password=BOB[1].encode()) as late:
            late.subscribe("a/1")
            assert next(iter(late.messages)).payload == b"\xff21"  # PUT retains


def test_the_answer_comes_when_it_is_on_disk() -> None:
    class Slow(MemoryStore):
        def sync(self) -> None:
            super().sync()
            synced.append(self.next)

    synced: list[int] = []
    with running(store=Slow("s1")) as node:
        for expected in range(1, 6):
            assert node.call("POST", "/v1/topics/a", content=b"1").json()["position"] == expected
            assert expected + 1 in synced


def test_a_topic_that_is_not_stored() -> None:
    with running(stored={"filters": ["kept/#"]}) as node, node.client() as client:
        client.subscribe("other")
        answer = node.call("POST", "/v1/topics/other", content=b"1")
        assert (answer.status_code, answer.json()["position"]) == (202, None)
        assert next(iter(client.messages)).payload == b"1"
        assert node.call("POST", "/v1/topics/kept/1", content=b"1").json()["position"] == 1


@pytest.mark.parametrize(
    ("path", "settings", "status", "reason"),
    [
        ("$SYS/x", {}, 403, "may not publish"),
        ("$share/g/x", {}, 403, "may not publish"),
        ("a?qos=2", {"max_qos": 1}, 422, "`qos` is at most 1"),
        ("a?retain=true", {"retain_available": False}, 422, "not retained"),
        ("a/b/c", {"max_topic_levels": 2}, 422, "more than 2 levels"),
        ("abcdef", {"max_topic_length": 5}, 422, "more than 5 bytes"),
        ("a", {"max_payload_size": 3}, 413, "at most 3 bytes"),
    ],
)
def test_what_the_broker_does_not_take(path: str, settings: dict[str, Any], status: int, reason: str) -> None:
    with running(**settings) as node:
        answer = node.call("POST", f"/v1/topics/{path}", content=b"12345")
        assert answer.status_code == status and reason in answer.json()["detail"]
        assert node.store.next == 1


def test_as_many_topics_as_may_be() -> None:
    with running(stored={"max_topics": 2}) as node:
        for topic, status in (("a", 201), ("b", 201), ("c", 507), ("a", 201)):
            assert node.status("POST", f"/v1/topics/{topic}", content=b"1") == status
        assert node.topics() == ["a", "b"]


def test_filters_of_messages_are_asked() -> None:
    hooks = Hooks()

    def louder(message: Message, client: Channel) -> Message:
        return Message(message.topic, message.payload.upper(), message.qos)

    hooks.add("publish", louder)
    with running(hooks) as node:
        assert node.call("POST", "/v1/topics/a", content=b"hello").json()["position"] == 1
        assert node.call("GET", "/v1/topics/a/latest").json()["payload"] == "HELLO"


def test_quotas_of_retained_messages_hold(tmp_path: Path) -> None:
    with running(access={**users(tmp_path), "max_retained_per_user": 1}) as node:
        for topic, status in (("a", 201), ("b", 507), ("a", 201)):
            assert node.status("PUT", f"/v1/topics/{topic}", user=ALICE, content=b"1") == status
        assert node.do(lambda: len(node.broker.server.router.retained)) == 1


def test_a_disk_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        def sync(self) -> None:
            raise StorageError("no space left")

    with running(store=Broken("s1")) as node:
        answer = node.call("POST", "/v1/topics/a", content=b"1")
        assert answer.status_code == 503 and "no space left" in answer.json()["detail"]
        answer = node.call("GET", "/ready")
        assert answer.status_code == 503
        assert node.status("POST", "/v1/topics/a", content=b"1") == 503


def test_a_store_that_does_not_keep_up_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(stored={"max_pending": 1}) as node:
        coordinator = node.broker.server.coordinator
        assert coordinator is not None
        coordinator.writing = 2  # bytes that are on their way
        answer = node.call("POST", "/v1/topics/a", content=b"1")
        assert answer.status_code == 503 and "keep up" in answer.json()["detail"]
        coordinator.writing = 0
        assert node.status("POST", "/v1/topics/a", content=b"1") == 201


def test_a_refusal_says_nothing_of_its_reasons(tmp_path: Path) -> None:
    """Whether there is such a user, or such a topic."""
    access = {**users(tmp_path), "acl_file": rules_file(tmp_path, RULES)}
    with running(access=access) as node:
        publish(node, "home/bob")
        bodies = {
            node.call("GET", "/v1/topics", user=user).text for user in (("alice", "wrong"), ("nobody", "x"), ("", "x"))
        }
        assert len(bodies) == 1
        refused = [node.call("PUT", f"/v1/topics/{topic}", user=ALICE, content=b"1") for topic in ("home/bob", "none")]
        assert refused[0].text == refused[1].text and {each.status_code for each in refused} == {403}


def test_hooks_that_raise_refusals() -> None:
    hooks = Hooks()

    def guard(client: Channel, connect: Connect) -> None:
        raise Refusal(0x89, "come later")

    hooks.add("connect_authenticate", guard)
    with running(hooks) as node:
        answer = node.call("GET", "/v1/topics")
        assert (answer.status_code, answer.json()["detail"]) == (503, "come later")
