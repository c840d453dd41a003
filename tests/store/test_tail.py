"""The messages that are in no block yet, against a plain list of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.tail import JOINED, LARGE, Part, Tail
from tests.store.messages import NOON

NAMES = ["a"]


def entry(position: int) -> Entry:
    return Entry(position, "a", b"x" * (position % 5), 0, False, f"device {position % 3}", NOON, NOON, None)


def part_of(first: int, messages: int) -> Part:
    """As a commit brings it: one record."""
    chunk = Chunk.of([entry(position) for position in range(first, first + messages)])
    chunk.names = NAMES
    return Part(chunk, [b"%d" % first], 100 + messages)


def positions(parts: list[Part]) -> list[int]:
    return [position for part in parts for position in part.chunk.position.tolist()]


@st.composite
def commits(draw: st.DrawFn) -> list[int]:
    """How many messages each of them has: often about as many as the others."""
    usual = draw(st.sampled_from([1, 2, 9, 70, 600]))
    return draw(st.lists(st.just(usual) | st.integers(1, 3 * usual), min_size=1, max_size=60))


@given(commits(), st.data())
@settings(deadline=None, max_examples=60)
def test_it_is_a_list_whose_beginning_is_dropped(sizes: list[int], data: st.DataObject) -> None:
    """Parts are joined while those that are being made a block of are out."""
    tail = Tail()
    known: list[tuple[int, int]] = []
    """Of each commit, the first position and the number of messages."""
    being_sealed: list[Part] = []
    first = 1
    for size in sizes:
        tail.add(part_of(first, size))
        known.append((first, size))
        first += size
        action = data.draw(st.integers(0, 5))
        if action == 0 and not being_sealed:
            being_sealed = tail.first_parts(data.draw(st.integers(1, 200)), 1 << 30)
        elif action == 1 and being_sealed:
            end = positions(being_sealed)[-1]
            seen = tail.parts
            before = positions(seen)
            tail.drop(being_sealed)
            assert positions(seen) == before
            being_sealed = []
            known = [each for each in known if each[0] > end]
        assert_holds(tail, known)


def assert_holds(tail: Tail, known: list[tuple[int, int]]) -> None:
    left = [position for first, size in known for position in range(first, first + size)]
    entries = [each for part in tail.parts for each in part.chunk.entries()]
    assert entries == [entry(position) for position in left]
    assert tail.messages == len(left)
    assert tail.payload_size == sum(len(entry(position).payload) for position in left)
    assert [key for part in tail.parts for key in part.keys] == [b"%d" % first for first, _ in known]
    assert tail.size == sum(100 + size for _, size in known) == sum(part.size for part in tail.parts)


def test_many_small_commits_are_few_parts() -> None:
    tail = Tail()
    for position in range(1, 20_001):
        tail.add(part_of(position, 1))
        assert len(tail.parts) < JOINED * 4 + 20_000 / LARGE
    assert positions(tail.parts) == list(range(1, 20_001))


def test_the_first_parts_have_enough_messages_or_bytes_or_are_all() -> None:
    tail = Tail()
    for first in (1, 2001, 4001):
        tail.add(part_of(first, 2000))
    assert len(tail.first_parts(2000, 1 << 30)) == 1
    assert len(tail.first_parts(2001, 1 << 30)) == 2
    assert len(tail.first_parts(1 << 30, 2100)) == 1
    assert len(tail.first_parts(1 << 30, 2101)) == 2
    assert len(tail.first_parts(1 << 30, 1 << 30)) == 3
