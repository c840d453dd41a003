"""What sessions keep beside messages: all of it counts, in total and by user, and more is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.node.access.quotas import SESSION_SIZE, SUBSCRIPTION_SIZE, Quotas
from headwater.node.access.settings import AccessSettings
from headwater.node.config import Config
from headwater.wire.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.reasons import QUOTA_EXCEEDED
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect

LONG = "x" * 60_000
KEPT = Properties(session_expiry_interval=1000)


def new_broker(memory: int = 200_000, **access: Any) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, max_session_memory=memory, access=AccessSettings(**access)))


def quotas(broker: MemoryBroker) -> Quotas:
    check(broker.server)
    return broker.server.access.quotas


def come(broker: MemoryBroker, client_id: str, version: int = V5, **fields: Any) -> tuple[Client, int]:
    client = Client(broker)
    return client, client.connect(Connect(client_id, version, **fields)).reason


def subscribe(client: Client, *filters: str) -> list[int]:
    client.send(Subscribe(1, [SubscribeRequest(each) for each in filters]))
    (answer,) = [packet for packet in client.packets() if isinstance(packet, Suback)]
    return answer.reasons


@pytest.mark.parametrize(("version", "refused"), [(V5, QUOTA_EXCEEDED), (V311, 3)])
def test_long_client_ids_are_refused_when_there_is_no_room(version: int, refused: int) -> None:
    broker = new_broker()
    answers = [come(broker, f"{number}{LONG}", version, clean_start=True)[1] for number in range(5)]
    assert answers == [0, 0, 0, refused, refused]
    assert come(broker, f"1{LONG}", version, clean_start=True)[1] == 0, "one that is there may come back"
    assert quotas(broker).used <= 200_000


@pytest.mark.parametrize(("version", "refused"), [(V5, QUOTA_EXCEEDED), (V311, 0x80)])
@pytest.mark.parametrize("share", ["", "$share/g/"])
def test_long_filters_are_refused_when_there_is_no_room(version: int, refused: int, share: str) -> None:
    broker = new_broker(1_000_000)
    client, _ = come(broker, "c", version)
    answers = subscribe(client, *(f"{share}{number}{LONG}" for number in range(10)))
    kept = answers.count(0)
    assert answers == [0] * kept + [refused] * (10 - kept) and kept == (4 if share else 8)
    assert subscribe(client, f"{share}0{LONG}") == [0], "replacing one is not one more"
    client.send(Unsubscribe(2, [f"{share}0{LONG}"]))
    client.packets()
    assert subscribe(client, f"{share}new{LONG}") == [0]
    assert quotas(broker).used <= 1_000_000


@pytest.mark.parametrize(("version", "refused"), [(V5, QUOTA_EXCEEDED), (V311, 3)])
def test_wills_count_of_clients_that_are_there_and_away(version: int, refused: int) -> None:
    broker = new_broker()
    will = Will("w", bytes(60_000), properties=Properties(will_delay_interval=900) if version == V5 else None)
    properties = KEPT if version == V5 else None
    come(broker, "away", version, clean_start=version == V5, will=will, properties=properties)[0].lose()
    there = 1 if version == V5 else 0  # in 3.1.1 it has been published
    assert (quotas(broker).used > 60_000) == bool(there)
    answers = [come(broker, f"{number}", version, will=will)[1] for number in range(4)]
    assert answers == [0] * (3 - there) + [refused] * (1 + there)
    client, _ = come(broker, "0", version)
    client.send(Disconnect())
    assert come(broker, "5", version, will=will)[1] == 0, "a will that was discarded has made room"
    broker.later(1001)
    check(broker.server)


def test_topic_aliases_count_both_ways() -> None:
    broker = new_broker()
    greedy, _ = come(broker, "greedy", properties=Properties(topic_alias_maximum=65535))
    subscribe(greedy, "#")
    publisher, _ = come(broker, "p")
    for number in range(5):
        publisher.send(Publish(f"{number}{LONG}", b"x", 1, packet_id=1))
    aliases = [message.properties and message.properties.topic_alias for message in greedy.messages()]
    assert aliases == [1, 2, 3, None, None], "without room, topics go as they are"
    assert [len(message.topic) for message in greedy.messages()] == []
    publisher.packets()
    publisher.send(Publish("z" * 60_000, b"x", 1, packet_id=2, properties=Properties(topic_alias=1)))
    (answer,) = publisher.packets()
    assert isinstance(answer, Disconnect) and answer.reason == QUOTA_EXCEEDED
    greedy.lose()
    publisher, _ = come(broker, "p2")
    for number in range(50):
        publisher.send(Publish(f"{number}{LONG}", b"x", 1, packet_id=2, properties=Properties(topic_alias=1)))
    assert all(isinstance(packet, Puback) for packet in publisher.packets()), "an alias that changes counts once"
    assert quotas(broker).used < 70_000
    publisher.lose()
    assert quotas(broker).used == 0


def test_open_qos_2_messages_of_a_session_count() -> None:
    """65,535 ids of a 3.1.1 session are megabytes."""
    broker = new_broker(100_000)
    client, _ = come(broker, "c", V311, clean_start=False)
    client.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 1025)))
    assert sum(isinstance(packet, Pubrec) for packet in client.packets()) == 1024
    assert quotas(broker).used > 64 * 1000
    client.send(*(Pubrel(number) for number in range(1, 1025)))
    assert quotas(broker).used < 2000
    client.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 4000)))
    assert client.channel.session is None, "no memory for more"
    check(broker.server)


def test_a_user_has_so_much_memory() -> None:
    broker = new_broker(10_000_000, max_session_memory_per_user=170_000)
    client, _ = come(broker, "c", username="u")
    assert subscribe(client, f"1{LONG}", f"2{LONG}") == [0, QUOTA_EXCEEDED]
    assert come(broker, "d", username="u", will=Will("w", bytes(60_000)))[1] == QUOTA_EXCEEDED
    other, _ = come(broker, "o", username="v")
    assert subscribe(other, f"1{LONG}") == [0]
    anonymous, _ = come(broker, "a")
    assert subscribe(anonymous, *(f"{number}{LONG}" for number in range(20))) == [0] * 20
    assert set(quotas(broker).users) == {"u", "v"}
    for each in (client, other, anonymous):
        each.lose()
    assert (quotas(broker).users, quotas(broker).used) == ({}, 0)


def test_a_session_takes_what_it_keeps_along_to_another_user() -> None:
    broker = new_broker()
    client, _ = come(broker, "c", username="u", properties=KEPT)
    subscribe(client, "a", "b")
    client.lose()
    come(broker, "c", username="somebody", clean_start=False, properties=KEPT)
    (usage,) = quotas(broker).users.values()
    assert set(quotas(broker).users) == {"somebody"} and usage.subscriptions == 2
    assert usage.used == SESSION_SIZE + len("c" + "somebody") + 2 * (SUBSCRIPTION_SIZE + 2)


def test_sums_are_known_after_a_restart() -> None:
    broker = DurableBroker(config=Config(sys_interval=0))
    will = Will("w", bytes(1000), properties=Properties(will_delay_interval=900))
    client = connect(broker, "c", username="u", will=will)
    client.send(Subscribe(1, [SubscribeRequest("a/b", 1), SubscribeRequest("$share/g/x", 1)]))
    client.send(*(Publish("t", b"", 2, packet_id=number) for number in range(1, 50)))
    client.lose()
    broker.settle()
    before = broker.server.access.quotas.used
    broker = broker.crash(None)
    check(broker.server)
    assert broker.server.access.quotas.used == before > 1000
    assert broker.server.access.quotas.users["u"].subscriptions == 2


def test_a_bound_that_is_lower_than_what_is_there_ends_nothing() -> None:
    broker = new_broker()
    client, _ = come(broker, "c", properties=KEPT)
    subscribe(client, LONG)
    broker.server.access.quotas.limit = 1000
    assert subscribe(client, "more") == [QUOTA_EXCEEDED]
    client.lose()
    back = Client(broker)
    answer = back.connect(Connect("c", V5, clean_start=False, properties=KEPT))
    assert isinstance(answer, Connack) and (answer.reason, answer.session_present) == (0, True)


@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest", "refuse"])
def test_what_waits_for_a_user_is_bounded(policy: str) -> None:
    access = AccessSettings(max_queued_bytes_per_user=10_000)
    broker = MemoryBroker(Config(sys_interval=0, queue_full=policy, access=access))  # type: ignore[arg-type]
    for client_id, user in (("a", "u"), ("b", "u"), ("c", "v")):
        client, _ = come(broker, client_id, username=user, properties=KEPT)
        client.send(Subscribe(1, [SubscribeRequest(client_id, 1)]))
        client.lose()
    publisher, _ = come(broker, "p")
    publisher.send(*(Publish("a", bytes(1000), 1, packet_id=number) for number in range(1, 6)))
    publisher.send(*(Publish("b", bytes(1000), 1, packet_id=number) for number in range(6, 20)))
    publisher.send(*(Publish("c", bytes(1000), 1, packet_id=number) for number in range(20, 25)))
    answers = [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)]
    waiting = {each: broker.server.sessions[each].outbound.waiting() for each in "abc"}
    assert (waiting["a"], waiting["c"]) == (5, 5), "neither the user's other queues nor other users' pay for it"
    assert answers.count(QUOTA_EXCEEDED) == (19 - sum(waiting.values()) + 5 if policy == "refuse" else 0)
    assert 2 <= waiting["b"] <= 3
    assert quotas(broker).users["u"].queues.used <= 10_000 + 1500 * (policy == "refuse")
    broker.later(1001)
    assert quotas(broker).users == {}
