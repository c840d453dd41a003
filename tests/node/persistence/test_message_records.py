"""What is written is read again as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.message import NEVER, Message
from headwater.node.persistence.records import message_in, message_record, record_of
from headwater.session.journaled import JournaledMessage
from headwater.wire.encode import encode
from headwater.wire.packets import V5, V311, Properties, Publish

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20)
maybe_text = st.none() | text
payloads = st.binary(max_size=300)


@given(
    topic=topics,
    payload=payloads,
    qos=st.integers(0, 2),
    retain=st.booleans(),
    publisher=text,
    expires_at=st.just(NEVER) | st.floats(1, 1e6),
    payload_format=st.none() | st.integers(0, 1),
    content_type=maybe_text,
    response_topic=st.none() | topics,
    correlation_data=st.none() | payloads,
    user_properties=st.none() | st.lists(st.tuples(text, text), min_size=1, max_size=3),
)
def test_messages(topic: str, payload: bytes, qos: int, retain: bool, **others: object) -> None:
    message = Message(topic, payload, qos, retain, **others)  # type: ignore[arg-type]
    found = message_in(record_of(message, 1e9), 1e9)
    before, after = vars_of(message), vars_of(found)
    assert abs(float(before.pop("expires_at")) - float(after.pop("expires_at"))) < 1e-3 or found.expires_at == NEVER  # type: ignore[arg-type]
    assert after == before


@given(topic=topics, payload=payloads, version=st.sampled_from([V311, V5]), pairs=st.lists(st.tuples(text, text)))
def test_packets_of_the_hot_path(topic: str, payload: bytes, version: int, pairs: list[tuple[str, str]]) -> None:
    properties = Properties(user_properties=pairs) if version == V5 and pairs else None
    packet = encode(Publish(topic, payload, 1, False, False, 0x4142, properties), version)
    at = packet.index(len(topic.encode()).to_bytes(2, "big") + topic.encode(), 2) + 2 + len(topic.encode())
    assert packet[at : at + 2] == b"AB"
    found = message_in(message_record(JournaledMessage(1, None, packet[:at], packet[at + 2 :], version, "p"), 0.0), 0.0)
    assert (found.topic, found.payload, found.qos, found.publisher) == (topic, payload, 1, "p")
    assert found.user_properties == (pairs if properties else None)


def vars_of(message: Message) -> dict[str, object]:
    names = "topic payload qos retain publisher expires_at payload_format content_type response_topic"
    return {name: getattr(message, name) for name in (*names.split(), "correlation_data", "user_properties")}
