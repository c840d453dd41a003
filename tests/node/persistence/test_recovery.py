"""Records that are unusual, left over or broken: what a start makes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.disk.errors import StorageError
from headwater.node.access.settings import AccessSettings
from headwater.node.config import Config
from headwater.node.persistence.memory import MemoryBackend
from headwater.node.persistence.records import (
    DELIVERY,
    GROUP,
    MESSAGE,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    number_in,
)
from headwater.wire.packets import (
    Connack,
    Connect,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, SUCCESS
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect, count, passing, publish, subscribe


def found(broker: DurableBroker, client_id: str, **fields: object) -> list[Publish]:
    """What a client finds waiting."""
    client = connect(broker, client_id, settle=False, **fields)
    broker.settle()
    return client.messages()


# ---- flights ---------------------------------------------------------------------------------------------------


def test_a_flight_that_is_too_large_now_does_not_take_the_message_from_others() -> None:
    broker = DurableBroker()
    clients = [connect(broker, name) for name in ("a", "b")]
    for client in clients:
        subscribe(broker, client, "t", 1)
    publish(passing(broker), "t", bytes(1000))
    broker.settle()
    broker = broker.crash()
    small = Properties(session_expiry_interval=1000, maximum_packet_size=100)
    assert found(broker, "a", properties=small) == []
    assert count(broker, MESSAGE) == 1
    broker = broker.crash()
    assert [message.payload for message in found(broker, "b")] == [bytes(1000)]


def test_packet_ids_go_on_behind_those_in_flight() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    for packet_id in (1, 2, 3):
        publish(passing(broker), "t", packet_id=packet_id)
    broker.settle()
    reader.send(Puback(2))
    broker.settle()
    broker = broker.crash()
    reader = connect(broker, "a")
    publish(passing(broker), "t")
    assert [message.packet_id for message in reader.messages()] == [4]


def test_what_was_in_flight_comes_before_what_waits() -> None:
    broker = DurableBroker()
    narrow = Properties(session_expiry_interval=1000, receive_maximum=2)
    reader = connect(broker, "a", properties=narrow)
    subscribe(broker, reader, "t", 2)
    publisher = connect(broker, "p")
    for number in range(6):
        publish(publisher, "t", b"%d" % number, qos=1 + number % 2, packet_id=number + 1)
    broker.settle()
    broker = broker.crash()
    assert [message.payload for message in found(broker, "a")] == [b"%d" % number for number in range(6)]


# ---- groups ----------------------------------------------------------------------------------------------------


def test_what_waited_in_a_group_that_nobody_is_in_any_more_goes() -> None:
    """The members that are left are gone with their connections, and nobody is there who could get it."""
    broker = DurableBroker()
    durable = connect(broker, "durable")
    subscribe(broker, durable, "$share/g/t", 1)
    busy = connect(broker, "busy", clean_start=True, properties=Properties(receive_maximum=1))
    subscribe(broker, busy, "$share/g/t", 1)
    durable.send(Unsubscribe(9, ["$share/g/t"]))
    publisher = passing(broker)
    for packet_id in (1, 2):
        publish(publisher, "t", packet_id=packet_id)
    broker.settle()
    assert count(broker, DELIVERY) == 2  # one waits, one is in flight to a member that would be gone
    broker = broker.crash()
    broker.settle()
    assert [count(broker, kind) for kind in (GROUP, DELIVERY, MESSAGE)] == [0, 0, 0]


def test_the_same_for_a_group_that_its_member_may_not_be_in_any_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    rules = tmp_path_factory.mktemp("rules") / "acl"
    rules.write_text("topic readwrite #\n")
    config = Config(sys_interval=0, access=AccessSettings(acl_file=str(rules)))
    broker = DurableBroker(config=config)
    member = connect(broker, "a")
    subscribe(broker, member, "$share/g/t", 1)
    member.lose()
    publish(passing(broker), "t")
    broker.settle()
    assert count(broker, DELIVERY) == 1
    rules.write_text("topic deny t\ntopic readwrite #\n")
    broker = broker.crash()
    broker.settle()
    assert [count(broker, kind) for kind in (SUBSCRIPTION, GROUP, DELIVERY, MESSAGE)] == [0, 0, 0, 0]


# ---- what is left over -----------------------------------------------------------------------------------------


def test_a_start_writes_only_what_has_changed() -> None:
    """A hundred thousand sessions that are away are as they were."""
    broker = DurableBroker()
    for number in range(20):
        connect(broker, f"away-{number}").lose()
    connect(broker, "connected")
    broker.settle()
    broker = broker.crash()
    assert broker.committer.batch is not None
    assert len(broker.committer.batch.puts) == 1


# ---- what is unusual -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("payload", [b"", bytes(100_000)], ids=["empty", "large"])
@pytest.mark.parametrize("topic", ["t", "ü/💧", "x" * 65_535, "/" * 100], ids=["short", "unicode", "long", "slashes"])
def test_unusual_messages(topic: str, payload: bytes, hot: bool) -> None:
    broker = DurableBroker()
    broker.server.hot.enabled = hot
    reader = connect(broker, "a")
    subscribe(broker, reader, "#", 1)
    reader.lose()
    publish(passing(broker), topic, payload)
    broker.settle()
    (message,) = found(broker.crash(), "a")
    assert (message.topic, message.payload) == (topic, payload)


@pytest.mark.parametrize("client_id", ["a/b", "ü💧", " ", "x" * 65_535, '"\\\n', "$share/g/t"])
def test_unusual_client_ids(client_id: str) -> None:
    broker = DurableBroker()
    reader = connect(broker, client_id, will=Will("w", b"", 1))
    for name in ("$share/ü g/+/#", "#", "+/a"):
        subscribe(broker, reader, name, 1)
    publish(connect(broker, "p"), "t/a")
    broker.settle()
    broker = broker.crash()
    assert set(broker.server.sessions[client_id].subscriptions) == {"$share/ü g/+/#", "#", "+/a"}
    assert [message.topic for message in found(broker, client_id)] == ["t/a", "t/a", "w", "w"]


def test_the_longest_names_of_who_retained_a_message(tmp_path_factory: pytest.TempPathFactory) -> None:
    rules = tmp_path_factory.mktemp("rules") / "acl"
    rules.write_text("pattern readwrite #\n")
    config = Config(sys_interval=0, access=AccessSettings(acl_file=str(rules), acl_retained=True))
    broker = DurableBroker(config=config)
    client = passing(broker, "c" * 65_535, username="u" * 65_535)
    publish(client, "t", retain=True)
    broker.settle()
    message = broker.crash().server.router.retained.get("t")
    assert message is not None
    assert (message.publisher, message.owner) == ("c" * 65_535, "u" * 65_535)


def test_more_identifiers_than_fit_into_two_bytes() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    names = ["/".join("+" if number >> bit & 1 else "x" for bit in range(17)) for number in range(65_600)]
    for start in range(0, len(names), 4096):
        requests = [SubscribeRequest(name, 1) for name in names[start : start + 4096]]
        reader.send(Subscribe(9, requests, Properties(subscription_identifiers=[7])))
    broker.settle()
    reader.lose()
    publish(passing(broker), "/".join("x" * 17))
    broker.settle()
    (delivery,) = broker.crash().server.sessions["a"].outbound.queue or ()
    assert delivery.identifiers == [7] * 65_600


def test_a_power_cut_while_what_waited_in_an_ended_session_is_given_up() -> None:
    """Which is done in pieces, over several commits."""
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.lose()
    publisher = passing(broker)
    for packet_id in range(1, 101):
        publish(publisher, "t", packet_id=packet_id)
    broker.settle()
    server = broker.server
    server.hot.until = 0.0  # the turn has no time left for it
    server.ending.remove(server.sessions["a"])
    server.hot.flush()
    broker.committer.write()
    broker = broker.crash(None)
    assert broker.recovered.deliveries > 0, "some are left"
    broker.settle()
    assert list(broker.backend.scan(b"")) == []


# ---- what is broken --------------------------------------------------------------------------------------------


def _cut(backend: MemoryBackend, kind: bytes) -> None:
    ((key, value),) = backend.scan(kind)
    backend.write([(key, value[:5])], [])


def _remove(backend: MemoryBackend, kind: bytes) -> None:
    backend.write([], [key for key, _ in backend.scan(kind)])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda backend: _cut(backend, DELIVERY),
        lambda backend: _cut(backend, SUBSCRIPTION),
        lambda backend: _cut(backend, RETAINED),
        lambda backend: _cut(backend, SESSION),
        lambda backend: _remove(backend, MESSAGE),
        lambda backend: backend.write([(b"s\x00", b"{}")], []),
    ],
)
def test_what_cannot_be_understood_is_said(spoil: Callable[[MemoryBackend], None]) -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    publish(passing(broker), "t", retain=True)
    broker.settle()
    spoil(broker.backend)
    with pytest.raises(StorageError, match="cannot be understood"):
        broker.crash(None)


def test_numbers_are_not_used_again() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.lose()
    publish(passing(broker), "t")
    broker.settle()
    highest = max(
        number_in(key, at) for kind, at in ((MESSAGE, 1), (DELIVERY, 9)) for key, _ in broker.backend.scan(kind)
    )
    broker = broker.crash()
    assert broker.journal.next_number > highest


def test_a_session_is_still_its_users() -> None:
    """Where client ids belong to users, a start does not set them free."""
    config = Config(sys_interval=0, allow_anonymous=True, access=AccessSettings(client_ids="owned"))
    broker = DurableBroker(config=config)
    connect(broker, "pump", username="alice")
    broker = broker.crash()
    answers = {}
    for user in ("mallory", None, "alice"):
        client = Client(broker)
        client.version = 5
        client.send(Connect("pump", 5, clean_start=False, username=user))
        broker.settle()
        (answer,) = client.packets()
        assert isinstance(answer, Connack)
        answers[user] = answer.reason
    assert answers == {"mallory": CLIENT_IDENTIFIER_NOT_VALID, None: CLIENT_IDENTIFIER_NOT_VALID, "alice": SUCCESS}
