"""What every store of messages promises to those who ask: which messages, in which order, and as of when."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.routing.topics import InvalidTopicFilter
from headwater.store.entry import Entry
from headwater.store.query import Query
from headwater.store.store import Store, TopicStatistics
from tests.contract.conftest import Stores
from tests.routing.strategies import EXAMPLES, filters, topics
from tests.store.kinds import Kind, every_kind
from tests.store.messages import (
    MICROSECONDS,
    NOON,
    Writer,
    asked,
    contents,
    found,
    numbered,
    payload,
    positions,
    queries,
    read,
    topic_matches,
)

# ---- reading -------------------------------------------------------------------------------------------------------


def store_of(store: Store, *topics: str) -> Store:
    Writer(store).write(*topics)
    return store


@every_kind
@pytest.mark.parametrize(("filter", "topic", "expected"), EXAMPLES)
def test_topic_filters_mean_what_they_do_in_a_subscription(
    kind: Kind, filter: str, topic: str, expected: bool, stores: Stores
) -> None:
    # With company, so that there is something to be left out, and often enough to be in blocks and behind them.
    store = store_of(stores.open(kind), *[topic, f"{topic}x", f"x{topic}", "$x"] * 4)
    assert [entry.position for entry in found(store, Query(filter=filter)) if entry.topic == topic] == (
        [1, 5, 9, 13] if expected else []
    )
    assert (topic in [each.topic for each in store.topics(filter)]) is expected


@every_kind
def test_no_filter_is_everything_and_hash_is_not(kind: Kind, stores: Stores) -> None:
    store = store_of(stores.open(kind), *["a", "$SYS/load", "/", "$"] * 5)
    assert positions(store) == list(range(1, 21))
    assert positions(store, Query(filter="#")) == list(range(1, 21, 2))
    assert positions(store, Query(filter="$SYS/#")) == list(range(2, 21, 4))
    assert [each.topic for each in store.topics()] == ["$", "$SYS/load", "/", "a"]
    assert [each.topic for each in store.topics("#")] == ["/", "a"]


@every_kind
def test_a_filter_finds_topics_that_have_come_since_it_was_asked_first(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for number in range(1, 30):
        writer.write(f"t/{number}")
        for filter in ("#", "t/+", f"+/{number}"):
            assert positions(store, Query(filter=filter))[-1] == number
            assert f"t/{number}" in [each.topic for each in store.topics(filter)]


@every_kind
@pytest.mark.parametrize("filter", ["", "a#", "#/a", "a+/b", "a\0"])
def test_wrong_filters_are_refused_at_once(kind: Kind, filter: str, stores: Stores) -> None:
    store = store_of(stores.open(kind), "a")
    with pytest.raises(InvalidTopicFilter):
        store.select(Query(filter=filter))
    with pytest.raises(InvalidTopicFilter):
        store.topics(filter)


@every_kind
def test_who_may_not_read_a_topic_learns_nothing_of_it(kind: Kind, stores: Stores) -> None:
    store = store_of(stores.open(kind), *["open/a", "secret/a", "open/b"] * 6)

    def may_read(topic: str) -> bool:
        return topic.startswith("open/")

    assert {entry.topic for entry in found(store, Query(may_read=may_read))} == {"open/a", "open/b"}
    assert {entry.topic for entry in found(store, Query(filter="+/a", may_read=may_read))} == {"open/a"}
    assert found(store, Query(filter="secret/a", may_read=may_read)) == []
    assert len(found(store, Query(limit=5, may_read=may_read))) == 5
    assert [each.topic for each in store.topics(may_read=may_read)] == ["open/a", "open/b"]
    assert [each.topic for each in store.topics("+/a", may_read)] == ["open/a"]


@every_kind
def test_times_from_a_start_up_to_an_end(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for time in [30, 10, 20, None] * 5:
        writer.take("a", payload(time), arrival=15)
    writer.sync()

    def times(start: int | None, end: int | None) -> set[int]:
        return {entry.time for entry in found(store, Query(start=start, end=end))}

    assert times(None, None) == {10, 15, 20, 30}
    assert times(15, None) == {15, 20, 30}
    assert times(16, 30) == {20}
    assert times(None, 10) == set()
    assert times(20, 20) == times(25, 12) == set()
    assert times(-(10**30), 10**30) == {10, 15, 20, 30}
    assert times(10**30, None) == times(None, -(10**30)) == set()


@every_kind
def test_values_from_the_lowest_to_the_highest(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    bodies = [b"1.5", b'{"value":-3}', b"NaN", b'{"value":1e400}', b'{"value":null}', b"1e308", b'{"value":true}']
    for body in bodies * 5:
        writer.take("a", body)
    writer.sync()

    def values(low: float | None, high: float | None) -> set[float | None]:
        return {entry.value for entry in found(store, Query(low=low, high=high))}

    assert values(None, None) == {None, -3.0, 1.5, 1e308}
    assert values(-3.0, None) == {-3.0, 1.5, 1e308}
    assert values(None, 1.5) == {-3.0, 1.5}
    assert values(1.5, 1.5) == {1.5}
    assert values(2.0, 1.0) == set()
    infinity = float("inf")
    assert values(-infinity, infinity) == {-3.0, 1.5, 1e308}
    assert values(infinity, None) == values(None, -infinity) == set()
    assert values(float("nan"), None) == values(None, float("nan")) == set()


@every_kind
def test_bounds_are_exact_where_neighbours_are_alike(kind: Kind, stores: Stores) -> None:
    """What is known of many messages together must not leave out those that are at its bounds."""
    store = stores.open(kind)
    writer = Writer(store)
    for position in range(100):
        writer.take("ab"[position % 2], payload(position // 20, position // 20))
        if position % 10 == 9:
            writer.sync()
    for number in range(5):
        run = list(range(20 * number + 1, 20 * number + 21))
        for filter, expected in ((None, run), ("#", run), ("a", run[::2]), ("b", run[1::2])):
            query = Query(filter=filter)
            assert positions(store, query._replace(start=number, end=number + 1)) == expected
            assert positions(store, query._replace(low=number, high=number)) == expected
            assert positions(store, query._replace(after=run[0] - 1, before=run[-1] + 1)) == expected


@every_kind
def test_after_before_and_how_many(kind: Kind, stores: Stores) -> None:
    store = store_of(stores.open(kind), *["a", "b"] * 15)

    def at(
        after: int | None = None, before: int | None = None, limit: int | None = None, filter: str | None = None
    ) -> list[int]:
        return positions(store, Query(filter=filter, after=after, before=before, limit=limit))

    everything = list(range(1, 31))
    for after in (0, 1, 6, 7, 8, 29, 30, 31, 10**30):
        assert at(after) == everything[after:]
    for before in (0, 1, 2, 7, 8, 9, 30, 31, 10**30):
        assert at(before=before) == [position for position in everything if position < before]
    for limit in (0, 1, 7, 8, 29, 30, 31, 10**30):
        assert at(limit=limit) == everything[:limit]
    assert at(5, 9) == [6, 7, 8]
    assert at(5, 9, 2) == [6, 7]
    assert at(9, 5) == at(5, 6) == []
    assert at(5, 20, 3, "b") == [6, 8, 10]
    assert at(before=5, limit=3, filter="nothing") == []


@every_kind
@settings(max_examples=40, deadline=None)
@given(
    messages=st.lists(contents(), max_size=60),
    cuts=st.sets(st.integers(0, 60)),
    asked_for=st.lists(queries(60), min_size=1, max_size=12),
)
def test_any_query_finds_what_it_is_about(
    kind: Kind, messages: list[Entry], cuts: set[int], asked_for: list[Query]
) -> None:
    entries = numbered(messages)
    with TemporaryDirectory() as folder:
        store = kind.open(Path(folder) / "store", extraction=MICROSECONDS)
        try:
            writer = Writer(store)
            for entry in entries:
                writer.write_entries([entry])
                if entry.position in cuts:
                    writer.sync()
            writer.sync()
            for query in asked_for:
                assert found(store, query) == asked(entries, query)
        finally:
            store.close()


@every_kind
def test_messages_come_in_chunks_of_bounded_size_in_order(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for number in range(30_000):
        writer.take(f"t/{number % 7}", b"%d" % number)
        if number % 1000 == 999:
            writer.sync()
    for query in (Query(), Query(filter="t/3"), Query(low=10.0), Query(start=NOON, filter="t/+")):
        chunks = list(store.select(query))
        assert max(map(len, chunks)) < 30_000
        assert min(map(len, chunks)) > 0
        joined = numpy.concatenate([chunk.position for chunk in chunks]).tolist()
        assert joined == sorted(joined)
        assert len(joined) == {Query(): 30_000, Query(filter="t/3"): 4286, Query(low=10.0): 29_990}.get(query, 30_000)


@every_kind
def test_a_query_is_of_the_moment_when_it_was_asked(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    writer.write(*"ab" * 10)
    everything, some = store.select(Query()), store.select(Query(filter="a"))
    for _ in range(20):
        writer.write("a", "b")
    assert [entry.position for entry in read(everything)] == list(range(1, 21))
    assert [entry.position for entry in read(some)] == list(range(1, 21, 2))


@every_kind
def test_what_was_read_does_not_change(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    writer.write("a", "b")
    chunks = list(store.select(Query()))
    before = read(chunks)
    for number in range(30):
        writer.write("b", "a", f"new/{number}")
    assert read(chunks) == before


# ---- topics and the latest -----------------------------------------------------------------------------------------


@every_kind
def test_topics_with_counts_and_what_is_first_and_last(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    for time in range(100, 110):
        writer.take("b", payload(time))
        writer.take("é", payload(-time))
        writer.take("a", payload(300 - time))
        writer.sync()
    assert store.topics() == [
        TopicStatistics("a", 10, 3, 30, 200, 191),
        TopicStatistics("b", 10, 1, 28, 100, 109),
        TopicStatistics("é", 10, 2, 29, -100, -109),
    ]
    assert store.topics("b") == [TopicStatistics("b", 10, 1, 28, 100, 109)]
    assert store.topics("nothing") == []
    assert store.statistics().topics == 3


@every_kind
@settings(max_examples=30, deadline=None)
@given(names=st.lists(topics, max_size=40), asked_for=st.lists(filters | topics, min_size=1, max_size=8))
@example(["a/b", "a", "a/", "a0", "a$"], ["#"])
def test_topics_are_those_that_match_in_the_order_of_names(kind: Kind, names: list[str], asked_for: list[str]) -> None:
    with TemporaryDirectory() as folder:
        store = kind.open(Path(folder) / "store")
        try:
            store_of(store, *names)
            for filter in asked_for:
                matching = sorted({name for name in names if topic_matches(filter, name)})
                assert [(each.topic, each.messages) for each in store.topics(filter)] == [
                    (name, names.count(name)) for name in matching
                ]
        finally:
            store.close()


@every_kind
def test_the_latest_of_a_topic_is_the_last_that_came(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    writer = Writer(store)
    expected: dict[str, Entry] = {}
    for number in range(40):
        topic = ["a", "a/b", "+", "$x"][number % 4 if number < 20 else number % 2]
        entry = Entry(number + 1, topic, payload(-number, 2.5), 1, False, "device", -number, NOON, 2.5, b"{}")
        expected[topic] = entry
        writer.write_entries([entry])
        writer.sync()
        for name, latest in expected.items():
            chunk = store.latest(name)
            assert chunk is not None
            assert list(chunk.entries()) == [latest]
    for name in ("b", "#", "", "a/", "A"):
        assert store.latest(name) is None
