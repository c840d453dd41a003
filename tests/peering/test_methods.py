"""What every method promises: never no where it should be yes, whichever way the interest came."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.frames.frame import MAX_CHANGE, MalformedFrame
from headwater.peering.methods.bloom import BLOOM, BloomAnnouncement, BloomHearing
from headwater.peering.methods.flood import FLOOD
from headwater.peering.methods.method import Announcement, Hearing, Told, TooMuch, Unsure
from headwater.peering.methods.names import ANNOUNCEMENTS, NAMES, hearing
from headwater.peering.methods.subscribe import SUBSCRIBE, SubscribeAnnouncement, SubscribeHearing
from headwater.routing.feed import FILTER_ADDED, FILTER_REMOVED, GROUP_ADDED, GROUP_REMOVED, RouteChange
from headwater.routing.topics import matches

LEVELS = ("a", "b", "", "é")
topics = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.one_of(
    topics,
    st.lists(st.sampled_from((*LEVELS, "+")), min_size=1, max_size=4).map("/".join).filter(bool),
    st.lists(st.sampled_from((*LEVELS, "+")), max_size=3).map(lambda levels: "/".join([*levels, "#"])),
)
every_method = pytest.mark.parametrize("method", NAMES)


def change(kind: str, filter: str) -> RouteChange:
    return RouteChange(kind, filter, "g" if "group" in kind else None, 0)


def heard(announcement: Announcement) -> Hearing:
    found = hearing(announcement.method)
    found.take(Told(True, announcement.whole()))
    return found


@every_method
@given(wanted=st.lists(filters, unique=True, max_size=20), size=st.integers(1, 40))
def test_a_state_is_the_same_in_however_many_parts_it_comes(method: str, wanted: list[str], size: int) -> None:
    announcement = ANNOUNCEMENTS[method]()
    for filter in wanted:
        announcement.note(change(FILTER_ADDED, filter), 0.0)
    announcement.due(0.0)
    whole = announcement.whole()
    in_parts = hearing(method)
    for at in range(0, max(len(whole), 1), size):
        in_parts.take(Told(True, whole[at : at + size], at + size < len(whole)))
    assert in_parts.whole() == heard(announcement).whole()


def test_the_last_part_of_a_state_ends_its_last_filter() -> None:
    one = hearing("subscribe")
    one.take(Told(True, b"\0\5ab", has_more=True))
    with pytest.raises(MalformedFrame):
        one.take(Told(True, b"c"))


@every_method
@given(
    steps=st.lists(st.tuples(filters, st.booleans(), st.booleans()), max_size=30), asked=st.lists(topics, max_size=8)
)
def test_never_no_where_somebody_wants_it(method: str, steps: list[tuple[str, bool, bool]], asked: list[str]) -> None:
    """By changes, by a whole state, and by a state that somebody else made of what it heard."""
    announcement = ANNOUNCEMENTS[method]()
    announcement.due(0.0)
    by_changes = heard(announcement)
    wanted: dict[tuple[str, bool], bool] = {}
    now = 0.0
    for filter, is_group, looks in steps:
        is_there = wanted.get((filter, is_group), False)
        wanted[filter, is_group] = not is_there
        added, removed = (GROUP_ADDED, GROUP_REMOVED) if is_group else (FILTER_ADDED, FILTER_REMOVED)
        now += 10.0
        announcement.note(change(removed if is_there else added, filter), now)
        if looks:
            for told in announcement.due(now):
                assert told.is_whole or len(told.data) <= MAX_CHANGE
                if told.is_whole:
                    by_changes = hearing(method)
                by_changes.take(told)
    for told in announcement.due(now + 100.0):
        by_changes.take(told)
    relayed = hearing(method)
    relayed.take(Told(True, by_changes.whole()))
    for one in (by_changes, heard(announcement), relayed):
        for topic in asked:
            is_wanted = any(is_there and matches(filter, topic) for (filter, _), is_there in wanted.items())
            assert one.wants(topic) or not is_wanted
            if one.is_exact:
                assert one.wants(topic) == is_wanted


def test_what_the_methods_can_know() -> None:
    """A publish that reaches nobody is known as such by `subscribe` always, by `flood` never."""
    assert {method for method in NAMES if hearing(method).is_exact} == {SUBSCRIBE}
    bloom = BloomAnnouncement(seed=1)
    for number in range(1000):
        bloom.note(change(FILTER_ADDED, f"plant/{number}/+"), 0.0)
    told = bloom.due(0.0)
    listener = BloomHearing()
    for each in told:
        listener.take(each)
    errors = sum(listener.wants(f"mill/{number}/x") for number in range(10_000))
    assert errors <= 50
    assert all(listener.wants(f"plant/{number}/x") for number in range(1000))
    flood = ANNOUNCEMENTS[FLOOD]()
    flood.note(change(FILTER_ADDED, "a"), 0.0)
    assert flood.due(0.0) == []
    assert heard(flood).wants("anything")


def test_a_filter_counts_once_and_what_comes_and_goes_is_not_told() -> None:
    announcement = SubscribeAnnouncement()
    announcement.note(change(FILTER_ADDED, "a"), 0.0)
    announcement.note(change(GROUP_ADDED, "a"), 0.0)
    announcement.note(change(FILTER_ADDED, "b"), 0.0)
    announcement.note(change(FILTER_REMOVED, "b"), 0.0)
    assert announcement.due(0.0) == [Told(False, b"+\0\1a")]
    announcement.note(change(FILTER_REMOVED, "a"), 0.0)
    assert announcement.due(0.0) == []
    announcement.note(change(GROUP_REMOVED, "a"), 0.0)
    assert announcement.due(0.0) == [Told(False, b"-\0\1a")]


def test_changes_are_cut_at_their_bound() -> None:
    announcement = SubscribeAnnouncement()
    long = [f"{number}/{'x' * 60_000}" for number in range(9)]
    for filter in long:
        announcement.note(change(FILTER_ADDED, filter), 0.0)
    told = announcement.due(0.0)
    assert len(told) > 1
    assert all(len(each.data) <= MAX_CHANGE for each in told)
    one = SubscribeHearing()
    assert [filter for each in told for filter in one.take(each) or ()] == long


def test_filters_beyond_the_bound_are_too_much() -> None:
    one = SubscribeHearing(max_kept=100_000)
    with pytest.raises(TooMuch):
        one.take(Told(True, b"".join(b"\0\4%04d" % number for number in range(1000))))
    deep = SubscribeHearing(max_kept=100_000)
    with pytest.raises(TooMuch):
        deep.take(Told(False, b"+\x03\xe9" + b"a/" * 500 + b"+"))


@pytest.mark.parametrize(
    "form",
    ["%d", "%d/a/b/c", "%d/+/x/+/y/+", "+/%d/" + "a/%d/" * 50 + "b", "%d" + "/+" * 100, "+/%d/漢字漢字漢字", "%d/#"],
)
def test_kept_filters_count_as_what_they_take(form: str) -> None:
    """Roughly: dictionaries grow in leaps."""
    filters = [form.replace("%d", f"{number:06}") for number in range(1000)]
    data = b"".join(len(each.encode()).to_bytes(2, "big") + each.encode() for each in filters)
    one = SubscribeHearing()
    tracemalloc.start()
    one.take(Told(True, data))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * taken < one.kept < 2.5 * taken


def test_removed_filters_take_no_room() -> None:
    one = SubscribeHearing()
    before = one.kept
    for _ in range(3):
        one.take(Told(False, b"+\0\1a+\0\3b/+"))
        one.take(Told(False, b"+\0\1a-\0\1a-\0\3b/+-\0\1z"))
    assert one.kept == before


@pytest.mark.parametrize("data", [b"+", b"+\0\2a", b"*\0\1a", b"+\0\1\xff", b"+\0\3a#b", b"+\0\0", b"-\0\2\0a"])
def test_malformed_changes_of_filters(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        SubscribeHearing().take(Told(False, data))


@every_method
@given(is_whole=st.booleans(), data=st.binary(max_size=60))
def test_any_bytes_are_taken_or_malformed(method: str, is_whole: bool, data: bytes) -> None:
    with contextlib.suppress(MalformedFrame, Unsure):
        hearing(method).take(Told(is_whole, data))


def test_a_change_of_a_summary_that_does_not_fit_makes_unsure() -> None:
    announcement = BloomAnnouncement(seed=1)
    announcement.note(change(FILTER_ADDED, "a/b/c"), 0.0)
    announcement.due(0.0)
    one = heard(announcement)
    announcement.note(change(FILTER_ADDED, "d/e/f"), 0.0)
    announcement.due(0.0)
    announcement.note(change(FILTER_ADDED, "x"), 0.0)
    (last,) = announcement.due(0.0)
    with pytest.raises(Unsure):
        one.take(last)
    assert one.wants("whatever")


def test_an_unknown_method_is_refused() -> None:
    assert BLOOM in NAMES
    with pytest.raises(MalformedFrame):
        hearing("telepathy")
