"""What is told of groups: bytes and back, slots, and whatever else comes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.groups.notes import (
    LONGEST,
    MAX_SLOTS,
    Entry,
    GroupState,
    Slot,
    decode_note,
    encode_note,
    slots_of,
)


def single(value: float) -> float:
    """As it is on the wire."""
    found: float = struct.unpack("!f", struct.pack("!f", value))[0]
    return found


numbers = st.integers(0, (1 << 32) - 1)
amounts = st.floats(0, 1000).map(single)
slots = st.builds(Slot, st.floats(-LONGEST, LONGEST).map(single), amounts, st.integers(1, 65535))
states = st.builds(
    lambda members, away, credit, weight, capacity, some: GroupState(
        members, max(0, members - away), credit, weight, capacity, some
    ),
    *(numbers, numbers, numbers, amounts, amounts, st.lists(slots, max_size=MAX_SLOTS)),
)
entries = st.one_of(
    st.builds(Entry, numbers, st.text(max_size=20).map(lambda text: "$share/" + text), numbers, states),
    st.builds(Entry, numbers, st.just(""), numbers, states),
    st.builds(Entry, numbers, st.just(""), st.just(0), st.none()),
)


@given(st.lists(entries, max_size=5), st.integers(0, 3))
def test_what_is_told_is_what_is_heard(told: list[Entry], part: int) -> None:
    assert decode_note(encode_note(told, part)) == (told, part)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"\x01\x00" + rest)))
def test_any_bytes_are_a_note_or_malformed(data: bytes) -> None:
    try:
        found, part = decode_note(data)
    except MalformedFrame:
        return
    assert encode_note(found, part) == data


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0, 10)), max_size=100))
def test_many_members_share_slots(outlooks: list[tuple[float, float]]) -> None:
    found = slots_of(outlooks, 1.0)
    assert len(found) == min(len(outlooks), MAX_SLOTS)
    assert sum(slot.alike for slot in found) == len(outlooks)
    if outlooks:
        least = min(start for start, _ in outlooks) - 1.0
        assert min(slot.starts_in for slot in found) >= least - 1e-9
        if len(outlooks) <= MAX_SLOTS:
            assert abs(min(slot.starts_in for slot in found) - least) < 1e-9
