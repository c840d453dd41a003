"""What a client's limits mean for what it is sent (sections 3.1.2.11.4 and 3.1.2.11.5)."""

from __future__ import annotations

import pytest

from . import build
from .build import puback, publish
from .marks import clause, deviates
from .peer import Target, connected, kept

# --- maximum packet size ---


@clause("MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
@deviates("mosquitto 2.0: sends one byte more than the client takes")
def test_message_too_large_for_the_client(target: Target, name: str, qos: int) -> None:
    """A message that fits exactly is sent; one byte more is dropped, and the next goes on as if nothing had been."""
    size = 100
    peer, writer = connected(target, name, maximum_packet_size=size), connected(target, f"{name}p")
    peer.subscribe(name, qos=2)
    room = size - len(publish(name, b"", qos))
    writer.publish(name, b"." * room, qos)
    got = peer.publication()
    assert got.payload == b"." * room
    if got.pid is not None:
        peer.send(puback(got.pid) if qos == 1 else build.pubrec(got.pid))
        if qos == 2:
            peer.expect_ack(build.PUBREL, got.pid)
            peer.send(build.pubcomp(got.pid))
    writer.publish(name, b"." * (room + 1), qos)
    peer.expect_nothing()
    writer.publish(name, b"next", qos)
    assert peer.publication().payload == b"next"


@clause("MQTT-3.1.2-25")
@deviates("mosquitto 2.0: stops sending once dropped messages have used up the receive maximum")
def test_dropped_message_holds_nothing_up(target: Target, name: str) -> None:
    """A dropped message counts as delivered: it takes no place among those in flight and does not come back."""
    limits = {"maximum_packet_size": 100, "receive_maximum": 1}
    peer, writer = connected(target, name, **kept(5), **limits), connected(target, f"{name}p")
    peer.subscribe(name, qos=1)
    for number in range(1, 6):
        writer.publish(name, b"." * 200, 1, number)
    writer.publish(name, b"small", 1)
    got = peer.publication()
    assert got.payload == b"small" and got.pid is not None
    peer.send(puback(got.pid))
    peer.close()
    again = connected(target, name, **kept(5))
    assert again.session_present
    again.expect_nothing()


@clause("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_limit_is_each_clients_own(target: Target, name: str) -> None:
    """What is too large for one subscriber still reaches the others."""
    small, large = connected(target, f"{name}s", maximum_packet_size=50), connected(target, f"{name}l")
    for peer in (small, large):
        peer.subscribe(name)
    connected(target, f"{name}p").publish(name, b"." * 100)
    large.expect(publish(name, b"." * 100))
    small.expect_nothing()


@clause("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_message_that_waited_and_is_too_large(target: Target, name: str) -> None:
    """The limit of the connection that a message is sent on counts, not that of the subscription's."""
    peer = connected(target, name, **kept(5))
    peer.subscribe(name, qos=1)
    peer.close()
    writer = connected(target, f"{name}p")
    writer.publish(name, b"." * 200, 1)
    writer.publish(name, b"small", 1)
    again = connected(target, name, maximum_packet_size=100, **kept(5))
    assert again.publication().payload == b"small"


@clause("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_retained_message_too_large(target: Target, name: str) -> None:
    """Retained messages are held to the limit too."""
    writer = connected(target, f"{name}p")
    writer.publish(name, b"." * 200, 1, retain=True)
    peer = connected(target, name, maximum_packet_size=100)
    peer.subscribe(name)
    peer.expect_nothing()
    writer.publish(name, b"", 1, retain=True)


@clause("MQTT-3.1.2-24", "MQTT-3.14.2-3", "MQTT-3.14.2-4")
def test_disconnect_fits(target: Target, name: str) -> None:
    """What explains a DISCONNECT is left out where the client has no room for it."""
    size = 20  # a CONNACK fits, an explanation does not
    peer = connected(target, name, maximum_packet_size=size)
    peer.send(b"\x30\x02\x00\x09")
    if target.ours or not peer.ended():
        first, body = peer.packet()
        assert first == build.DISCONNECT and body[0] in (0x81, 0x82) and len(body) <= size - 2
    peer.expect_eof()


# --- topic alias maximum ---


@clause("MQTT-3.1.2-27")
@pytest.mark.parametrize("limit", [{}, {"topic_alias_maximum": 0}], ids=["absent", "zero"])
def test_no_topic_aliases(target: Target, name: str, limit: dict[str, int]) -> None:
    """A client that takes no topic aliases gets none, although the publisher uses one."""
    peer, writer = connected(target, name, **limit), connected(target, f"{name}p")
    peer.subscribe(name)
    writer.publish(name, b"0", topic_alias=1)
    writer.publish("", b"1", topic_alias=1)
    peer.expect(publish(name, b"0"), publish(name, b"1"))


@clause("MQTT-3.1.2-26")
def test_topic_aliases_within_the_limit(target: Target, name: str) -> None:
    """A client that takes two gets at most two, and they mean the right topics."""
    peer, writer = connected(target, name, topic_alias_maximum=2), connected(target, f"{name}p")
    peer.subscribe(f"{name}/#")
    meaning: dict[object, str] = {}
    for number in (*range(5), *range(5)):
        writer.publish(f"{name}/{number}", b"%d" % number)
        got = peer.publication()
        topic = got.topic
        if alias := got.properties.get("topic_alias"):
            assert alias[0] in (1, 2)
            if topic:
                meaning[alias[0]] = topic
            topic = meaning[alias[0]]
        assert (topic, got.payload) == (f"{name}/{number}", b"%d" % number)


def test_topic_aliases_end_with_the_connection(target: Target, name: str) -> None:
    """Aliases do not outlive their connection: the topic is spelled out again on the next."""
    peer, writer = connected(target, name, topic_alias_maximum=5, **kept(5)), connected(target, f"{name}p")
    peer.subscribe(f"{name}/t")
    for _ in range(2):
        writer.publish(f"{name}/t", b"x")
        peer.publication()
    peer.close()
    again = connected(target, name, topic_alias_maximum=5, **kept(5))
    assert again.session_present
    writer.publish(f"{name}/t", b"y")
    assert again.publication().topic == f"{name}/t"
