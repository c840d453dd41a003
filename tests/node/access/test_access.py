"""Who comes in, with what rights, and what becomes of them when the rules change: a broker in memory."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.message import Message
from headwater.node.access import verifier
from headwater.node.access.errors import AccessError
from headwater.node.access.settings import AccessSettings
from headwater.node.hooks import Hooks, Refusal
from headwater.node.plane.channel import Entrance
from headwater.node.protocol.statistics import statistics_of
from headwater.session.connection import CONNECTED
from headwater.wire import encode
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater.wire.reasons import (
    BANNED,
    CLIENT_IDENTIFIER_NOT_VALID,
    CONNECTION_RATE_EXCEEDED,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SUCCESS,
)
from tests.node.access.arriving import (
    arrive,
    broker_with,
    key_file,
    of_kind,
    quick_hash,
    rules_file,
    settled,
    users_file,
)
from tests.node.access.test_tokens import token
from tests.node.memory import Client, MemoryBroker

USERS = [("a", b"1"), ("b", b"2"), ("c", b"3")]
ANY = {"allow_anonymous": True}
"""Client-supplied names are trusted."""


def named(user: str | None, password: bytes | None = None, client: str = "c", version: int = 5, **more: Any) -> Connect:
    return Connect(client, version, username=user, password=password, **more)


def subscribe(client: Client, *filters: str, qos: int = 1) -> list[int]:
    client.send(Subscribe(1, [SubscribeRequest(filter, qos) for filter in filters]))
    (answer,) = of_kind(client, Suback)
    assert isinstance(answer, Suback)
    return answer.reasons


def come(broker: MemoryBroker, user: str | None, client_id: str, version: int = 5, **more: Any) -> Client:
    """A client whose user name is believed."""
    return broker.client(client_id, version, username=user, **more)


# ---- identities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("user", "password", "accepted"),
    [
        ("u", b"right", True),
        ("u", b"wrong", False),
        ("u", b"", False),
        ("u", None, False),
        ("empty", b"", False),  # an empty password is none, whatever the file says
        ("nobody", b"right", False),
        (None, None, False),
    ],
)
def test_passwords_are_checked(
    user: str | None, password: bytes | None, accepted: bool, version: int, tmp_path: Path
) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right", empty=""))
        client, answer = await arrive(broker, named(user, password, version=version))
        expected = SUCCESS if accepted else NOT_AUTHORIZED if version == 5 else 5
        assert answer.reason == expected
        assert (client.channel.state == CONNECTED) is accepted
        assert broker.server.stats.failures == 0

    asyncio.run(main())


def test_anonymous_clients_come_in_beside_passwords_only_where_that_is_stated(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right"), others=ANY)
        assert (await arrive(broker, named(None)))[1].reason == SUCCESS
        assert (await arrive(broker, named("u", b"wrong")))[1].reason == NOT_AUTHORIZED

    asyncio.run(main())


def test_a_token_is_an_identity_and_its_end_the_connections(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(jwt_key_file=key_file(tmp_path))
        client, answer = await arrive(broker, named("ignored", token(sub="alice", exp=time.time() + 100)))
        assert answer.reason == SUCCESS and client.channel.username == "alice"
        broker.later(90)
        client.send(Pingreq())
        assert of_kind(client, Pingresp)
        broker.later(20)
        (last,) = client.packets()
        assert isinstance(last, Disconnect) and last.reason == NOT_AUTHORIZED
        assert last.properties is not None and "expired" in (last.properties.reason_string or "")

    asyncio.run(main())


def test_a_connection_that_ended_leaves_no_timer_behind(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(jwt_key_file=key_file(tmp_path))
        client, _ = await arrive(broker, named(None, token()))
        client.lose()
        access = broker.server.access
        assert not access._expiries and not access._identities

    asyncio.run(main())


@pytest.mark.parametrize("password", [b"plain", token(exp=1), None], ids=["plain", "expired", "none"])
def test_without_a_good_token_nobody_comes_in(password: bytes | None, tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(jwt_key_file=key_file(tmp_path))
        assert (await arrive(broker, named("u", password)))[1].reason == NOT_AUTHORIZED

    asyncio.run(main())


def test_tokens_and_passwords_go_together(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(jwt_key_file=key_file(tmp_path), password_file=users_file(tmp_path, u="right"))
        assert (await arrive(broker, named(None, token(), "a")))[1].reason == SUCCESS
        assert (await arrive(broker, named("u", b"right", "b")))[1].reason == SUCCESS
        assert (await arrive(broker, named("u", token(sub=None), "c")))[1].reason == NOT_AUTHORIZED

    asyncio.run(main())


def test_a_certificate_is_an_identity_without_password(tmp_path: Path) -> None:
    async def main() -> None:
        rules = rules_file(tmp_path, "user carol\ntopic write a\n")
        broker = broker_with(password_file=users_file(tmp_path, u="right"), acl_file=rules)
        client, answer = await arrive(broker, named("u", b"wrong"), identity="carol")
        assert answer.reason == SUCCESS and client.channel.username == "carol"
        rights = client.channel.rights
        assert rights is not None and rights.publishes(b"a")

    asyncio.run(main())


def test_guards_and_files_must_both_agree(tmp_path: Path) -> None:
    async def main() -> None:
        async def slow_no(client: object, connect: object) -> bool:
            await asyncio.sleep(0)
            return False

        for guard, password, expected in (
            (lambda client, connect: False, b"right", NOT_AUTHORIZED),
            (lambda client, connect: True, b"right", SUCCESS),
            (lambda client, connect: True, b"wrong", NOT_AUTHORIZED),
            (slow_no, b"right", NOT_AUTHORIZED),
        ):
            hooks = Hooks()
            hooks.add("connect_authenticate", guard)
            broker = broker_with(password_file=users_file(tmp_path, u="right"), hooks=hooks)
            assert (await arrive(broker, named("u", password)))[1].reason == expected

    asyncio.run(main())


# ---- an answer that comes later ----------------------------------------------------------------------------------


def waiting_broker(answer: asyncio.Future[bool], **access: Any) -> MemoryBroker:
    hooks = Hooks()
    hooks.add("connect_authenticate", lambda client, connect: answer if connect.client_id == "slow" else None)
    return broker_with(hooks=hooks, **access)


async def turns() -> None:
    """What was cancelled has ended: a task, and what it waited for."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_follows_connect_is_kept_until_the_answer_comes() -> None:
    async def main() -> None:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        broker = waiting_broker(answer)
        client = Client(broker)
        client.version = 5
        behind = encode(Publish("t", b"x", 1, packet_id=7), 5) + encode(Pingreq(), 5)
        client.feed(encode(Connect("slow", 5), 5) + behind[:-1])
        assert client.watched == (False, False), "it is not read from"
        client.feed(behind[-1:])  # what had been read all the same
        other = broker.client("other")
        other.send(Pingreq())
        assert of_kind(other, Pingresp), "others are served"
        assert client.packets() == []
        answer.set_result(True)
        await settled(client)
        connack, puback, pong = client.packets()
        assert isinstance(connack, Connack) and connack.reason == SUCCESS
        assert isinstance(puback, Puback) and puback.packet_id == 7 and isinstance(pong, Pingresp)
        assert client.watched == (True, False)
        assert broker.server.stats.failures == 0

    asyncio.run(main())


def test_what_is_kept_is_bounded() -> None:
    async def main() -> None:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        broker = waiting_broker(answer)
        client = Client(broker)
        client.version = 5
        client.send(Connect("slow", 5))
        for _ in range(3):
            client.feed(b"\x00" * 60_000)
        (connack,) = client.packets()
        assert isinstance(connack, Connack) and connack.reason == QUOTA_EXCEEDED
        await turns()
        assert answer.cancelled() and len(broker.server.deciding) == 0

    asyncio.run(main())


def test_a_client_that_goes_meanwhile_is_waited_for_no_more() -> None:
    async def main() -> None:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        broker = waiting_broker(answer)
        client = Client(broker)
        client.send(Connect("slow", 4))
        client.lose()
        await turns()
        assert answer.cancelled()
        assert "slow" not in broker.server.sessions and not broker.server.channels
        assert broker.server.stats.failures == 0

    asyncio.run(main())


def test_an_answer_that_takes_too_long_is_not_waited_for() -> None:
    async def main() -> None:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        broker = waiting_broker(answer)
        client = Client(broker)
        client.send(Connect("slow", 4))
        broker.later(11)
        assert client.channel.finishing
        await turns()
        assert answer.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("result", "reason"),
    [(True, SUCCESS), (None, SUCCESS), (False, NOT_AUTHORIZED), (Refusal(0x8A), 0x8A), (ValueError("x"), 0x83)],
)
def test_a_guard_may_answer_later(result: object, reason: int, caplog: pytest.LogCaptureFixture) -> None:
    async def guard(client: object, connect: Connect) -> object:
        await asyncio.sleep(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def main() -> None:
        hooks = Hooks()
        hooks.add("connect_authenticate", guard)
        hooks.add("connect_authenticate", guard)
        broker = broker_with(hooks=hooks)
        assert (await arrive(broker, named(None)))[1].reason == reason
        assert hooks.failures == ({"connect_authenticate": 1} if reason == 0x83 else {})

    asyncio.run(main())


@pytest.mark.parametrize("event", ["connect", "acl_check"])
def test_other_guards_cannot_be_waited_for_and_do_not_agree_by_it(event: str, caplog: pytest.LogCaptureFixture) -> None:
    async def guard(*arguments: object) -> bool:
        return True

    hooks = Hooks()
    hooks.add(event, guard)
    broker = broker_with(hooks=hooks)
    client = Client(broker)
    answer = client.connect(Connect("c", 5))
    if event == "connect":
        assert answer.reason == 0x83
    else:
        assert subscribe(client, "a") == [0x83]
    assert hooks.failures == {event: 1}


# ---- verifying ---------------------------------------------------------------------------------------------------


def test_too_many_at_once_are_told_to_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right"), max_verifying=2, verify_threads=1)
        clients = [Client(broker) for _ in range(4)]
        for number, client in enumerate(clients):
            client.version = 5
            client.send(named("u", b"right", f"c{number}"))
        for client in clients:
            await settled(client)
        reasons = [answer.reason for client in clients for answer in client.packets() if isinstance(answer, Connack)]
        assert reasons == [SUCCESS, SUCCESS, SERVER_BUSY, SERVER_BUSY]
        assert (await arrive(broker, named("u", b"right", "later")))[1].reason == SUCCESS

    asyncio.run(main())


def test_an_unknown_user_costs_as_much_as_a_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right"))
        kinds: list[str] = []

        def noted(encoded: str, password: bytes) -> bool:
            kinds.append(encoded)
            return True  # even if the password is that of somebody else

        monkeypatch.setattr(verifier, "verify", noted)
        assert (await arrive(broker, named("nobody", b"x")))[1].reason == NOT_AUTHORIZED
        assert kinds == [quick_hash("right")]

    asyncio.run(main())


def test_more_threads_can_be_had_at_run_time(tmp_path: Path) -> None:
    async def main() -> None:
        users = users_file(tmp_path, u="right")
        broker = broker_with(password_file=users, verify_threads=1)
        access = broker.server.access
        for threads in (1, 3):
            access.reload(AccessSettings(password_file=users, verify_threads=threads))
            assert (await arrive(broker, named("u", b"right", f"c{threads}")))[1].reason == SUCCESS
            assert access.verifying._pool is not None and access.verifying._pool._max_workers == threads

    asyncio.run(main())


def test_a_right_password_need_not_be_computed_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right", v="right"), password_cache_seconds=60)
        work: list[bool] = []
        access = broker.server.access
        really = verifier.verify
        monkeypatch.setattr(verifier, "verify", lambda *given: work.append(True) or really(*given))
        for user, password, later, computed in (
            ("u", b"right", 0, 1),
            ("u", b"right", 59, 1),
            ("u", b"wrong", 0, 2),
            ("v", b"right", 0, 3),
            ("u", b"right", 2, 4),
        ):
            broker.later(later)
            answer = (await arrive(broker, named(user, password)))[1]
            assert answer.reason == (SUCCESS if password == b"right" else NOT_AUTHORIZED)
            assert len(work) == computed
        access.reload(access.settings)
        await arrive(broker, named("u", b"right"))
        assert len(work) == 5, "a reload forgets"

    asyncio.run(main())


# ---- rules -------------------------------------------------------------------------------------------------------

RULES = "user u\ntopic read r/#\ntopic write w/#\ntopic deny r/no\nuser s\ntopic readwrite #\n"


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_publishing_is_refused_as_the_version_allows(version: int, hot: bool, tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY, hot=hot)
    listener = come(broker, "s", "listener")
    assert subscribe(listener, "#") == [1]
    client = come(broker, "u", "c", version)
    for number, (topic, allowed) in enumerate((("w/x", True), ("r/x", False), ("other", False)), 2):
        exactly_once = Publish(topic, b"2", 2, packet_id=number)
        client.send(Publish(topic, b"0"), Publish(topic, b"1", 1, packet_id=1), exactly_once)
        puback, pubrec = client.packets()
        assert isinstance(puback, Puback) and isinstance(pubrec, Pubrec)
        expected = SUCCESS if allowed or version == 4 else NOT_AUTHORIZED
        assert (puback.reason, pubrec.reason) == (expected, expected)
        assert [message.payload for message in listener.messages()] == ([b"0", b"1", b"2"] if allowed else [])
    assert statistics_of(broker.server, 0.0).messages_refused == 6


@pytest.mark.parametrize("version", [4, 5])
def test_subscribing_is_refused_as_the_version_allows(version: int, tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    client = come(broker, "u", "c", version)
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    expected = [1, 1, refused, refused, refused, 1]
    assert subscribe(client, "r/a", "#", "w/x", "r/no", "$share/g/r/#", "$share/g/r/x") == expected


@pytest.mark.parametrize("version", [4, 5])
def test_the_reason_of_a_refused_subscription(version: int, tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), refused_subscription=0x8F, others=ANY)
    refused = 0x8F if version == 5 else 0x80
    assert subscribe(come(broker, "u", "c", version), "r/a", "w/x") == [1, refused]


@pytest.mark.parametrize("hot", [True, False])
def test_what_a_wildcard_takes_in_is_looked_at_again(hot: bool, tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY, hot=hot)
    publisher = come(broker, "s", "p")
    publisher.send(Publish("r/kept", b"k", retain=True), Publish("w/kept", b"k", retain=True))
    client, free = come(broker, "u", "c"), come(broker, "s", "free")
    assert subscribe(free, "#") == [1]
    client.send(Subscribe(1, [SubscribeRequest("#", 1)]))
    assert [message.topic for message in client.messages()] == ["r/kept"], "retained ones too"
    assert broker.server.stats.publish_dropped == 0, "which is no loss"
    free.messages()
    for qos in (0, 1, 2):
        topics = ["r/a", "w/a", "r/no", "r/a", "x", "$y/z"]
        publisher.send(*(Publish(topic, b"", qos, packet_id=qos and n + 1) for n, topic in enumerate(topics)))
        assert [message.topic for message in client.messages()] == ["r/a", "r/a"]
        assert [message.topic for message in free.messages()] == topics[:-1]


def test_an_absent_client_gets_no_more_than_it_may(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    client = come(broker, "u", "c", 5, properties=Properties(session_expiry_interval=100))
    subscribe(client, "#")
    client.lose()
    come(broker, "s", "p").send(Publish("r/a", b"", 1, packet_id=1), Publish("w/a", b"", 1, packet_id=2))
    assert broker.server.sessions["c"].outbound.waiting() == 1


def test_a_session_is_its_new_owners(tmp_path: Path) -> None:
    """What waited for one user is not given to another that comes with the same client id."""
    rules = "user a\ntopic read a/#\nuser b\ntopic read b/#\nuser s\ntopic write #\n"
    broker = broker_with(acl_file=rules_file(tmp_path, rules), others=ANY)
    kept = Properties(session_expiry_interval=100)
    first = come(broker, "a", "c", 5, properties=kept)
    assert subscribe(first, "#", "$share/g/a/x") == [1, 1]
    first.lose()
    publisher = come(broker, "s", "p")
    before = [Publish("a/1", b"", 1, packet_id=1), Publish("b/1", b"", 1, packet_id=2), Publish("a/1", b"")]
    publisher.send(*before)
    second = Client(broker)
    assert second.connect(Connect("c", 5, False, username="b", properties=kept)).session_present
    publisher.send(*before, Publish("a/x", b""))
    assert [message.topic for message in second.messages()] == ["b/1"]
    assert len(broker.server.router.groups) == 0, "it is not in a group whose messages it may not have"


def test_a_will_obeys_the_rules(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    listener = come(broker, "s", "l")
    subscribe(listener, "#")
    for topic in ("w/will", "r/will"):
        come(broker, "u", "c", 5, will=Will(topic, b"gone")).lose()
    assert [message.topic for message in listener.messages()] == ["w/will"]


def test_rules_of_a_token_count_instead_of_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        rules = rules_file(tmp_path, "user alice\ntopic readwrite #\n")
        broker = broker_with(jwt_key_file=key_file(tmp_path), acl_file=rules)
        acl = {"publish": ["d/%c/#"], "subscribe": ["u/%u"]}
        client, _ = await arrive(broker, named(None, token(acl=acl), "c7"))
        rights = client.channel.rights
        assert rights is not None
        assert rights.publishes(b"d/c7/x") and not rights.publishes(b"d/c8/x") and rights.receives("u/alice")
        assert subscribe(client, "u/alice", "x") == [1, NOT_AUTHORIZED]
        client, _ = await arrive(broker, named(None, token(), "c8"))
        assert subscribe(client, "x") == [1], "a token without rules has those of the file"

    asyncio.run(main())


def test_topic_aliases_are_no_way_around(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    listener = come(broker, "s", "l")
    subscribe(listener, "#")
    client = come(broker, "u", "c")
    client.send(
        Publish("r/x", b"", 1, packet_id=1, properties=Properties(topic_alias=1)),
        Publish("", b"", 1, packet_id=2, properties=Properties(topic_alias=1)),
    )
    assert [answer.reason for answer in client.packets() if isinstance(answer, Puback)] == [NOT_AUTHORIZED] * 2
    assert listener.messages() == []


def test_users_share_what_was_judged_and_client_ids_do_not(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    assert come(broker, "u", "a").channel.rights is come(broker, "u", "b").channel.rights
    broker = broker_with(acl_file=rules_file(tmp_path, RULES + "pattern write %c\n"), others=ANY)
    one, other = come(broker, "u", "a").channel.rights, come(broker, "u", "b").channel.rights
    assert one is not None and other is not None and one.publishes(b"a") and not other.publishes(b"a")


def test_without_rules_there_is_nothing_to_ask() -> None:
    broker = broker_with()
    client = come(broker, None, "c")
    assert client.channel.rights is None and client.channel.meter is None and broker.server.router.gate is None


# ---- reload ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hot", [True, False])
def test_a_reload_changes_live_connections(hot: bool, tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY, hot=hot)
    publisher, client = come(broker, "s", "p"), come(broker, "u", "c")
    assert subscribe(client, "r/#", "$share/g/r/x") == [1, 1]

    def arrived() -> list[str]:
        publisher.send(Publish("r/a", b"", 0), Publish("r/b", b"", 1, packet_id=1), Publish("r/x", b""))
        return [message.topic for message in client.messages()]

    def answer() -> int:
        client.send(Publish("w/x", b"", 1, packet_id=1))
        (puback,) = of_kind(client, Puback)
        assert isinstance(puback, Puback)
        return puback.reason

    assert arrived() == ["r/a", "r/b", "r/x", "r/x"] and answer() == 0x10
    rules_file(tmp_path, "user u\ntopic read r/b\nuser s\ntopic readwrite #\n")
    broker.server.access.reload(broker.server.access.settings)
    assert arrived() == ["r/b"] and answer() == NOT_AUTHORIZED
    assert list(broker.server.sessions["c"].subscriptions) == ["r/#"], "it has left the group, and only that"
    rules_file(tmp_path, RULES)
    broker.server.access.reload(broker.server.access.settings)
    assert arrived() == ["r/a", "r/b", "r/x"] and answer() == 0x10
    broker.server.access.reload(AccessSettings())
    assert client.channel.rights is None and answer() == 0x10


def test_a_user_that_is_gone_or_has_another_password_is_disconnected(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, a="1", b="2", c="3"))
        clients = [(await arrive(broker, named(user, password, user)))[0] for user, password in USERS]
        again = (await arrive(broker, named("b", b"2", "again")))[0]
        users_file(tmp_path, a="1", b="other")
        broker.server.access.reload(broker.server.access.settings)
        broker.turn()
        assert [client.channel.finishing for client in (*clients, again)] == [False, True, True, True]
        (last,) = of_kind(clients[1], Disconnect)
        assert isinstance(last, Disconnect) and last.reason == NOT_AUTHORIZED
        assert (await arrive(broker, named("b", b"2", "late")))[1].reason == NOT_AUTHORIZED

    asyncio.run(main())


def test_what_waits_is_looked_at_again_after_a_reload(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others={**ANY, "max_inflight": 1})
    publisher, client = come(broker, "s", "p"), come(broker, "u", "c")
    subscribe(client, "r/#")
    publisher.send(*(Publish(f"r/{n}", b"", 1, packet_id=n) for n in (1, 2, 3)))
    (first,) = client.messages()
    rules_file(tmp_path, "user u\ntopic read r/3\n")
    broker.server.access.reload(broker.server.access.settings)
    client.send(Puback(first.packet_id))
    assert [message.topic for message in client.messages()] == ["r/3"]


def test_files_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    broker = broker_with(acl_file=rules_file(tmp_path, RULES), others=ANY)
    client = come(broker, "u", "c")
    before = client.channel.rights
    rules_file(tmp_path, "topics read a\n")
    with pytest.raises(AccessError, match="line 1"):
        broker.server.access.reload(broker.server.access.settings)
    assert client.channel.rights is before
    with pytest.raises(AccessError, match="line 1"):
        broker_with(acl_file=str(tmp_path / "rules"))


# ---- rates, bans, quotas -----------------------------------------------------------------------------------------


def from_address(broker: MemoryBroker, address: str, packet: Connect) -> Client:
    client = Client(broker)
    client.channel.address = address
    client.version = packet.version
    client.send(packet)
    return client


def reason_of(client: Client) -> int:
    (answer,) = of_kind(client, Connack)
    assert isinstance(answer, Connack)
    return answer.reason


def test_an_address_that_connects_too_often_is_refused() -> None:
    broker = broker_with(connection_rate=1, connection_burst=2)
    found = [reason_of(from_address(broker, "10.0.0.1:1", named(None, client=f"c{n}"))) for n in range(3)]
    assert found == [SUCCESS, SUCCESS, CONNECTION_RATE_EXCEEDED]
    assert reason_of(from_address(broker, "10.0.0.2:1", named(None, client="d"))) == SUCCESS
    broker.later(1)
    assert reason_of(from_address(broker, "10.0.0.1:2", named(None, client="e"))) == SUCCESS


@pytest.mark.parametrize("hot", [True, False])
def test_who_sends_too_fast_is_not_read_from_for_a_while(hot: bool) -> None:
    broker = broker_with(message_rate=10, hot=hot)
    client = broker.client("c", keep_alive=1)
    client.send(*[Publish("t", b"")] * 10)
    assert client.watched == (True, False)
    client.send(*[Publish("t", b"")] * 20)
    assert client.watched == (False, False)
    broker.later(1.9)
    assert client.watched == (False, False)
    broker.later(0.2)
    assert client.watched == (True, False)
    assert client.channel.state == CONNECTED, "and its keep alive does not count meanwhile"
    client.send(*[Pingreq()] * 100)
    assert client.watched == (True, False), "only messages count"


def test_bytes_have_a_rate_too() -> None:
    broker = broker_with(byte_rate=1000)
    client = broker.client("c")
    client.send(Publish("t", b"x" * 3000))
    assert client.watched == (False, False)
    broker.later(2.1)
    assert client.watched == (True, False)


def test_who_sends_too_fast_can_be_disconnected() -> None:
    broker = broker_with(message_rate=10, rate_policy="disconnect")
    client = broker.client("c")
    client.send(*[Publish("t", b"")] * 11)
    (last,) = client.packets()
    assert isinstance(last, Disconnect) and last.reason == 0x96


def test_a_client_that_goes_while_it_is_paused() -> None:
    broker = broker_with(message_rate=1)
    client = broker.client("c")
    client.send(*[Publish("t", b"")] * 5)
    client.lose()
    broker.later(10)
    assert broker.server.timers.failures == 0 and not broker.server.channels


def failing(broker: MemoryBroker, address: str, user: str | None = "u", client_id: str = "c") -> int:
    async def main() -> int:
        client = from_address(broker, address, named(user, b"wrong", client_id))
        await settled(client)
        return reason_of(client)

    return asyncio.run(main())


def test_an_address_that_fails_too_often_is_banned_for_a_time(tmp_path: Path) -> None:
    broker = broker_with(password_file=users_file(tmp_path, u="x"), ban_failures=3, ban_seconds=60)
    assert [failing(broker, "10.0.0.1:1") for _ in range(4)] == [NOT_AUTHORIZED] * 3 + [BANNED]
    assert failing(broker, "10.0.0.2:1") == NOT_AUTHORIZED
    access = broker.server.access
    assert [(ban.kind, ban.value, ban.until) for ban in access.bans.all(1000.0)] == [("address", "10.0.0.1", 1060.0)]
    broker.later(61)
    assert failing(broker, "10.0.0.1:1") == NOT_AUTHORIZED
    assert [failing(broker, "127.0.0.1:1") for _ in range(4)] == [NOT_AUTHORIZED] * 4, "exempt"


@pytest.mark.parametrize(("user", "kind"), [("u", "user"), (None, "client")])
def test_a_user_that_fails_too_often_can_be_banned_from_everywhere(user: str | None, kind: str, tmp_path: Path) -> None:
    broker = broker_with(
        password_file=users_file(tmp_path, u="x"), jwt_key_file=key_file(tmp_path), ban_user_failures=2, ban_failures=0
    )

    async def fail(number: int) -> int:
        return (await arrive(broker, named(user, b"wrong" if user else token(exp=1))))[1].reason

    assert [asyncio.run(fail(n)) for n in range(3)] == [NOT_AUTHORIZED, NOT_AUTHORIZED, BANNED]
    (ban,) = broker.server.access.bans.all(1000.0)
    assert ban.kind == kind and ban.value == (user or "c")
    assert broker.server.access.bans.lift(ban.kind, ban.value)
    assert asyncio.run(fail(0)) == NOT_AUTHORIZED


def test_a_token_is_judged_by_its_own_user_and_not_by_the_name_in_connect(tmp_path: Path) -> None:
    broker = broker_with(jwt_key_file=key_file(tmp_path), ban_user_failures=1, ban_failures=0)
    broker.server.access.ban("user", "mallory", None, "")

    async def come_with(**claims: Any) -> int:
        return (await arrive(broker, named("mallory", token(**claims))))[1].reason

    assert asyncio.run(come_with(sub="alice", exp=time.time() + 100)) == SUCCESS
    assert asyncio.run(come_with(sub="mallory", exp=time.time() + 100)) == BANNED


def known_by_user(broker: MemoryBroker, packet: Connect) -> tuple[Client, int]:
    """On a listener where the user name is the client id."""
    client = Client(broker)
    client.version = packet.version
    client.channel.entrance = Entrance()
    client.channel.entrance.username_as_client_id = True
    client.send(packet)
    (answer,) = client.packets()
    assert isinstance(answer, Connack)
    return client, answer.reason


def test_bans_see_the_client_id_that_counts() -> None:
    broker = broker_with(others=ANY)
    access = broker.server.access
    access.ban("client", "ann", None, "why")
    assert known_by_user(broker, named("ann", client="anything"))[1] == BANNED
    assert known_by_user(broker, named("bob", client="ann"))[1] == SUCCESS, "its id is bob"


def test_ids_that_do_not_count_make_no_room(tmp_path: Path) -> None:
    """An id that a client gives, and does not get, is not one that is here already."""
    for limit, refused in (("max_sessions", QUOTA_EXCEEDED), ("max_connections", SERVER_BUSY)):
        broker = broker_with(others={**ANY, limit: 1})
        come(broker, None, "here")
        assert known_by_user(broker, named("ann", client="here"))[1] == refused
        broker = broker_with(others={**ANY, limit: 1})
        assert known_by_user(broker, named("ann"))[1] == SUCCESS
        assert known_by_user(broker, named("ann", client="anything"))[1] == SUCCESS, "it takes over its own"


def test_who_waited_for_an_answer_is_one_too_many_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(password_file=users_file(tmp_path, u="right"), others={"max_connections": 1})
        clients = [Client(broker) for _ in range(3)]
        for number, client in enumerate(clients):
            client.version = 5
            client.send(named("u", b"right", client=f"c{number}"))
        for client in clients:
            await settled(client)
        answers = [client.packets()[0] for client in clients]
        assert sorted(answer.reason for answer in answers if isinstance(answer, Connack)) == [
            SUCCESS,
            SERVER_BUSY,
            SERVER_BUSY,
        ]

    asyncio.run(main())


# ---- whose a client id is ----------------------------------------------------------------------------------------


def code(broker: MemoryBroker, packet: Connect) -> int:
    return Client(broker).connect(packet).reason


@pytest.mark.parametrize("version", [4, 5])
def test_another_user_can_neither_take_over_nor_end_a_session(version: int) -> None:
    broker = broker_with(others=ANY, client_ids="owned")
    refused = CLIENT_IDENTIFIER_NOT_VALID if version == 5 else 2
    properties = Properties(session_expiry_interval=100)
    alice = come(broker, "alice", "pump", clean_start=False, properties=properties)
    subscribe(alice, "t")
    for user in ("mallory", None, ""):
        for clean in (False, True):
            assert code(broker, named(user, client="pump", version=version, clean_start=clean)) == refused
    assert alice.channel.state == CONNECTED, "connected"
    alice.lose()
    for clean in (False, True):
        assert code(broker, named("mallory", client="pump", version=version, clean_start=clean)) == refused
    assert list(broker.server.sessions["pump"].subscriptions) == ["t"], "and while it is away"
    again = come(broker, "alice", "pump", clean_start=False, properties=properties)
    assert again.channel.state == CONNECTED
    again.send(Disconnect(properties=Properties(session_expiry_interval=0)))
    assert code(broker, named("mallory", client="pump")) == SUCCESS, "it has ended: the id is free"


def test_sessions_of_nobody_are_not_a_users() -> None:
    broker = broker_with(others=ANY, client_ids="owned")
    come(broker, None, "c")
    assert code(broker, named("alice")) == CLIENT_IDENTIFIER_NOT_VALID
    assert code(broker, named(None)) == SUCCESS, "who cannot be told from its owner"


def test_by_default_whoever_gives_an_id_has_its_session() -> None:
    broker = broker_with(others=ANY)
    come(broker, "alice", "c")
    assert code(broker, named("mallory")) == SUCCESS


@pytest.mark.parametrize(
    ("pattern", "client_id", "accepted"),
    [
        ("%u", "ann", True),
        ("%u", "ann2", False),
        ("%u/*", "ann/pump", True),
        ("%u/*", "ann/", True),
        ("%u/*", "ann", False),
        ("%u/*", "anna/pump", False),
        ("dev-%u-*", "dev-ann-1", True),
        ("dev-%u-*", "dev-bob-1", False),
        ("%u/*", "", True),  # it is given one that nobody else has
    ],
)
def test_client_ids_have_the_form_that_is_set(pattern: str, client_id: str, accepted: bool) -> None:
    broker = broker_with(others=ANY, client_id_pattern=pattern)
    expected = SUCCESS if accepted else CLIENT_IDENTIFIER_NOT_VALID
    assert code(broker, named("ann", client=client_id)) == expected
    if client_id:
        assert code(broker, named(None, client=client_id)) == CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize("pattern", ["fixed", "*%u", "%u*x", "%u-%u-**"])
def test_a_form_of_client_ids_that_binds_nobody_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="client_id_pattern"):
        AccessSettings(client_id_pattern=pattern)


def test_a_reload_binds_client_ids(tmp_path: Path) -> None:
    broker = broker_with(others=ANY)
    come(broker, "alice", "c")
    broker.server.access.reload(AccessSettings(client_ids="owned"))
    assert code(broker, named("mallory")) == CLIENT_IDENTIFIER_NOT_VALID


def test_a_ban_ends_connections_and_can_be_lifted() -> None:
    broker = broker_with(others=ANY)
    clients = [come(broker, name, name) for name in "abc"]
    access = broker.server.access
    access.ban("user", "a", 10, "why")
    access.ban("client", "b", None, "why")
    broker.turn()
    assert [client.channel.finishing for client in clients] == [True, True, False]
    assert reason_of(from_address(broker, "x:1", named("a", client="other"))) == BANNED
    assert reason_of(from_address(broker, "x:1", named("other", client="b"))) == BANNED
    assert access.bans.lift("client", "b")
    assert reason_of(from_address(broker, "x:1", named("other", client="b"))) == SUCCESS
    access.ban("address", "memory", None, "why")
    broker.turn()
    assert clients[2].channel.finishing


def test_a_banned_user_cannot_come_by_token(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_with(jwt_key_file=key_file(tmp_path))
        broker.server.access.ban("user", "alice", None, "")
        assert (await arrive(broker, named("other name", token())))[1].reason == BANNED

    asyncio.run(main())


def test_a_user_has_so_many_sessions() -> None:
    broker = broker_with(max_sessions_per_user=2, others=ANY)
    first = come(broker, "u", "a")
    come(broker, "u", "b")
    assert Client(broker).connect(named("u", client="c")).reason == QUOTA_EXCEEDED
    assert Client(broker).connect(named("u", client="a")).reason == SUCCESS, "its own session"
    assert Client(broker).connect(named("v", client="c")).reason == SUCCESS
    assert first.channel.finishing
    broker.server.channels.copy()
    for channel in list(broker.server.channels):
        if channel.client_id == "b":
            broker.server.lost(channel)
    assert Client(broker).connect(named("u", client="d")).reason == SUCCESS


def test_a_user_has_so_many_subscriptions() -> None:
    broker = broker_with(max_subscriptions_per_user=2, others=ANY)
    one, other = come(broker, "u", "a"), come(broker, "u", "b")
    assert subscribe(one, "x") + subscribe(other, "x") == [1, 1]
    assert subscribe(one, "y") == [QUOTA_EXCEEDED]
    assert subscribe(one, "x") == [1], "replacing one is not one more"
    assert subscribe(come(broker, "v", "c"), "y") == [1]
    other.lose()
    assert subscribe(one, "y") == [1]


def test_a_user_keeps_so_many_retained_messages() -> None:
    broker = broker_with(max_retained_per_user=2, others=ANY)
    retained = broker.server.router.retained
    client, other = come(broker, "u", "a"), come(broker, "v", "b")

    def keep(client: Client, topic: str, payload: bytes = b"x", expiry: int | None = None) -> bool:
        properties = None if expiry is None else Properties(message_expiry_interval=expiry)
        client.send(Publish(topic, payload, retain=True, properties=properties))
        found = retained.get(topic)
        return found is not None and found.publisher == client.channel.client_id

    assert [keep(client, topic) for topic in ("1", "2", "3", "2")] == [True, True, False, True]
    assert keep(other, "3") and keep(other, "1"), "a message of another user is that one's then"
    assert keep(client, "4", expiry=5)
    assert not keep(client, "5")
    client.send(Publish("2", b"", retain=True))
    assert keep(client, "5")
    assert not keep(client, "6")
    broker.later(6)
    retained.expire(broker.server.hot.now)
    assert keep(client, "6"), "what expired counts no more"
    assert retained.users["u"].count == 2 and retained.users["v"].count == 2
    broker.server.publishing.route(Message("free", b"x", retain=True), None)
    assert retained.get("free") is not None


def test_a_user_keeps_so_many_bytes_of_retained_messages() -> None:
    broker = broker_with(max_retained_bytes_per_user=1000, others=ANY)
    client, other = come(broker, "u", "a"), come(broker, "v", "b")
    client.send(*(Publish(f"t/{number}", bytes(100), 1, True, packet_id=number) for number in (1, 2, 3)))
    assert [packet.reason for packet in client.packets() if isinstance(packet, Puback)] == [0x10, 0x10, 0x97]
    other.send(Publish("t/3", bytes(100), 1, True, packet_id=1))
    assert [packet.reason for packet in other.packets() if isinstance(packet, Puback)] == [0x10]
    retained = broker.server.router.retained
    assert 0 < retained.users["u"].used <= 1000
    for topic in ("t/1", "t/2", "t/3"):
        other.send(Publish(topic, b"", retain=True))
    assert (retained.users, retained.used) == ({}, 0)


def test_a_retained_will_counts_for_its_user() -> None:
    broker = broker_with(max_retained_per_user=1, others=ANY)
    for number in range(3):
        client = come(broker, "u", f"c{number}", will=Will(f"w/{number}", b"gone", 0, True))
        client.lose()
    assert [message.topic for message in broker.server.router.retained.match("#", 0.0)] == ["w/0"]
    assert broker.server.router.retained.users["u"].count == 1


# ---- secrets -----------------------------------------------------------------------------------------------------


def test_no_secret_is_ever_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "p4ssw0rd-nobody-may-see"
    good, bad = token(), token(exp=1)

    async def main() -> None:
        users = users_file(tmp_path, u=secret)
        broker = broker_with(password_file=users, jwt_key_file=key_file(tmp_path), ban_failures=2)
        for number, (user, password) in enumerate(
            [("u", secret.encode()), ("u", secret.encode() + b"x"), ("v", secret.encode()), (None, good), (None, bad)]
        ):
            for address in ("127.0.0.1:1", "10.0.0.1:1"):
                client = from_address(broker, address, named(user, password, f"c{number}"))
                await settled(client)
        client = Client(broker)
        client.feed(encode(named("u", secret.encode()), 5) * 2)  # a second CONNECT breaks the protocol
        await settled(client)
        broker.server.access.reload(broker.server.access.settings)

    asyncio.run(main())
    assert secret not in repr(named("u", secret.encode()))
    assert "is refused" in caplog.text and "is banned" in caplog.text and "broke the protocol" in caplog.text
    for hidden in (secret, good.decode(), bad.decode(), good.decode().split(".")[2]):
        assert hidden not in caplog.text
