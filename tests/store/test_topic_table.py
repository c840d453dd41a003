"""Topics by number and by filter, against the meaning that filters have for subscribers."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.routing.topics import matches
from headwater.store import topic_table as module
from headwater.store.block import sealed
from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.query import Judge
from headwater.store.topic_table import FILTERS, TopicTable, pattern
from tests.routing.strategies import filters, topics
from tests.store.messages import NOON


@given(filters, topics)
@settings(max_examples=500)
def test_a_pattern_means_what_the_filter_means(filter: str, topic: str) -> None:
    assert (re.fullmatch(pattern(filter), topic, re.DOTALL) is not None) == matches(filter, topic)


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        *[("#", "$SYS/a"), ("+/a", "$SYS/a"), ("$SYS/#", "$SYS/a"), ("$SYS/#", "$SYS"), ("a/#", "a"), ("a/#", "ab")],
        *[("+", ""), ("+/+", "/"), ("#", "/"), ("a.c/+", "abc/d"), ("a\n/+", "a\n/b"), ("+", "a\nb"), ("(/+", "(/")],
    ],
)
def test_patterns_at_the_edges(filter: str, topic: str) -> None:
    assert (re.fullmatch(pattern(filter), topic, re.DOTALL) is not None) == matches(filter, topic)


def numbered(table: TopicTable, *names: str) -> list[int]:
    return [table.number(name.encode()) for name in names]


def chunk_of(table: TopicTable, first: int, names: list[str]) -> Chunk:
    """Messages with these topics, one after the other; each is measured as long before noon as its position says."""
    chunk = Chunk.of(
        [Entry(at, name, b"", 0, False, "device", NOON - at, NOON, None) for at, name in enumerate(names, first)]
    )
    chunk.topic = numpy.array(numbered(table, *names), numpy.int32)
    chunk.names = table.names
    return chunk


@given(st.lists(topics, max_size=30), filters | topics, st.integers(0, 30))
@settings(max_examples=200)
def test_the_topics_that_match_whenever_they_came(names: list[str], filter: str, asked_after: int) -> None:
    table = TopicTable()
    for count, name in enumerate(names):
        if count == asked_after:
            table.matching(filter, None)
        table.number(name.encode())
    found = table.matching(filter, None)
    assert found is not None
    expected = {number for name in names for number in numbered(table, name) if matches(filter, name)}
    assert found.tolist() == sorted(expected)
    assert found.dtype == numpy.int32


def test_none_is_all_and_who_may_not_read_some_is_given_the_others() -> None:
    table = TopicTable()
    numbered(table, "b", "a", "c")
    assert table.matching(None, None) is None
    for filter in (None, "#", "+"):
        assert table.matching(filter, "b".__ne__).tolist() == [1, 2]  # type: ignore[union-attr]
    assert table.matching("b", "b".__ne__).tolist() == []  # type: ignore[union-attr]
    assert table.matching("d", None).tolist() == []  # type: ignore[union-attr]


def test_few_filters_are_remembered() -> None:
    table = TopicTable()
    for count in range(2 * FILTERS):
        table.matching(f"+/{count}", None)
    assert len(table._matching) == FILTERS


def test_not_too_many_topics_of_filters_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.topic_table.REMEMBERED", 10)
    table = TopicTable()
    numbered(table, *(f"{level}/x" for level in "abcd"))
    for filter in ("+/x", "a/+", "b/+", "#", "+/#", "a/+", "c/#"):
        table.matching(filter, None)
    assert list(table._matching) == ["#", "+/#", "a/+", "c/#"]
    numbered(table, *map(str, range(20)))
    for filter in ("c/#", "#", "a/+"):
        known = table.matching(filter, None)
        assert known is not None and len(known) == {"c/#": 1, "#": 24, "a/+": 1}[filter]
    assert list(table._matching) == ["a/+"]


def test_a_topic_that_comes_again_has_another_number() -> None:
    table = TopicTable()
    assert numbered(table, "a", "b", "a") == [0, 1, 0]
    table.drop([0])
    assert numbered(table, "a", "b") == [2, 1]
    assert table.names == ["", "b", "a"]


def test_restored_numbers_may_have_gaps() -> None:
    table = TopicTable()
    table.restore(2, b"a")
    table.restore(5000, b"b")
    assert numbered(table, "a", "b", "c") == [2, 5000, 5001]
    assert len(table.messages) > 5001


@given(st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6), max_size=8), st.integers(0, 8))
@settings(deadline=None)
def test_what_there_is_of_each_topic(commits: list[list[str]], removed: int) -> None:
    """Some come as messages and some as a block; the first blocks go."""
    table = TopicTable()
    rows: list[tuple[int, str]] = []
    extents = []
    for names in commits:
        first = len(rows) + 1
        chunk = chunk_of(table, first, names)
        extent = sealed(chunk).extent
        extents.append((extent, len(names)))
        if first % 2:
            table.add(chunk)
        else:
            table.add_extent(extent)
        rows += list(enumerate(names, first))
    for extent, _ in extents[:removed]:
        table.remove_extent(extent)
    gone = sum(length for _, length in extents[:removed])
    for name in "abcde":
        number = table.number(name.encode())
        of_it = [position for position, topic in rows if topic == name]
        left = [position for position in of_it if position > gone]
        assert table.messages[number] == len(left)
        assert table.unused([number]) == ([] if left else [number])
        if of_it:
            assert (table.first[number], table.first_time[number]) == (of_it[0], NOON - of_it[0])
            assert (table.last[number], table.last_time[number]) == (of_it[-1], NOON - of_it[-1])


def test_a_block_with_unknown_topics_is_damaged() -> None:
    other = TopicTable()
    extent = sealed(chunk_of(other, 1, ["a", "b"])).extent
    table = TopicTable()
    table.number(b"a")
    with pytest.raises(StorageError, match="unknown topics"):
        table.add_extent(extent)


def test_threads_that_ask_while_topics_come_miss_none_that_was_there() -> None:
    table = TopicTable()
    missed: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            there = len(table.names)
            found = table.matching("t/+", None)
            assert found is not None
            if found.tolist()[:there] != list(range(there)):
                missed.append(there)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for count in range(3000):
        table.number(b"t/%d" % count)
    over.set()
    for thread in threads:
        thread.join()
    assert missed == []


def test_the_names_of_topics_that_are_dropped_do_not_stay() -> None:
    table = TopicTable()
    for name in (b"a", b"b", b"c"):
        table.number(name)
    before = table.names
    table.drop([0, 2])
    assert table.names == ["", "b", ""]
    assert before == ["a", "b", "c"]  # who reads goes on with these
    assert table.number(b"a") == 3
    assert table.names[3] == "a"


def test_a_page_of_names_costs_what_is_on_it() -> None:
    table = TopicTable()
    for number in range(3000):
        table.number(b"t/%04d" % number)
    table.messages[:3000] = 1
    asked: list[str] = []

    def may_read(name: str) -> bool:
        asked.append(name)
        return True

    for filter, after, found in (
        (None, "", ["t/0000"]),
        (None, "t/1234", ["t/1235"]),
        ("t/+", "t/2000", ["t/2001"]),
        ("#", "a", ["t/0000"]),
    ):
        assert table.page(filter, may_read, after, 1) == (found, True)
        assert len(asked) <= 2
        asked.clear()
    assert table.page("t/2999", may_read, "", 1) == (["t/2999"], False)
    assert asked == ["t/2999"]


def test_names_that_come_and_go_between_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHANGES", 3)
    table = TopicTable()

    def come(*names: bytes) -> None:
        numbers = [table.number(name) for name in names]
        table.messages[numbers] = 1

    def go(*names: bytes) -> None:
        numbers = [table.numbers[name] for name in names]
        table.messages[numbers] = 0
        table.drop(numbers)

    def listed() -> list[str]:
        return table.page(None, None, "", 100)[0]

    come(b"b", b"a")
    assert listed() == ["a", "b"]
    go(b"a")
    come(b"c", b"a")
    assert listed() == ["a", "b", "c"]
    come(*[b"%d" % number for number in range(9)])  # more than is noted
    go(b"c", b"5")
    assert listed() == [*"01234678", "a", "b"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_topics_with_messages_are_counted_as_they_come_and_go(steps: list[tuple[str, bool]]) -> None:
    """Messages come one behind the other, in blocks or not, and go from the front."""
    table = TopicTable()
    kept: list[tuple[Chunk, bool]] = []
    for at, (name, goes) in enumerate(steps, 1):
        if goes and kept:
            chunk, is_block = kept.pop(0)
            if is_block:
                table.remove_extent(sealed(chunk).extent)
            else:
                table.remove(chunk)
        chunk = chunk_of(table, 3 * at, [name, name, "g"][: 1 + at % 3])
        kept.append((chunk, at % 2 == 0))
        if at % 2 == 0:
            table.add_extent(sealed(chunk).extent)
        else:
            table.add(chunk)
        assert table.used == numpy.count_nonzero(table.messages)
    table.remove_all()
    assert table.used == numpy.count_nonzero(table.messages) == 0


@given(st.lists(topics, max_size=30), filters | st.none(), st.integers(1, 8), st.sets(st.integers(0, 29)))
def test_who_is_judged_elsewhere_gets_the_same_with_fewer_questions(
    names: list[str], filter: str | None, limit: int, forbidden: set[int]
) -> None:
    table = TopicTable()
    for at, name in enumerate(names, 1):
        table.add(chunk_of(table, at, [name]))
    secret = {name for at, name in enumerate(names) if at in forbidden}
    asked: list[str] = []

    def each(topics: Sequence[str]) -> list[bool]:
        asked.extend(topics)
        return [topic not in secret for topic in topics]

    judge = Judge(lambda topic: pytest.fail("asked one by one"), each)
    alone = table.matching(filter, lambda topic: topic not in secret)
    together = table.matching(filter, judge)
    assert alone is not None and together is not None
    assert together.tolist() == alone.tolist()
    assert len(asked) == len(set(asked)), "each once"
    after, found = "", []
    while True:
        page, more = table.page(filter, judge, after, limit)
        assert (page, more) == table.page(filter, lambda topic: topic not in secret, after, limit)
        found += page
        if not more:
            break
        after = page[-1]
    assert found == sorted({table.names[number] for number in together.tolist()})
