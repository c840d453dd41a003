"""The same publication at all doors: MQTT 5.0 and 3.1.1, a bridge, REST, a will, the program around the broker.

A row of `TABLE` is a reason not to let a message in, a column a door, a cell what the door answers (`-`: nothing,
`held`: its client is not read from). Behind it, `+`: the message was delivered; `~`: delivered, and not retained
although it asked for it; else nobody got it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from headwater.client import Client as BridgeClient
from headwater.client import Message as BridgeMessage
from headwater.message import Message
from headwater.node.bridge.converting import Converting
from headwater.node.bridge.inside import PREFIX, Inside
from headwater.node.bridge.settings import BridgeSettings, BridgeTopic
from headwater.node.broker import Broker
from headwater.node.delivery.gate import BrokerGate
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.hooks import Refusal
from headwater.node.protocol.statistics import statistics_of
from headwater.node.transports.listener import Listener
from headwater.routing.topics import InvalidTopicName
from headwater.store.rest.gate import Approach, Publication, Refused
from headwater.wire.packets import Connack, Connect, Disconnect, Properties, Puback, Publish, Will
from tests.node.access.arriving import rules_file
from tests.node.delivery.storing import StoringBroker, connected, publish, subscriber
from tests.node.memory import Client

RULES = (
    "topic readwrite ok/#\ntopic readwrite stored/#\ntopic read #\ntopic readwrite $SYS/#\ntopic read $headwater/#\n"
)

TOKEN = "0123456789abcdef-operator"


def code(reason: int) -> str:
    return "ok" if reason < 0x80 else f"0x{reason:02X}"


# ---- the doors -----------------------------------------------------------------------------------------------------


def answer_of(broker: StoringBroker, client: Client, packet: Publish) -> str:
    """What a client hears of its PUBLISH."""
    client.send(packet)
    held = " held" if client.channel.paused else ""  # it is not read from
    broker.settle()
    for each in client.packets():
        if isinstance(each, Disconnect):
            return f"ends 0x{each.reason:02X}"
        if isinstance(each, Puback):
            return code(each.reason) + held
    return "ends" if client.channel.finishing else "-" + held


def packet_of(message: Message) -> Publish:
    return Publish(message.topic, message.payload, message.qos, message.retain, packet_id=1 if message.qos else 0)


def mqtt5(broker: StoringBroker, message: Message) -> str:
    return answer_of(broker, connected(broker, "p"), packet_of(message))


def mqtt311(broker: StoringBroker, message: Message) -> str:
    return answer_of(broker, connected(broker, "p", 4), packet_of(message))


def bridge(broker: StoringBroker, message: Message) -> str:
    """Something comes in from the remote."""
    client = Client(broker)
    client.channel.entrance = entrance = Inside(broker.server, "b")
    entrance.connections += 1
    granted = client.connect(Connect(PREFIX + "b", 5)).properties
    topics = [BridgeTopic(filter=filter, direction="in", qos=2) for filter in ("#", "$headwater/#")]
    settings = BridgeSettings(name="b", addresses=["r:1"], topics=topics)
    local = cast(BridgeClient, SimpleNamespace(server=granted or Properties()))
    remote = cast(BridgeClient, SimpleNamespace(server=Properties()))
    converting = Converting(settings, broker.server, local, remote)
    packet = converting.incoming(BridgeMessage(packet_of(message), lambda done: None))
    if packet is None:
        return "dropped"
    packet.packet_id = 1 if packet.qos else 0
    return answer_of(broker, client, packet)


def rest(broker: StoringBroker, message: Message, authorization: str | None = None) -> str:
    async def call() -> str:
        gate = BrokerGate(program_around(broker), RestSettings(allow_anonymous=True), TOKEN)
        caller = await gate.identify(Approach(authorization, "127.0.0.1:1", "localhost"))
        try:
            await gate.publish_here(caller, Publication(message.topic, message.payload, message.qos, message.retain))
        except Refused as refused:
            return str(refused.status)
        return "ok"

    return asyncio.run(call())


def will(broker: StoringBroker, message: Message) -> str:
    client = Client(broker)
    setting = Will(message.topic, message.payload, message.qos, message.retain)
    client.version = 5
    client.send(Connect("w", 5, will=setting))
    broker.settle()
    [answer] = client.packets()
    assert isinstance(answer, Connack)
    if answer.reason:
        return f"CONNACK 0x{answer.reason:02X}"
    client.lose()
    return "ok"


def program(broker: StoringBroker, message: Message) -> str:
    try:
        program_around(broker).publish(message)
    except ValueError as error:
        return type(error).__name__
    return "ok"


def program_around(memory: StoringBroker) -> Broker:
    broker = Broker(memory.server.config, memory.hooks)
    broker.server = memory.server
    broker.listeners = cast(list[Listener], [SimpleNamespace()])  # it is ready
    return broker


Door = Callable[[StoringBroker, Message], str]
DOORS: list[Door] = [mqtt5, mqtt311, bridge, rest, will, program]

# ---- the refusals --------------------------------------------------------------------------------------------------


def nothing(broker: StoringBroker) -> None:
    pass


def veto(broker: StoringBroker) -> None:
    def guard(client: object, topic: str, write: bool) -> None:
        if write:
            raise Refusal(0x99)

    broker.hooks.add("acl_check", guard)


def fill_queues(broker: StoringBroker) -> None:
    """A session is away that is owed what comes, and memory is used up."""
    subscriber(broker, "away", "#", 1, kept=True).lose()
    broker.settle()
    broker.server.budget.used = broker.server.budget.limit


def fill_disk(broker: StoringBroker) -> None:
    broker.server.hot.no_room = True


def fall_behind(broker: StoringBroker) -> None:
    assert broker.server.coordinator is not None
    broker.server.coordinator.max_pending = -1


def use_up_topics(broker: StoringBroker) -> None:
    publish(connected(broker, "first"), "stored/first")
    broker.settle()


class Row(NamedTuple):
    message: Callable[[], Message]
    settings: dict[str, Any]
    prepare: Callable[[StoringBroker], None]
    counter: str
    """Of the statistics: what counts each of those that were refused, or not retained; "": nothing does."""
    cells: tuple[str, str, str, str, str, str]


def one(topic: str = "ok/t", payload: bytes = b"x", qos: int = 1, retain: bool = False) -> Callable[[], Message]:
    return lambda: Message(topic, payload, qos, retain)


LEVELS = {"max_topic_levels": 3}
LET_IN = ("ok+", "ok+", "ok+", "ok+", "ok+", "ok+")
INVALID = ("ends 0x90", "ends", "dropped", "422", "CONNACK 0x90", "InvalidTopicName")
FORBIDDEN = ("0x87", "ok", "ok+", "403", "ok", "ok+")
HELD = ("ok held+", "ok held+", "ok held+", "503", "ok+", "ok+")

TABLE = {
    #    message, settings, what is done before, what counts it, and then the answers to:
    #    5.0, 3.1.1, bridge, REST, will, program
    "nothing": Row(one(), {}, nothing, "", LET_IN),
    "nothing, retained": Row(one(retain=True), {}, nothing, "", LET_IN),
    "QoS": Row(one(), {"max_qos": 0}, nothing, "", ("ends 0x9B", "ends", "-+", "422", "CONNACK 0x9B", "ok+")),
    "retain flag": Row(
        *(one(retain=True), {"retain_available": False}, nothing, ""),
        ("ends 0x9A", "ends", "ok~", "422", "CONNACK 0x9A", "ok+"),  # the bridge takes the flag off
    ),
    "long topic": Row(one("ok/" + "ä" * 40), {"max_topic_length": 80}, nothing, "", INVALID),
    "deep topic": Row(one("ok/1/2/3"), LEVELS, nothing, "", INVALID),
    "as deep as may be": Row(one("ok/1/2"), LEVELS, nothing, "", LET_IN),
    "rules": Row(one("no/t"), {}, nothing, "messages_refused", FORBIDDEN),
    "$SYS": Row(one("$SYS/t"), {}, nothing, "messages_refused", ("0x87", "ok", "dropped", "403", "ok", "ok+")),
    "$share": Row(one("$share/g/t"), {}, nothing, "", ("0x87", "ok", "dropped", "403", "ok", "ok")),
    "steering": Row(one("$headwater/t"), {}, nothing, "messages_refused", FORBIDDEN),
    "payload": Row(
        *(one(payload=bytes(11)), {"max_payload_size": 10}, nothing, ""),
        ("0x83", "ok", "0x83", "413", "CONNACK 0x95", "ok+"),
    ),
    "guard": Row(one(), {}, veto, "", ("0x99", "ok", "0x99", "403", "ok", "ok+")),
    "queues": Row(one(), {}, fill_queues, "no_room", ("0x97", "- held", "- held", "503", "ok+", "ok+")),
    "queues, QoS 0": Row(one(qos=0), {}, fill_queues, "", ("-+", "-+", "-+", "ok+", "ok+", "ok+")),
    "disk": Row(one(), {}, fill_disk, "", HELD),
    "backlog of the store": Row(one("stored/t"), {}, fall_behind, "", HELD),
    "retained messages": Row(
        *(one(retain=True), {"max_retained": 0}, nothing, "retained_refused"),
        ("0x97", "ok~", "0x97", "507", "ok~", "ok~"),
    ),
    "topics of the store": Row(
        *(one("stored/t"), {}, use_up_topics, "too_many_topics"), ("0x97", "ok", "0x97", "507", "ok", "TooManyTopics")
    ),
}
UNCOUNTED = ("ok+", "dropped", "-+")
"""Answers of doors at which the question is not asked, or does not come up."""


def counted(broker: StoringBroker, counter: str) -> int:
    statistics = statistics_of(broker.server, 1.0)
    return statistics.drops[counter] if counter in statistics.drops else int(getattr(statistics, counter))


@pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])
@pytest.mark.parametrize("door", DOORS, ids=["5.0", "3.1.1", "bridge", "REST", "will", "program"])
@pytest.mark.parametrize("name", TABLE)
def test_a_verdict_is_the_same_at_every_door(name: str, door: Door, hot: bool, tmp_path: Path) -> None:
    row = TABLE[name]
    expected = row.cells[DOORS.index(door)]
    settings = {"access": {"acl_file": rules_file(tmp_path, RULES)}, "allow_anonymous": True, **row.settings}
    broker = StoringBroker(of_broker=settings, filters=["stored/#"], max_topics=1, hot=hot)
    readers = [subscriber(broker, filter, filter) for filter in ("#", "$SYS/#", "$headwater/#")]
    row.prepare(broker)
    for reader in readers:
        reader.packets()
    message = row.message()
    said = door(broker, message)
    broker.turn()
    broker.settle()
    if message.topic in [got.topic for reader in readers for got in reader.messages()]:
        said += "~" if message.retain and broker.server.router.retained.get(message.topic) is None else "+"
    assert said == expected
    dropped = door is mqtt311 and expected == "ok"
    assert counted(broker, "acknowledged_refused") == dropped, "acknowledged, and nobody got it"
    if row.counter:
        assert counted(broker, row.counter) == (expected not in UNCOUNTED and expected[-1:] != "+")


@pytest.mark.parametrize("name", ["rules", "$SYS", "payload", "guard", "topics of the store"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_acknowledged_and_dropped_is_said_in_the_log(
    name: str, qos: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """3.1.1 has no word for a refusal, so whoever runs the broker is told, and not more than once a minute."""
    row = TABLE[name]
    settings = {"access": {"acl_file": rules_file(tmp_path, RULES)}, "allow_anonymous": True, **row.settings}
    broker = StoringBroker(of_broker=settings, filters=["stored/#"], max_topics=1)
    row.prepare(broker)
    client = connected(broker, "lost", 4)
    topic, payload = row.message().topic, row.message().payload

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if "acknowledged and dropped" in record.getMessage()]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING):
        client.send(*(Publish(topic, payload, qos, packet_id=number) for number in (1, 2)))
        client.send(Publish(topic, payload, qos, dup=True, packet_id=2), Publish(topic, payload))
        times = 2 if qos == 2 else 3
        assert counted(broker, "acknowledged_refused") == times, "QoS 0 is not acknowledged"
        (line,) = lines()
        assert "'lost'" in line and repr(topic) in line and line.endswith("1 until now")
        broker.later(61)
        client.send(Publish(topic, payload, qos, packet_id=4))
        assert lines()[0].endswith(f"{times + 1} until now")


def test_topics_too_many_are_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = StoringBroker(max_topics=1)
    use_up_topics(broker)
    with caplog.at_level(logging.WARNING):
        for topic in ("a", "b"):
            assert mqtt5(broker, Message(topic, b"x", 1)) == "0x97"
    (record,) = caplog.records
    assert "store.max_topics" in record.getMessage() and "'a'" in record.getMessage()


def test_neither_rules_nor_guards_hold_for_the_token_of_rest(tmp_path: Path) -> None:
    broker = StoringBroker(of_broker={"access": {"acl_file": rules_file(tmp_path, RULES)}})
    veto(broker)
    for topic, answer in (("ok/t", "ok"), ("no/t", "ok"), ("$headwater/t", "ok"), ("$SYS/t", "403")):
        assert rest(broker, Message(topic), f"Bearer {TOKEN}") == answer, topic


def test_what_is_refused_takes_no_topic_of_the_store() -> None:
    """For want of room among retained messages, or of room in queues."""
    for door, message in [(mqtt5, Message("stored/a", b"x", 1, True)), (rest, Message("stored/a", b"x", 1, True))]:
        broker = StoringBroker(of_broker={"max_retained": 0}, max_topics=1)
        assert door(broker, message) in ("0x97", "507")
        assert mqtt5(broker, Message("stored/b", b"x", 1)) == "ok"
        assert [row.topic for row in broker.rows()] == ["stored/b"]
    broker = StoringBroker(max_topics=1)
    fill_queues(broker)
    assert rest(broker, Message("stored/a", b"x", 1)) == "503"
    broker.server.budget.used = 0
    assert mqtt5(broker, Message("stored/b", b"x", 1)) == "ok"


@pytest.mark.parametrize("door", [mqtt5, rest])
def test_a_retained_message_that_is_on_disk_only_can_be_replaced(door: Door) -> None:
    broker = StoringBroker()
    assert door(broker, Message("a", b"old", 1, True)) == "ok"
    broker.turn()
    broker.settle()
    broker = broker.crash(config=broker.server.config.model_copy(update={"max_retained": 0}))
    assert len(broker.server.router.retained) == 0
    assert door(broker, Message("a", b"new", 1, True)) == "ok"
    broker.turn()
    broker.settle()
    broker = broker.crash(config=broker.server.config.model_copy(update={"max_retained": 9}))
    assert [message.payload for message in broker.server.router.retained.some(0, 9)] == [b"new"]


@pytest.mark.parametrize("door", DOORS)
def test_payloads_are_bounded_by_packets_as_they_are_bounded_now(door: Door) -> None:
    """The setting is taken over by a broker that runs."""
    broker = StoringBroker(of_broker={"max_packet_size": 2000, "max_connect_size": 20_000})
    broker.server.config = broker.server.config.model_copy(update={"max_packet_size": 20_000})
    broker.server.hot.max_connect_size = 20_000
    assert door(broker, Message("t", bytes(10_000), 1)) == "ok"


def test_a_will_that_was_dropped_was_not_sent() -> None:
    broker = StoringBroker(max_topics=1)
    told: list[str] = []
    broker.hooks.add("will_sent", lambda message, client_id: told.append(message.topic))
    will(broker, Message("a"))
    will(broker, Message("b"))
    assert told == ["a"]


@pytest.mark.parametrize("topic", ["x" * 65_536, "a/+", "", "\ud800"])
def test_a_program_cannot_publish_what_is_no_topic(topic: str) -> None:
    broker = StoringBroker()
    reader = subscriber(broker, "reader", "#", 1)
    with pytest.raises(InvalidTopicName):
        program_around(broker).publish(Message(topic, b"x", 1))
    broker.settle()
    assert reader.packets() == [] and broker.rows() == []


def test_nor_can_a_filter_of_wills() -> None:
    broker = StoringBroker()
    broker.hooks.add("will", lambda message, client_id: Message("a/#"))
    reader = subscriber(broker, "reader", "a/+")
    assert will(broker, Message("a/b")) == "ok"
    assert reader.packets() == []


def test_a_filter_sees_a_message_that_waits_once() -> None:
    """And as it came: what waits has not been changed yet."""
    broker = StoringBroker(of_broker={"max_queue_memory": 100_000})
    seen: list[str] = []
    broker.hooks.add("publish", lambda message, client: seen.append(message.topic))
    fill_queues(broker)
    publisher = connected(broker, "p", 4)
    assert answer_of(broker, publisher, Publish("t", b"x", 1, packet_id=1)) == "- held" and seen == []
    broker.server.budget.used = 0
    broker.later(0.1)
    broker.settle()
    assert [type(packet) for packet in publisher.packets()] == [Puback] and seen == ["t"]
