"""DISCONNECT in both directions, and how errors end a connection (sections 3.14 and 4.13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .build import disconnect, publish
from .conftest import OwnBroker
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected

# --- from the client ---


@both_versions
def test_goodbye(target: Target, name: str, version: int) -> None:
    """The broker closes the connection behind a DISCONNECT and says nothing more."""
    peer = connected(target, name, version)
    peer.send(disconnect())
    peer.expect_eof()


@pytest.mark.parametrize(
    "goodbye",
    [
        disconnect(0),
        disconnect(0x04),
        disconnect(0, properties=b"\x00"),
        disconnect(0, reason_string="bye", user_property=[("k", "v")]),
        disconnect(0x80),
        disconnect(0x83),
    ],
)
def test_goodbye_in_any_form(target: Target, name: str, goodbye: bytes) -> None:
    """Reason code and properties may be left out from the end, or be there."""
    peer = connected(target, name)
    peer.send(goodbye)
    peer.expect_eof()


@clause("MQTT-3.14.1-1", "MQTT-4.13.1-1")
@clause311("MQTT-3.14.1-1")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
@both_versions
def test_reserved_flags(target: Target, name: str, version: int, flags: int) -> None:
    """A DISCONNECT with flags is malformed, so it is no goodbye: the will is published."""
    watcher = connected(target, f"{name}w", version)
    watcher.subscribe(name)
    peer = connected(target, name, version, will=build.will(name, b"error"))
    peer.send(bytes([0xE0 | flags, 0]))
    peer.expect_closed(0x81)
    watcher.expect(publish(name, b"error", version=version))


@clause311("MQTT-4.8.0-1")
def test_body_311(target: Target, name: str) -> None:
    """In 3.1.1 a DISCONNECT has no body, so this is no goodbye."""
    watcher = connected(target, f"{name}w", V311)
    watcher.subscribe(name)
    peer = connected(target, name, V311, will=build.will(name, b"error"))
    peer.send(disconnect(0))
    peer.expect_eof()
    watcher.expect(publish(name, b"error", version=V311))


@clause("MQTT-3.14.2-1", "MQTT-4.13.1-1")
@pytest.mark.parametrize("reason", [0x01, 0x05, 0x18, 0x7F, 0x84, 0xFF])
def test_unknown_reason(target: Target, name: str, reason: int) -> None:
    """A reason code that DISCONNECT does not know is an error."""
    peer = connected(target, name)
    peer.send(disconnect(reason))
    peer.expect_closed({0x81, 0x82})


@clause("MQTT-4.13.1-1")
def test_bytes_behind_the_properties(target: Target, name: str) -> None:
    """Nothing follows the properties of a DISCONNECT."""
    peer = connected(target, name)
    peer.send(build.packet(build.DISCONNECT, b"\x00\x00\x00"))
    peer.expect_closed(0x81)


@clause("MQTT-3.14.4-1")
@clause311("MQTT-3.14.4-2")
@both_versions
def test_packets_behind_goodbye(target: Target, name: str, version: int) -> None:
    """What follows a DISCONNECT is not looked at."""
    watcher = connected(target, f"{name}w", version)
    watcher.subscribe(name)
    peer = connected(target, name, version)
    peer.send(disconnect(), publish(name, b"too late", version=version))
    peer.expect_eof()
    watcher.expect_nothing()


@clause("MQTT-4.13.1-1")
@both_versions
def test_packets_behind_an_error(target: Target, name: str, version: int) -> None:
    """Nor is what follows a malformed packet; what came before it counts."""
    watcher = connected(target, f"{name}w", version)
    watcher.subscribe(name)
    peer = connected(target, name, version)
    message = publish(name, b"before", version=version)
    peer.send(message, b"\x00\x00", publish(name, b"behind", version=version))
    peer.expect_closed({0x81, 0x82})
    watcher.expect(message)
    watcher.expect_nothing()


# --- from the server ---


@clause("MQTT-3.14.2-1", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-4.13.2-1")
def test_server_says_goodbye(target: Target, name: str) -> None:
    """A DISCONNECT of the server has a reason that fits, no session expiry, and is its last word."""
    peer = connected(target, name, session_expiry=100)
    peer.send(b"\x00\x00", build.PINGREQ, publish(name, b"x", 1))
    if target.ours or not peer.ended():
        first, body = peer.packet()
        assert first == build.DISCONNECT and body[0] in (0x81, 0x82)
        assert "session_expiry" not in (build.read_props(body, 1)[0] if len(body) > 1 else {})
    peer.expect_eof()


@clause("MQTT-3.14.0-1")
def test_no_goodbye_before_connack(target: Target, name: str) -> None:
    """A client that was refused hears CONNACK and nothing else."""
    peer = Peer.connect(target)
    peer.send(build.connect(name, flags=0x03))
    peer.expect_refused(0x81)


@clause311("MQTT-4.8.0-1")
def test_no_goodbye_from_the_server_311(target: Target, name: str) -> None:
    """In 3.1.1 servers do not send DISCONNECT: the connection just ends."""
    peer = connected(target, name, V311)
    peer.send(b"\x00\x00")
    peer.expect_eof()


@clause("MQTT-3.14.2-1", "MQTT-3.14.4-2")
def test_server_stops(own_broker: Callable[..., OwnBroker], name: str) -> None:
    """A broker that is stopped tells its 5.0 clients 0x8B, closes all connections and ends without an error."""
    broker = own_broker()
    new, old = connected(broker.target, f"{name}5", V5), connected(broker.target, f"{name}4", V311)
    unborn = Peer.connect(broker.target)
    broker.process.terminate()
    new.expect_closed(0x8B)
    old.expect_closed()
    unborn.expect_eof()
    assert broker.process.wait(10) == 0
