"""What waits for the disk and what does not, what is written and what need not be."""

from __future__ import annotations

import dataclasses

import pytest

from headwater.message import OVERHEAD, Delivery, Message
from headwater.node.config import Config
from headwater.node.persistence.journal import NEVER_WITHHELD
from headwater.node.persistence.records import DELIVERY, MESSAGE, RECEIVED, RETAINED, SESSION, SUBSCRIPTION
from headwater.session.journaled import AWAY
from headwater.session.session import Session
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker

KEPT = Properties(session_expiry_interval=1000)


def connect(broker: DurableBroker, client_id: str, *, settle: bool = True, **fields: object) -> Client:
    """A 5.0 client with a session that is kept."""
    client = Client(broker)
    packet = dataclasses.replace(Connect(client_id, 5, clean_start=False, properties=KEPT), **fields)  # type: ignore[arg-type]
    client.version = packet.version
    client.send(packet)
    if settle:
        broker.settle()
        client.packets()
    return client


def passing(broker: DurableBroker, client_id: str = "passing", **fields: object) -> Client:
    """One whose session ends with its connection."""
    return connect(broker, client_id, clean_start=True, properties=None, **fields)


def subscribe(broker: DurableBroker, client: Client, name: str, qos: int) -> None:
    client.send(Subscribe(9, [SubscribeRequest(name, qos)]))
    broker.settle()
    client.packets()


def publish(
    client: Client, topic: str, payload: bytes = b"x", qos: int = 1, packet_id: int = 7, retain: bool = False
) -> None:
    client.send(Publish(topic, payload, qos, retain, False, packet_id if qos else 0))


def count(broker: DurableBroker, kind: bytes) -> int:
    return len(list(broker.backend.scan(kind)))


# ---- what waits ------------------------------------------------------------------------------------------------


def waits(broker: DurableBroker, client: Client, kind: type[Packet]) -> bool:
    """Whether a packet of this kind came only when the disk had it."""
    before = [packet for packet in client.packets() if isinstance(packet, kind)]
    broker.settle()
    after = [packet for packet in client.packets() if isinstance(packet, kind)]
    assert len(before) + len(after) == 1
    return bool(after)


def test_connack_waits() -> None:
    broker = DurableBroker()
    client = connect(broker, "a", settle=False)
    assert waits(broker, client, Connack)


def test_suback_and_unsuback_wait() -> None:
    broker = DurableBroker()
    client = connect(broker, "a")
    client.send(Subscribe(9, [SubscribeRequest("t", 1)]))
    assert waits(broker, client, Suback)
    client.send(Unsubscribe(9, ["t"]))
    assert waits(broker, client, Unsuback)


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_wait_when_a_session_is_kept(qos: int) -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 2)
    publisher = passing(broker)
    publish(publisher, "t", qos=qos)
    assert waits(broker, publisher, Puback if qos == 1 else Pubrec)


def test_puback_of_a_retained_message_waits() -> None:
    broker = DurableBroker()
    publisher = passing(broker)
    publish(publisher, "t", retain=True)
    assert waits(broker, publisher, Puback)


def test_puback_does_not_wait_when_nobody_keeps_anything() -> None:
    broker = DurableBroker()
    subscribe(broker, passing(broker, "reader"), "t", 1)
    publisher = passing(broker)
    publish(publisher, "t")
    assert not waits(broker, publisher, Puback)
    assert broker.committer.batch is None


def test_qos_1_to_subscribers_does_not_wait_and_qos_2_does() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    publisher = passing(broker)
    publish(publisher, "t", qos=1)
    assert [message.qos for message in reader.messages()] == [1]
    broker.settle()
    publish(publisher, "t", qos=2, packet_id=8)
    assert waits(broker, reader, Publish)


def test_pubrel_and_pubcomp_wait() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    publisher = connect(broker, "p")
    publish(publisher, "t", qos=2)
    broker.settle()
    (message,) = reader.messages()
    reader.send(Pubrec(message.packet_id))
    assert waits(broker, reader, Pubrel)
    publisher.packets()
    publisher.send(Pubrel(7))
    assert waits(broker, publisher, Pubcomp)


def test_what_comes_behind_an_acknowledgement_waits_behind_it() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    publisher = passing(broker)
    publish(publisher, "t")
    publisher.send(Pingreq())
    assert publisher.packets() == []
    broker.settle()
    assert [type(packet) for packet in publisher.packets()] == [Puback, Pingresp]


def test_others_do_not_wait() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    bystander = passing(broker, "bystander")
    publish(passing(broker), "t")
    bystander.send(Pingreq())
    assert [type(packet) for packet in bystander.packets()] == [Pingresp]


def test_changes_during_a_commit_are_one_commit_more() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    publisher = passing(broker)
    publish(publisher, "t", packet_id=1)
    before = broker.journal.commits
    for packet_id in range(2, 100):
        publish(publisher, "t", packet_id=packet_id)
    assert publisher.packets() == []
    broker.step()
    broker.step()
    assert [packet.packet_id for packet in publisher.packets()] == [1]  # type: ignore[attr-defined]
    broker.settle()
    assert len(publisher.packets()) == 98
    assert broker.journal.commits == before + 1


def test_bytes_that_wait_are_bounded() -> None:
    """A disk that hangs: who has been promised something is not sent more than `outbound_buffer` behind it, and is not
    read from any more."""
    broker = DurableBroker(config=Config(sys_interval=0, outbound_buffer=4096))
    subscribe(broker, connect(broker, "a"), "t", 1)
    both = passing(broker, "both")
    subscribe(broker, both, "news", 0)
    news = passing(broker, "news")
    publish(both, "t")
    for _ in range(3000):
        publish(news, "news", bytes(1000), qos=0)
    assert both.channel.withheld_size < 4096 + 2_000_000
    assert both.channel.congested
    assert both.watched[0] is False
    broker.settle()
    assert isinstance(both.packets()[0], Puback)
    assert both.watched[0] is True
    assert both.channel.withheld_size == 0


def test_a_connection_that_ends_says_its_last_words_behind_what_waits() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    publisher = connect(broker, "p")
    publish(publisher, "t")
    connect(broker, "p", settle=False)
    assert publisher.packets() == []
    broker.settle()
    assert [type(packet) for packet in publisher.packets()] == [Puback, Disconnect]
    assert publisher.socket.shut


def test_a_client_that_goes_leaves_nothing_behind() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    publisher = passing(broker)
    used = broker.server.budget.used
    publish(publisher, "t", bytes(10))
    publisher.lose()
    broker.settle()
    assert broker.server.budget.used - used < 1000
    assert broker.server.hot.withholding == []


def test_async_acknowledges_at_once_and_writes_later() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    broker.journal.interval = 0.05
    broker.server.hot.durable = NEVER_WITHHELD
    publisher = passing(broker)
    publish(publisher, "t")
    assert [type(packet) for packet in publisher.packets()] == [Puback]
    assert broker.committer.batch is None
    assert broker.committer.alarms == 1
    broker.journal.begin()
    broker.settle()
    assert count(broker, DELIVERY) == 1


# ---- what is written -------------------------------------------------------------------------------------------


def test_a_message_is_stored_once_for_all_sessions() -> None:
    broker = DurableBroker()
    for name in ("a", "b", "c"):
        subscribe(broker, connect(broker, name), "t/#" if name == "a" else "t/x", 1)
    publish(passing(broker), "t/x")
    broker.settle()
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (1, 3)


def test_what_was_acknowledged_in_time_never_comes_to_the_disk() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    publisher = passing(broker)
    publish(publisher, "t", packet_id=1)  # a commit begins, and lasts
    publish(publisher, "t", packet_id=2)
    first, second = reader.messages()
    reader.send(Puback(second.packet_id))
    while broker.step():
        assert count(broker, MESSAGE) <= 1
    assert len(publisher.packets()) == 2
    reader.send(Puback(first.packet_id))
    broker.settle()
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (0, 0)


def test_only_the_end_of_deliveries_is_not_synced() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    publish(passing(broker), "t")
    broker.settle()
    syncs = broker.journal.syncs
    reader.send(Puback(reader.messages()[0].packet_id))
    broker.settle()
    assert broker.journal.syncs == syncs
    assert count(broker, DELIVERY) == 0


def test_nothing_of_passing_clients_is_written() -> None:
    broker = DurableBroker()
    reader = passing(broker, "reader")
    subscribe(broker, reader, "t", 2)
    publish(passing(broker), "t", qos=2)
    broker.settle()
    assert broker.backend.get(b"") is None
    assert list(broker.backend.scan(b"")) == []


def test_the_end_of_a_session_leaves_nothing() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    for name in ("t", "$share/g/t"):
        subscribe(broker, reader, name, 2)
    publisher = connect(broker, "p")
    publish(publisher, "t", qos=2)
    broker.settle()
    reader.lose()
    publish(publisher, "t", qos=1, packet_id=8)
    broker.settle()
    assert count(broker, SESSION) == 2
    for client in ("a", "p"):
        passing(broker, client)
    broker.settle()
    assert list(broker.backend.scan(b"")) == []


def test_a_delivery_that_a_hook_gives_to_others_too_is_one_for_each() -> None:
    broker = DurableBroker()
    for name in ("a", "b"):
        connect(broker, name).lose()
    reader = connect(broker, "c")
    subscribe(broker, reader, "t", 1)
    reader.lose()

    @broker.hooks.on("select_subscribers")
    def all_of_them(chosen: list[tuple[Session, Delivery]], message: Message) -> list[tuple[Session, Delivery]]:
        ((_, delivery),) = chosen
        return [(session, delivery) for session in broker.server.sessions.values() if session.durable]

    publish(passing(broker), "t")
    broker.settle()
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (1, 3)
    for name in ("a", "b", "c"):
        passing(broker, name)
    broker.settle()
    assert list(broker.backend.scan(b"")) == []


def test_sys_topics_are_not_written() -> None:
    broker = DurableBroker()
    broker.server.publishing.route(Message("$SYS/broker/uptime", b"1", retain=True), None)
    broker.server.publishing.route(Message("other", b"1", retain=True), None)
    broker.turn()
    broker.settle()
    assert [key for key, _ in broker.backend.scan(RETAINED)] == [b"rother"]


def test_retained_messages_that_expire_are_removed_from_disk() -> None:
    broker = DurableBroker()
    publisher = passing(broker)
    publisher.send(Publish("t", b"x", 1, True, False, 1, Properties(message_expiry_interval=5)))
    broker.settle()
    assert count(broker, RETAINED) == 1
    broker.later(6)
    subscribe(broker, publisher, "t", 0)
    publish(publisher, "other", retain=True)
    broker.settle()
    assert [key for key, _ in broker.backend.scan(RETAINED)] == [b"rother"]


# ---- what is found again ---------------------------------------------------------------------------------------


def test_flights_come_again_with_their_packet_ids() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    publisher = connect(broker, "p")
    for packet_id in (1, 2):
        publish(publisher, "t", b"%d" % packet_id, qos=packet_id, packet_id=packet_id)
    broker.settle()
    sent = {message.payload: message.packet_id for message in reader.messages()}
    broker = broker.crash()
    reader = connect(broker, "a", settle=False)
    broker.settle()
    connack, *again = reader.packets()
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert {m.payload: (m.packet_id, m.dup) for m in again if isinstance(m, Publish)} == {
        payload: (packet_id, True) for payload, packet_id in sent.items()
    }


def test_packet_ids_go_on_where_they_were() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    publisher = passing(broker)
    for _ in range(3):
        publish(publisher, "t")
        reader.send(*[Puback(message.packet_id) for message in reader.messages()])
    reader.lose()
    broker.settle()
    broker = broker.crash()
    reader = connect(broker, "a")
    publish(passing(broker), "t")
    assert [message.packet_id for message in reader.messages()] == [4]


def test_received_ids_are_known_again() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    publisher = connect(broker, "p")
    publish(publisher, "t", qos=2)
    broker.settle()
    broker = broker.crash()
    assert count(broker, RECEIVED) == 1
    publisher = connect(broker, "p")
    publish(publisher, "t", qos=2)
    broker.settle()
    assert [type(packet) for packet in publisher.packets()] == [Pubrec]
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert len(reader.messages()) == 1


def test_all_of_a_subscription_and_of_a_message_is_found_again() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    reader.send(
        Subscribe(9, [SubscribeRequest("t/+", 1, True, True, 1)], Properties(subscription_identifiers=[268_435_455]))
    )
    broker.settle()
    reader.lose()
    properties = Properties(
        payload_format_indicator=1,
        message_expiry_interval=100,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\x00\xff",
        user_properties=[("a", "1"), ("a", "2")],
    )
    passing(broker).send(Publish("t/é", b"\x00\xff", 2, True, False, 1, properties))
    broker.settle()
    broker = broker.crash()
    (subscription,) = broker.server.sessions["a"].subscriptions.values()
    assert (subscription.name, subscription.qos, subscription.share) == ("t/+", 1, None)
    assert (subscription.no_local, subscription.retain_as_published, subscription.retain_handling) == (True, True, 1)
    assert subscription.identifier == 268_435_455
    reader = connect(broker, "a", settle=False)
    broker.settle()
    (message,) = reader.messages()
    assert (message.topic, message.payload, message.qos, message.retain) == ("t/é", b"\x00\xff", 1, True)
    assert message.properties is not None
    assert 98 <= (message.properties.message_expiry_interval or 0) <= 100
    assert message.properties == dataclasses.replace(
        properties,
        subscription_identifiers=[268_435_455],
        message_expiry_interval=message.properties.message_expiry_interval,
    )


def test_messages_that_waited_in_a_group_go_on_waiting_there() -> None:
    broker = DurableBroker()
    for name in ("a", "b"):
        member = connect(broker, name)
        subscribe(broker, member, "$share/g/t", 1)
        member.lose()
    publish(passing(broker), "t")
    broker.settle()
    broker = broker.crash()
    member = connect(broker, "b", settle=False)
    broker.settle()
    assert len(member.messages()) == 1


@pytest.mark.parametrize("hot", [True, False])
def test_what_a_passing_member_has_not_acknowledged_is_the_groups_again(hot: bool) -> None:
    broker = DurableBroker()
    broker.server.hot.enabled = hot
    kept = connect(broker, "kept")
    subscribe(broker, kept, "$share/g/t", 1)
    kept.lose()
    member = passing(broker, "member")
    subscribe(broker, member, "$share/g/t", 1)
    publisher = passing(broker, "publisher")
    for packet_id in (1, 2):
        publish(publisher, "t", b"%d" % packet_id, packet_id=packet_id)
    broker.settle()
    first, _ = member.messages()
    member.send(Puback(first.packet_id))
    broker.settle()
    broker = broker.crash(None)
    kept = connect(broker, "kept", settle=False)
    broker.settle()
    assert [message.payload for message in kept.messages()] == [b"2"]


def test_a_will_is_published_after_a_crash() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "will/#", 1)
    passing(broker, "p", will=Will("will/p", b"gone", 1))
    connect(broker, "q", will=Will("will/q", b"gone", 1, properties=Properties(will_delay_interval=30)))
    connect(broker, "r", will=Will("will/r", b"gone", 1, properties=Properties(will_delay_interval=30)))
    broker.settle()
    broker = broker.crash()
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert [message.topic for message in reader.messages()] == ["will/p"]
    assert set(broker.server.sessions) == {"a", "q", "r"}
    connect(broker, "q")
    broker.later(31)
    broker.settle()
    assert [message.topic for message in reader.messages()] == ["will/r"]


def test_a_will_is_published_once() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "will", 1)
    reader.lose()
    passing(broker, "p", will=Will("will", b"gone", 1))
    broker.settle()
    broker = broker.crash()
    broker.settle()
    broker = broker.crash()
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert len(reader.messages()) == 1


def test_a_will_that_was_called_off_is_not_published() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "will", 1)
    client = connect(broker, "p", will=Will("will", b"gone", 1))
    client.send(Disconnect())
    broker.settle()
    broker = broker.crash()
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert reader.messages() == []


def test_sessions_expire_after_a_crash() -> None:
    broker = DurableBroker()
    connect(broker, "connected", properties=Properties(session_expiry_interval=10))
    connect(broker, "away", properties=Properties(session_expiry_interval=10)).lose()
    connect(broker, "ever", properties=Properties(session_expiry_interval=0xFFFFFFFF)).lose()
    broker.settle()
    broker = broker.crash()
    assert set(broker.server.sessions) == {"connected", "away", "ever"}
    broker.later(11)
    broker.settle()
    assert set(broker.server.sessions) == {"ever"}
    assert set(broker.crash().server.sessions) == {"ever"}


# ---- memory ----------------------------------------------------------------------------------------------------


def test_content_that_waits_is_put_away_above_the_bound() -> None:
    broker = DurableBroker(config=Config(sys_interval=0, queue_memory=50_000))
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.lose()
    publisher = passing(broker)
    for number in range(200):
        publish(publisher, "t", b"%03d" % number + bytes(10_000), packet_id=number + 1)
        broker.settle()
    queue = broker.server.sessions["a"].outbound.queue
    assert queue is not None
    here = [delivery for delivery in queue if delivery.message is not AWAY]
    assert 0 < len(here) < 10
    assert broker.server.budget.used < 50_000 + 200 * OVERHEAD + 20_000
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert [message.payload[:3] for message in reader.messages()] == [b"%03d" % number for number in range(200)]
    for packet_id in range(1, 201):
        reader.send(Puback(packet_id))
    broker.settle()
    assert broker.server.budget.used == 0
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (0, 0)


def test_content_stays_away_after_a_crash() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.lose()
    publisher = passing(broker)
    for number in range(10):
        publish(publisher, "t", bytes(10_000), packet_id=number + 1)
    broker.settle()
    broker = broker.crash()
    assert broker.server.budget.used <= 10 * OVERHEAD
    assert broker.recovered.deliveries == 10


def test_dropped_content_is_removed_from_disk() -> None:
    broker = DurableBroker(
        config=Config(sys_interval=0, max_queued_messages=5, queue_full="drop_oldest", queue_memory=0)
    )
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.lose()
    publisher = passing(broker)
    for number in range(20):
        publish(publisher, "t", b"%02d" % number, packet_id=number + 1)
        broker.settle()
    assert (count(broker, MESSAGE), count(broker, DELIVERY)) == (5, 5)
    broker = broker.crash()
    reader = connect(broker, "a", settle=False)
    broker.settle()
    assert [message.payload for message in reader.messages()] == [b"15", b"16", b"17", b"18", b"19"]


def test_a_subscription_that_ended_leaves_nothing() -> None:
    broker = DurableBroker()
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 1)
    reader.send(Unsubscribe(9, ["t"]))
    broker.settle()
    assert count(broker, SUBSCRIPTION) == 0
