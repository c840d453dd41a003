"""QoS 0, 1 and 2 in both directions: each packet of each exchange (MQTT 5.0, 4.3)."""

from __future__ import annotations

import pytest

from . import build
from .marks import both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected


def exchange(sub: Peer, payload: bytes, qos: int) -> int:
    """Takes the next message through its whole exchange as its receiver, and returns its packet identifier."""
    got = sub.publication()
    assert (got.payload, got.qos, got.dup) == (payload, qos, False)
    assert got.pid
    if qos == 1:
        sub.send(build.puback(got.pid))
    else:
        sub.send(build.pubrec(got.pid))
        sub.expect(build.pubrel(got.pid))
        sub.send(build.pubcomp(got.pid))
    return got.pid


@clause("MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.2-4")
@clause311("MQTT-4.3.2-1", "MQTT-4.3.2-2")
@both_versions
def test_qos_1_to_a_subscriber(target: Target, name: str, version: int) -> None:
    """PUBLISH with an identifier and DUP 0; after the PUBACK nothing more."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=1)
    connected(target, f"{name}p", version).publish(name, b"x", 1)
    exchange(sub, b"x", 1)
    sub.expect_nothing()


@clause("MQTT-4.3.3-1", "MQTT-4.3.3-2", "MQTT-4.3.3-4")
@clause311("MQTT-4.3.3-1")
@both_versions
def test_qos_2_to_a_subscriber(target: Target, name: str, version: int) -> None:
    """PUBLISH with DUP 0, PUBREL with the same identifier for the PUBREC; after the PUBCOMP nothing more."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    exchange(sub, b"x", 2)
    sub.expect_nothing()


@clause("MQTT-4.3.2-1", "MQTT-4.3.3-1")
@clause311("MQTT-4.3.2-1", "MQTT-4.3.3-1")
@both_versions
def test_open_messages_have_different_identifiers(target: Target, name: str, version: int) -> None:
    """QoS 1 and 2 draw from the same identifiers; one in use is not given again."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p", version)
    for number in range(10):
        pub.publish(name, b"%d" % number, 1 + number % 2)
    pids = {sub.publication().pid for _ in range(10)}
    assert len(pids) == 10 and None not in pids and 0 not in pids


@clause("MQTT-4.3.2-1", "MQTT-2.2.1-4")
@deviates("mosquitto 2.0: gives an identifier that is still in use again")
@pytest.mark.parametrize("options", [{}, {"subscription_identifier": 1}], ids=["plain", "identified"])
def test_identifiers_in_use_are_passed_over_when_they_come_round(
    target: Target, name: str, options: dict[str, int]
) -> None:
    """After 65,535 messages the identifiers begin again, without the one that is still open and without 0."""
    sub = connected(target, f"{name}s")
    sub.subscribe(name, qos=1, **options)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"kept", 1)
    kept = sub.publication().pid
    batch = [build.publish(name, b"", 1, pid) for pid in range(1, 501)]
    for _ in range(66_000 // len(batch)):
        pub.send(*batch)
        for _ in range(len(batch) // 10):
            bodies = [sub.packet()[1] for _ in range(10)]
            pids = [int.from_bytes(body[len(name) + 2 :][:2], "big") for body in bodies]
            assert kept not in pids and 0 not in pids
            sub.send(*map(build.puback, pids))
        for pid in range(1, len(batch) + 1):
            pub.expect_ack(build.PUBACK, pid)


@clause("MQTT-4.3.2-5")
@clause311("MQTT-4.3.2-2")
@both_versions
def test_after_puback_the_same_identifier_is_a_new_message(target: Target, name: str, version: int) -> None:
    """QoS 1 may arrive twice: a PUBLISH after the PUBACK is delivered again, whatever its DUP flag."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    pub = connected(target, f"{name}p", version)
    for dup in (False, True, True):
        pub.send(build.publish(name, b"x", 1, 3, dup=dup, version=version))
        pub.expect_ack(build.PUBACK, 3)
        sub.expect(build.publish(name, b"x", version=version))


@clause("MQTT-4.3.3-10", "MQTT-4.3.3-8")
@clause311("MQTT-4.3.3-2")
@deviates("mosquitto 2.0: ends the connection at the second repetition")
@both_versions
def test_before_pubrel_the_same_identifier_is_the_same_message(target: Target, name: str, version: int) -> None:
    """Each repetition of a QoS 2 PUBLISH gets its PUBREC, and subscribers get one message."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    pub = connected(target, f"{name}p", version)
    for dup in (False, True, True):
        pub.send(build.publish(name, b"x", 2, 3, dup=dup, version=version))
        pub.expect_ack(build.PUBREC, 3)
    pub.send(build.pubrel(3))
    pub.expect(build.pubcomp(3))
    sub.expect(build.publish(name, b"x", version=version))
    sub.expect_nothing()


@clause("MQTT-4.3.3-12")
@clause311("MQTT-4.3.3-2")
@both_versions
def test_after_pubcomp_the_same_identifier_is_a_new_message(target: Target, name: str, version: int) -> None:
    """When the exchange is over, its identifier is free for the next."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    pub = connected(target, f"{name}p", version)
    for dup in (False, True):
        pub.send(build.publish(name, b"x", 2, 3, dup=dup, version=version))
        pub.expect_ack(build.PUBREC, 3)
        pub.send(build.pubrel(3))
        pub.expect(build.pubcomp(3))
        sub.expect(build.publish(name, b"x", version=version))
    sub.expect_nothing()


@clause("MQTT-4.3.3-9")
@deviates("mosquitto 2.0: ends the connection after it refused a message")
def test_after_a_refusing_pubrec_the_same_identifier_is_a_new_message(target: Target, name: str) -> None:
    """A PUBREC of 0x80 or more ends the exchange: the identifier is free, and its PUBREL unknown."""
    sub = connected(target, f"{name}s")
    sub.subscribe(name)
    pub = connected(target, f"{name}p")
    pub.send(build.publish(f"$SYS/{name}", b"x", 2, 3))
    pub.expect_ack(build.PUBREC, 3, {0x87, 0x90})
    pub.send(build.publish(name, b"y", 2, 3, dup=True))
    pub.expect_ack(build.PUBREC, 3)
    pub.send(build.pubrel(3))
    pub.expect(build.pubcomp(3))
    sub.expect(build.publish(name, b"y"))
    sub.expect_nothing()


@clause("MQTT-4.3.3-10", "MQTT-4.3.3-11")
@clause311("MQTT-4.3.3-2")
@both_versions
def test_open_qos_2_messages_outlive_the_connection(target: Target, name: str, version: int) -> None:
    """A PUBLISH repeated after a reconnect is not delivered twice, and its PUBREL is known."""
    lasting = {"session_expiry": 60} if version == 5 else {}
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    pub = connected(target, f"{name}p", version, clean=False, **lasting)
    for pid in (3, 4):
        pub.send(build.publish(name, b"%d" % pid, 2, pid, version=version))
        pub.expect_ack(build.PUBREC, pid)
    pub.drop()
    pub = connected(target, f"{name}p", version, clean=False, **lasting)
    assert pub.session_present
    pub.send(build.publish(name, b"3", 2, 3, dup=True, version=version))
    pub.expect_ack(build.PUBREC, 3)
    for pid in (3, 4):
        pub.send(build.pubrel(pid))
        pub.expect_ack(build.PUBCOMP, pid, 0)
    assert sorted([sub.publication().payload, sub.publication().payload]) == [b"3", b"4"]
    sub.expect_nothing()
    pub.close()
    connected(target, f"{name}p", version).close()


@clause("MQTT-4.3.3-10")
@both_versions
def test_many_qos_2_exchanges_may_be_interleaved(target: Target, name: str, version: int) -> None:
    """Several messages are open at a time and are released in any order."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name)
    pub = connected(target, f"{name}p", version)
    pids = [5, 1, 9, 3]
    pub.send(*(build.publish(name, b"%d" % pid, 2, pid, version=version) for pid in pids))
    for pid in pids:
        pub.expect_ack(build.PUBREC, pid)
    for pid in sorted(pids):
        pub.send(build.pubrel(pid))
        pub.expect(build.pubcomp(pid))
    assert sorted(sub.publication().payload for _ in pids) == [b"1", b"3", b"5", b"9"]
    sub.expect_nothing()


@clause("MQTT-4.3.3-4", "MQTT-4.3.3-6")
@both_versions
def test_a_repeated_pubrec_gets_its_pubrel_again(target: Target, name: str, version: int) -> None:
    """After PUBREL the message is not sent again; the receiver that repeats PUBREC gets another PUBREL."""
    sub = connected(target, f"{name}s", version)
    sub.subscribe(name, qos=2)
    connected(target, f"{name}p", version).publish(name, b"x", 2)
    pid = sub.publication().pid
    assert pid is not None
    for _ in range(2):
        sub.send(build.pubrec(pid))
        sub.expect(build.pubrel(pid))
    sub.send(build.pubcomp(pid))
    sub.expect_nothing()


@clause("MQTT-3.3.4-1")
@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_gets_what_it_publishes_itself(target: Target, name: str, version: int, qos: int) -> None:
    """Without No Local, being the publisher makes no difference."""
    peer = connected(target, name, version)
    peer.subscribe(name, qos=qos)
    answers = [[], [build.PUBACK], [build.PUBREC, build.PUBCOMP]][qos]
    peer.send(build.publish(name, b"x", qos, version=version), build.pubrel(1) if qos == 2 else b"")
    kinds = sorted(peer.packet()[0] for _ in range(1 + len(answers)))
    assert kinds == sorted([build.PUBLISH | qos << 1, *answers])
