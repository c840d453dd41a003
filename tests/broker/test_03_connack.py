"""CONNACK: session present, refusals, and what the server says about itself (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from . import build
from .build import connack, connect, disconnect, publish, subscribe, will
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected, kept

Start = Callable[[str], Target]


def refused(target: Target, reason: int | set[int], client_id: str, version: int = 5, **arguments: Any) -> None:
    peer = Peer.connect(target, version=version)
    peer.send(connect(client_id, version=version, **arguments))
    peer.expect_refused(reason)


# --- session present ---


@clause("MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-3.2.2-1")
@clause311("MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-3")
@both_versions
def test_session_present(target: Target, name: str, version: int) -> None:
    """Session present is 1 exactly when the client wants a kept session and there is one."""
    keep = {"session_expiry": 100} if version == V5 else {}
    seen = []
    for clean in (False, False, True, False):
        peer = connected(target, name, version, clean=clean, **keep)
        seen.append(peer.session_present)
        peer.close()
    # In 3.1.1 a clean session does not outlive its connection; in 5.0 the expiry decides that.
    assert seen == [False, True, False, version == V5]


@clause("MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-3.2.2-8", "MQTT-4.13.2-1")
def test_refusal_although_there_is_a_session(target: Target, name: str) -> None:
    """A refusal says nothing of a session, carries a reason of 0x80 or more, and ends the connection."""
    connected(target, name, session_expiry=100).close()
    refused(target, {0x8C, 0x87}, name, clean=False, auth_method="no such method")
    assert connected(target, name, clean=False).session_present


@clause("MQTT-3.2.0-1")
@clause311("MQTT-3.2.0-1")
@both_versions
def test_connack_before_queued_messages(target: Target, name: str, version: int) -> None:
    """What waited for a session is sent behind the CONNACK."""
    sleeper = connected(target, name, version, **kept(version))
    sleeper.subscribe(name, qos=1)
    sleeper.close()
    connected(target, f"{name}p", version).publish(name, b"waited", 1)
    peer = Peer.connect(target, version=version)
    peer.send(connect(name, version=version, **kept(version)))
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x01\x00")
    assert peer.publication().payload == b"waited"


# --- what the server can do ---


@clause("MQTT-3.2.2-22")
@both_versions
def test_nothing_unasked(target: Target, name: str, version: int) -> None:
    """No keep alive, session expiry, id or authentication is imposed on a client that set its own."""
    told = connected(target, name, version).properties
    assert not told.keys() & {"server_keep_alive", "assigned_client_id", "auth_method", "auth_data", "server_reference"}
    assert told.get("session_expiry", [0]) == [0]


@clause("MQTT-3.2.2-12")
@both_versions
def test_maximum_qos_and_wills(broker_with: Start, name: str, version: int) -> None:
    """A will of a QoS that the server does not have is refused."""
    target = broker_with("max_qos = 1")
    refused(target, 0x9B, name, version, will=will(name, qos=2))
    connected(target, name, version, will=will(name, qos=1)).expect_nothing()


@clause("MQTT-3.2.2-13")
@both_versions
def test_retained_wills(broker_with: Start, name: str, version: int) -> None:
    """Nor is a will to be retained where nothing is."""
    target = broker_with("retain_available = false")
    refused(target, 0x9A, name, version, will=will(name, retain=True))
    connected(target, name, version, will=will(name)).expect_nothing()


@clause("MQTT-3.2.2-17")
def test_topic_alias_maximum(broker_with: Start, name: str) -> None:
    """The server says how many topic aliases it takes; a higher one is invalid."""
    peer = connected(broker_with("topic_alias_maximum = 3"), name)
    assert peer.properties["topic_alias_maximum"] == [3]
    peer.publish(name, b"x", topic_alias=3)
    peer.send(publish(name, b"x", topic_alias=4))
    peer.expect_closed(0x94)


@clause("MQTT-3.2.2-18")
def test_topic_alias_maximum_zero(broker_with: Start, name: str) -> None:
    """A server that takes none sends no maximum (or 0), and the first alias is invalid."""
    peer = connected(broker_with("topic_alias_maximum = 0"), name)
    assert peer.properties.get("topic_alias_maximum", [0]) == [0]
    peer.send(publish(name, b"x", topic_alias=1))
    peer.expect_closed(0x94)


def test_session_expiry_limit(broker_with: Start, name: str) -> None:
    """A server that keeps sessions less long than asked says how long."""
    target = broker_with("max_session_expiry = 7")
    assert connected(target, name, session_expiry=8).properties["session_expiry"] == [7]
    assert connected(target, name, session_expiry=0xFFFFFFFF).properties["session_expiry"] == [7]
    assert connected(target, name, session_expiry=7).properties.get("session_expiry", [7]) == [7]


# --- what the client asked to be told ---


@clause("MQTT-3.1.2-28")
def test_response_information_not_requested(broker_with: Start, name: str) -> None:
    """Response information is sent to clients that request it, and only to them."""
    target = broker_with('response_information = "replies/here"')
    assert "response_information" not in connected(target, name).properties
    assert "response_information" not in connected(target, name, request_response=0).properties
    assert connected(target, name, request_response=1).properties["response_information"] == ["replies/here"]


@clause("MQTT-3.1.2-29")
def test_problem_information_not_requested(target: Target, name: str) -> None:
    """A client that wants no problem information gets none in SUBACK, UNSUBACK, PUBACK and PUBREC."""
    peer = connected(target, name, request_problem=0)
    peer.send(subscribe(f"{name}/ok", pid=1), build.unsubscribe(f"{name}/never", pid=2))
    peer.expect(build.suback(0, pid=1), build.unsuback(0x11, pid=2))
    for packet in (publish(name, b"x", 1), publish(name, b"x", 2), publish("$SYS/broker/version", b"x", 1)):
        peer.send(packet)
        first, body = peer.packet()
        assert first in (build.PUBACK, build.PUBREC)
        assert len(body) <= 3 or body[3:] == b"\x00"


@pytest.mark.own_settings
def test_problem_information_requested(target: Target, name: str) -> None:
    """Ours explains a DISCONNECT to those who did not decline, and leaves it at the reason code for those who did."""
    for wanted, declined in (({}, False), ({"request_problem": 1}, False), ({"request_problem": 0}, True)):
        peer = connected(target, name, **wanted)
        peer.send(b"\x00\x00")
        first, body = peer.packet()
        assert first == build.DISCONNECT
        assert declined == (len(body) < 3)
        assert declined or build.read_props(body, 1)[0].keys() == {"reason_string"}


@clause("MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24")
def test_explained_refusal_fits_the_maximum_packet_size(broker_with: Start, name: str) -> None:
    """An explanation that most clients get is left out for one that has no room for it."""
    target = broker_with("max_qos = 1")
    for limit, explained in (({}, True), ({"maximum_packet_size": 5}, False)):
        peer = Peer.connect(target)
        peer.send(connect(name, will=will(name, qos=2), **limit))
        first, body = peer.packet()
        assert (first, body[:2]) == (build.CONNACK, b"\x00\x9b")
        assert build.read_props(body, 2)[0].keys() == ({"reason_string"} if explained else set())
        peer.expect_eof()


@clause("MQTT-3.2.2-20")
def test_refusal_fits_the_maximum_packet_size(target: Target, name: str) -> None:
    """What explains a refusal is left out where the client has no room for it."""
    peer = Peer.connect(target)
    peer.send(connect(name, auth_method="no such method", maximum_packet_size=5))
    if target.ours or not peer.ended():
        first, body = peer.packet()
        assert first == build.CONNACK and body in (b"\x00\x8c\x00", b"\x00\x87\x00")
    peer.expect_eof()


# --- refusals by setting ---


@clause("MQTT-3.1.4-2", "MQTT-3.2.2-7")
@clause311("MQTT-3.2.2-5")
@both_versions
def test_anonymous_not_allowed(broker_with: Start, name: str, version: int) -> None:
    """Where anonymous clients are not allowed they are refused as not authorised."""
    target = broker_with("allow_anonymous = false")
    refused(target, {0x87, 0x86}, name, version)
    refused(target, {0x87, 0x86}, name, version, username="somebody", password=b"guess")


@clause("MQTT-3.2.2-7")
@clause311("MQTT-3.2.2-5")
def test_connection_limit(broker_with: Start, name: str) -> None:
    """At the limit of connections one more is refused as busy, until another leaves."""
    target = broker_with("max_connections = 2")
    first, second = connected(target, f"{name}1"), connected(target, f"{name}2", V311)
    refused(target, 0x89, f"{name}3")
    refused(target, 0x89, f"{name}3", V311)
    second.close()
    first.expect_nothing()
    connected(target, f"{name}3").expect_nothing()


@clause("MQTT-3.2.2-7")
@clause311("MQTT-3.2.2-5")
def test_server_reference(broker_with: Start, name: str) -> None:
    """A server that sends its clients elsewhere says where; a 3.1.1 client hears "unavailable"."""
    target = broker_with('server_reference = "other.example:1883"')
    peer = Peer.connect(target)
    peer.send(connect(name))
    first, body = peer.packet()
    assert (first, body[:2]) == (build.CONNACK, b"\x00\x9c")
    assert build.read_props(body, 2)[0]["server_reference"] == ["other.example:1883"]
    peer.expect_eof()
    old = Peer.connect(target, version=V311)
    old.send(connect(name, version=V311))
    old.expect(connack(3, version=V311))
    old.expect_eof()


@clause("MQTT-4.1.0-2")
def test_session_expiry_zero_at_the_end(target: Target, name: str) -> None:
    """A client may give up its session with its DISCONNECT, and the next CONNACK shows it."""
    peer = connected(target, name, session_expiry=100)
    peer.send(disconnect(0, session_expiry=0))
    peer.expect_eof()
    assert not connected(target, name, clean=False).session_present
