"""Flow control: Receive Maximum both ways (MQTT 5.0, 3.3.4 and 4.9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .marks import V311, clause, deviates
from .peer import Peer, Target, connected


def pid_of(sub: Peer, payload: bytes) -> int:
    """The packet identifier of the next message, which must have this payload."""
    got = sub.publication()
    assert got.payload == payload, f"expected {payload!r}, got {got}"
    assert got.pid is not None
    return got.pid


@clause("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@deviates("mosquitto 2.0: after a PUBACK it sends more than one of the messages that wait")
def test_no_more_than_receive_maximum_are_unacknowledged(target: Target, name: str) -> None:
    """With Receive Maximum 2 the third message waits for a PUBACK; each PUBACK lets one more out."""
    sub = connected(target, f"{name}s", receive_maximum=2)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for payload in (b"1", b"2", b"3", b"4"):
        pub.publish(name, payload, 1)
    first, second = pid_of(sub, b"1"), pid_of(sub, b"2")
    sub.expect_nothing()
    sub.send(build.puback(first))
    pid_of(sub, b"3")
    sub.expect_nothing()
    sub.send(build.puback(second))
    pid_of(sub, b"4")
    sub.expect_nothing()


@clause("MQTT-3.3.4-9", "MQTT-4.9.0-2")
def test_qos_2_holds_its_place_until_pubcomp(target: Target, name: str) -> None:
    """PUBREC does not free the place of a QoS 2 message, PUBCOMP does; QoS 1 and 2 share the quota."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"two", 2)
    pub.publish(name, b"one", 1)
    pid = pid_of(sub, b"two")
    sub.expect_nothing()
    sub.send(build.pubrec(pid))
    sub.expect(build.pubrel(pid))
    sub.expect_nothing()
    sub.send(build.pubcomp(pid))
    pid_of(sub, b"one")


@clause("MQTT-3.3.4-9", "MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refusal_frees_the_place(target: Target, name: str, qos: int) -> None:
    """PUBACK or PUBREC with a reason of 0x80 or more ends the message, and the next one comes."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=qos)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"refused", qos)
    pub.publish(name, b"next", qos)
    refusal = build.puback if qos == 1 else build.pubrec
    sub.send(refusal(pid_of(sub, b"refused"), 0x83))
    pid_of(sub, b"next")
    sub.expect_nothing()


@clause("MQTT-3.3.4-10", "MQTT-4.9.0-3")
def test_other_packets_are_answered_while_the_quota_is_used_up(target: Target, name: str) -> None:
    """A full quota holds back PUBLISH only: PINGREQ, SUBSCRIBE, UNSUBSCRIBE and the client's own PUBLISH are served."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"1", 1)
    pub.publish(name, b"2", 1)
    pid = pid_of(sub, b"1")
    sub.expect_nothing()
    sub.subscribe(f"{name}/other", qos=1, pid=2)
    sub.send(build.unsubscribe(f"{name}/other", pid=3))
    sub.expect(build.unsuback(0, pid=3))
    sub.publish(f"{name}/nobody", b"x", 1, 4)
    sub.publish(f"{name}/nobody", b"x", 2, 5)
    sub.send(build.puback(pid))
    pid_of(sub, b"2")


@clause("MQTT-3.3.4-10")
def test_pubrel_does_not_wait_for_quota(target: Target, name: str) -> None:
    """After a reconnect with a smaller Receive Maximum, every PUBREL goes out again at once."""
    sub = connected(target, f"{name}s", session_expiry=60, receive_maximum=3)
    sub.subscribe(name, qos=2)
    pub = connected(target, f"{name}p")
    for payload in (b"1", b"2", b"3"):
        pub.publish(name, payload, 2)
    pids = [pid_of(sub, payload) for payload in (b"1", b"2", b"3")]
    for pid in pids:
        sub.send(build.pubrec(pid))
        sub.expect(build.pubrel(pid))
    sub.drop()
    sub = connected(target, f"{name}s", clean=False, session_expiry=60, receive_maximum=1)
    for pid in pids:
        sub.expect_ack(build.PUBREL, pid, 0)


@clause("MQTT-3.3.4-9", "MQTT-4.9.0-1")
@deviates("mosquitto 2.0: sends all unacknowledged messages again, whatever the new Receive Maximum")
def test_the_quota_starts_anew_with_each_connection(target: Target, name: str) -> None:
    """Receive Maximum is the connection's: after a reconnect the new one holds, for redelivery as well."""
    sub = connected(target, f"{name}s", session_expiry=60, receive_maximum=3)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    payloads = [b"1", b"2", b"3", b"4"]
    for payload in payloads:
        pub.publish(name, payload, 1)
    for payload in payloads[:3]:
        pid_of(sub, payload)
    sub.drop()
    sub = connected(target, f"{name}s", clean=False, session_expiry=60, receive_maximum=1)
    for payload in payloads:
        pid = pid_of(sub, payload)
        sub.expect_nothing()
        sub.send(build.puback(pid))


@clause("MQTT-3.3.4-9", "MQTT-4.4.0-1")
@deviates("mosquitto 2.0: sends all unacknowledged messages again, whatever the new Receive Maximum")
def test_what_is_acknowledged_before_its_turn_is_not_sent_again(target: Target, name: str) -> None:
    """A message of the connection before may be acknowledged while it waits to be sent again."""
    sub = connected(target, f"{name}s", session_expiry=60)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    payloads = [b"1", b"2", b"3"]
    for payload in payloads:
        pub.publish(name, payload, 1)
    pids = [pid_of(sub, payload) for payload in payloads]
    sub.drop()
    sub = connected(target, f"{name}s", clean=False, session_expiry=60, receive_maximum=1)
    assert pid_of(sub, b"1") == pids[0]
    sub.send(build.puback(pids[1]))
    sub.expect_nothing()
    sub.send(build.puback(pids[0]))
    assert pid_of(sub, b"3") == pids[2]
    sub.expect_nothing()


@clause("MQTT-3.3.4-9", "MQTT-4.9.0-2")
@deviates("mosquitto 2.0: after a PUBACK it sends more than one of the messages that wait")
def test_acknowledging_in_another_order_is_fine(target: Target, name: str) -> None:
    """Any of the open messages may be acknowledged first; each frees one place."""
    sub = connected(target, f"{name}s", receive_maximum=3)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for number in range(6):
        pub.publish(name, b"%d" % number, 1)
    pids = [pid_of(sub, b"%d" % number) for number in range(3)]
    sub.expect_nothing()
    sub.send(build.puback(pids[2]), build.puback(pids[1]))
    later = [pid_of(sub, b"3"), pid_of(sub, b"4")]
    assert pids[0] not in later
    sub.expect_nothing()
    sub.send(build.puback(pids[0]))
    pid_of(sub, b"5")


@clause("MQTT-3.3.4-9", "MQTT-4.9.0-2")
def test_an_acknowledgement_too_many_does_not_raise_the_quota(target: Target, name: str) -> None:
    """The quota never exceeds Receive Maximum, however often a message is acknowledged."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    pub.publish(name, b"1", 1)
    pid = pid_of(sub, b"1")
    sub.send(build.puback(pid), build.puback(pid), build.puback(pid))
    if not target.ours and sub.ended(0.2):
        return  # a broker may take the repetition for a protocol error
    sub.expect_nothing()
    for payload in (b"2", b"3", b"4"):
        pub.publish(name, payload, 1)
    pid_of(sub, b"2")
    sub.expect_nothing()


def test_qos_0_is_not_lost_while_the_quota_is_used_up(target: Target, name: str) -> None:
    """QoS 0 needs no quota; whether it waits behind what does is the broker's choice, but it arrives."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p")
    for payload, qos in ((b"1", 1), (b"2", 1), (b"zero", 0)):
        pub.publish(name, payload, qos)
    payloads: set[bytes] = set()
    while len(payloads) < 3:
        got = sub.publication()
        payloads.add(got.payload)
        if got.pid is not None:
            sub.send(build.puback(got.pid))
    assert payloads == {b"1", b"2", b"zero"}


@clause("MQTT-3.3.4-7")
@deviates("mosquitto 2.0: refuses the message with 0x97 and keeps the connection")
def test_a_client_that_exceeds_our_receive_maximum_is_cut_off(target: Target, name: str) -> None:
    """One more open QoS 2 message than CONNACK allowed ends the connection with 0x93."""
    peer = connected(target, name)
    allowed = build.number(peer.properties, "receive_maximum", 65_535)
    assert allowed < 65_535, "there are no more packet identifiers than that"
    for pid in range(1, allowed + 1):
        peer.send(build.publish(name, b"x", 2, pid))
        peer.expect_ack(build.PUBREC, pid)
    peer.send(build.publish(name, b"x", 2, allowed + 1))
    peer.expect_closed(0x93)


@clause("MQTT-3.3.4-7")
def test_what_is_complete_does_not_count_against_our_receive_maximum(
    broker_with: Callable[[str], Target], name: str
) -> None:
    """PUBACK and PUBCOMP give the place back; a retransmission takes none."""
    target = broker_with("receive_maximum = 2")
    peer = connected(target, name)
    assert peer.properties["receive_maximum"] == [2]
    peer.send(build.publish(name, b"x", 2, 1), build.publish(name, b"x", 2, 2))
    for pid in (1, 2):
        peer.expect_ack(build.PUBREC, pid)
    peer.send(build.publish(name, b"x", 2, 2, dup=True))
    peer.expect_ack(build.PUBREC, 2)
    for pid in (1, 2):
        peer.send(build.pubrel(pid))
        peer.expect(build.pubcomp(pid))
    for pid in range(3, 8):
        peer.publish(name, b"x", 1, pid)
        peer.publish(name, b"x", 2, pid)
    peer.send(*(build.publish(name, b"x", 2, pid) for pid in (1, 2, 3)))
    for pid in (1, 2):
        peer.expect_ack(build.PUBREC, pid)
    peer.expect_closed(0x93)


@clause("MQTT-3.3.4-7")
def test_pipelined_qos_1_messages_do_not_exceed_our_receive_maximum(
    broker_with: Callable[[str], Target], name: str
) -> None:
    """A message that is acknowledged as it is read is never open, however many come in one TCP segment."""
    peer = connected(broker_with("receive_maximum = 2"), name)
    peer.send(*(build.publish(name, b"x", 1, pid) for pid in range(1, 51)))
    for pid in range(1, 51):
        peer.expect_ack(build.PUBACK, pid)


def test_a_311_client_has_no_receive_maximum(target: Target, name: str) -> None:
    """3.1.1 has no quota: at least ten messages go out without an acknowledgement."""
    sub = connected(target, f"{name}s", V311)
    sub.subscribe(name, qos=1)
    pub = connected(target, f"{name}p", V311)
    for number in range(10):
        pub.publish(name, b"%d" % number, 1)
    pids = {pid_of(sub, b"%d" % number) for number in range(10)}
    assert len(pids) == 10
