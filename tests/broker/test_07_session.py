"""Sessions: clean start, expiry and take-over (sections 3.1.2.4, 3.1.2.11.2, 3.1.4 and 4.1).

Where a scenario has to see that time passed, it waits for a will that the broker publishes at that time, not by the
clock: a client with a session expiry of N seconds and a long will delay dies, and its will comes after N seconds.
"""

from __future__ import annotations

import time

import pytest

from .build import disconnect, puback, publish, will
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected, kept


def leave_a_timer(target: Target, name: str, seconds: int) -> None:
    """A client that dies now and whose session, and with it the will to `name`/time, ends after so many seconds."""
    peer = connected(target, f"{name}t", session_expiry=seconds, will=will(f"{name}/time", b"", will_delay=3600))
    peer.drop()


def expect_message(peer: Peer, topic: str, payload: bytes) -> None:
    got = peer.publication()
    assert (got.topic, got.payload) == (topic, payload)


# --- clean start ---


@clause("MQTT-3.1.2-6", "MQTT-3.1.4-4")
@clause311("MQTT-3.1.2-4", "MQTT-3.1.4-3")
@both_versions
def test_new_session(target: Target, name: str, version: int) -> None:
    """A client that would resume a session but has none gets a new one."""
    peer = connected(target, name, version, **kept(version))
    assert not peer.session_present
    peer.expect_nothing()


@clause("MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.1.4-4", "MQTT-3.1.3-2")
@clause311("MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-4.1.0-1", "MQTT-4.1.0-2")
@both_versions
def test_resumed_session(target: Target, name: str, version: int) -> None:
    """A resumed session still has its subscriptions, and the QoS 1 and 2 messages that came meanwhile, in order."""
    peer = connected(target, name, version, **kept(version))
    peer.subscribe(f"{name}/#", qos=2)
    peer.close()
    writer = connected(target, f"{name}p", version)
    writer.publish(f"{name}/a", b"one", 1)
    writer.publish(f"{name}/b", b"two", 2)
    again = connected(target, name, version, **kept(version))
    assert again.session_present
    expect_message(again, f"{name}/a", b"one")
    expect_message(again, f"{name}/b", b"two")
    writer.publish(f"{name}/c", b"three")
    expect_message(again, f"{name}/c", b"three")


@clause("MQTT-3.1.2-5", "MQTT-4.1.0-1")
@clause311("MQTT-3.1.2-4")
@pytest.mark.parametrize("ending", ["close", "drop", "abort"])
@both_versions
def test_session_survives_any_end(target: Target, name: str, version: int, ending: str) -> None:
    """A kept session survives the end of its connection, however that came."""
    peer = connected(target, name, version, **kept(version))
    peer.subscribe(name)
    getattr(peer, ending)()
    again = connected(target, name, version, **kept(version))
    assert again.session_present
    again.send(publish(name, b"x", version=version))
    expect_message(again, name, b"x")


@clause("MQTT-3.1.2-4", "MQTT-3.1.4-4")
@clause311("MQTT-3.1.2-6", "MQTT-3.1.4-3")
@both_versions
def test_clean_start(target: Target, name: str, version: int) -> None:
    """A clean start discards the old session: its subscriptions, and the messages that waited."""
    peer = connected(target, name, version, **kept(version))
    peer.subscribe(name, qos=1)
    peer.close()
    writer = connected(target, f"{name}p", version)
    writer.publish(name, b"waited", 1)
    again = connected(target, name, version, clean=True)
    assert not again.session_present
    again.expect_nothing()
    writer.publish(name, b"unwanted", 1)
    again.expect_nothing()


@clause("MQTT-3.1.2-4")
@clause311("MQTT-3.1.2-6")
@both_versions
def test_clean_start_is_for_good(target: Target, name: str, version: int) -> None:
    """The discarded session does not come back when the client resumes later."""
    peer = connected(target, name, version, **kept(version))
    peer.subscribe(name, qos=1)
    peer.close()
    connected(target, name, version, clean=True).close()
    again = connected(target, name, version, **kept(version))
    assert not again.session_present
    connected(target, f"{name}p", version).publish(name, b"unwanted", 1)
    again.expect_nothing()


@clause311("MQTT-3.1.2-7")
@both_versions
def test_retained_messages_are_no_session_state(target: Target, name: str, version: int) -> None:
    """Retained messages survive the session of the client that published them."""
    connected(target, name, version).publish(name, b"stays", 1, retain=True)
    again = connected(target, name, version, clean=True)
    again.subscribe(name)
    again.expect(publish(name, b"stays", retain=True, version=version))
    connected(target, f"{name}c", version).publish(name, b"", 1, retain=True)


# --- expiry ---


@clause("MQTT-4.1.0-2")
@pytest.mark.parametrize("expiry", [{}, {"session_expiry": 0}], ids=["absent", "zero"])
def test_session_without_expiry(target: Target, name: str, expiry: dict[str, int]) -> None:
    """Without an expiry interval the session ends with the connection."""
    connected(target, name, clean=False, **expiry).close()
    assert not connected(target, name, clean=False).session_present


@clause311("MQTT-3.1.2-6")
def test_clean_session_ends_with_the_connection_311(target: Target, name: str) -> None:
    """In 3.1.1 a clean session lasts as long as its connection."""
    peer = connected(target, name, V311, clean=True)
    peer.subscribe(name, qos=1)
    peer.close()
    again = connected(target, name, V311, clean=False)
    assert not again.session_present
    connected(target, f"{name}p", V311).publish(name, b"x", 1)
    again.expect_nothing()


@clause("MQTT-3.1.2-23")
def test_session_for_ever(target: Target, name: str) -> None:
    """An expiry interval of FF FF FF FF never ends."""
    connected(target, name, session_expiry=0xFFFFFFFF).close()
    assert connected(target, name, clean=False).session_present


@clause("MQTT-4.1.0-2", "MQTT-3.1.2-23")
def test_session_expires(target: Target, name: str) -> None:
    """A session is discarded when its expiry interval has passed, and not before."""
    watcher = connected(target, f"{name}w")
    watcher.subscribe(f"{name}/time")
    started = time.monotonic()
    connected(target, name, session_expiry=1).close()
    assert connected(target, name, clean=False, session_expiry=1).session_present
    connected(target, name, clean=False, session_expiry=1).close()
    leave_a_timer(target, name, 2)
    expect_message(watcher, f"{name}/time", b"")
    assert time.monotonic() - started > 1
    assert not connected(target, name, clean=False).session_present


@clause("MQTT-4.1.0-1")
def test_session_does_not_expire_while_connected(target: Target, name: str) -> None:
    """The expiry interval only runs while there is no connection, and a return stops it."""
    first = connected(target, name, session_expiry=1)
    first.subscribe(f"{name}/#")
    first.close()
    peer = connected(target, name, clean=False, session_expiry=1)
    assert peer.session_present
    leave_a_timer(target, name, 2)
    expect_message(peer, f"{name}/time", b"")
    peer.close()
    assert connected(target, name, clean=False).session_present


@clause("MQTT-3.1.2-23")
def test_expiry_changed_by_disconnect(target: Target, name: str) -> None:
    """A DISCONNECT may lengthen the expiry interval or end the session."""
    watcher = connected(target, f"{name}w")
    watcher.subscribe(f"{name}/time")
    longer = connected(target, name, session_expiry=1)
    longer.send(disconnect(0, session_expiry=100))
    longer.expect_eof()
    leave_a_timer(target, name, 2)
    expect_message(watcher, f"{name}/time", b"")
    none = connected(target, name, clean=False, session_expiry=100)
    assert none.session_present
    none.send(disconnect(0, session_expiry=0))
    none.expect_eof()
    assert not connected(target, name, clean=False).session_present


@clause("MQTT-4.13.1-1")
def test_expiry_not_made_up_by_disconnect(target: Target, name: str) -> None:
    """A session that was to end with the connection cannot be kept by its DISCONNECT: a protocol error."""
    peer = connected(target, name)
    peer.send(disconnect(0, session_expiry=100))
    peer.expect_closed(0x82)
    assert not connected(target, name, clean=False).session_present


# --- take-over ---


@clause("MQTT-3.1.4-3")
@clause311("MQTT-3.1.4-2")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "resumed"])
@both_versions
def test_take_over(target: Target, name: str, version: int, clean: bool) -> None:
    """A second connection with the same client id ends the first, which 5.0 tells 0x8E."""
    first = connected(target, name, version, clean=clean)
    second = connected(target, name, version, clean=clean)
    first.expect_closed(0x8E)
    second.expect_nothing()


@clause("MQTT-3.1.4-3")
@clause311("MQTT-3.1.4-2")
@pytest.mark.parametrize(("before", "after"), [(V311, V5), (V5, V311)], ids=["v5 over v311", "v311 over v5"])
def test_take_over_across_versions(target: Target, name: str, before: int, after: int) -> None:
    """The two connections may speak different versions; each hears what its version knows."""
    first = connected(target, name, before)
    second = connected(target, name, after)
    first.expect_closed(0x8E)
    second.expect_nothing()


@clause("MQTT-3.1.4-3", "MQTT-3.1.2-5", "MQTT-3.1.4-4")
@clause311("MQTT-3.1.4-2", "MQTT-3.1.2-4")
@both_versions
def test_take_over_keeps_the_session(target: Target, name: str, version: int) -> None:
    """The session moves to the new connection with its subscriptions and unacknowledged messages."""
    first = connected(target, name, version, **kept(version))
    first.subscribe(name, qos=1)
    connected(target, f"{name}p", version).publish(name, b"not acknowledged", 1)
    unacknowledged = first.publication()
    second = connected(target, name, version, **kept(version))
    assert second.session_present
    first.expect_closed(0x8E)
    again = second.publication()
    assert again == unacknowledged._replace(dup=True)
    assert again.pid is not None
    second.send(puback(again.pid))
    second.expect_nothing()


@clause("MQTT-3.1.4-3", "MQTT-3.1.2-4")
@clause311("MQTT-3.1.4-2", "MQTT-3.1.2-6")
@both_versions
def test_take_over_with_clean_start(target: Target, name: str, version: int) -> None:
    """A take-over with a clean start takes nothing over."""
    first = connected(target, name, version, **kept(version))
    first.subscribe(name, qos=1)
    second = connected(target, name, version, clean=True)
    assert not second.session_present
    first.expect_closed(0x8E)
    connected(target, f"{name}p", version).publish(name, b"x", 1)
    second.expect_nothing()
