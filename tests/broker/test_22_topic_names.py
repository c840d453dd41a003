"""The topic name of a PUBLISH: present, well formed, without wildcards, and unaltered (MQTT 5.0, 3.3.2.1 and 4.7)."""

from __future__ import annotations

import pytest

from . import build
from .marks import both_versions, clause, clause311
from .peer import Target, connected


@clause("MQTT-3.3.2-2", "MQTT-4.7.0-1")
@clause311("MQTT-3.3.2-2", "MQTT-4.7.1-1")
@both_versions
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a#", "a+b", "$SYS/#"])
def test_a_wildcard_in_a_topic_name_ends_the_connection(target: Target, name: str, version: int, topic: str) -> None:
    """Wildcards belong in filters only."""
    peer = connected(target, name, version)
    peer.send(build.publish(topic, b"x", version=version))
    peer.expect_closed({0x81, 0x82, 0x90})


@clause("MQTT-3.3.2-1", "MQTT-4.7.3-1")
@clause311("MQTT-4.7.3-1")
@both_versions
def test_an_empty_topic_name_ends_the_connection(target: Target, name: str, version: int) -> None:
    """Without a topic alias, a topic name has at least one character."""
    peer = connected(target, name, version)
    peer.send(build.publish("", b"x", version=version))
    peer.expect_closed(0x82)


@clause("MQTT-3.3.2-1")
@clause311("MQTT-3.3.2-1")
@both_versions
@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"],
    ids=["byte", "cut", "overlong", "surrogate", "beyond"],
)
def test_a_topic_name_that_is_not_utf8_ends_the_connection(target: Target, name: str, version: int, raw: bytes) -> None:
    """The topic name is a UTF-8 encoded string."""
    peer = connected(target, name, version)
    peer.send(build.publish(raw, b"x", version=version))
    peer.expect_closed(0x81)


@clause("MQTT-4.7.3-2")
@clause311("MQTT-4.7.3-2")
@both_versions
def test_a_null_character_in_a_topic_name_ends_the_connection(target: Target, name: str, version: int) -> None:
    """U+0000 is in no topic name."""
    peer = connected(target, name, version)
    peer.send(build.publish(f"{name}\0", b"x", version=version))
    peer.expect_closed({0x81, 0x90})


@clause("MQTT-3.3.2-1")
@clause311("MQTT-3.3.2-1")
@both_versions
def test_a_topic_name_longer_than_its_packet_ends_the_connection(target: Target, name: str, version: int) -> None:
    """A length that points behind the end of the packet is malformed."""
    peer = connected(target, name, version)
    peer.send(build.packet(build.PUBLISH, b"\x00\x09abc"))
    peer.expect_closed(0x81)


@clause("MQTT-3.3.2-1")
@both_versions
def test_a_publish_without_topic_name_ends_the_connection(target: Target, name: str, version: int) -> None:
    """The topic name is the first field and cannot be left out."""
    peer = connected(target, name, version)
    peer.send(build.packet(build.PUBLISH, b""))
    peer.expect_closed({0x81, 0x82})


@clause("MQTT-3.3.2-3", "MQTT-4.7.3-4")
@clause311("MQTT-3.3.2-3", "MQTT-4.7.3-4")
@both_versions
@pytest.mark.parametrize(
    "topic",
    ["{}/Ab c", "{}/", "/{}", "{}//b", "{}/$x", "{}/é€\U0001f30a", "{}/\ufeffx", "{}/\u200b", " {} "],
    ids=["space", "last", "first", "middle", "dollar", "planes", "bom", "zwsp", "blanks"],
)
def test_a_topic_name_arrives_as_it_was_sent(target: Target, name: str, version: int, topic: str) -> None:
    """Topic names are neither trimmed nor normalised nor otherwise changed."""
    topic = topic.format(name)
    peer = connected(target, name, version)
    peer.subscribe(topic)
    peer.send(build.publish(topic, b"x", version=version))
    peer.expect(build.publish(topic, b"x", version=version))


@clause("MQTT-4.7.3-3")
@clause311("MQTT-4.7.3-3")
@both_versions
def test_a_topic_name_may_have_65535_bytes(target: Target, name: str, version: int) -> None:
    """The longest topic name that can be encoded is subscribed to and delivered."""
    topic = name + "x" * (65_535 - len(name))
    peer = connected(target, name, version)
    peer.subscribe(topic)
    peer.send(build.publish(topic, b"x", version=version))
    peer.expect(build.publish(topic, b"x", version=version))
