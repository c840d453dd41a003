"""Wills: when they are published, how, and when not (sections 3.1.2.5 to 3.1.2.7, 3.1.3.2 and 3.14.4)."""

from __future__ import annotations

import time

import pytest

from . import build
from .build import connect, disconnect, publish, will
from .marks import V5, V311, both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected


def watching(target: Target, name: str, version: int = 5, qos: int = 0) -> Peer:
    """A client that gets everything below `name`."""
    watcher = connected(target, f"{name}w", version)
    watcher.subscribe(f"{name}/#", qos=qos)
    return watcher


# --- when ---


@clause("MQTT-3.1.2-7", "MQTT-3.1.2-8")
@clause311("MQTT-3.1.2-8")
@pytest.mark.parametrize("ending", ["drop", "abort"])
@both_versions
def test_connection_lost(target: Target, name: str, version: int, ending: str) -> None:
    """A will is published when its client's connection is lost."""
    watcher = watching(target, name, version)
    peer = connected(target, name, version, will=will(f"{name}/will", b"lost"))
    watcher.expect_nothing()
    getattr(peer, ending)()
    watcher.expect(publish(f"{name}/will", b"lost", version=version))


@clause("MQTT-3.1.2-8")
@clause311("MQTT-3.1.2-8")
@both_versions
def test_protocol_error(target: Target, name: str, version: int) -> None:
    """A will is published when the broker ends the connection for an error."""
    watcher = watching(target, name, version)
    peer = connected(target, name, version, will=will(f"{name}/will", b"thrown out"))
    peer.send(b"\x00\x00")
    peer.expect_closed({0x81, 0x82})
    watcher.expect(publish(f"{name}/will", b"thrown out", version=version))


@clause("MQTT-3.1.2-8", "MQTT-3.1.2-22")
@clause311("MQTT-3.1.2-8", "MQTT-3.1.2-24")
def test_keep_alive_missed(target: Target, name: str) -> None:
    """A will is published when its client falls silent."""
    watcher = watching(target, name)
    watcher.deadline = 10.0  # some brokers look only every few seconds
    for version in (V311, V5):
        connected(target, f"{name}{version}", version, keep_alive=1, will=will(f"{name}/{version}", b"silent"))
    watcher.expect_unordered(publish(f"{name}/4", b"silent"), publish(f"{name}/5", b"silent"))


@clause("MQTT-3.1.2-8", "MQTT-3.1.4-3")
@clause311("MQTT-3.1.2-8")
@both_versions
def test_take_over(target: Target, name: str, version: int) -> None:
    """A will without delay is published when another connection takes over."""
    watcher = watching(target, name, version)
    connected(target, name, version, will=will(f"{name}/will", b"taken over"))
    connected(target, name, version)
    watcher.expect(publish(f"{name}/will", b"taken over", version=version))


@clause("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@clause311("MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-8")
@both_versions
def test_disconnected(target: Target, name: str, version: int) -> None:
    """A client that says goodbye takes its will with it."""
    watcher = watching(target, name, version)
    connected(target, name, version, will=will(f"{name}/will", b"never")).close()
    watcher.expect_nothing()


@clause("MQTT-3.14.4-3")
@pytest.mark.parametrize("goodbye", [b"\xe0\x00", b"\xe0\x01\x00", b"\xe0\x02\x00\x00"])
def test_disconnected_in_any_form(target: Target, name: str, goodbye: bytes) -> None:
    """All forms of DISCONNECT with reason 0x00 discard the will."""
    watcher = watching(target, name)
    peer = connected(target, name, will=will(f"{name}/will", b"never"))
    peer.send(goodbye)
    peer.expect_eof()
    watcher.expect_nothing()


@clause("MQTT-3.1.2-8")
@pytest.mark.parametrize(
    "reason",
    [
        0x04,
        pytest.param(0x80, marks=deviates("mosquitto 2.0: publishes the will at 0x04 only")),
        pytest.param(0x83, marks=deviates("mosquitto 2.0: publishes the will at 0x04 only")),
    ],
)
def test_disconnected_with_will(target: Target, name: str, reason: int) -> None:
    """A DISCONNECT with another reason than 0x00 publishes the will."""
    watcher = watching(target, name)
    peer = connected(target, name, will=will(f"{name}/will", b"as I said"))
    peer.send(disconnect(reason))
    peer.expect_eof()
    watcher.expect(publish(f"{name}/will", b"as I said"))


@clause("MQTT-3.1.2-10")
@clause311("MQTT-3.1.2-10")
@both_versions
def test_published_once(target: Target, name: str, version: int) -> None:
    """A published will is gone: the client's next connection has none unless it brings one."""
    watcher = watching(target, name, version)
    keep = {"session_expiry": 100} if version == V5 else {}
    connected(target, name, version, clean=False, will=will(f"{name}/will", b"once"), **keep).drop()
    watcher.expect(publish(f"{name}/will", b"once", version=version))
    again = connected(target, name, version, clean=False, **keep)
    again.abort()
    connected(target, name, version, clean=False, **keep).expect_nothing()
    watcher.expect_nothing()


@clause311("MQTT-3.1.2-12")
@both_versions
def test_no_will(target: Target, name: str, version: int) -> None:
    """Without the will flag nothing is published, although an earlier connection had a will."""
    watcher = watching(target, name, version)
    connected(target, name, version, will=will(f"{name}/will", b"old")).close()
    connected(target, name, version).abort()
    connected(target, name, version).expect_nothing()
    watcher.expect_nothing()


@clause("MQTT-3.1.2-7")
@both_versions
def test_will_of_a_refused_client(target: Target, name: str, version: int) -> None:
    """A client that was not accepted has no will."""
    watcher = watching(target, name, version)
    peer = Peer.connect(target, version=version)
    packet = connect(name, version=version, flags=0x07, will=will(f"{name}/will", b"never"))
    peer.send(packet)
    peer.expect_refused(0x81)
    watcher.expect_nothing()


# --- how ---


@clause("MQTT-3.1.2-14", "MQTT-3.1.2-12")
@clause311("MQTT-3.1.2-16", "MQTT-3.1.2-14")
@pytest.mark.parametrize("qos", [0, 1, 2])
@both_versions
def test_quality_of_service(target: Target, name: str, version: int, qos: int) -> None:
    """A will is published with its QoS, and not retained unless it asks for that."""
    watcher = watching(target, name, version, qos=2)
    connected(target, name, version, will=will(f"{name}/will", b"gone", qos)).drop()
    got = watcher.publication()
    assert (got.topic, got.payload, got.qos, got.retain) == (f"{name}/will", b"gone", qos, False)
    late = connected(target, f"{name}l", version)
    late.subscribe(f"{name}/#")
    late.expect_nothing()


@clause("MQTT-3.1.2-15")
@clause311("MQTT-3.1.2-17")
@both_versions
def test_retained(target: Target, name: str, version: int) -> None:
    """A will with the retain flag is kept for later subscribers."""
    watcher = watching(target, name, version)
    connected(target, name, version, will=will(f"{name}/will", b"kept", retain=True)).drop()
    watcher.expect(publish(f"{name}/will", b"kept", version=version))
    late = connected(target, f"{name}l", version)
    late.subscribe(f"{name}/#")
    late.expect(publish(f"{name}/will", b"kept", retain=True, version=version))
    connected(target, f"{name}c", version).publish(f"{name}/will", b"", 1, retain=True)


@clause("MQTT-3.1.3-10", "MQTT-3.1.2-9")
def test_properties(target: Target, name: str) -> None:
    """The will's properties go out with it, user properties in their order, but not the delay."""
    watcher = watching(target, name)
    pairs = [("b", "1"), ("a", "2"), ("b", "3"), ("", "")]
    last = will(
        f"{name}/will",
        b"\x00\xff",
        will_delay=0,
        payload_format=0,
        message_expiry=1000,
        content_type="text/x",
        response_topic="answer/here",
        correlation_data=b"\x00\x01",
        user_property=pairs,
    )
    connected(target, name, will=last).drop()
    got = watcher.publication()
    assert (got.topic, got.payload) == (f"{name}/will", b"\x00\xff")
    expiry = got.properties.pop("message_expiry")
    assert expiry in ([1000], [999], [998])
    assert got.properties.pop("payload_format", [0]) == [0]
    assert got.properties == {
        "content_type": ["text/x"],
        "response_topic": ["answer/here"],
        "correlation_data": [b"\x00\x01"],
        "user_property": pairs,
    }


@clause("MQTT-3.1.4-2", "MQTT-4.7.0-1", "MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["a/#", "a/+/b", "#", ""])
@both_versions
def test_topic_with_wildcards(target: Target, name: str, version: int, topic: str) -> None:
    """A will needs a topic that can be published to."""
    peer = Peer.connect(target, version=version)
    peer.send(connect(name, version=version, will=will(topic)))
    peer.expect_refused({0x90, 0x82, 0x81})


# --- delay ---


@clause("MQTT-3.1.2-8", "MQTT-3.1.3-9")
def test_delay(target: Target, name: str) -> None:
    """A delayed will is published when its delay has passed, not before."""
    watcher = watching(target, name)
    started = time.monotonic()
    connected(target, name, session_expiry=100, will=will(f"{name}/will", b"later", will_delay=1)).drop()
    watcher.expect_nothing()
    watcher.expect(publish(f"{name}/will", b"later"))
    assert time.monotonic() - started > 0.9


@clause("MQTT-3.1.2-8")
@deviates("mosquitto 2.0: waits for the delay although the session ended with the connection")
def test_delay_ends_with_the_session(target: Target, name: str) -> None:
    """A session that ends earlier than the delay ends the delay: here at once."""
    watcher = watching(target, name)
    connected(target, name, will=will(f"{name}/will", b"at once", will_delay=3600)).drop()
    watcher.expect(publish(f"{name}/will", b"at once"))


@clause("MQTT-3.1.2-8", "MQTT-4.1.0-2")
def test_delay_ends_when_the_session_expires(target: Target, name: str) -> None:
    """And here when the session's expiry interval has passed."""
    watcher = watching(target, name)
    started = time.monotonic()
    connected(target, name, session_expiry=1, will=will(f"{name}/will", b"expired", will_delay=3600)).drop()
    watcher.expect_nothing()
    watcher.expect(publish(f"{name}/will", b"expired"))
    assert time.monotonic() - started > 0.9


@clause("MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_delay_and_reconnect(target: Target, name: str) -> None:
    """A client that comes back within the delay is not declared dead."""
    watcher = watching(target, name)
    connected(target, name, session_expiry=100, will=will(f"{name}/will", b"never", will_delay=1)).drop()
    back = connected(target, name, clean=False, session_expiry=100, will=will(f"{name}/will", b"not yet"))
    assert back.session_present
    connected(target, f"{name}t", session_expiry=100, will=will(f"{name}/time", b"", will_delay=2)).drop()
    watcher.expect(publish(f"{name}/time", b""))


@clause("MQTT-3.1.3-9", "MQTT-3.1.2-10")
def test_delay_and_reconnect_without_will(target: Target, name: str) -> None:
    """The will that a return discards does not come back when the session ends."""
    watcher = watching(target, name)
    connected(target, name, session_expiry=100, will=will(f"{name}/will", b"never", will_delay=3600)).drop()
    assert connected(target, name, clean=False, session_expiry=100).session_present
    assert not connected(target, name, clean=True).session_present
    watcher.expect_nothing()


@clause("MQTT-3.1.3-9")
def test_delay_and_take_over(target: Target, name: str) -> None:
    """A take-over within the delay discards the will; the new connection's own takes its place."""
    watcher = watching(target, name)
    connected(target, name, session_expiry=100, will=will(f"{name}/will", b"never", will_delay=1))
    second = connected(target, name, clean=False, session_expiry=100, will=will(f"{name}/will", b"second"))
    assert second.session_present
    watcher.expect_nothing()
    second.drop()
    watcher.expect(publish(f"{name}/will", b"second"))


@clause("MQTT-3.1.2-8", "MQTT-3.1.2-4")
@pytest.mark.parametrize("ending", ["drop", "take-over"])
@deviates("mosquitto 2.0: forgets the will of a session that a clean start ends")
def test_delay_and_clean_start(target: Target, name: str, ending: str) -> None:
    """A clean start ends the old session, so its delayed will is published then."""
    watcher = watching(target, name)
    peer = connected(target, name, session_expiry=100, will=will(f"{name}/will", b"ended", will_delay=3600))
    if ending == "drop":
        peer.drop()
    watcher.expect_nothing()
    connected(target, name, clean=True)
    watcher.expect(publish(f"{name}/will", b"ended"))


@clause("MQTT-3.1.2-10", "MQTT-3.14.4-3")
def test_delay_and_disconnect(target: Target, name: str) -> None:
    """A goodbye discards a will with a delay as well, although the session goes on."""
    watcher = watching(target, name)
    last = will(f"{name}/will", b"never", will_delay=1)
    connected(target, name, session_expiry=100, will=last).close()
    connected(target, f"{name}t", session_expiry=100, will=will(f"{name}/time", b"", will_delay=2)).drop()
    watcher.expect(publish(f"{name}/time", b""))


@clause("MQTT-3.1.2-7")
def test_will_of_a_311_client_reaches_a_5_client(target: Target, name: str) -> None:
    """A will crosses versions."""
    watcher = watching(target, name, V5)
    connected(target, name, V311, will=build.will(f"{name}/will", b"old")).drop()
    watcher.expect(publish(f"{name}/will", b"old"))
