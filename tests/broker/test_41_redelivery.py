"""What is sent again after a reconnect, and what never is (MQTT 5.0, 4.4)."""

from __future__ import annotations

from typing import Any

import pytest

from . import build
from .marks import V5, V311, both_versions, clause, clause311
from .peer import Peer, Target, connected


def lasting(target: Target, client_id: str, version: int, **arguments: Any) -> Peer:
    """A connection to a session that outlives it."""
    expiry = {"session_expiry": 60} if version == V5 else {}
    return connected(target, client_id, version, clean=False, **expiry, **arguments)


def end(target: Target, client_id: str, version: int) -> None:
    """Ends the session."""
    connected(target, client_id, version).close()


@clause("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3")
@clause311("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-1")
@both_versions
def test_unacknowledged_messages_are_sent_again(target: Target, name: str, version: int) -> None:
    """In their order, with DUP 1 and their identifiers; once acknowledged not any more."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p", version)
    sent = []
    for number in range(6):
        pub.publish(name, b"%d" % number, 1 + number % 2)
        got = sub.publication()
        sent.append((got.qos, got.pid, got.payload))
    for _ in range(2):
        sub.drop()
        sub = lasting(target, f"{name}s", version)
        assert sub.session_present
        sub.expect(*(build.publish(name, text, qos, pid, dup=True, version=version) for qos, pid, text in sent))
        sub.expect_nothing()
    for qos, pid, _ in sent:
        sub.send(build.puback(pid or 0) if qos == 1 else build.pubrec(pid or 0))
        if qos == 2:
            sub.expect(build.pubrel(pid or 0))
            sub.send(build.pubcomp(pid or 0))
    sub.expect_nothing()
    sub.close()
    sub = lasting(target, f"{name}s", version)
    sub.expect_nothing()
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.3.3-6")
@clause311("MQTT-4.4.0-1", "MQTT-4.3.3-1")
@both_versions
def test_an_unanswered_pubrel_is_sent_again(target: Target, name: str, version: int) -> None:
    """After PUBREC it is PUBREL that is repeated, not the message."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    pid = sub.publication().pid
    assert pid is not None
    sub.send(build.pubrec(pid))
    sub.expect(build.pubrel(pid))
    for _ in range(2):
        sub.drop()
        sub = lasting(target, f"{name}s", version)
        sub.expect(build.pubrel(pid))
        sub.expect_nothing()
    sub.send(build.pubcomp(pid))
    sub.expect_nothing()
    sub.drop()
    sub = lasting(target, f"{name}s", version)
    sub.expect_nothing()
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.4.0-1")
@clause311("MQTT-4.4.0-1")
@both_versions
def test_nothing_is_sent_again_on_the_same_connection(target: Target, name: str, version: int) -> None:
    """Neither new traffic nor other packets make the broker repeat an unacknowledged message."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p", version)
    pub.publish(name, b"one", 1)
    pub.publish(name, b"two", 2)
    assert [sub.publication().payload, sub.publication().payload] == [b"one", b"two"]
    sub.expect_nothing()
    sub.subscribe(f"{name}/other", qos=1, pid=2)
    pub.publish(name, b"three", 1)
    assert sub.publication().payload == b"three"
    sub.expect_nothing()


@clause("MQTT-4.4.0-1")
@clause311("MQTT-4.4.0-1")
@both_versions
def test_a_clean_start_sends_nothing_again(target: Target, name: str, version: int) -> None:
    """With the session its unacknowledged messages are gone."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p", version)
    pub.publish(name, b"x", 1)
    sub.publication()
    sub.drop()
    pub.publish(name, b"y", 1)
    sub = connected(target, f"{name}s", version, clean=True)
    assert not sub.session_present
    sub.expect_nothing()


@clause("MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_not_sent_again(target: Target, name: str, qos: int) -> None:
    """PUBACK or PUBREC of 0x80 or more is an acknowledgement."""
    sub = lasting(target, f"{name}s", V5)
    sub.subscribe(name, qos=qos)
    connected(target, f"{name}p").publish(name, b"x", qos)
    pid = sub.publication().pid
    assert pid is not None
    sub.send(build.puback(pid, 0x80) if qos == 1 else build.pubrec(pid, 0x80))
    sub.expect_nothing()
    sub.drop()
    sub = lasting(target, f"{name}s", V5)
    sub.expect_nothing()


@clause("MQTT-4.4.0-1", "MQTT-3.3.1-1")
@both_versions
def test_what_is_sent_again_comes_before_what_waited(target: Target, name: str, version: int) -> None:
    """First the unacknowledged with DUP 1, then what arrived in the meantime with DUP 0, all in their order."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p", version)
    for payload in (b"1", b"2"):
        pub.publish(name, payload, 1)
        sub.publication()
    sub.close()
    pub.publish(name, b"3", 1)
    sub = lasting(target, f"{name}s", version)
    pub.publish(name, b"4", 1)
    got = [sub.publication() for _ in range(4)]
    assert [(each.payload, each.dup) for each in got] == [(b"1", True), (b"2", True), (b"3", False), (b"4", False)]
    assert len({each.pid for each in got}) == 4
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.4.0-1")
def test_what_is_sent_again_is_the_same_message(target: Target, name: str) -> None:
    """Properties, RETAIN and subscription identifier are those of the first time; only DUP is new."""
    block = build.props(content_type="a/b", user_property=[("k", "2"), ("k", "1")])
    pub = connected(target, f"{name}p")
    pub.publish(f"{name}/kept", b"x", 1, retain=True, properties=block)
    sub = lasting(target, f"{name}s", V5)
    sub.subscribe((f"{name}/+", build.options(1, retain_as_published=True)), subscription_identifier=12)
    pub.publish(f"{name}/live", b"y", 1, retain=True, properties=block)
    first = [sub.publication(), sub.publication()]
    assert all(got.retain and got.properties["subscription_identifier"] == [12] for got in first)
    sub.drop()
    sub = lasting(target, f"{name}s", V5)
    assert [sub.publication(), sub.publication()] == [got._replace(dup=True) for got in first]


@clause("MQTT-4.4.0-1")
@both_versions
def test_take_over_sends_again(target: Target, name: str, version: int) -> None:
    """A second connection with the same client id continues the session: it gets what the first did not acknowledge."""
    first = lasting(target, f"{name}s", version)
    first.subscribe(name, qos=1)
    connected(target, f"{name}p", version).publish(name, b"x", 1)
    pid = first.publication().pid
    second = lasting(target, f"{name}s", version)
    second.expect(build.publish(name, b"x", 1, pid, dup=True, version=version))
    first.expect_closed(0x8E)
    second.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.4.0-1")
@pytest.mark.parametrize(("before", "after"), [(V311, V5), (V5, V311)], ids=["4to5", "5to4"])
def test_a_session_may_change_its_protocol_version(target: Target, name: str, before: int, after: int) -> None:
    """What was sent in one version and not acknowledged is sent again in the other."""
    sub = lasting(target, f"{name}s", before)
    sub.subscribe(name, qos=1)
    connected(target, f"{name}p").publish(name, b"x", 1, user_property=("k", "v"))
    pid = sub.publication().pid
    sub.drop()
    sub = lasting(target, f"{name}s", after)
    got = sub.publication()
    assert (got.topic, got.payload, got.qos, got.dup, got.pid) == (name, b"x", 1, True, pid)
    sub.close()
    end(target, f"{name}s", after)
