from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.message import NEVER, Message
from headwater.routing.retained import Retained
from headwater.routing.topic_tree import Walk
from headwater.routing.topics import matches
from tests.routing.strategies import EXAMPLES, filters, topics

MANY = 1_000


def store_of(*topics: str) -> Retained:
    retained = Retained(MANY)
    for topic in topics:
        assert retained.put(Message(topic, b"x"))
    return retained


def topics_found(retained: Retained, filter: str) -> list[str]:
    return sorted(message.topic for message in retained.match(filter, 0.0))


@pytest.mark.parametrize(("filter", "topic", "expected"), EXAMPLES)
def test_matches_as_the_standard_says(filter: str, topic: str, expected: bool) -> None:
    # Alone the topic is a leaf below the root; with company there are branches at each of its levels.
    assert topics_found(store_of(topic), filter) == ([topic] if expected else [])
    assert (topic in topics_found(store_of(topic, f"{topic}/x/y", f"{topic}/x/z"), filter)) is expected


@settings(deadline=None)
@given(st.lists(topics, unique=True, max_size=40), st.lists(filters, min_size=1, max_size=10))
def test_finds_what_the_naive_matcher_finds(topics: list[str], filters: list[str]) -> None:
    retained = store_of(*topics)
    for filter in filters:
        assert topics_found(retained, filter) == sorted(topic for topic in topics if matches(filter, topic))


class Histories(RuleBasedStateMachine):
    """Any history leaves what a plain dictionary holds, and the tree of exactly the topics that are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = 8
        self.now = 0.0
        self.retained = Retained(self.bound)
        self.model: dict[str, Message] = {}
        self.walks: list[tuple[str, Walk, list[str], set[str]]] = []
        """Looks that are under way: filter, walk, what was found, and which topics have been there all the time."""

    @rule(topic=topics, size=st.integers(0, 3), lifetime=st.sampled_from([1.0, 2.0, 5.0, NEVER]))
    def put(self, topic: str, size: int, lifetime: float) -> None:
        message = Message(topic, b"x" * size, expires_at=self.now + lifetime)
        fits = topic in self.model or len(self.model) < self.bound
        assert self.retained.put(message) is fits
        if fits:
            self.model[topic] = message

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        stored = st.sampled_from(list(self.model)) if self.model else topics
        topic = data.draw(st.one_of(stored, topics))
        assert self.retained.remove(topic) is self.model.pop(topic, None)

    @rule(filter=st.one_of(filters, topics))
    def match(self, filter: str) -> None:
        wanted = {topic: message for topic, message in self.model.items() if matches(filter, topic)}
        for topic, message in list(wanted.items()):
            if message.expires_at <= self.now:
                del wanted[topic], self.model[topic]
        got = self.retained.match(filter, self.now)
        assert sorted(message.topic for message in got) == sorted(wanted)
        assert all(message is wanted[message.topic] for message in got)

    @rule(filter=st.one_of(filters, topics))
    def begin_to_look(self, filter: str) -> None:
        self.walks.append((filter, self.retained.walk(filter), [], set(self.model)))

    @rule(looks=st.integers(1, 4), data=st.data())
    def look_further(self, looks: int, data: st.DataObject) -> None:
        if not self.walks:
            return
        entry = data.draw(st.sampled_from(self.walks))
        filter, walk, found, always = entry
        for topic in always:
            if matches(filter, topic):
                assert walk.will_find(topic) is (topic not in found)
        for message in self.retained.found(walk, looks, self.now):
            assert matches(filter, message.topic) and message is self.model[message.topic]
            found.append(message.topic)
        for topic in [topic for topic, message in self.model.items() if message.expires_at <= self.now]:
            if self.retained.get(topic) is None:
                del self.model[topic]
        if walk.is_done:
            self.walks.remove(entry)
            assert len(found) == len(set(found)), "none twice"
            assert {topic for topic in always if matches(filter, topic)} <= set(found)

    @invariant()
    def note_what_has_gone(self) -> None:
        for _, _, _, always in self.walks:
            always &= {topic for topic, message in self.model.items() if message.expires_at > self.now}

    @rule(step=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, step: float) -> None:
        self.now += step

    @rule()
    def expire(self) -> None:
        gone = [message for message in self.model.values() if message.expires_at <= self.now]
        gone.sort(key=lambda message: (message.expires_at, message.topic))
        assert self.retained.expire(self.now) == gone
        for message in gone:
            del self.model[message.topic]

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.retained) == len(self.model)
        assert self.retained.used == sum(message.size() for message in self.model.values())
        assert all(self.retained.get(topic) is message for topic, message in self.model.items())
        assert self.retained.next_expiry() <= min((m.expires_at for m in self.model.values()), default=NEVER)

    @invariant()
    def the_shape_depends_only_on_the_topics(self) -> None:
        assert self.retained.count_branches() == store_of(*self.model).count_branches()

    def teardown(self) -> None:
        for topic in list(self.model):
            assert self.retained.remove(topic) is not None
        assert len(self.retained) == 0
        assert self.retained.used == 0
        assert self.retained.count_branches() == 0


TestHistories = Histories.TestCase


def test_a_full_store_keeps_what_it_has() -> None:
    retained = Retained(2)
    assert retained.put(Message("a", b"old"))
    assert retained.put(Message("b"))
    assert not retained.put(Message("c", b"too many"))
    assert retained.put(Message("a", b"new!"))
    assert [message.payload for message in retained.match("#", 0.0)] == [b"new!", b""]
    assert retained.used == Message("a", b"new!").size() + Message("b").size()
    assert retained.get("c") is None
    retained.remove("b")
    assert retained.put(Message("c"))


def test_a_lone_topic_needs_no_branches() -> None:
    retained = store_of("a/b/c/d")
    assert retained.count_branches() == 0
    retained.put(Message("a/b/x"))
    assert retained.count_branches() == 2
    retained.put(Message("a"))
    retained.remove("a/b/x")
    assert retained.count_branches() == 1
    assert topics_found(retained, "a/#") == ["a", "a/b/c/d"]


def test_a_topic_expires_at_its_time_and_not_before() -> None:
    retained = Retained(MANY)
    message = Message("a", expires_at=10.0)
    retained.put(message)
    assert retained.match("a", 9.9) == [message]
    assert retained.expire(9.9) == []
    assert retained.next_expiry() == 10.0
    assert retained.match("+", 10.0) == []
    assert len(retained) == 0


def test_expire_reports_each_message_once() -> None:
    retained = Retained(MANY)
    retained.put(Message("a", expires_at=10.0))
    late = Message("a", expires_at=20.0)
    retained.put(late)
    retained.put(Message("b", expires_at=15.0))
    retained.put(Message("b"))
    assert retained.expire(15.0) == []
    assert retained.expire(25.0) == [late]
    assert retained.expire(25.0) == []
    assert retained.next_expiry() == NEVER
    assert len(retained) == 1


def test_busy_topics_do_not_pile_up_expiries() -> None:
    """Published again and again with the same time, with two times in turn, and removed before the time comes."""
    retained = Retained(MANY)
    for turn in range(3_000):
        retained.put(Message("same", expires_at=1e9))
        retained.put(Message("two", expires_at=1e9 + turn % 2))
        retained.put(Message(f"brief/{turn}", expires_at=1e6 + turn))
        retained.remove(f"brief/{turn}")
    # Inside, because memory is the point and nothing outside shows it.
    assert len(retained._expiries) < 100
    assert [message.topic for message in retained.expire(2e9)] == ["same", "two"]


@pytest.mark.parametrize("filter", ["#", "+", "+/#", "a/+", "a/#", "+/x", "a/+/x"])
@pytest.mark.parametrize("seed", range(5))
def test_a_walk_through_large_branches_that_change(filter: str, seed: int) -> None:
    """Branches of hundreds of children, which grow, shrink to nearly nothing and grow again meanwhile."""
    dice = random.Random(seed)
    names = [f"{top}{number}{rest}" for number in range(150) for top in ("", "a/") for rest in ("", "/x", "/y")]
    names += ["$SYS/a", "$SYS/x", "$x"]
    retained = Retained(MANY)
    for topic in dice.sample(names, 500):
        retained.put(Message(topic, b"x"))
    always = {topic for topic in names if retained.get(topic) and matches(filter, topic)}
    walk = retained.walk(filter)
    found: list[str] = []
    while not walk.is_done:
        found += [message.topic for message in retained.found(walk, dice.randrange(1, 9), 0.0)]
        for _ in range(dice.choice((0, 1, 20))):
            topic = dice.choice(names)
            always.discard(topic)
            retained.remove(topic)
            if dice.random() < dice.choice((0.1, 0.9)):
                retained.put(Message(topic, b"x"))
        for topic in dice.sample(sorted(always), min(5, len(always))):
            assert walk.will_find(topic) is (topic not in found)
    assert always <= set(found) <= {topic for topic in names if matches(filter, topic)}
    assert max((found.count(topic) for topic in always), default=1) == 1
    left = [topic for topic in names if retained.get(topic)]
    assert topics_found(retained, filter) == sorted(topic for topic in left if matches(filter, topic))
    assert retained.count_branches() == store_of(*left).count_branches()


@pytest.mark.parametrize("filter", ["#", "+", "+/x", "a/#", "a/+/x"])
def test_a_walk_holds_nothing_that_grows_with_the_topics(filter: str) -> None:
    retained = store_of(*(f"{number}/x" for number in range(500)), *(f"a/{number}/x" for number in range(500)))
    tracemalloc.start()
    try:
        walk = retained.walk(filter)
        for _ in range(100):
            walk.some(1)
        assert tracemalloc.get_traced_memory()[0] < 3_000
    finally:
        tracemalloc.stop()


def test_the_deepest_topics_neither_crash_nor_stay() -> None:
    levels = 32_000
    twins = ["a/" * levels + "x", "a/" * levels + "y", "a/" * levels]
    retained = store_of(*twins)
    assert retained.count_branches() == levels
    for filter in ("#", "a/#", "+/" * levels + "+", "a/" * levels + "#"):
        assert topics_found(retained, filter) == sorted(twins)
    for topic in twins:
        assert retained.remove(topic) is not None
    assert retained.count_branches() == 0
    store_of(*twins)  # freed all at once
