"""UNSUBSCRIBE and UNSUBACK (MQTT 5.0, 3.10 and 3.11)."""

from __future__ import annotations

import pytest

from . import build
from .marks import both_versions, clause, clause311
from .peer import Target, connected


@clause("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.11.3-2")
@clause311("MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4")
@both_versions
@pytest.mark.parametrize("filter", ["{}", "{}/#", "+/{}", "$share/g/{}"])
def test_unsubscribe_ends_the_subscription(target: Target, name: str, version: int, filter: str) -> None:
    """After UNSUBACK with the same identifier no more messages come."""
    filter = filter.format(name)
    topic = f"x/{name}" if filter.startswith("+") else name
    peer = connected(target, name, version)
    peer.subscribe(filter)
    peer.send(build.publish(topic, b"x", version=version))
    peer.expect(build.publish(topic, b"x", version=version))
    peer.send(build.unsubscribe(filter, pid=0xFFFF, version=version))
    peer.expect(build.unsuback(0, pid=0xFFFF, version=version))
    peer.send(build.publish(topic, b"x", version=version))
    peer.expect_nothing()


@clause("MQTT-3.10.4-5", "MQTT-3.11.3-2")
@clause311("MQTT-3.10.4-5")
@both_versions
def test_unsubscribing_from_what_is_not_subscribed_is_answered(target: Target, name: str, version: int) -> None:
    """UNSUBACK comes all the same, in 5.0 with 0x11."""
    peer = connected(target, name, version)
    peer.send(build.unsubscribe(name, pid=3, version=version))
    peer.expect(build.unsuback(0x11, pid=3, version=version))
    peer.subscribe(name)
    for reason in (0, 0x11):
        peer.send(build.unsubscribe(name, pid=4, version=version))
        peer.expect(build.unsuback(reason, pid=4, version=version))


@clause("MQTT-3.10.4-6", "MQTT-3.11.3-1")
@clause311("MQTT-3.10.4-6")
@both_versions
def test_many_filters_are_answered_together(target: Target, name: str, version: int) -> None:
    """One UNSUBACK, in 5.0 with a reason for each filter in their order; a repeated filter is gone at its second."""
    peer = connected(target, name, version)
    peer.subscribe(f"{name}/a", f"{name}/b", f"{name}/c")
    filters = [f"{name}/a", f"{name}/never", f"{name}/c", f"{name}/a"]
    peer.send(build.unsubscribe(*filters, pid=2, version=version))
    peer.expect(build.unsuback(0, 0x11, 0, 0x11, pid=2, version=version))
    for topic in ("a", "b", "c"):
        peer.send(build.publish(f"{name}/{topic}", b"x", version=version))
    peer.expect(build.publish(f"{name}/b", b"x", version=version))
    peer.expect_nothing()


@clause("MQTT-3.10.4-1")
@clause311("MQTT-3.10.4-1")
@both_versions
def test_filters_are_compared_character_by_character(target: Target, name: str, version: int) -> None:
    """A filter that matches, contains or resembles the subscribed one does not end it."""
    peer = connected(target, name, version)
    peer.subscribe(f"{name}/a")
    others = ["#", f"{name}/+", f"{name}/#", f"{name}/A", f"{name}/a/", f"{name}/a/#", name, f"$share/g/{name}/a"]
    peer.send(build.unsubscribe(*others, pid=2, version=version))
    peer.expect(build.unsuback(*[0x11] * len(others), pid=2, version=version))
    peer.send(build.publish(f"{name}/a", b"x", version=version))
    peer.expect(build.publish(f"{name}/a", b"x", version=version))


@clause("MQTT-3.10.4-1")
@clause311("MQTT-3.10.4-1")
def test_one_of_two_overlapping_subscriptions_stays(target: Target, name: str) -> None:
    """Unsubscribing the exact filter leaves the wildcard, and nobody else's subscription goes."""
    peer, other = connected(target, f"{name}a"), connected(target, f"{name}b")
    peer.subscribe((f"{name}/x", 2), (f"{name}/+", 0))
    other.subscribe(f"{name}/x")
    peer.send(build.unsubscribe(f"{name}/x", pid=2))
    peer.expect(build.unsuback(0, pid=2))
    connected(target, f"{name}p").publish(f"{name}/x", b"x", 2)
    peer.expect(build.publish(f"{name}/x", b"x"))
    other.expect(build.publish(f"{name}/x", b"x"))


@clause("MQTT-3.10.4-3")
@clause311("MQTT-3.10.4-3")
@both_versions
def test_a_delivery_that_has_begun_is_completed(target: Target, name: str, version: int) -> None:
    """QoS 2 goes on after UNSUBSCRIBE: PUBREC is answered with PUBREL."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    pid = sub.publication().pid
    assert pid is not None
    sub.send(build.unsubscribe(name, pid=2, version=version))
    sub.expect(build.unsuback(0, pid=2, version=version))
    sub.send(build.pubrec(pid))
    sub.expect(build.pubrel(pid))
    sub.send(build.pubcomp(pid))
    sub.expect_nothing()


@clause("MQTT-3.10.4-3", "MQTT-4.4.0-1")
@clause311("MQTT-3.10.4-3")
@both_versions
def test_a_delivery_that_has_begun_is_completed_after_a_reconnect(target: Target, name: str, version: int) -> None:
    """An unacknowledged message is sent again though its subscription is gone."""
    lasting = {"session_expiry": 60} if version == 5 else {}
    sub = connected(target, f"{name}s", version, clean=False, **lasting)
    sub.subscribe(name, qos=1)
    connected(target, f"{name}p", version).publish(name, b"x", 1)
    pid = sub.publication().pid
    sub.send(build.unsubscribe(name, pid=2, version=version))
    sub.expect(build.unsuback(0, pid=2, version=version))
    sub.drop()
    sub = connected(target, f"{name}s", version, clean=False, **lasting)
    sub.expect(build.publish(name, b"x", 1, pid, dup=True, version=version))
    sub.close()
    connected(target, f"{name}s", version).close()


@clause("MQTT-3.10.1-1")
@clause311("MQTT-3.10.1-1")
@both_versions
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x3, 0x6, 0xA])
def test_unsubscribe_with_wrong_flags_ends_the_connection(target: Target, name: str, version: int, flags: int) -> None:
    """The lower four bits of UNSUBSCRIBE are 0010 and nothing else."""
    peer = connected(target, name, version)
    peer.send(bytes([0xA0 | flags]) + build.unsubscribe(name, version=version)[1:])
    peer.expect_closed(0x81)


@clause("MQTT-3.10.3-2")
@clause311("MQTT-3.10.3-2")
@both_versions
def test_unsubscribe_without_filters_ends_the_connection(target: Target, name: str, version: int) -> None:
    """There is at least one filter in an UNSUBSCRIBE."""
    peer = connected(target, name, version)
    peer.send(build.unsubscribe(version=version))
    peer.expect_closed(0x82)


@clause("MQTT-3.10.3-1")
@clause311("MQTT-3.10.3-1")
@both_versions
@pytest.mark.parametrize("raw", [b"\xff", b"a\x00"], ids=["byte", "null"])
def test_an_unsubscribe_filter_that_is_not_utf8_ends_the_connection(
    target: Target, name: str, version: int, raw: bytes
) -> None:
    """The filters are UTF-8 encoded strings."""
    peer = connected(target, name, version)
    peer.send(build.unsubscribe(raw, version=version))
    peer.expect_closed(0x81)


@pytest.mark.parametrize("block", [build.props(subscription_identifier=1), b"\x7f"], ids=["foreign", "length"])
def test_wrong_properties_of_unsubscribe_end_the_connection(target: Target, name: str, block: bytes) -> None:
    """UNSUBSCRIBE has user properties only."""
    peer = connected(target, name)
    peer.send(build.unsubscribe(name, properties=block))
    peer.expect_closed({0x81, 0x82})


def test_user_properties_of_unsubscribe_are_taken(target: Target, name: str) -> None:
    """They mean nothing to the broker and do no harm."""
    peer = connected(target, name)
    peer.subscribe(name)
    peer.send(build.unsubscribe(name, pid=2, user_property=("a", "b")))
    peer.expect(build.unsuback(0, pid=2))
