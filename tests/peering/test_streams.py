"""The interest of one node as numbered steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.frames.frame import (
    NOTHING,
    PART,
    Change,
    Neighbours,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
)
from headwater.peering.methods.method import Told
from headwater.peering.methods.subscribe import SubscribeHearing
from headwater.peering.streams import KEPT_BYTES, KEPT_STEPS, Stream


def stream(steps: int = 0, size: int = 1) -> Stream:
    made = Stream("a", Stamp(3, 1), SubscribeHearing())
    for number in range(steps):
        made.step(Change("a", Stamp(3, 2 + number), bytes(size)))
    return made


def numbers(frames: list[object]) -> list[int]:
    return [frame.stamp.number for frame in frames if isinstance(frame, Change | Neighbours)]


@given(st.integers(0, 30), st.integers(0, 31))
def test_who_missed_some_steps_gets_those(steps: int, has: int) -> None:
    found = stream(steps).missing(Stamp(3, has)) if has else []
    assert numbers(list(found)) == list(range(has + 1, steps + 2)) if has else not found


def test_who_has_nothing_or_is_of_another_life_gets_everything() -> None:
    made = stream(2)
    made.step(Neighbours("a", Stamp(3, 4), ("b",)))
    for since in (NOTHING, Stamp(2, 9), Stamp(3, 0)):
        assert made.missing(since) == [StateBegin("a", Stamp(3, 4), "subscribe", ("b",), 0), StateEnd()]
    assert made.missing(Stamp(3, 4)) == made.missing(Stamp(4, 0)) == []


def test_who_lacks_too_much_gets_everything() -> None:
    made = stream(KEPT_STEPS + 5)
    assert numbers(list(made.missing(Stamp(3, 6)))) == list(range(7, KEPT_STEPS + 7))
    assert isinstance(made.missing(Stamp(3, 5))[0], StateBegin)
    large = stream(5, KEPT_BYTES // 4)
    assert isinstance(large.missing(Stamp(3, 1))[0], StateBegin)
    assert len(large.missing(Stamp(3, 3))) == 3


def test_a_large_state_comes_in_parts() -> None:
    content = SubscribeHearing()
    content.take(Told(True, b"".join(b"\0\5%05d" % number for number in range(20_000))))
    frames = Stream("a", Stamp(1, 1), content).missing(NOTHING)
    begin, parts = frames[0], [frame.data for frame in frames if isinstance(frame, StatePart)]
    assert isinstance(begin, StateBegin)
    assert begin.size == sum(map(len, parts)) == 140_000
    assert max(map(len, parts)) <= PART


def test_what_is_lost_may_want_anything_and_is_not_passed_on() -> None:
    made = stream(2)
    assert not made.wants("x")
    made.lose()
    assert made.wants("x")
    assert not made.is_sure
    assert made.missing(NOTHING) == []
