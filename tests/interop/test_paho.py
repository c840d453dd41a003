"""Eclipse Paho's Python client against our broker."""

from __future__ import annotations

import queue
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

PATIENCE = 15.0

both_versions = pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
every_qos = pytest.mark.parametrize("qos", [0, 1, 2])


class Paho:
    """A connected Paho client whose events can be waited for."""

    def __init__(self, port: int, version: int, client_id: str = "", *, keep: bool = False, **will: Any) -> None:
        extra: dict[str, Any] = {} if version == MQTTv5 else {"clean_session": not keep}
        self.client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=version, **extra)
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.connects: queue.Queue[tuple[Any, ReasonCode, Properties | None]] = queue.Queue()
        self.acknowledged: queue.Queue[list[ReasonCode]] = queue.Queue()
        self.gone: queue.Queue[ReasonCode] = queue.Queue()
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        self.client.on_connect = lambda client, data, flags, reason, properties: self.connects.put(
            (flags, reason, properties)
        )
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self.acknowledged.put(reasons)
        self.client.on_unsubscribe = lambda client, data, mid, reasons, properties: self.acknowledged.put(reasons)
        self.client.on_disconnect = lambda client, data, flags, reason, properties: self.gone.put(reason)
        if will:
            self.client.will_set(**will)
        how: dict[str, Any] = {}
        if version == MQTTv5:
            how["clean_start"] = not keep
            if keep:
                how["properties"] = properties(PacketTypes.CONNECT, SessionExpiryInterval=100)
        self.client.connect("127.0.0.1", port, **how)
        self.client.loop_start()
        self.flags, self.reason, self.properties = self.connects.get(timeout=PATIENCE)

    def subscribe(self, *arguments: Any, **named: Any) -> list[ReasonCode]:
        self.client.subscribe(*arguments, **named)
        return self.acknowledged.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **named: Any) -> None:
        self.client.publish(topic, payload, qos, retain, **named).wait_for_publish(PATIENCE)

    def next(self) -> MQTTMessage:
        return self.messages.get(timeout=PATIENCE)

    def close(self) -> None:
        self.client.disconnect()
        self.gone.get(timeout=PATIENCE)
        self.client.loop_stop()

    def drop(self) -> None:
        """Lose the connection without DISCONNECT."""
        socket = self.client.socket()
        assert socket is not None
        self.client.loop_stop()
        socket.close()


class Clients:
    """Makes clients and closes those that are left."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.all: list[Paho] = []

    def __call__(self, version: int, *arguments: Any, **named: Any) -> Paho:
        client = Paho(self.port, version, *arguments, **named)
        self.all.append(client)
        return client


@pytest.fixture
def clients(port: int) -> Iterator[Clients]:
    clients = Clients(port)
    yield clients
    for each in clients.all:
        each.client.disconnect()
        each.client.loop_stop()


@pytest.fixture
def topic() -> str:
    return f"paho/{secrets.token_hex(4)}"


def properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@both_versions
@every_qos
def test_publish_and_receive(clients: Clients, topic: str, version: int, qos: int) -> None:
    reader, writer = clients(version), clients(version)
    reader.subscribe(topic + "/#", qos)
    for number in range(50):
        writer.publish(f"{topic}/{number % 3}", b"%d" % number, qos)
    received = [reader.next() for _ in range(50)]
    assert [int(message.payload) for message in received] == list(range(50))
    assert {message.qos for message in received} == {qos}


@both_versions
@every_qos
def test_a_megabyte(clients: Clients, topic: str, version: int, qos: int) -> None:
    reader, writer = clients(version), clients(version)
    reader.subscribe(topic, 2)
    payload = bytes(range(256)) * 4096
    writer.publish(topic, payload, qos)
    assert reader.next().payload == payload


@both_versions
def test_retained(clients: Clients, topic: str, version: int) -> None:
    writer = clients(version)
    writer.publish(topic, b"kept", 1, True)
    first = clients(version)
    first.subscribe(topic, 1)
    message = first.next()
    assert (message.payload, message.retain) == (b"kept", True)
    writer.publish(topic, b"", 1, True)
    assert first.next().retain is False
    second = clients(version)
    second.subscribe(topic, 1)
    writer.publish(topic, b"live", 1)
    assert second.next().payload == b"live"


@both_versions
def test_will(clients: Clients, topic: str, version: int) -> None:
    reader = clients(version)
    reader.subscribe(topic, 2)
    will = {"topic": topic, "payload": b"gone", "qos": 2}
    clients(version, **will).close()
    clients(version, **will).drop()
    assert reader.next().payload == b"gone"
    reader.client.publish(topic, b"and no other")
    assert reader.next().payload == b"and no other"


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_is_kept(clients: Clients, topic: str, version: int, qos: int) -> None:
    name = f"kept-{topic}"
    reader = clients(version, name, keep=True)
    assert not reader.flags.session_present
    reader.subscribe(topic, 2)
    reader.close()
    writer = clients(version)
    for number in range(4):
        writer.publish(topic, b"%d" % number, qos)
    again = clients(version, name, keep=True)
    assert again.flags.session_present
    assert [again.next().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    again.close()
    fresh = clients(version, name)
    assert not fresh.flags.session_present


@both_versions
def test_take_over(clients: Clients, topic: str, version: int) -> None:
    first = clients(version, f"twice-{topic}")
    first.client.on_connect = None
    first.client.reconnect_delay_set(60, 60)
    clients(version, f"twice-{topic}")
    reason = first.gone.get(timeout=PATIENCE)
    first.client.loop_stop()
    if version == MQTTv5:
        assert reason == "Session taken over"


@both_versions
def test_unsubscribe(clients: Clients, topic: str, version: int) -> None:
    client = clients(version)
    client.subscribe([(f"{topic}/a", 1), (f"{topic}/b", 1)])
    client.client.unsubscribe(f"{topic}/a")
    client.acknowledged.get(timeout=PATIENCE)
    client.publish(f"{topic}/a", b"not wanted", 1)
    client.publish(f"{topic}/b", b"wanted", 1)
    assert client.next().payload == b"wanted"


@both_versions
def test_shared_subscription(clients: Clients, topic: str, version: int) -> None:
    """Shared subscriptions are from 5.0, but 3.1.1 clients may use them as well."""
    members = [clients(version), clients(version)]
    members[1].messages = members[0].messages  # whoever got it
    for member in members:
        member.subscribe(f"$share/group/{topic}/#", 1)
    writer = clients(version)
    for number in range(20):
        writer.publish(f"{topic}/{number}", b"%d" % number, 1)
    received = [int(members[0].next().payload) for _ in range(20)]
    assert sorted(received) == list(range(20))
    assert members[0].messages.empty()


def test_properties(clients: Clients, topic: str) -> None:
    reader, writer = clients(MQTTv5), clients(MQTTv5)
    reader.subscribe(topic, options=SubscribeOptions(2), properties=_identified(17))
    sent = properties(
        PacketTypes.PUBLISH,
        PayloadFormatIndicator=1,
        MessageExpiryInterval=100,
        ContentType="text/plain",
        ResponseTopic=topic + "/answer",
        CorrelationData=b"\x00\xff",
        UserProperty=[("b", "1"), ("a", "2"), ("b", "3")],
    )
    writer.publish(topic, b"payload", 2, properties=sent)
    message = reader.next()
    assert message.properties is not None
    got = message.properties.json()
    assert got.pop("MessageExpiryInterval") in (99, 100)
    wanted = sent.json() | {"SubscriptionIdentifier": [17]}
    del wanted["MessageExpiryInterval"]
    assert got == wanted


def _identified(identifier: int) -> Properties:
    return properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=identifier)


def test_options(clients: Clients, topic: str) -> None:
    client = clients(MQTTv5)
    assert (
        client.subscribe(topic, options=SubscribeOptions(1, noLocal=True, retainAsPublished=True))[0] == "Granted QoS 1"
    )
    client.publish(topic, b"own", 1)
    clients(MQTTv5).publish(topic, b"other's", 1, True)
    message = client.next()
    assert (message.payload, message.retain) == (b"other's", True)


def test_what_the_server_says_of_itself(clients: Clients) -> None:
    client = clients(MQTTv5)
    assert client.properties is not None
    said = client.properties.json()
    assert said["AssignedClientIdentifier"]
    assert said["TopicAliasMaximum"] > 0 and said["ReceiveMaximum"] > 0


def test_topic_alias(clients: Clients, topic: str) -> None:
    reader, writer = clients(MQTTv5), clients(MQTTv5)
    reader.subscribe(topic, 1)
    writer.publish(topic, b"first", 1, properties=properties(PacketTypes.PUBLISH, TopicAlias=3))
    writer.publish("", b"second", 1, properties=properties(PacketTypes.PUBLISH, TopicAlias=3))
    assert [(message.topic, message.payload) for message in (reader.next(), reader.next())] == [
        (topic, b"first"),
        (topic, b"second"),
    ]
