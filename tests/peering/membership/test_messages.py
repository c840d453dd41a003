"""The wire form: any bytes are a message or malformed, a message has one form, and version 1 stays as it is."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.membership import bounds
from headwater.peering.membership.messages import (
    Entry,
    GossipMessage,
    Kind,
    MalformedGossip,
    NodeDelta,
    NodeDigest,
    encode,
    largest_digest,
    parse,
)

numbers = st.integers(0, bounds.MAX_NUMBER)
ids = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=bounds.MAX_NODE_ID)
visible = "".join(chr(each) for each in range(0x21, 0x7F))
keys = st.text(visible, min_size=1, max_size=bounds.MAX_KEY)
values = st.none() | st.binary(max_size=40)


@st.composite
def digests(draw: st.DrawFn) -> tuple[NodeDigest, ...]:
    found = []
    for node in sorted(draw(st.sets(ids, max_size=5))):
        progress, heartbeat = sorted((draw(numbers), draw(numbers)))
        found.append(NodeDigest(node, draw(numbers), heartbeat, progress, draw(numbers), draw(numbers)))
    return tuple(found)


@st.composite
def deltas(draw: st.DrawFn) -> tuple[NodeDelta, ...]:
    found = []
    for node in sorted(draw(st.sets(ids, max_size=3))):
        names = draw(st.lists(keys, unique=True, max_size=5))
        size = len(names) + 2
        base, *versions, upto = sorted(draw(st.lists(numbers, min_size=size, max_size=size, unique=True)))
        entries = tuple(Entry(version, key, draw(values)) for version, key in zip(versions, names, strict=True))
        found.append(NodeDelta(node, draw(numbers), base, upto, draw(numbers), entries))
    return tuple(found)


@st.composite
def messages(draw: st.DrawFn) -> GossipMessage:
    kind = draw(st.sampled_from(Kind))
    digest = draw(digests()) if kind != Kind.ACK else ()
    delta = draw(deltas()) if kind != Kind.SYN else ()
    name = draw(st.text(visible, min_size=1, max_size=bounds.MAX_CLUSTER_NAME))
    return GossipMessage(kind, name, draw(ids), draw(numbers), digest, delta)


@settings(deadline=None)
@given(messages())
def test_what_is_written_is_read(message: GossipMessage) -> None:
    assert parse(encode(message)) == message


@settings(deadline=None)
@given(messages(), st.binary(min_size=1, max_size=3))
def test_each_part_of_a_message_and_anything_longer_is_malformed(message: GossipMessage, more: bytes) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(MalformedGossip):
            parse(data[:end])
    with pytest.raises(MalformedGossip):
        parse(data + more)


def read_or_refuse(data: bytes) -> None:
    try:
        message = parse(data)
    except MalformedGossip:
        return
    assert encode(message) == data


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    read_or_refuse(data)
    read_or_refuse(b"\x01" + data)


@settings(deadline=None)
@given(messages(), st.data())
def test_changed_messages_are_read_as_what_they_say_or_malformed(message: GossipMessage, data: st.DataObject) -> None:
    changed = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(changed))


ONE = NodeDigest("node-1", 2, 300, 299, 7, 4)
TWO = NodeDigest("node-2", 1, 0x01020304, 5, 0, 0)
CHANGES = NodeDelta("node-1", 2, 4, 7, 4, (Entry(5, "address", b"10.0.0.1:1884"), Entry(7, "links", None)))
FROZEN = {
    GossipMessage(Kind.SYN, "lab", "node-1", 2, (ONE, TWO)): (
        "0101036c6162066e6f64652d310000000200020"
        "66e6f64652d31000000020000012c0000012b0000000700000004"
        "066e6f64652d320000000101020304000000050000000000000000"
    ),
    GossipMessage(Kind.SYNACK, "lab", "node-2", 1, (TWO,), (CHANGES,)): (
        "0102036c6162066e6f64652d3200000001"
        "0001066e6f64652d320000000101020304000000050000000000000000"
        "0001066e6f64652d310000000200000004000000070000000402"
        "000000050761646472657373000d31302e302e302e313a31383834"
        "00000007056c696e6b73ffff"
    ),
    GossipMessage(Kind.ACK, "lab", "node-1", 2, (), (CHANGES,)): (
        "0103036c6162066e6f64652d3100000002"
        "0001066e6f64652d310000000200000004000000070000000402"
        "000000050761646472657373000d31302e302e302e313a31383834"
        "00000007056c696e6b73ffff"
    ),
}


@pytest.mark.parametrize("message", FROZEN, ids=lambda each: each.kind.name)
def test_version_1_is_frozen(message: GossipMessage) -> None:
    """If this fails, nodes of different releases no longer understand each other: a new form needs a new number."""
    data = bytes.fromhex(FROZEN[message])
    assert encode(message) == data
    assert parse(data) == message


def test_another_version_is_refused() -> None:
    data = bytearray(encode(GossipMessage(Kind.SYN, "lab", "a", 1)))
    data[0] = 2
    with pytest.raises(MalformedGossip, match="version 2"):
        parse(bytes(data))


def changed(**fields: object) -> GossipMessage:
    delta = NodeDelta("a", 1, 0, 9, 0, ())
    return GossipMessage(Kind.SYNACK, "lab", "a", 1, (), (delta._replace(**fields),))


@pytest.mark.parametrize(
    "message",
    [
        changed(entries=(Entry(1, "k", b"x" * (bounds.MAX_VALUE + 1)),)),
        changed(entries=(Entry(1, "k" * (bounds.MAX_KEY + 1), b""),)),
        changed(entries=tuple(Entry(n, f"k{n}", b"") for n in range(1, bounds.MAX_KEYS + 2)), upto=100),
        changed(entries=(Entry(2, "k", b""), Entry(1, "l", b""))),
        changed(entries=(Entry(1, "k", b""), Entry(2, "k", b""))),
        changed(entries=(Entry(3, "k", b""),), base=3),
        changed(entries=(Entry(3, "k", b""),), upto=2),
        changed(base=10),
        changed(node="a" * (bounds.MAX_NODE_ID + 1)),
        changed(node="a b"),
        GossipMessage(Kind.SYN, "lab", "a", 1, (TWO, ONE)),
        GossipMessage(Kind.SYN, "lab", "a", 1, (ONE, ONE)),
        GossipMessage(Kind.SYN, "lab", "a", 1, (NodeDigest("a", 1, 3, 4, 0, 0),)),
        GossipMessage(Kind.SYN, "lab", "a", 1, tuple(NodeDigest(f"{n:03}", 1, 0, 0, 0, 0) for n in range(257))),
        GossipMessage(Kind.SYN, "l" * (bounds.MAX_CLUSTER_NAME + 1), "a", 1),
        GossipMessage(Kind.SYN, "", "a", 1),
    ],
)
def test_what_is_beyond_a_bound_or_out_of_order_is_malformed(message: GossipMessage) -> None:
    with pytest.raises(MalformedGossip):
        parse(encode(message))


def test_a_message_too_large_is_malformed() -> None:
    with pytest.raises(MalformedGossip, match="too large"):
        parse(bytes(bounds.MAX_MESSAGE + 1))


def test_the_largest_message_fits() -> None:
    """Whatever a node may know, its digest and a delta fit into one message."""
    head = 2 + 1 + bounds.MAX_CLUSTER_NAME + 1 + bounds.MAX_NODE_ID + 4
    assert head + largest_digest() + 2 + bounds.DELTA_BYTES <= bounds.MAX_MESSAGE
