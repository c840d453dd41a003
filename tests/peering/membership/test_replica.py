"""Copies of a map catch up in any order of exchange, however little fits into a message, and stay within bounds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.peering.membership import bounds
from headwater.peering.membership.messages import Entry, NodeDelta, delta_size
from headwater.peering.membership.replica import OwnMap, Replica

LIFE = 10.0


def pull(to: Replica, source: Replica, room: int = 4096) -> bool:
    delta = source.delta(to.version, to.collected, room)
    return delta is not None and to.apply(delta)


def is_caught_up(copy: Replica, own: OwnMap) -> bool:
    return (copy.version, dict(copy.items())) == (own.version, dict(own.items()))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(60, 200))
def test_copies_converge_whatever_was_exchanged_before(seed: int, room: int) -> None:
    """Random writes, deletions and collections; deltas small, late, repeated and between copies. Then quiet."""
    rng = Random(seed)
    own, copies = OwnMap("a", 1, LIFE), [Replica("a", 1) for _ in range(4)]
    now, kept = 0.0, []
    for _ in range(120):
        now += rng.random() * 3
        own.collect(now)
        key = f"k{rng.randrange(6)}"
        step = rng.randrange(6)
        if step == 0:
            own.set(key, rng.randbytes(rng.randrange(20)))
        elif step == 1:
            own.delete(key, now)
        else:
            source, to = rng.choice([own, *copies]), rng.choice(copies)
            delta = source.delta(to.version, to.collected, room)
            if delta is not None:
                kept.append(delta)
                assert delta_size(delta) <= room
        if kept and rng.random() < 0.7:
            rng.choice(copies).apply(rng.choice(kept))
        to, other = rng.sample(copies, 2)
        to.note_collected(other.collected)
    for _ in range(200):
        to = rng.choice(copies)
        source = rng.choice([own, *copies])
        pull(to, source, room)
        to.note_collected(source.collected)
    for copy in copies:
        while pull(copy, own, room):
            pass
        assert is_caught_up(copy, own)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_copies_only_go_forward_and_those_of_a_dead_owner_reach_the_same(seed: int) -> None:
    rng = Random(seed)
    own, copies = OwnMap("a", 1, LIFE), [Replica("a", 1) for _ in range(4)]
    for now in range(60):
        own.collect(now)
        key = f"k{rng.randrange(5)}"
        if rng.random() < 0.4:
            own.delete(key, now)
        else:
            own.set(key, rng.randbytes(rng.randrange(20)))
        pull(rng.choice(copies), own, 80)
    for _ in range(40):
        for to in copies:
            before = (to.collected, to.version)
            for source in copies:
                to.note_collected(source.collected)
                pull(to, source, 80)
            assert (to.collected, to.version) >= before
    assert len({(each.collected, each.version) for each in copies}) == 1


def test_a_delta_has_the_oldest_changes_first_and_no_more_than_fits() -> None:
    own, copy = OwnMap("a", 1, LIFE), Replica("a", 1)
    for number in range(20):
        own.set(f"key{number:02}", b"x" * 50)
    delta = own.delta(0, 0, 200)
    assert delta is not None
    assert delta_size(delta) <= 200
    assert copy.apply(delta)
    assert [key for key, _ in copy.items()] == ["key00", "key01"]
    assert copy.version == 2
    rounds = 0
    while pull(copy, own, 200):
        rounds += 1
    assert rounds == 9
    assert is_caught_up(copy, own)


def test_deletions_are_told_and_then_dropped() -> None:
    own, copy = OwnMap("a", 1, LIFE), Replica("a", 1)
    own.set("k", b"1")
    assert pull(copy, own)
    own.delete("k", now=0.0)
    assert pull(copy, own)
    assert copy.get("k") is None
    assert "k" in copy.entries
    own.collect(LIFE - 1)
    assert "k" in own.entries
    own.collect(LIFE)
    assert own.entries == {}
    copy.note_collected(own.collected)
    assert copy.entries == {}


def test_a_copy_that_missed_a_dropped_deletion_starts_again() -> None:
    own, late, other = OwnMap("a", 1, LIFE), Replica("a", 1), Replica("a", 1)
    own.set("gone", b"1")
    own.set("kept", b"1" * 60)
    assert pull(late, own)
    assert pull(other, own)
    own.delete("gone", now=0.0)
    own.set("new", b"2" * 60)
    own.collect(LIFE)
    late.note_collected(own.collected)
    assert late.get("gone") == b"1"
    assert pull(late, own, room=110)
    assert dict(late.items()) == {"kept": b"1" * 60}
    assert late.is_partial()
    assert not pull(late, other)  # it still has what is gone
    assert pull(late, own, room=110)
    assert is_caught_up(late, own)


def test_a_gap_is_not_jumped_over() -> None:
    copy = Replica("a", 1)
    assert not copy.apply(NodeDelta("a", 1, 3, 4, 0, (Entry(4, "k", b""),)))
    assert not copy.apply(NodeDelta("a", 2, 0, 4, 0, (Entry(4, "k", b""),)))
    assert copy.version == 0


def test_a_map_has_so_many_keys_and_bytes() -> None:
    own = OwnMap("a", 1, LIFE)
    for number in range(bounds.MAX_KEYS):
        own.set(f"k{number}", b"")
    with pytest.raises(ValueError, match="full"):
        own.set("one-more", b"")
    own = OwnMap("a", 1, LIFE)
    with pytest.raises(ValueError, match="full"):
        for number in range(9):
            own.set(f"k{number}", b"x" * bounds.MAX_VALUE)
    assert own.size() <= bounds.MAX_MAP_BYTES
    for key, value in (("k" * 65, b""), ("", b""), ("a b", b""), ("k", b"x" * 1025)):
        with pytest.raises(ValueError, match="no key"):
            own.set(key, value)


def test_deletions_give_way_when_a_map_is_full() -> None:
    own = OwnMap("a", 1, LIFE)
    for number in range(bounds.MAX_KEYS):
        own.set(f"k{number}", b"")
    own.delete("k3", now=0.0)
    own.delete("k5", now=0.0)
    own.set("one-more", b"")
    assert len(own.entries) == bounds.MAX_KEYS
    assert "k3" not in own.entries
    assert own.collected == bounds.MAX_KEYS + 1


def test_a_copy_takes_no_more_than_its_bounds() -> None:
    copy = Replica("a", 1)
    version = 0
    for number in range(200):
        entries = (Entry(version + 1, f"k{number}", b"x" * 1000),)
        if copy.apply(NodeDelta("a", 1, version, version + 1, 0, entries)):
            version += 1
    assert copy.size() <= bounds.MAX_REPLICA_BYTES
    copy, version = Replica("a", 1), 0
    for number in range(200):
        if copy.apply(NodeDelta("a", 1, version, version + 1, 0, (Entry(version + 1, f"k{number}", None),))):
            version += 1
    assert len(copy.entries) == bounds.MAX_KEYS


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_what_an_owner_may_write_is_never_too_much_for_a_copy(seed: int) -> None:
    rng = Random(seed)
    own, copies = OwnMap("a", 1, 3.0), [Replica("a", 1) for _ in range(3)]
    for now in range(150):
        own.collect(now)
        key = f"k{rng.randrange(70)}"
        if rng.random() < 0.3:
            own.delete(key, now)
        try:
            own.set(key, bytes(rng.choice((0, 500, 1024))))
        except ValueError:
            own.delete(key, now)
        source, to = rng.choice([own, *copies]), rng.choice(copies)
        if not (to.is_partial() and source.collected < to.collected):
            delta = source.delta(to.version, to.collected, rng.choice((1200, 4096)))
            assert delta is None or to.apply(delta)
