"""A message that many get alike (a will, one by REST) is encoded once, and means what it always did."""

from __future__ import annotations

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.protocol.delivering import BURST
from headwater.wire.packets import Properties, Publish, Subscribe, SubscribeRequest, Will
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


def sends_of(client: Client) -> list[bytes]:
    """What is given to the client's socket from now on, send by send."""
    sends: list[bytes] = []

    def send(data: bytes) -> int:
        sends.append(data)
        return client.socket.send(data)

    client.channel.send_bytes = send
    return sends


def leave_will(broker: MemoryBroker, will: Will) -> None:
    broker.client("testator", will=will).lose()


def test_a_will_for_many_is_encoded_once_for_each_version() -> None:
    broker = MemoryBroker()
    for version in (4, 5):
        readers = [
            subscribed(broker, f"{number}-{version}", "gone", qos=number % 2, version=version) for number in range(6)
        ]
        sends = [sends_of(reader) for reader in readers]
        leave_will(broker, Will("gone", b"x"))
        assert [payloads(reader) for reader in readers] == [[b"x"]] * 6
        ((first,), *others) = sends
        assert all(len(each) == 1 and each[0] is first for each in others), "one object, and so one encoding"
    assert broker.server.stats.messages_sent == 6 + 12


def test_of_qos_1_it_is_one_packet_for_those_who_take_qos_0() -> None:
    broker = MemoryBroker()
    plain = [subscribed(broker, f"plain-{number}", "gone") for number in range(3)]
    sends = [sends_of(reader) for reader in plain]
    acknowledging = subscribed(broker, "acknowledging", "gone", qos=1)
    leave_will(broker, Will("gone", b"x", qos=1))
    ((first,), *others) = sends
    assert all(each[0] is first for each in others)
    assert [(packet.qos, packet.packet_id) for packet in acknowledging.messages()] == [(1, 1)]


def test_flags_and_sizes_are_each_readers_own() -> None:
    broker = MemoryBroker()
    plain, old = subscribed(broker, "plain", "gone"), subscribed(broker, "old", "gone", version=4)
    flagged = broker.client("flagged")
    flagged.send(Subscribe(1, [SubscribeRequest("gone", 1, retain_as_published=True)]))
    small = subscribed(broker, "small", "gone", properties=Properties(maximum_packet_size=30))
    content = Properties(message_expiry_interval=7, content_type="a text that is long")
    leave_will(broker, Will("gone", b"x", 0, True, content))
    (to_plain,), (to_old,), (to_flagged,) = plain.messages(), old.messages(), flagged.messages()
    assert not to_plain.retain and not to_old.retain and to_flagged.retain
    assert to_plain.properties == to_flagged.properties == content and to_old.properties is None
    assert small.messages() == [], "larger than it takes"


def test_what_has_expired_goes_to_nobody() -> None:
    broker = MemoryBroker()
    reader = subscribed(broker, "reader")
    with broker.one_turn():
        broker.server.publishing.route(Message("t", b"x", expires_at=broker.server.hot.now), None)
    assert reader.messages() == [] and broker.server.stats.drops["expired"] == 1


def test_it_neither_overtakes_nor_is_overtaken() -> None:
    broker = MemoryBroker()
    reader, publisher = subscribed(broker, "reader"), broker.client("publisher")
    testator = broker.client("testator", will=Will("t", b"2"))
    with broker.one_turn():
        publisher.send(Publish("t", b"1"))
        testator.lose()
        publisher.send(Publish("t", b"3"))
    assert payloads(reader) == [b"1", b"2", b"3"]


def test_a_reader_that_does_not_read_loses_it_and_others_do_not() -> None:
    broker = MemoryBroker(Config(sys_interval=0, outbound_buffer=4096))
    slow, fast = subscribed(broker, "slow"), subscribed(broker, "fast")
    slow.socket.room = 0
    for _ in range(3):
        leave_will(broker, Will("t", bytes(5000)))
    assert len(fast.messages()) == 3
    assert broker.server.stats.drops["slow_reader"] == 2
    slow.unblock()
    assert len(slow.messages()) == 1


def test_what_one_turn_writes_for_a_reader_is_bounded() -> None:
    """A long topic by its alias: ten bytes in, 65,000 out."""
    broker = MemoryBroker(Config(sys_interval=0, outbound_buffer=4096))
    reader, publisher = subscribed(broker, "reader", "#"), broker.client("publisher")
    topic = "t" * 65_000
    publisher.send(Publish(topic, b"", properties=Properties(topic_alias=1)))
    publisher.send(*[Publish("", b"", properties=Properties(topic_alias=1))] * 100)
    most = (BURST + 4096) // len(topic) + 2
    assert 2 <= len(reader.messages()) <= 1 + most
    assert broker.server.stats.drops["slow_reader"] >= 100 - most
