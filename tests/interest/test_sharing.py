"""Summaries told to other brokers over links that lose, repeat and reorder: nothing is denied that is wanted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest.filter import Incompatible
from headwater.interest.methods import make
from headwater.interest.sharing import KEPT, NOTHING, Announcer, Listener, State
from headwater.interest.summary import Summary
from headwater.interest.written import Writing
from headwater.routing.topics import matches

FILTERS = ["a", "a/b", "a/+", "a/#", "+/b/c", "#", "x/y/z", "x/+/z", "$SYS/#", "", "q/r/s/t/u/v", "q/r/s/t/u/w"]
TOPICS = ["a", "a/b", "b/b/c", "x/y/z", "x/q/z", "$SYS/load", "q/r/s/t/u/v", "nothing/of/it"]


def announcer(linger: float = 0.0) -> Announcer:
    return Announcer(Summary(seed=1), linger)


def pass_on(messages: list[bytes], listener: Listener) -> None:
    for each in messages:
        listener.take(each)


def is_same(announcer: Announcer, listener: Listener) -> bool:
    assert listener.summary is not None
    return listener.summary.encode() == announcer.summary.encode()


def test_everything_then_what_changes() -> None:
    here, there = announcer(), Listener()
    assert there.may_match("anything"), "nothing is known yet"
    here.add("a/+")
    there.take(here.whole())
    assert there.may_match("a/b")
    assert not there.may_match("b")
    pass_on(here.changes(0), there)
    here.add("b")
    [delta] = here.changes(0)
    assert len(delta) < 60
    assert there.take(delta)
    assert there.may_match("b")
    here.remove("a/+", 1)
    pass_on(here.changes(1), there)
    assert not there.may_match("a/b")
    assert here.changes(2) == []
    assert is_same(here, there)
    assert here.traffic.changes == 3
    assert (here.traffic.deltas, here.traffic.wholes) == (2, 2), "with the first wildcard it was resized"


def test_a_delta_that_is_lost_is_seen_and_until_it_is_there_the_answer_is_maybe() -> None:
    here, there = announcer(), Listener()
    there.take(here.whole())
    here.add("a")
    here.changes(0)
    here.add("b")
    [second] = here.changes(0)
    assert not there.take(second)
    assert there.may_match("nobody/wants/this")
    missing = here.since(there.has)
    assert len(missing) == 2
    pass_on(missing, there)
    assert there.is_sure
    assert not there.may_match("nobody/wants/this")
    assert is_same(here, there)
    assert here.since(there.has) == []


def test_what_comes_again_or_too_late_changes_nothing() -> None:
    here, there = announcer(), Listener()
    before = here.whole()
    there.take(before)
    here.add("a")
    [delta] = here.changes(0)
    for each in (delta, delta, before, delta):
        assert there.take(each)
    assert is_same(here, there)


def test_who_has_been_away_for_long_gets_everything() -> None:
    here, there = announcer(), Listener()
    there.take(here.whole())
    for _ in range(KEPT // 2 + 1):
        here.add("a/x")
        here.changes(0)
        here.remove("a/x", 0)
        here.changes(0)
    [whole] = here.since(there.has)
    assert there.take(whole)
    assert is_same(here, there)


def test_a_summary_that_has_grown_is_sent_whole() -> None:
    here, there = announcer(), Listener()
    there.take(here.whole())
    for number in range(500):
        here.add(f"device/{number}")
    sent = here.changes(0)
    pass_on(sent, there)
    assert len(sent) == 1
    assert here.traffic.wholes == 2
    assert is_same(here, there)


def test_a_broker_that_starts_anew() -> None:
    here, there = announcer(), Listener()
    here.add("a")
    there.take(here.whole())
    anew = announcer()
    anew.add("b")
    [delta] = anew.changes(0)
    assert not there.take(delta), "it is of another life"
    [whole] = anew.since(there.has)
    assert there.take(whole)
    assert (there.may_match("a"), there.may_match("b")) == (False, True)


def test_a_state_that_is_not_what_it_should_be_is_seen() -> None:
    here, there = announcer(), Listener()
    here.add("a")
    there.take(here.whole())
    assert there.summary is not None
    there.summary.lines.put(3, bytes(64))
    line = next(number for number in range(8) if any(here.summary.lines.line(number)))
    there.summary.lines.put(line, b"\1" + bytes(63))
    here.add("b/c/d")
    sent = here.changes(0)
    there._digest ^= 1
    pass_on(sent, there)
    assert not there.is_sure
    assert there.has == NOTHING
    pass_on(here.since(there.has), there)
    assert is_same(here, there)


def test_removals_linger_and_what_comes_back_costs_nothing() -> None:
    here, there = announcer(linger=5.0), Listener()
    here.add("a")
    pass_on([here.whole(), *here.changes(0)], there)
    here.remove("a", 10.0)
    assert here.changes(14.9) == []
    assert there.may_match("a")
    here.add("a")
    assert here.changes(20.0) == []
    here.remove("a", 21.0)
    pass_on(here.changes(26.0), there)
    assert not there.may_match("a")


def test_strange_messages() -> None:
    there = Listener()
    here = announcer()
    there.take(here.whole())
    for wrong in (b"", b"HWI", make("bf", seed=1).encode(), here.whole()[:-1]):
        with pytest.raises(Incompatible):
            there.take(wrong)
        assert not there.is_sure
    there.take(here.whole())
    assert there.is_sure


def test_changes_that_cannot_be() -> None:
    here, there = announcer(), Listener()
    there.take(here.whole())
    state = there.has
    for kinds, flips in ((b"", [1]), (b"\0", [10**9]), (b"\0", [])):
        made = Writing("delta")
        for number in (state.incarnation, state.epoch, 0):
            made.number(number)
        made.runs(kinds)
        made.number(len(flips) + (not flips))
        for each in flips:
            made.number(each)
        with pytest.raises(Incompatible):
            there.take(made.done())
        assert there.may_match("a")
    there.take(here.whole())
    assert is_same(here, there)


histories = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "tell", "lose", "twice", "swap", "ask"]), st.integers(0, 11)),
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(histories, st.sampled_from([0.0, 2.0]))
def test_whatever_happens_on_the_way_no_topic_is_denied_that_is_wanted(
    history: list[tuple[str, int]], linger: float
) -> None:
    """A listener that is sure answers as some state of the announcer does, not older than the last message it got."""
    here, there = announcer(linger), Listener()
    there.take(here.whole())
    content: list[str] = []
    known: dict[State, list[str]] = {there.has: []}
    waiting: list[bytes] = []
    now = 0.0
    for what, which in history:
        now += 1.0
        if what == "add":
            content.append(FILTERS[which] or "a")
            here.add(content[-1])
        elif what == "remove" and content:
            here.remove(content.pop(which % len(content)), now)
        else:
            waiting += here.changes(now)
            known[State(here._incarnation, here._epoch)] = list(content)
        if what == "lose" and waiting:
            waiting.pop(which % len(waiting))
        elif what == "swap":
            waiting.reverse()
        elif what == "ask":
            waiting += here.since(there.has)
        if what in ("tell", "twice", "swap", "ask"):
            pass_on(waiting * (2 if what == "twice" else 1), there)
            waiting.clear()
        if there.is_sure:
            for topic in TOPICS:
                if any(matches(each, topic) for each in known[there.has]):
                    assert there.may_match(topic)
        else:
            assert all(there.may_match(topic) for topic in TOPICS)
    pass_on(here.changes(now + 100), there)
    pass_on(here.since(there.has), there)
    assert there.is_sure
    assert is_same(here, there)


def test_bytes_of_a_change() -> None:
    """A filter of six levels that shares all but its last with others is told in fewer bytes than its text has."""
    here, random = announcer(), Random(1)
    for number in range(1000):
        here.add(f"plant/hall-{number % 10}/line-{number % 50}/cell/sensor-{number}/temperature")
    here.changes(0)
    before = here.traffic.delta_bytes
    sizes = []
    for _ in range(100):
        filter = f"plant/hall-1/line-1/cell/sensor-1/{random.randrange(10**9)}"
        here.add(filter)
        sizes += [len(each) / len(filter) for each in here.changes(0)]
    assert here.traffic.delta_bytes > before
    assert sum(sizes) / len(sizes) < 2.0
