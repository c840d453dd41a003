"""What waits for a client that is away (MQTT 5.0, 4.1 and 4.5)."""

from __future__ import annotations

from . import build
from .marks import V5, both_versions, clause, clause311
from .peer import Target, connected
from .test_41_redelivery import end, lasting


@clause("MQTT-4.5.0-1")
@clause311("MQTT-4.5.0-1")
@both_versions
def test_messages_of_qos_1_and_2_wait(target: Target, name: str, version: int) -> None:
    """They are delivered after the reconnect, in order and with DUP 0; QoS 0 need not wait, and with us does not."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(f"{name}/#", qos=2)
    sub.close()
    pub = connected(target, f"{name}p", version)
    for number in range(9):
        pub.publish(f"{name}/{number % 2}", b"%d" % number, number % 3)
    sub = lasting(target, f"{name}s", version)
    assert sub.session_present
    sub.send(build.publish(f"{name}/end", version=version))
    got = []
    while (each := sub.publication()).topic != f"{name}/end":
        got.append(each)
    if not target.ours:
        got = [each for each in got if each.qos]
    assert [(each.payload, each.qos, each.dup) for each in got] == [
        (b"%d" % number, number % 3, False) for number in range(9) if number % 3
    ]
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.5.0-1")
@clause311("MQTT-4.5.0-1")
@both_versions
def test_what_the_subscription_takes_as_qos_0_does_not_wait(target: Target, name: str, version: int) -> None:
    """The QoS of the delivery counts, not that of the publication."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=0)
    sub.close()
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    sub = lasting(target, f"{name}s", version)
    if target.ours:
        sub.expect_nothing()
    sub.send(build.publish(name, b"now", version=version))
    while sub.publication().payload != b"now":
        assert not target.ours
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.5.0-1")
@both_versions
def test_subscriptions_outlive_the_connection(target: Target, name: str, version: int) -> None:
    """The session keeps its subscriptions with their options; nobody has to subscribe again."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(f"{name}/+", qos=1)
    sub.close()
    sub = lasting(target, f"{name}s", version)
    connected(target, f"{name}p", version).publish(f"{name}/a", b"x", 2)
    got = sub.publication()
    assert (got.payload, got.qos) == (b"x", 1)
    sub.close()
    end(target, f"{name}s", version)


@clause("MQTT-4.5.0-1")
@both_versions
def test_each_matching_session_gets_its_copy(target: Target, name: str, version: int) -> None:
    """One publication waits for an absent client, goes to a present one, and not to one without a subscription."""
    away, here = lasting(target, f"{name}a", version), connected(target, f"{name}h", version)
    other = connected(target, f"{name}o", version)
    away.subscribe(name, qos=1)
    away.close()
    here.subscribe(name, qos=1)
    other.subscribe(f"{name}/x", qos=1)
    connected(target, f"{name}p", version).publish(name, b"x", 1)
    assert here.publication().payload == b"x"
    other.expect_nothing()
    away = lasting(target, f"{name}a", version)
    assert away.publication().payload == b"x"
    away.close()
    end(target, f"{name}a", version)


@clause("MQTT-4.5.0-1", "MQTT-3.8.4-4")
def test_what_waits_stays_when_the_subscription_is_changed(target: Target, name: str) -> None:
    """Messages queued before a SUBSCRIBE replaces their subscription are delivered as they were queued."""
    sub = lasting(target, f"{name}s", V5, receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for payload in (b"1", b"2"):
        pub.publish(name, payload, 1)
    first = sub.publication()
    sub.subscribe(name, qos=0, pid=2)
    assert first.pid is not None
    sub.send(build.puback(first.pid))
    got = sub.publication()
    assert (got.payload, got.qos) == (b"2", 1)


@clause("MQTT-4.5.0-1")
@both_versions
def test_a_thousand_messages_wait(target: Target, name: str, version: int) -> None:
    """More than any window of messages in flight; all arrive in order as they are acknowledged."""
    sub = lasting(target, f"{name}s", version)
    sub.subscribe(name, qos=1)
    sub.close()
    pub = connected(target, f"{name}p", version)
    for start in range(0, 1000, 10):
        pub.send(*(build.publish(name, b"%d" % (start + n), 1, n + 1, version=version) for n in range(10)))
        for n in range(10):
            pub.expect_ack(build.PUBACK, n + 1)
    sub = lasting(target, f"{name}s", version)
    for number in range(1000):
        got = sub.publication()
        assert got.payload == b"%d" % number and got.pid is not None
        sub.send(build.puback(got.pid))
    sub.expect_nothing()
    sub.close()
    end(target, f"{name}s", version)
