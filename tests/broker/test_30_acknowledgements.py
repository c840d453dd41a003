"""PUBACK, PUBREC, PUBREL and PUBCOMP: their forms, reasons and unknown identifiers (MQTT 5.0, 3.4 to 3.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import build
from .marks import V311, both_versions, clause, clause311, deviates
from .peer import Peer, Target, connected

ACKS: dict[str, Callable[..., bytes]] = {
    "puback": build.puback,
    "pubrec": build.pubrec,
    "pubrel": build.pubrel,
    "pubcomp": build.pubcomp,
}


def delivered(target: Target, name: str, qos: int, payload: bytes = b"x") -> tuple[Peer, int]:
    """A subscriber that has just been sent a message it has not answered, and its packet identifier."""
    sub = connected(target, f"{name}s", receive_maximum=1)
    sub.subscribe(name, qos=qos)
    pub = connected(target, f"{name}p")
    pub.publish(name, payload, qos)
    pub.publish(name, b"next", qos)
    got = sub.publication()
    assert got.payload == payload and got.pid is not None
    return sub, got.pid


FORMS: dict[str, dict[str, object]] = {
    "two": {},
    "three": {"reason": 0},
    "four": {"reason": 0, "properties": b"\x00"},
    "reason_string": {"reason": 0, "reason_string": "fine"},
    "user_properties": {"reason": 0, "user_property": [("a", "b"), ("a", "b")]},
    "no_subscribers": {"reason": 0x10},
}


@clause("MQTT-3.4.2-1")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_puback_is_understood(target: Target, name: str, form: str) -> None:
    """Reason and properties may be left out of a PUBACK, or not; the next message follows."""
    sub, pid = delivered(target, name, 1)
    sub.send(build.puback(pid, **FORMS[form]))  # type: ignore[arg-type]
    assert sub.publication().payload == b"next"


@clause("MQTT-3.5.2-1", "MQTT-3.7.2-1", "MQTT-4.3.3-4")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_pubrec_and_pubcomp_is_understood(target: Target, name: str, form: str) -> None:
    """PUBREC is answered with PUBREL in any form, and PUBCOMP ends the exchange in any form."""
    sub, pid = delivered(target, name, 2)
    sub.send(build.pubrec(pid, **FORMS[form]))  # type: ignore[arg-type]
    sub.expect_ack(build.PUBREL, pid, 0)
    last = FORMS["three"] if form == "no_subscribers" else FORMS[form]
    sub.send(build.pubcomp(pid, **last))  # type: ignore[arg-type]
    assert sub.publication().payload == b"next"


@clause("MQTT-3.6.2-1", "MQTT-4.3.3-11")
@pytest.mark.parametrize("form", [form for form in FORMS if form != "no_subscribers"])
def test_every_form_of_pubrel_is_understood(target: Target, name: str, form: str) -> None:
    """PUBREL is answered with PUBCOMP in any form."""
    peer = connected(target, name)
    peer.send(build.publish(name, b"x", 2, 5))
    peer.expect_ack(build.PUBREC, 5)
    peer.send(build.pubrel(5, **FORMS[form]))  # type: ignore[arg-type]
    peer.expect_ack(build.PUBCOMP, 5, 0)


@clause("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.7.2-1")
def test_the_broker_says_whether_there_were_subscribers(target: Target, name: str) -> None:
    """With subscribers the reason is 0x00; without, 0x00 or 0x10."""
    peer = connected(target, name)
    for reasons in ((0x00, 0x10), (0x00,)):
        peer.send(build.publish(name, b"x", 1, 1))
        peer.expect_ack(build.PUBACK, 1, reasons)
        peer.send(build.publish(name, b"x", 2, 2))
        peer.expect_ack(build.PUBREC, 2, reasons)
        peer.send(build.pubrel(2))
        peer.expect_ack(build.PUBCOMP, 2, 0)
        sub = connected(target, f"{name}s")
        sub.subscribe(name)


@clause("MQTT-3.7.2-1", "MQTT-4.3.3-11")
@deviates("mosquitto 2.0: answers a PUBREL for an unknown identifier with success")
def test_pubrel_for_an_unknown_identifier_is_answered_0x92(target: Target, name: str) -> None:
    """The PUBCOMP says that the identifier is not known, before and after an exchange that used it."""
    peer = connected(target, name)
    peer.send(build.pubrel(77))
    peer.expect_ack(build.PUBCOMP, 77, 0x92)
    peer.publish(name, b"x", 2, 77)
    peer.send(build.pubrel(77))
    peer.expect_ack(build.PUBCOMP, 77, 0x92)


@clause("MQTT-4.3.3-11")
@clause311("MQTT-4.3.3-2")
def test_pubrel_for_an_unknown_identifier_is_answered_in_311(target: Target, name: str) -> None:
    """3.1.1 has no reasons: PUBREL is answered with PUBCOMP."""
    peer = connected(target, name, V311)
    peer.send(build.pubrel(77))
    peer.expect(build.pubcomp(77))


@clause("MQTT-3.6.2-1")
@deviates("mosquitto 2.0: answers a PUBREC for an unknown identifier with a PUBREL of success")
def test_pubrec_for_an_unknown_identifier_is_answered_0x92(target: Target, name: str) -> None:
    """The PUBREL says that the identifier is not known."""
    peer = connected(target, name)
    peer.send(build.pubrec(77))
    peer.expect_ack(build.PUBREL, 77, 0x92)


@clause("MQTT-4.3.3-4")
def test_a_refusal_of_an_unknown_message_is_not_answered(target: Target, name: str) -> None:
    """PUBREC with an error is the end of an exchange, so no PUBREL follows."""
    peer = connected(target, name)
    peer.send(build.pubrec(77, 0x80))
    peer.expect_nothing()


@both_versions
@pytest.mark.parametrize("kind", ["puback", "pubcomp"])
def test_an_acknowledgement_of_nothing_is_ignored(target: Target, name: str, version: int, kind: str) -> None:
    """PUBACK and PUBCOMP for unknown identifiers happen after a lost session; they are no reason to disconnect."""
    peer = connected(target, name, version)
    peer.send(ACKS[kind](4711))
    peer.expect_nothing()


@clause("MQTT-2.2.1-3")
@both_versions
@pytest.mark.parametrize("kind", ACKS)
def test_an_acknowledgement_for_packet_id_0_ends_the_connection(
    target: Target, name: str, version: int, kind: str
) -> None:
    """No packet has it."""
    peer = connected(target, name, version)
    peer.send(ACKS[kind](0))
    peer.expect_closed(0x82 if target.ours else {0x81, 0x82})


@clause("MQTT-4.3.3-3", "MQTT-4.3.2-3")
@pytest.mark.parametrize(("qos", "wrong"), [(2, "puback"), (2, "pubcomp"), (1, "pubcomp"), (1, "pubrec")])
def test_the_wrong_acknowledgement_ends_no_exchange(target: Target, name: str, qos: int, wrong: str) -> None:
    """A QoS 1 message waits for PUBACK, a QoS 2 message for PUBREC; anything else leaves it open or is an error."""
    sub, pid = delivered(target, name, qos)
    sub.send(ACKS[wrong](pid), build.PINGREQ)
    if target.ours:
        sub.expect_closed(0x82)
    elif not sub.ended(1):
        first, body = sub.packet()
        if first == build.PUBREL:
            assert body[:3] == build.two(pid) + b"\x92"
            first, body = sub.packet()
        assert first & 0xF0 != build.PUBLISH, "the next message was sent although this one is not acknowledged"
        assert bytes([first, len(body)]) == build.PINGRESP or (first, body[0]) == (build.DISCONNECT, 0x82)


@pytest.mark.own_settings
@clause("MQTT-4.3.3-5")
def test_puback_for_a_released_message_ends_the_connection(target: Target, name: str) -> None:
    """Behind PUBREL only PUBCOMP can come."""
    sub, pid = delivered(target, name, 2)
    sub.send(build.pubrec(pid))
    sub.expect_ack(build.PUBREL, pid, 0)
    sub.send(build.puback(pid))
    sub.expect_closed(0x82)


@clause("MQTT-3.6.1-1")
@clause311("MQTT-3.6.1-1")
@both_versions
@pytest.mark.parametrize("flags", [0x0, 0x1, 0x3, 0x6, 0xA])
def test_pubrel_with_wrong_flags_ends_the_connection(target: Target, name: str, version: int, flags: int) -> None:
    """The lower four bits of PUBREL are 0010 and nothing else."""
    peer = connected(target, name, version)
    peer.send(build.publish(name, b"x", 2, 1, version=version))
    peer.expect_ack(build.PUBREC, 1)
    peer.send(build.packet(0x60 | flags, b"\x00\x01"))
    peer.expect_closed(0x81)


@deviates("mosquitto 2.0: does not look at these flags")
@both_versions
@pytest.mark.parametrize("first", [build.PUBACK, build.PUBREC, build.PUBCOMP])
def test_other_acknowledgements_with_flags_end_the_connection(
    target: Target, name: str, version: int, first: int
) -> None:
    """The lower four bits of PUBACK, PUBREC and PUBCOMP are 0."""
    peer = connected(target, name, version)
    peer.send(build.packet(first | 0x02, b"\x00\x01"))
    peer.expect_closed(0x81)


@both_versions
@pytest.mark.parametrize("kind", ACKS)
@pytest.mark.parametrize("body", [b"", b"\x01"], ids=["none", "half"])
def test_an_acknowledgement_without_identifier_ends_the_connection(
    target: Target, name: str, version: int, kind: str, body: bytes
) -> None:
    """The packet identifier takes two bytes."""
    peer = connected(target, name, version)
    peer.send(build.packet(ACKS[kind]()[0], body))
    peer.expect_closed(0x81)


@deviates("mosquitto 2.0: does not look at what follows the packet identifier")
@pytest.mark.parametrize("kind", ACKS)
def test_in_311_an_acknowledgement_has_no_reason(target: Target, name: str, kind: str) -> None:
    """The remaining length of the four packets is 2 in 3.1.1."""
    peer = connected(target, name, V311)
    peer.send(ACKS[kind](1, 0))
    peer.expect_closed()


@clause("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1", "MQTT-3.7.2-1")
@deviates("mosquitto 2.0: does not check the reason codes of acknowledgements")
@pytest.mark.parametrize(
    ("kind", "reason"), [("puback", 0x01), ("puback", 0x92), ("pubrec", 0x8F), ("pubrel", 0x10), ("pubcomp", 0x80)]
)
def test_a_reason_that_the_packet_does_not_have_ends_the_connection(
    target: Target, name: str, kind: str, reason: int
) -> None:
    """Each of the four packets has its own table of reason codes."""
    peer = connected(target, name)
    peer.send(ACKS[kind](1, reason))
    peer.expect_closed({0x81, 0x82})


@pytest.mark.parametrize("kind", ACKS)
@pytest.mark.parametrize(
    "block",
    [
        build.props(reason_string=["a", "b"]),
        build.props(message_expiry=1),
        b"\x03\x1f\x00",
        b"\x05\x1f\x00\x02\xff\xff",
    ],
    ids=["twice", "foreign", "cut", "utf8"],
)
def test_wrong_properties_of_acknowledgements_end_the_connection(
    target: Target, name: str, kind: str, block: bytes
) -> None:
    """Acknowledgements carry one reason string and any user properties."""
    peer = connected(target, name)
    peer.send(ACKS[kind](1, 0, properties=block))
    peer.expect_closed({0x81, 0x82})


LIMIT = 30


@clause("MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.6.2-2", "MQTT-3.6.2-3")
@clause("MQTT-3.7.2-2", "MQTT-3.7.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2")
@pytest.mark.parametrize("wish", [{"maximum_packet_size": LIMIT}, {"request_problem": 0}], ids=["small", "no_problems"])
def test_answers_have_no_texts_that_the_client_does_not_want(target: Target, name: str, wish: dict[str, int]) -> None:
    """Reason strings and user properties of answers keep within the client's Maximum Packet Size and its wish."""
    peer = connected(target, name, **wish)
    questions = [
        (build.publish(name, b"x", 1, 1), build.PUBACK),
        (build.publish(name, b"x", 2, 2), build.PUBREC),
        (build.pubrec(77), build.PUBREL),
        (build.pubrel(77), build.PUBCOMP),
        (build.unsubscribe(name, "never", pid=5), build.UNSUBACK),
        (build.subscribe("$share/g/x", name, pid=6), build.SUBACK),
        (build.publish("$SYS/x", b"x", 2, 3), build.PUBREC),
    ]
    for question, expected in questions:
        peer.send(question)
        first, body = peer.packet()
        assert first == expected
        assert "maximum_packet_size" not in wish or len(build.packet(first, body)) <= LIMIT
        if first in (build.SUBACK, build.UNSUBACK) or len(body) > 3:
            found = build.read_props(body, 2 if first in (build.SUBACK, build.UNSUBACK) else 3)[0]
            assert "request_problem" not in wish or found == {}
