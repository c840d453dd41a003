"""What nodes say about sessions: every value comes back, and whatever bytes come are a message or malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import NEVER_WRITTEN, Stamp
from headwater.peering.sessions.messages import (
    MAX_CUTS,
    MAX_HOPS,
    MOVING,
    Answer,
    Begin,
    Claim,
    Claimed,
    Cut,
    End,
    Held,
    Holds,
    Marker,
    Message,
    Messages,
    Move,
    Moved,
    Ready,
    Released,
    Subscriptions,
    Switch,
    Tail,
    decode,
    encode,
    is_switch,
)

NODES = st.text("abz09._-", min_size=1, max_size=32)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
U16 = st.integers(0, 65535)
U32 = st.integers(0, 2**32 - 1)
STAMPS = st.builds(Stamp, st.integers(1, 2**64 - 1), NODES)
MOVES = st.builds(Move, IDS, STAMPS)
CUTS = st.lists(st.builds(Cut, STAMPS, NODES), max_size=MAX_CUTS).map(tuple)
MOVED = st.builds(
    Moved, st.sampled_from([1, 2]), st.booleans(), st.just(False), U16, st.tuples(U32), IDS, st.binary(max_size=50)
) | st.builds(Moved, st.just(2), st.just(False), st.just(True), st.integers(1, 65535), st.just(()), IDS, st.just(b""))
IDENTIFIERS = st.integers(1, 65535)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Claim, MOVES, st.booleans()),
    st.builds(Answer, MOVES, st.integers(0, MOVING), STAMPS | st.just(Stamp(0, ""))),
    st.builds(
        Holds,
        st.lists(st.builds(Held, IDS, STAMPS, st.booleans()), max_size=4).map(tuple),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Released, st.lists(MOVES, max_size=4).map(tuple)),
    st.builds(Claimed, MOVES, st.booleans()),
    st.builds(
        Begin,
        MOVES,
        U32,
        U32,
        IDENTIFIERS,
        st.none() | IDS,
        st.lists(IDENTIFIERS, max_size=5).map(tuple),
        st.text("0189 ab", max_size=60),
        STAMPS | st.just(NEVER_WRITTEN),
    ),
    st.builds(Subscriptions, MOVES, st.lists(st.tuples(IDS, st.binary(max_size=9)), max_size=3).map(tuple)),
    st.builds(Ready, MOVES, CUTS),
    st.builds(
        Messages,
        MOVES,
        st.lists(MOVED, max_size=3).map(tuple),
        st.text("0189 ab", max_size=60),
        st.integers(0, MAX_HOPS),
    ),
    st.builds(Tail, MOVES, NODES),
    st.builds(End, MOVES),
    st.builds(Switch, MOVES, NODES, CUTS),
    st.builds(Marker, MOVES, NODES),
)


@given(MESSAGES)
def test_every_message_comes_back(message: Message) -> None:
    data = encode(message)
    assert decode(data) == message
    assert is_switch(data) == isinstance(message, Switch)
    with pytest.raises(MalformedFrame):
        decode(data + b"x")
    with pytest.raises(MalformedFrame):
        decode(data[:-1])


@given(
    st.binary(max_size=60) | st.tuples(st.integers(0, 12), st.binary(max_size=60)).map(lambda e: bytes([e[0]]) + e[1])
)
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedFrame:
        return
    assert encode(message) == data


@pytest.mark.parametrize(
    "message",
    [
        Claim(Move("", Stamp(1, "a")), False),
        Claim(Move("x", Stamp(0, "a")), False),
        Answer(Move("x", Stamp(1, "a")), 9, Stamp(0, "")),
        Begin(Move("x", Stamp(1, "a")), 0, 0, 0, None, (), "", NEVER_WRITTEN),
        Begin(Move("x", Stamp(1, "a")), 0, 0, 1, None, (0,), "", NEVER_WRITTEN),
        Messages(Move("x", Stamp(1, "a")), (Moved(0, False, False, 0, (), "", b""),), ""),
        Messages(Move("x", Stamp(1, "a")), (Moved(1, False, True, 1, (), "", b""),), ""),
        Messages(Move("x", Stamp(1, "a")), (), "", MAX_HOPS + 1),
        Ready(Move("x", Stamp(1, "a")), (Cut(Stamp(1, "b"), "c"),) * (MAX_CUTS + 1)),
    ],
)
def test_what_cannot_be_is_malformed(message: Message) -> None:
    with pytest.raises(MalformedFrame):
        decode(encode(message))
