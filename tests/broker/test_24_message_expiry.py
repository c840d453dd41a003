"""Message expiry: counted down in what is sent, and the end of what waited too long (MQTT 5.0, 3.3.2.3.3).

Time has to pass here; what a scenario needs expired has the smallest interval, one second.
"""

from __future__ import annotations

import time

import pytest

from . import build
from .marks import V311, clause, deviates
from .peer import Target, connected


def pass_one_second(target: Target) -> None:
    """Other brokers may count whole seconds and keep a one-second message for nearly two."""
    time.sleep(1.1 if target.ours else 2.2)


@clause("MQTT-3.3.2-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_interval_is_passed_on(target: Target, name: str, qos: int) -> None:
    """A message that did not wait carries the interval it came with, the largest one too; and none if it had none."""
    sub = connected(target, f"{name}s")
    sub.subscribe(name, qos=qos)
    pub = connected(target, f"{name}p")
    for interval in (100, 0xFFFFFFFF) * 8:
        pub.publish(name, b"x", qos, message_expiry=interval)
        assert build.number(sub.publication().properties, "message_expiry") in (interval, interval - 1)
    pub.publish(name, b"x", qos)
    assert sub.publication().properties == {}


@clause("MQTT-3.3.2-6", "MQTT-4.4.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_the_interval_is_passed_on_when_sent_again(target: Target, name: str, qos: int) -> None:
    """Redelivery carries what is left of the interval."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=qos)
    connected(target, f"{name}p").publish(name, b"x", qos, message_expiry=100)
    first = sub.publication()
    sub.drop()
    again = connected(target, f"{name}s", clean=False, session_expiry=60).publication()
    assert (again.pid, again.dup) == (first.pid, True)
    assert 95 <= build.number(again.properties, "message_expiry") <= 100


@clause("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_queued_messages_grow_older_and_expire(target: Target, name: str) -> None:
    """Of what waited for an absent client, the expired is gone and the rest has that much less time left."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=2)
    sub.close()
    pub = connected(target, f"{name}p")
    pub.publish(name, b"short1", 1, message_expiry=1)
    pub.publish(name, b"long", 1, message_expiry=100)
    pub.publish(name, b"short2", 2, message_expiry=1)
    pub.publish(name, b"ever", 2)
    pass_one_second(target)
    sub = connected(target, f"{name}s", clean=False, session_expiry=60)
    long, ever = sub.publication(), sub.publication()
    assert (long.payload, ever.payload) == (b"long", b"ever")
    assert 90 <= build.number(long.properties, "message_expiry") <= 99
    assert "message_expiry" not in ever.properties
    sub.expect_nothing()


@clause("MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_retained_messages_grow_older_and_expire(target: Target, name: str) -> None:
    """A retained message is sent with the time it has left, and not at all after that."""
    pub = connected(target, f"{name}p")
    pub.publish(f"{name}/short", b"x", retain=True, message_expiry=1)
    pub.publish(f"{name}/long", b"x", retain=True, message_expiry=100)
    pass_one_second(target)
    sub = connected(target, f"{name}s")
    sub.subscribe(f"{name}/+")
    got = sub.publication()
    assert (got.topic, got.retain) == (f"{name}/long", True)
    assert 90 <= build.number(got.properties, "message_expiry") <= 99
    sub.expect_nothing()


@clause("MQTT-3.3.2-5")
def test_messages_of_311_publishers_do_not_expire(target: Target, name: str) -> None:
    """Expiry concerns 3.1.1 subscribers too, but a message published without interval has no end."""
    sub = connected(target, f"{name}s", V311, clean=False)
    sub.subscribe(name, qos=1)
    sub.close()
    connected(target, f"{name}p").publish(name, b"short", 1, message_expiry=1)
    connected(target, f"{name}q", V311).publish(name, b"ever", 1)
    pass_one_second(target)
    sub = connected(target, f"{name}s", V311, clean=False)
    assert sub.publication().payload == b"ever"
    sub.expect_nothing()
    sub.close()
    connected(target, f"{name}s", V311).close()


@clause("MQTT-3.3.2-5", "MQTT-3.3.4-9")
@deviates("mosquitto 2.0: sends what expired while the receive maximum was reached")
def test_messages_expire_behind_a_full_receive_maximum(target: Target, name: str) -> None:
    """Delivery of a message has not started while it waits for quota, so it expires there."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"first", 1)
    pub.publish(name, b"short", 1, message_expiry=1)
    pub.publish(name, b"last", 1)
    first = sub.publication()
    pass_one_second(target)
    assert first.pid is not None
    sub.send(build.puback(first.pid))
    assert sub.publication().payload == b"last"
    sub.expect_nothing()


@clause("MQTT-4.3.3-7", "MQTT-4.4.0-1")
@deviates("mosquitto 2.0: does not send an expired message again")
def test_what_was_sent_once_does_not_expire(target: Target, name: str) -> None:
    """Delivery has started: a reconnect sends it again though its interval has passed; and without one, nothing."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"two", 2, message_expiry=1)
    first = sub.publication()
    pass_one_second(target)
    sub.expect_nothing()
    sub.drop()
    sub = connected(target, f"{name}s", clean=False, session_expiry=60)
    again = sub.publication()
    assert (again.payload, again.qos, again.dup, again.pid) == (b"two", 2, True, first.pid)
    assert first.pid is not None
    sub.send(build.pubrec(first.pid))
    sub.expect(build.pubrel(first.pid))
    sub.send(build.pubcomp(first.pid))
    sub.expect_nothing()


@clause("MQTT-4.3.3-13")
def test_the_qos_2_exchange_goes_on_after_expiry(target: Target, name: str) -> None:
    """The broker answers PUBREL with PUBCOMP although the message has expired in the meantime."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=2)
    sub.close()
    pub = connected(target, f"{name}p")
    pub.send(build.publish(name, b"x", 2, 9, message_expiry=1))
    pub.expect_ack(build.PUBREC, 9)
    pass_one_second(target)
    pub.send(build.pubrel(9))
    pub.expect(build.pubcomp(9))
