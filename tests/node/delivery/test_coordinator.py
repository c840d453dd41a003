"""Which messages are stored and what with, and that nobody sees one before it is on disk."""

from __future__ import annotations

import json
import time

import pytest

from headwater.message import Message
from headwater.node.broker import Broker, TooManyTopics
from headwater.node.config import Config
from headwater.node.persistence.journal import NEVER_WITHHELD
from headwater.node.protocol.statistics import statistics_of
from headwater.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Will,
)
from headwater.wire.reasons import QUOTA_EXCEEDED, SUCCESS
from tests.node.delivery.storing import StoringBroker, connected, position_of, positions, publish, subscribe, subscriber
from tests.node.memory import Client, MemoryBroker

BOTH_WAYS = pytest.mark.parametrize("hot", [True, False])


def kinds(packets: list[Packet]) -> list[type[Packet]]:
    return [type(packet) for packet in packets]


# ---- what is stored --------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_positions_have_no_gaps_whatever_the_way(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    subscriber(broker, "reader", "a/#", 1)
    publisher = connected(broker, "p")
    dying = connected(broker, "dying", will=Will("a/will", b"5", 1))
    publish(publisher, "a/0", b"1")
    publish(publisher, "a/1", b"2", 1)
    publish(publisher, "a/2", b"3", 2)
    publish(publisher, "b", b"4", 1, retain=True)
    dying.lose()
    broker.server.publishing.route(Message("a/own", b"6"), None)
    broker.turn()
    publish(publisher, "a/0", b"7")
    broker.settle()
    assert broker.summary() == [
        *((1, "a/0", b"1"), (2, "a/1", b"2"), (3, "a/2", b"3"), (4, "b", b"4")),
        *((5, "a/will", b"5"), (6, "a/own", b"6"), (7, "a/0", b"7")),
    ]
    assert [row.qos for row in broker.rows()] == [0, 1, 2, 1, 1, 0, 0]
    assert [row.retain for row in broker.rows()] == [False, False, False, True, False, False, False]
    assert [row.publisher for row in broker.rows()] == ["p", "p", "p", "p", "dying", "", "p"]


@BOTH_WAYS
def test_a_run_of_packets_is_one_message_each(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    publisher = connected(broker, "p")
    publisher.send(*(Publish("a", bytes([48 + number])) for number in range(5)))
    publisher.send(*(Publish("a", bytes([65 + number]), 1, packet_id=number + 1) for number in range(5)))
    broker.settle()
    assert [row.payload for row in broker.rows()] == [bytes([code]) for code in b"01234ABCDE"]


@BOTH_WAYS
def test_the_time_of_arrival_is_the_wall_clocks(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    publisher = connected(broker, "p")
    before = time.time_ns() // 1000
    broker.server.hot.now = time.monotonic()
    publish(publisher, "a")
    broker.settle()
    [row] = broker.rows()
    assert before - 1000 <= row.arrival <= time.time_ns() // 1000 + 1000


@BOTH_WAYS
def test_properties_are_stored_if_there_are_any(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    publisher = connected(broker, "p")
    for qos in (0, 1):
        publisher.send(Publish("a", b"", qos, packet_id=qos, properties=Properties(user_properties=[("k", "ä")])))
        publisher.send(Publish("a", b"", qos, packet_id=qos, properties=Properties(message_expiry_interval=50)))
        publisher.send(Publish("a", b"", qos, packet_id=qos))
    broker.settle()
    assert [row.properties and json.loads(row.properties) for row in broker.rows()] == 2 * [
        *({"user": [["k", "ä"]]}, {"expiry": 50}, b""),
    ]


@BOTH_WAYS
def test_topics_are_stored_by_filter(hot: bool) -> None:
    broker = StoringBroker(hot=hot, filters=["a/+", "$x/#"])
    subscriber(broker, "reader", "#")
    publisher = connected(broker, "p")
    for topic in ("a/b", "a", "a/b/c", "$x/y", "$y", "a/b"):
        publish(publisher, topic)
        publish(publisher, topic, b"y", 1)
    broker.settle()
    assert [row.topic for row in broker.rows()] == ["a/b", "a/b", "$x/y", "$x/y", "a/b", "a/b"]


@BOTH_WAYS
def test_topics_that_begin_with_a_dollar_have_to_be_named(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    publish(connected(broker, "p"), "$x")
    broker.server.publishing.route(Message("$SYS/broker/uptime", b"1", retain=True), None)
    broker.settle()
    assert broker.rows() == []


def test_the_same_recipients_of_topics_that_are_stored_and_not() -> None:
    """They would share a fan-out."""
    broker = StoringBroker(filters=["a"])
    reader = subscriber(broker, "reader", "#", 1)
    publisher = connected(broker, "p")
    publish(publisher, "b", b"1", 1)
    assert kinds(reader.packets()) == [Publish]
    publish(publisher, "a", b"2", 1)
    assert reader.packets() == []
    broker.settle()
    assert broker.summary() == [(1, "a", b"2")]


def test_clearing_a_retained_message_is_a_message() -> None:
    broker = StoringBroker()
    publisher = connected(broker, "p")
    publish(publisher, "a", b"x", retain=True)
    publish(publisher, "a", b"", retain=True)
    broker.settle()
    assert [(row.payload, row.retain) for row in broker.rows()] == [(b"x", True), (b"", True)]


def test_a_qos_2_message_that_comes_again_is_taken_once() -> None:
    broker = StoringBroker()
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 2)
    publish(publisher, "a", b"1", 2, dup=True)
    broker.settle()
    assert broker.summary() == [(1, "a", b"1")]
    publisher.send(Pubrel(7))
    publish(publisher, "a", b"2", 2)
    broker.settle()
    assert broker.summary() == [(1, "a", b"1"), (2, "a", b"2")]


def test_what_a_client_may_not_publish_is_not_stored() -> None:
    broker = StoringBroker()
    publish(connected(broker, "p"), "$SYS/broker/uptime", b"1", 1)
    broker.settle()
    assert broker.rows() == []


# ---- nobody sees what may not last -----------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_the_publisher_is_acknowledged_when_it_is_on_disk(
    qos: int, answer: type[Packet], version: int, hot: bool
) -> None:
    broker = StoringBroker(hot=hot)
    publisher = connected(broker, "p", version)
    publish(publisher, "a", qos=qos)
    assert broker.rows() == []
    assert broker.step()  # it is in the store
    assert len(broker.rows()) == 1
    assert publisher.packets() == []
    broker.settle()
    assert kinds(publisher.packets()) == [answer]


@BOTH_WAYS
@pytest.mark.parametrize("name", ["a", "$share/g/a"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("of_reader", [0, 1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribers_get_it_when_it_is_on_disk(qos: int, of_reader: int, version: int, name: str, hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    reader = subscriber(broker, "reader", name, of_reader, version=version)
    publish(connected(broker, "p"), "a", qos=qos)
    assert broker.step()
    assert reader.packets() == []
    broker.settle()
    assert kinds(reader.packets()) == [Publish]


@BOTH_WAYS
def test_special_wishes_make_no_difference(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    limited = connected(broker, "limited", properties=Properties(maximum_packet_size=100, topic_alias_maximum=3))
    subscribe(broker, limited, "a", 1)
    asking = subscriber(broker, "asking", "a", 1, asks=True)
    publisher = connected(broker, "p")
    publish(publisher, "a")
    publish(publisher, "a", b"y", 1)
    assert limited.packets() == asking.packets() == []
    broker.settle()
    assert len(limited.messages()) == len(asking.messages()) == 2


@BOTH_WAYS
def test_a_retained_message_is_not_seen_earlier_by_who_subscribes_then(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    late = connected(broker, "late")
    publish(connected(broker, "p"), "a", retain=True)
    subscribe_without_waiting(late, "a")
    assert Publish not in kinds(late.packets())
    broker.settle()
    assert Publish in kinds(late.packets())


def subscribe_without_waiting(client: Client, name: str) -> None:
    client.send(Subscribe(9, [SubscribeRequest(name, 0)]))


@BOTH_WAYS
@pytest.mark.parametrize("name", ["a", "$share/g/a"])
def test_what_waited_for_room_is_not_seen_earlier(name: str, hot: bool) -> None:
    """Its turn comes while the disk is at work."""
    broker = StoringBroker(hot=hot)
    reader = connected(broker, "reader", properties=Properties(receive_maximum=1))
    subscribe(broker, reader, name, 1)
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 1)
    broker.settle()
    [first] = reader.messages()
    publish(publisher, "a", b"2", 1)
    reader.send(Puback(first.packet_id))
    assert broker.step()
    assert reader.packets() == []
    broker.settle()
    assert [message.payload for message in reader.messages()] == [b"2"]


def test_qos_0_that_was_held_back_is_not_seen_earlier() -> None:
    broker = StoringBroker()
    reader = connected(broker, "reader", properties=Properties(receive_maximum=1))
    subscribe(broker, reader, "#", 1)
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 1)
    publish(publisher, "a", b"2", 1)
    broker.settle()
    [first] = reader.messages()
    publish(publisher, "a", b"3")  # waits behind the second
    broker.step()
    reader.send(Puback(first.packet_id))
    assert reader.packets() == []
    broker.settle()
    assert [message.payload for message in reader.messages()] == [b"2", b"3"]


@BOTH_WAYS
def test_what_comes_back_from_a_member_is_not_seen_earlier_by_another(hot: bool) -> None:
    broker = StoringBroker(hot=hot, of_broker={"shared_dispatcher": "round_robin"})
    one = subscriber(broker, "one", "$share/g/a", 1)
    two = subscriber(broker, "two", "$share/g/a", 1)
    publish(connected(broker, "p"), "a", b"1", 1)
    broker.step()
    (one if one.channel.withheld else two).lose()
    other = two if one.channel.fd < 0 else one
    assert other.packets() == []
    broker.settle()
    assert [message.payload for message in other.messages()] == [b"1"]


def test_topics_that_are_not_stored_do_not_wait() -> None:
    broker = StoringBroker(filters=["a"])
    reader = subscriber(broker, "reader", "b", 1)
    publisher = connected(broker, "p")
    publish(publisher, "b", b"1", 1)
    assert kinds(reader.packets()) == [Publish]
    assert kinds(publisher.packets()) == [Puback]


def test_with_async_nobody_waits() -> None:
    broker = StoringBroker()
    broker.journal.interval = 0.05
    broker.server.hot.durable = NEVER_WITHHELD
    reader = subscriber(broker, "reader", "a", 1)
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 1)
    assert kinds(publisher.packets()) == [Puback]
    assert kinds(reader.packets()) == [Publish]
    assert broker.committer.batch is None
    assert broker.committer.alarms > 0
    broker.journal.begin()
    broker.settle()
    assert broker.summary() == [(1, "a", b"1")]


def test_with_async_much_is_not_collected() -> None:
    broker = StoringBroker()
    broker.journal.interval = 0.05
    broker.server.hot.durable = NEVER_WITHHELD
    publisher = connected(broker, "p")
    publish(publisher, "a", bytes(2_000_000))
    assert broker.committer.batch is not None


# ---- restarts --------------------------------------------------------------------------------------------------


def test_positions_go_on_after_a_restart() -> None:
    broker = StoringBroker()
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 1)
    broker.settle()
    publish(publisher, "a", b"2", 1)  # is lost, and nobody was told that it is there
    assert len(publisher.packets()) == 1
    broker = broker.crash()
    publish(connected(broker, "p"), "a", b"3", 1)
    broker.settle()
    assert broker.summary() == [(1, "a", b"1"), (2, "a", b"3")]


def test_a_will_that_is_due_after_a_restart_is_stored() -> None:
    broker = StoringBroker()
    connected(broker, "p", kept=True, will=Will("a", b"late", 1))
    broker = broker.crash()
    broker.settle()
    assert broker.summary() == [(1, "a", b"late")]


@BOTH_WAYS
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_qos_2_message_is_stored_once_whenever_the_crash_comes(steps: int, hot: bool) -> None:
    """In the store, and the backend does not know it yet: then the client sends it again."""
    broker = StoringBroker(hot=hot)
    away = subscriber(broker, "away", "a", 1, kept=True)
    away.lose()
    publisher = connected(broker, "p", kept=True)
    publish(publisher, "a", b"1", 2)
    for _ in range(steps):
        assert broker.step()
    broker = broker.crash()
    publisher = connected(broker, "p", kept=True)
    publish(publisher, "a", b"1", 2, dup=True)
    broker.settle()
    assert kinds(publisher.packets()) == [Pubrec]
    assert broker.summary() == [(1, "a", b"1")]
    assert broker.server.sessions["away"].outbound.waiting() == 1


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_will_is_stored_once_whenever_the_crash_comes(steps: int) -> None:
    broker = StoringBroker()
    client = connected(broker, "p", kept=True, will=Will("a", b"late", 1))
    client.lose()
    for _ in range(steps):
        assert broker.step()
    broker = broker.crash()
    broker.settle()
    assert broker.summary() == [(1, "a", b"late")]


# ---- bounds ----------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_publishes_faster_than_the_disk_is_not_read_from(qos: int, hot: bool) -> None:
    broker = StoringBroker(hot=hot, max_pending=1000, filters=["a"])
    fast, other = connected(broker, "fast"), connected(broker, "other")
    publish(fast, "a", bytes(2000), qos)
    publish(other, "b", bytes(2000))
    assert fast.channel.paused
    assert not fast.watched[0]
    assert not other.channel.paused
    assert broker.server.coordinator is not None
    assert broker.server.coordinator.pending > 2000
    broker.settle()
    assert not fast.channel.paused
    assert fast.watched[0]
    assert broker.server.coordinator.pending == 0


def test_who_left_is_not_read_from_again() -> None:
    broker = StoringBroker(max_pending=1000)
    fast = connected(broker, "fast")
    publish(fast, "a", bytes(2000))
    fast.lose()
    broker.settle()
    assert broker.server.outrunners == []
    assert broker.server.stats.failures == 0


def test_who_leaves_with_the_same_bytes_is_not_waited_for() -> None:
    broker = StoringBroker(max_pending=1000)
    fast = connected(broker, "fast")
    fast.send(Publish("a", bytes(2000)), Disconnect())
    assert broker.server.outrunners == []


def test_who_waits_already_is_counted_once() -> None:
    broker = StoringBroker(max_pending=1000)
    fast = connected(broker, "fast")
    publish(fast, "a", bytes(2000))
    publish(fast, "a", bytes(2000))  # had been read before
    assert broker.server.outrunners == [fast.channel]
    broker.settle()
    assert not fast.channel.paused


def test_what_came_meanwhile_counts_too() -> None:
    broker = StoringBroker(max_pending=3000)
    one, two = connected(broker, "one"), connected(broker, "two")
    publish(one, "a", bytes(2000))
    assert not one.channel.paused
    publish(two, "a", bytes(2000))  # the first is on its way
    assert two.channel.paused
    broker.step()
    assert two.channel.paused
    broker.settle()
    assert not two.channel.paused


@BOTH_WAYS
def test_a_topic_too_many_is_refused(hot: bool) -> None:
    broker = StoringBroker(hot=hot, max_topics=2, filters=["a/#"])
    reader = subscriber(broker, "reader", "#")
    publisher = connected(broker, "p")
    for number, topic in enumerate(("a/1", "a/2", "a/3", "a/1", "b"), 1):
        publish(publisher, topic, b"x", 1, packet_id=number)
    broker.settle()
    answers = {packet.packet_id: packet.reason for packet in publisher.packets() if isinstance(packet, Puback)}
    assert answers == {1: SUCCESS, 2: SUCCESS, 3: QUOTA_EXCEEDED, 4: SUCCESS, 5: SUCCESS}
    assert [row.topic for row in broker.rows()] == ["a/1", "a/2", "a/1"]
    assert [message.topic for message in reader.messages()] == ["a/1", "a/2", "a/1", "b"]
    assert statistics_of(broker.server, 1.0).drops["too_many_topics"] == 1


@BOTH_WAYS
@pytest.mark.parametrize(("version", "qos"), [(5, 0), (4, 0), (4, 1), (4, 2)])
def test_where_it_cannot_be_said_it_is_counted(version: int, qos: int, hot: bool) -> None:
    broker = StoringBroker(hot=hot, max_topics=1)
    reader = subscriber(broker, "reader", "#", 2)
    publisher = connected(broker, "p", version)
    publish(publisher, "a")
    broker.settle()
    reader.packets()
    publish(publisher, "b", b"x", qos)
    broker.settle()
    assert len(publisher.packets()) == (1 if qos else 0)
    assert reader.packets() == []
    assert statistics_of(broker.server, 1.0).drops["too_many_topics"] == 1


def test_a_refused_message_is_not_retained_either() -> None:
    broker = StoringBroker(max_topics=1)
    publisher = connected(broker, "p")
    publish(publisher, "a")
    publish(publisher, "b", b"x", 1, retain=True)
    broker.settle()
    assert len(broker.server.router.retained) == 0


def test_topics_that_retention_removed_make_room() -> None:
    broker = StoringBroker(max_topics=1)
    publisher = connected(broker, "p")
    publish(publisher, "a")
    broker.settle()
    broker.memory_store.retention = broker.memory_store.retention._replace(age=0)
    assert broker.memory_store.trim(time.time_ns() // 1000 + 10_000_000).messages == 1
    assert broker.server.coordinator is not None
    broker.server.coordinator.messages_were_removed()
    publish(publisher, "b", b"1", 1)
    publish(publisher, "a", b"2", 1)
    broker.settle()
    assert broker.summary() == [(2, "b", b"1")]


def test_a_program_is_told_of_position_and_refusal() -> None:
    memory = StoringBroker(max_topics=1, filters=["a", "b"])
    broker = Broker(Config(sys_interval=0))
    broker.server = memory.server
    assert broker.publish(Message("a", b"1")) == 1
    assert broker.publish(Message("other", b"1")) == 0
    with pytest.raises(TooManyTopics):
        broker.publish(Message("b", b"1"))
    assert broker.publish(Message("a", b"1")) == 2


# ---- positions for those who ask -------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_positions_are_of_their_own_message(qos: int, hot: bool) -> None:
    """Not that of the message before it either."""
    broker = StoringBroker(hot=hot, filters=["a"])
    asking = subscriber(broker, "asking", "#", qos, asks=True)
    publisher = connected(broker, "p")
    for number, topic in enumerate(("a", "b", "a"), 1):
        publish(publisher, topic, b"x", qos, packet_id=number)
    broker.settle()
    assert positions(asking.messages()) == ["s:1", None, "s:2"]


@BOTH_WAYS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_asks_is_told_positions(qos: int, hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    asking = subscriber(broker, "asking", "a", qos, asks=True)
    other = subscriber(broker, "other", "a", qos)
    old = subscriber(broker, "old", "a", qos, version=4)
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", qos)
    publish(publisher, "a", b"2", qos, packet_id=8, user=[("k", "v")])
    broker.settle()
    told = asking.messages()
    assert positions(told) == ["s:1", "s:2"]
    assert told[1].properties is not None
    assert told[1].properties.user_properties == [("k", "v"), ("headwater-position", "s:2")]
    assert positions(other.messages()) == [None, None]
    assert positions(old.messages()) == [None, None]


@BOTH_WAYS
def test_what_is_not_stored_has_no_position(hot: bool) -> None:
    broker = StoringBroker(hot=hot, filters=["b"])
    asking = subscriber(broker, "asking", "a", asks=True)
    publish(connected(broker, "p"), "a")
    broker.settle()
    assert positions(asking.messages()) == [None]


def test_another_answer_than_yes_does_not_ask() -> None:
    broker = StoringBroker()
    client = connected(broker, "c")
    properties = Properties(user_properties=[("headwater-position", "no"), ("other", "yes")])
    client.send(Subscribe(9, [SubscribeRequest("a", 0)], properties))
    publish(connected(broker, "p"), "a")
    broker.settle()
    assert positions(client.messages()) == [None]


def test_a_new_subscription_takes_back_the_wish() -> None:
    broker = StoringBroker()
    client = subscriber(broker, "c", "a", asks=True)
    publisher = connected(broker, "p")
    publish(publisher, "a")
    broker.settle()
    subscribe(broker, client, "a")
    publish(publisher, "a")
    broker.settle()
    assert positions(client.messages()) == [None]


def test_a_retained_message_comes_with_its_position() -> None:
    broker = StoringBroker()
    publisher = connected(broker, "p")
    publish(publisher, "other")
    publish(publisher, "a", retain=True)
    broker.settle()
    client = connected(broker, "c")
    client.send(Subscribe(9, [SubscribeRequest("a", 0)], Properties(user_properties=[("headwater-position", "yes")])))
    broker.settle()
    assert positions(client.messages()) == ["s:2"]


@BOTH_WAYS
def test_positions_outlive_a_restart(hot: bool) -> None:
    """Both the wish and the positions of what waits."""
    broker = StoringBroker(hot=hot)
    away = subscriber(broker, "away", "a", 1, asks=True, kept=True)
    away.lose()
    broker.settle()
    publisher = connected(broker, "p")
    publish(publisher, "a", b"1", 1)
    broker.settle()
    broker = broker.crash()
    client = Client(broker)
    client.version = 5
    client.send(Connect("away", 5, False, properties=Properties(session_expiry_interval=1000)))
    publish(connected(broker, "p"), "a", b"2", 1)
    broker.settle()
    assert positions(client.messages()) == ["s:1", "s:2"]


@BOTH_WAYS
@pytest.mark.parametrize("qos", [0, 1])
def test_members_of_a_group_get_what_each_asked_for(qos: int, hot: bool) -> None:
    broker = StoringBroker(hot=hot, of_broker={"shared_dispatcher": "round_robin"})
    asking = subscriber(broker, "asking", "$share/g/a", 1, asks=True)
    other = subscriber(broker, "other", "$share/g/a", 1)
    publisher = connected(broker, "p")
    publisher.send(*(Publish("a", b"x", qos, packet_id=number) for number in range(1 if qos else 0, 5 if qos else 1)))
    if not qos:
        publisher.send(*(Publish("a", b"x") for _ in range(3)))
    broker.settle()
    told, untold = positions(asking.messages()), positions(other.messages())
    assert len(told) == len(untold) == 2
    assert untold == [None, None]
    assert set(told) in ({"s:1", "s:3"}, {"s:2", "s:4"})


@BOTH_WAYS
def test_what_waits_in_a_group_keeps_its_position(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    asking = subscriber(broker, "asking", "$share/g/a", 1, asks=True, kept=True)
    asking.lose()
    publish(connected(broker, "p"), "a", b"1", 1)
    broker.settle()
    broker = broker.crash()
    client = Client(broker)
    client.version = 5
    client.send(Connect("asking", 5, False, properties=Properties(session_expiry_interval=1000)))
    broker.settle()
    assert positions(client.messages()) == ["s:1"]


@BOTH_WAYS
def test_what_comes_back_from_a_member_that_asked_goes_without_its_position_to_one_that_did_not(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    asking = subscriber(broker, "asking", "$share/g/a", 1, asks=True)
    publish(connected(broker, "p"), "a", b"1", 1, user=[("k", "v")])
    broker.settle()
    assert positions(asking.messages()) == ["s:1"]
    other = subscriber(broker, "other", "$share/g/a", 1)
    asking.lose()
    broker.settle()
    [message] = other.messages()
    assert position_of(message) is None
    assert message.properties is not None
    assert message.properties.user_properties == [("k", "v")]


@BOTH_WAYS
def test_what_comes_back_from_one_that_did_not_ask_goes_with_its_position_to_one_that_does(hot: bool) -> None:
    broker = StoringBroker(hot=hot)
    other = subscriber(broker, "other", "$share/g/a", 1)
    publish(connected(broker, "p"), "a", b"1", 1)
    broker.settle()
    assert positions(other.messages()) == [None]
    asking = subscriber(broker, "asking", "$share/g/a", 1, asks=True)
    other.lose()
    broker.settle()
    assert positions(asking.messages()) == ["s:1"]


def test_and_it_is_not_seen_earlier_either() -> None:
    broker = StoringBroker()
    asking = subscriber(broker, "asking", "$share/g/a", 1, asks=True)
    publisher, other = connected(broker, "p"), connected(broker, "other")
    publish(publisher, "a", b"1", 1)
    assert broker.step()
    other.send(Subscribe(9, [SubscribeRequest("$share/g/a", 1)]))
    asking.lose()
    assert kinds(other.packets()) == [Suback]
    broker.settle()
    assert [message.payload for message in other.messages()] == [b"1"]


@BOTH_WAYS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_nobody_can_invent_positions(qos: int, hot: bool) -> None:
    broker = StoringBroker(hot=hot, filters=["a"])
    reader = subscriber(broker, "reader", "#", 2)
    asking = subscriber(broker, "asking", "#", 2, asks=True)
    publisher = connected(broker, "p")
    for number, topic in enumerate(("a", "not-stored"), 1):
        publish(publisher, topic, qos=qos, packet_id=number, user=[("headwater-position", "s:999"), ("k", "v")])
    broker.settle()
    assert positions(reader.messages()) == [None, None]
    assert positions(asking.messages()) == ["s:1", None]
    assert [json.loads(row.properties) for row in broker.rows()] == [{"user": [["k", "v"]]}]


def test_nor_by_a_will() -> None:
    broker = StoringBroker()
    reader = subscriber(broker, "reader", "#")
    will = Will("a", b"x", properties=Properties(user_properties=[("headwater-position", "s:999")]))
    connected(broker, "p", will=will).lose()
    broker.settle()
    assert positions(reader.messages()) == [None]
    assert [row.properties for row in broker.rows()] == [b""]


def test_without_a_store_the_property_is_like_any_other() -> None:
    broker = MemoryBroker()
    client = Client(broker)
    client.connect(Connect("c", 5))
    client.send(Subscribe(9, [SubscribeRequest("a", 0)], Properties(user_properties=[("headwater-position", "yes")])))
    publish(client, "a", user=[("headwater-position", "of my own")])
    assert positions(client.messages()) == ["of my own"]


def test_others_are_served_while_the_disk_is_at_work() -> None:
    broker = StoringBroker()
    publisher, other = connected(broker, "p"), connected(broker, "other")
    publish(publisher, "a", qos=1)
    other.send(Pingreq())
    assert kinds(other.packets()) == [Pingresp]
