"""What the broker remembers of properties is bounded, and what it passes on is what the ordinary way would."""

from __future__ import annotations

from headwater.node.delivery.known_properties import LONGEST_CACHED, MAX_CACHED
from headwater.wire import encode
from headwater.wire.packets import Disconnect, Properties, Publish
from tests.node.memory import MemoryBroker
from tests.node.protocol.test_server import subscribed


def test_remembered_properties_are_bounded() -> None:
    broker = MemoryBroker()
    reader, publisher = subscribed(broker, "r"), broker.client("p")
    count = MAX_CACHED + 100
    for number in range(count):
        publisher.feed(encode(Publish("t", b"", properties=Properties(content_type=str(number))), 5))
        assert len(broker.server.hot.properties.blocks) <= MAX_CACHED == 4096
    assert [message.properties for message in reader.messages()] == [
        Properties(content_type=str(number)) for number in range(count)
    ]


def test_long_properties_are_not_remembered() -> None:
    broker = MemoryBroker()
    reader, publisher = subscribed(broker, "r"), broker.client("p")
    properties = Properties(content_type="x" * (LONGEST_CACHED + 1))
    for _ in range(2):
        publisher.send(Publish("t", b"m", properties=properties))
    assert all(len(block) <= LONGEST_CACHED for block in broker.server.hot.properties.blocks)
    assert [message.properties for message in reader.messages()] == [properties, properties]


def test_wrong_properties_are_wrong_each_time() -> None:
    """Also the second time, when the broker has seen them before."""
    broker = MemoryBroker()
    reader = subscribed(broker, "r")
    for _ in range(2):
        publisher = broker.client("p")
        publisher.feed(b"\x30\x07\x00\x01t\x03\x03\x00\x00" + b"\x30\x06\x00\x01t\x02\x63\x01")
        last = publisher.packets()[-1]
        assert isinstance(last, Disconnect) and last.reason in (0x81, 0x82)
    assert len(reader.messages()) == 2
