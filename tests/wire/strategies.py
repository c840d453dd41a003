"""Hypothesis strategies for legal packets of both versions.

The properties of each packet are listed here once more, from the standard and not from the table under test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from headwater.wire import FROM_CLIENT, FROM_SERVER, V5, V311
from headwater.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)

_TEXT_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(_TEXT_CHARACTERS, max_size=12)
topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12)
filters = st.text(_TEXT_CHARACTERS, min_size=1, max_size=12).filter(lambda text: not text.startswith("$share/"))
shared_filters = filters.map(lambda text: "$share/group/" + text)
blobs = st.binary(max_size=12)
packet_ids = st.integers(1, 0xFFFF)
uint16 = st.integers(0, 0xFFFF)
uint32 = st.integers(0, 0xFFFF_FFFF)
zero_or_one = st.integers(0, 1)
qos_levels = st.integers(0, 2)

PROPERTY_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "payload_format_indicator": zero_or_one,
    "message_expiry_interval": uint32,
    "content_type": texts,
    "response_topic": topics,
    "correlation_data": blobs,
    "subscription_identifiers": st.lists(st.integers(1, 268_435_455), min_size=1, max_size=1),
    "session_expiry_interval": uint32,
    "assigned_client_identifier": texts,
    "server_keep_alive": uint16,
    "authentication_method": texts,
    "authentication_data": blobs,
    "request_problem_information": zero_or_one,
    "will_delay_interval": uint32,
    "request_response_information": zero_or_one,
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": st.integers(1, 0xFFFF),
    "topic_alias_maximum": uint16,
    "topic_alias": st.integers(1, 0xFFFF),
    "maximum_qos": zero_or_one,
    "retain_available": zero_or_one,
    "user_properties": st.lists(st.tuples(texts, texts), min_size=1, max_size=3),
    "maximum_packet_size": st.integers(1, 0xFFFF_FFFF),
    "wildcard_subscription_available": zero_or_one,
    "subscription_identifier_available": zero_or_one,
    "shared_subscription_available": zero_or_one,
}

_MESSAGE = (
    "payload_format_indicator message_expiry_interval content_type response_topic correlation_data user_properties"
)
_SETTINGS = (
    "session_expiry_interval receive_maximum maximum_packet_size topic_alias_maximum user_properties"
    " authentication_method authentication_data"
)
LEGAL_PROPERTIES: dict[str, set[str]] = {
    "CONNECT": {*_SETTINGS.split(), "request_response_information", "request_problem_information"},
    "WILL": {*_MESSAGE.split(), "will_delay_interval"},
    "CONNACK": {
        *_SETTINGS.split(),
        *("maximum_qos", "retain_available", "assigned_client_identifier", "reason_string", "server_keep_alive"),
        *("wildcard_subscription_available", "subscription_identifier_available", "shared_subscription_available"),
        *("response_information", "server_reference"),
    },
    "PUBLISH": {*_MESSAGE.split(), "topic_alias", "subscription_identifiers"},
    "PUBACK": {"reason_string", "user_properties"},
    "PUBREC": {"reason_string", "user_properties"},
    "PUBREL": {"reason_string", "user_properties"},
    "PUBCOMP": {"reason_string", "user_properties"},
    "SUBSCRIBE": {"subscription_identifiers", "user_properties"},
    "SUBACK": {"reason_string", "user_properties"},
    "UNSUBSCRIBE": {"user_properties"},
    "UNSUBACK": {"reason_string", "user_properties"},
    "DISCONNECT": {"session_expiry_interval", "reason_string", "user_properties", "server_reference"},
    "AUTH": {"authentication_method", "authentication_data", "reason_string", "user_properties"},
}


class Sent(NamedTuple):
    """A legal packet with its version and sender."""

    packet: Packet
    version: int
    role: int


@st.composite
def properties(
    draw: st.DrawFn, /, packet_name: str, *, without: str = "", required: str = "", **values: st.SearchStrategy[Any]
) -> Properties | None:
    """None, or any legal and non-empty combination; `values` replaces how single properties are drawn."""
    names = sorted(LEGAL_PROPERTIES[packet_name] - set(without.split()))
    chosen = set(draw(st.lists(st.sampled_from(names), unique=True))) | set(required.split())
    if "authentication_data" in chosen:
        chosen.add("authentication_method")
    if not chosen:
        return None
    return Properties(**{name: draw(values.get(name, PROPERTY_VALUES[name])) for name in sorted(chosen)})


def _properties(version: int, packet_name: str, without: str = "") -> st.SearchStrategy[Properties | None]:
    return properties(packet_name, without=without) if version == V5 else st.none()


@st.composite
def connects(draw: st.DrawFn, version: int, role: int) -> Packet:
    username = draw(st.none() | texts)
    password = draw(st.none() | blobs) if version == V5 or username is not None else None
    will = st.builds(Will, topics, blobs, qos_levels, st.booleans(), _properties(version, "WILL"))
    own = draw(_properties(version, "CONNECT"))
    return Connect(
        draw(texts), version, draw(st.booleans()), draw(uint16), username, password, draw(st.none() | will), own
    )


@st.composite
def connacks(draw: st.DrawFn, version: int, role: int) -> Packet:
    reason = draw(st.sampled_from([0, 0x80, 0x84, 0x87, 0x9F] if version == V5 else [0, 1, 2, 3, 4, 5]))
    present = draw(st.booleans()) and reason == 0
    return Connack(present, reason, draw(_properties(version, "CONNACK")))


@st.composite
def publishes(draw: st.DrawFn, version: int, role: int) -> Packet:
    qos = draw(qos_levels)
    dup = qos > 0 and draw(st.booleans())
    packet_id = draw(packet_ids) if qos > 0 else 0
    topic = draw(topics)
    own: Properties | None = None
    if version == V5:
        several = st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3)
        without = "subscription_identifiers" if role == FROM_CLIENT else ""
        own = draw(properties("PUBLISH", without=without, subscription_identifiers=several))
        if own is not None and own.topic_alias is not None and draw(st.booleans()):
            topic = ""
    return Publish(topic, draw(blobs), qos, draw(st.booleans()), dup, packet_id, own)


def _acknowledgements(
    make: Callable[[int, int, Properties | None], Packet], name: str, reasons: list[int]
) -> Callable[[int, int], st.SearchStrategy[Packet]]:
    def strategy(version: int, role: int) -> st.SearchStrategy[Packet]:
        codes = st.sampled_from(reasons) if version == V5 else st.just(0)
        return st.builds(make, packet_ids, codes, _properties(version, name))

    return strategy


def subscribes(version: int, role: int) -> st.SearchStrategy[Packet]:
    if version == V311:
        request = st.builds(SubscribeRequest, filters | shared_filters, qos_levels)
    else:
        handling = st.integers(0, 2)
        own = st.builds(SubscribeRequest, filters, qos_levels, st.booleans(), st.booleans(), handling)
        shared = st.builds(SubscribeRequest, shared_filters, qos_levels, st.just(False), st.booleans(), handling)
        request = own | shared
    requests = st.lists(request, min_size=1, max_size=3)
    return st.builds(Subscribe, packet_ids, requests, _properties(version, "SUBSCRIBE"))


def unsubscribes(version: int, role: int) -> st.SearchStrategy[Packet]:
    some_filters = st.lists(filters | shared_filters, min_size=1, max_size=3)
    return st.builds(Unsubscribe, packet_ids, some_filters, _properties(version, "UNSUBSCRIBE"))


def subacks(version: int, role: int) -> st.SearchStrategy[Packet]:
    codes = st.sampled_from([0, 1, 2, 0x80, 0x8F, 0xA2] if version == V5 else [0, 1, 2, 0x80])
    return st.builds(Suback, packet_ids, st.lists(codes, min_size=1, max_size=4), _properties(version, "SUBACK"))


def unsubacks(version: int, role: int) -> st.SearchStrategy[Packet]:
    if version == V311:
        return st.builds(Unsuback, packet_ids)
    reasons = st.lists(st.sampled_from([0, 0x11, 0x87]), min_size=1, max_size=4)
    return st.builds(Unsuback, packet_ids, reasons, _properties(version, "UNSUBACK"))


def disconnects(version: int, role: int) -> st.SearchStrategy[Packet]:
    if version == V311:
        return st.just(Disconnect())
    without = "session_expiry_interval" if role == FROM_SERVER else ""
    return st.builds(Disconnect, st.sampled_from([0, 4, 0x81, 0x8E, 0xA2]), _properties(V5, "DISCONNECT", without))


def auths(version: int, role: int) -> st.SearchStrategy[Packet]:
    with_method = properties("AUTH", required="authentication_method")
    if role == FROM_CLIENT:
        return st.builds(Auth, st.sampled_from([0x18, 0x19]), with_method)
    return st.just(Auth()) | st.builds(Auth, st.sampled_from([0, 0x18]), with_method)


Maker = Callable[[int, int], st.SearchStrategy[Packet]]
_BOTH_WAYS: list[Maker] = [
    publishes,
    _acknowledgements(Puback, "PUBACK", [0, 0x10, 0x87]),
    _acknowledgements(Pubrec, "PUBREC", [0, 0x10, 0x97]),
    _acknowledgements(Pubrel, "PUBREL", [0, 0x92]),
    _acknowledgements(Pubcomp, "PUBCOMP", [0, 0x92]),
]
_OF_CLIENT: list[Maker] = [connects, subscribes, unsubscribes, lambda version, role: st.just(Pingreq()), disconnects]
_OF_SERVER: list[Maker] = [connacks, subacks, unsubacks, lambda version, role: st.just(Pingresp())]


def _makers(version: int, role: int) -> list[Maker]:
    makers = _BOTH_WAYS + (_OF_CLIENT if role == FROM_CLIENT else _OF_SERVER)
    if version == V5:
        makers = [*makers, auths]
        if role == FROM_SERVER:
            makers = [*makers, disconnects]
    return makers


def _sent(version: int, role: int) -> st.SearchStrategy[Sent]:
    packets = st.one_of([make(version, role) for make in _makers(version, role)])
    return st.builds(Sent, packets, st.just(version), st.just(role))


roles = st.sampled_from([FROM_CLIENT, FROM_SERVER])
versions = st.sampled_from([V311, V5])
sent_packets = st.one_of([_sent(version, role) for version in (V311, V5) for role in (FROM_CLIENT, FROM_SERVER)])
"""Every packet that either side may send in either version."""
