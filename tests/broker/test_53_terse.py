"""A broker that says no more than the standard asks for (setting `terse`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .build import connect, subscribe
from .marks import V5
from .peer import Peer, Target, connected

Start = Callable[[str], Target]
TERSE = "terse = true"


@pytest.fixture
def terse(broker_with: Start) -> Target:
    return broker_with(TERSE)


def test_refusals_have_no_texts(broker_with: Start, name: str) -> None:
    """The reason is a number."""
    peer = Peer.connect(broker_with(f"{TERSE}\nallow_anonymous = false"))
    peer.send(connect(name))
    peer.expect(b"\x20\x03\x00\x87\x00")
    peer.expect_eof()


def test_a_broken_packet_has_no_text(terse: Target, name: str) -> None:
    """DISCONNECT says what kind of mistake it was, and no more."""
    peer = connected(terse, name)
    peer.send(build.publish("a/+", b"x"))
    peer.expect(b"\xe0\x01\x82")
    peer.expect_eof()


@pytest.mark.parametrize("packet", [build.subscribe("#/x"), build.subscribe("a+/b"), build.unsubscribe("a/#/b")])
def test_a_filter_that_cannot_be_is_malformed(terse: Target, name: str, packet: bytes) -> None:
    """Mosquitto's reason code."""
    peer = connected(terse, name)
    peer.send(packet)
    peer.expect(b"\xe0\x01\x81")
    peer.expect_eof()


@pytest.mark.parametrize("broken", [b"\x00", connect("c", flags=0x03)[2:], connect("c")[2:] + b"x"])
def test_a_malformed_connect_is_not_answered(terse: Target, broken: bytes) -> None:
    """[MQTT-3.1.4-1] leaves that to the server."""
    peer = Peer.connect(terse)
    peer.send(build.packet(build.CONNECT, broken))
    peer.expect_eof()


@pytest.mark.parametrize(
    "out_of_place", [connect("again"), build.connack(), build.puback(1)], ids=["CONNECT", "CONNACK", "PUBACK"]
)
def test_what_is_out_of_place_is_not_answered(terse: Target, name: str, out_of_place: bytes) -> None:
    """A second CONNECT, what only servers send, the wrong acknowledgement: the connection ends."""
    peer = connected(terse, name)
    peer.subscribe(name, qos=2)
    connected(terse, f"{name}p").publish(name, b"x", 2)
    assert peer.publication().pid == 1
    peer.send(out_of_place)
    peer.expect_eof()


def test_a_will_is_published_all_the_same(terse: Target, name: str) -> None:
    sub = connected(terse, f"{name}s")
    sub.subscribe(name)
    peer = connected(terse, name, will=build.will(name, b"gone"))
    peer.send(connect(name))
    peer.expect_eof()
    assert sub.publication().payload == b"gone"


def test_an_unknown_version_is_answered(terse: Target, name: str) -> None:
    """[MQTT-3.1.2-2] asks for it."""
    peer = Peer.connect(terse)
    peer.send(connect(name, level=9))
    peer.expect(b"\x20\x03\x00\x84\x00")


@pytest.mark.parametrize("reason", [0, 0x10])
def test_no_subscribers(terse: Target, name: str, reason: int) -> None:
    """Of QoS 1 it is said that there are none, of QoS 2 not."""
    pub = connected(terse, name)
    pub.send(build.publish(name, b"x", 2 if reason == 0 else 1, 5))
    pub.expect(build.pubrec(5) if reason == 0 else build.puback(5, 0x10))


@pytest.mark.parametrize("version", [4, V5])
def test_pubrec_comes_before_ones_own_copy(terse: Target, name: str, version: int) -> None:
    peer = connected(terse, name, version)
    peer.send(subscribe(name, qos=2, version=version))
    assert peer.packet()[0] == build.SUBACK
    peer.send(build.publish(name, b"x", 2, 5, version=version))
    peer.expect(build.pubrec(5), build.publish(name, b"x", 2, 1, version=version))
    peer.send(build.publish(name, b"x", 2, 5, version=version))
    peer.expect(build.pubrec(5))
    peer.send(build.pubrel(5))
    peer.expect(build.pubcomp(5))


def test_what_is_refused_is_said_once(broker_with: Start, name: str) -> None:
    pub = connected(broker_with(TERSE), name)
    pub.send(build.publish("$SYS/x", b"x", 2, 5))
    pub.expect(build.pubrec(5, 0x87))
    pub.expect_nothing()


def test_pubrel_again(terse: Target, name: str) -> None:
    """A client that did not see our PUBCOMP gets another, and need not know that it is late."""
    pub = connected(terse, name)
    pub.send(build.pubrel(5))
    pub.expect(build.pubcomp(5))
