"""Batch reads: what is there now, or a part; and conditions, which stores answer as Spark would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headwater.pipeline.options import OptionError
from headwater.pipeline.source import HeadwaterSource
from headwater.pipeline.source.datasource import PushingReader, Reader
from headwater.pipeline.source.settings import WAIT_FOR_BATCH, WAIT_FOR_STORE
from headwater.pipeline.source.stores import DataLoss
from headwater.store.reader import Refused, Unreachable
from tests.pipeline.source.some_stores import EXPIRED, WatchedStore, batch, fill, names, rows, span
from tests.store.messages import NOON, SECOND, payload, topic_matches
from tests.store.rest.served import EVERYTHING, Served, serving

NOON_TIME = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NOON)
TOPICS = ["a", "a/b", "a/b/c", "a/bc", "a/b%", "a/b_c", "ab", "/a", "/", "$SYS/x", "a/", "ü/日", "A/B"]
MESSAGES = 60


def read(*servers: Served, **options: Any) -> list[tuple[str, int]]:
    reader = batch(*servers, **options)
    return names(rows(reader, list(reader.partitions())))


def asked(served: Served) -> list[Any]:
    assert isinstance(served.store, WatchedStore)
    return served.store.asked


# ---- offsets and options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, span("s1", 1, 10) + span("s2", 1, 4)),
        ({"store": "s2"}, span("s2", 1, 4)),
        ({"store": "s9"}, []),
        ({"startingOffsets": '{"s1": 7}', "endingOffsets": '{"s1": 9, "s2": 2}'}, span("s1", 8, 9) + span("s2", 1, 2)),
        ({"startingOffsets": '{"s1": 7}', "endingOffsets": '{"s1": 7}', "store": "s1"}, []),
        ({"startingOffsets": '{"s1": 9}', "endingOffsets": '{"s1": 7}', "store": "s1"}, []),
        ({"startingOffsets": '{"s1": 9}', "endingOffsets": '{"s1": 700}', "store": "s1"}, span("s1", 10, 10)),
        ({"startingOffsets": "latest"}, []),
        ({"endingOffsets": "earliest"}, []),
        (
            {"startingOffsets": "2025-10-09T08:53:22Z", "endingOffsets": "2025-10-09T08:53:24Z"},
            span("s1", 2, 3) + span("s2", 2, 3),
        ),
        ({"topic": "a/+", "from": "2025-10-09T08:52:29Z"}, span("s1", 9, 10)),
        ({"topic": "b/#"}, []),
    ],
)
def test_what_is_read(one: Served, two: Served, options: dict[str, str], expected: list[tuple[str, int]]) -> None:
    fill(one, 10)
    fill(two, 4)
    assert read(one, two, **options) == expected


def test_what_retention_left_is_everything_unless_more_was_asked_for(
    one: Served, caplog: pytest.LogCaptureFixture
) -> None:
    fill(one, 10)
    one.store.trim(EXPIRED)
    fill(one, 3)
    assert read(one) == span("s1", 11, 13)
    assert read(one, startingOffsets="2000-01-01") == span("s1", 11, 13)
    with pytest.raises(DataLoss, match="positions 5 to 10"):
        read(one, startingOffsets='{"s1": 4}')
    assert read(one, startingOffsets='{"s1": 4}', failOnDataLoss="false") == span("s1", 11, 13)
    assert "positions 5 to 10" in caplog.text


def test_every_store_has_to_answer(one: Served, mortal: Served) -> None:
    reader, url = batch(one, mortal), mortal.url
    mortal.stop()
    with pytest.raises(Unreachable, match=url):
        reader.partitions()


def test_offsets_of_a_store_that_is_nowhere_are_an_error(one: Served) -> None:
    fill(one, 5)
    with pytest.raises(OptionError, match=r"startingOffsets names the store s9, .* there are s1"):
        read(one, startingOffsets='{"s9": 5}')
    with pytest.raises(OptionError, match=r"endingOffsets names the store s9"):
        read(one, endingOffsets='{"s9": 5}')


def test_batch_reads_wait_for_a_store_for_a_short_while_only() -> None:
    reader = HeadwaterSource({"url": "http://127.0.0.1:9"}).reader(StructType([]))
    assert reader.settings.patience == WAIT_FOR_BATCH < WAIT_FOR_STORE
    stream = HeadwaterSource({"url": "http://127.0.0.1:9"}).streamReader(StructType([]))
    assert stream.settings.patience == WAIT_FOR_STORE
    chosen = HeadwaterSource({"url": "http://127.0.0.1:9", "waitForStore": "3"}).reader(StructType([]))
    assert chosen.settings.patience == 3.0


def test_where_nothing_is_to_be_read_spark_makes_a_partition_of_its_own(one: Served) -> None:
    assert list(batch(one).read(InputPartition(None))) == []


def test_conditions_are_pushed_only_if_one_wants() -> None:
    """As long as Spark keeps them for other queries."""
    for said, kind in ({}, Reader), ({"pushdown": "false"}, Reader), ({"pushdown": "true"}, PushingReader):
        reader = HeadwaterSource({"url": "http://localhost:1", **said}).reader(StructType([]))
        assert type(reader) is kind


def test_who_may_not_ask_is_told(one: Served) -> None:
    with pytest.raises(Refused, match="show a token"):
        read(one, token="nobody")


# ---- columns -------------------------------------------------------------------------------------------------------


def chosen(*columns: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, type) for name, type in columns])


def test_only_the_columns_of_the_users_schema(one: Served) -> None:
    fill(one, 2)
    source = HeadwaterSource({"url": one.url, "token": EVERYTHING})
    reader = source.reader(chosen(("topic", StringType()), ("position", LongType())))
    [partition] = reader.partitions()
    [found] = reader.read(partition)
    assert found.to_pylist() == [{"topic": "a/1", "position": 1}, {"topic": "a/2", "position": 2}]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (("positoin", LongType()), "unknown column 'positoin' of format('headwater'); did you mean 'position'?"),
        (("position", StringType()), "'position' is bigint, not string; cast it later"),
    ],
)
def test_columns_that_there_are_not_are_an_error(column: tuple[str, Any], said: str) -> None:
    source = HeadwaterSource({"url": "http://localhost:1"})
    for make in (source.reader, source.streamReader):
        with pytest.raises(OptionError) as error:
            make(chosen(column))
        assert said in str(error.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match=r"endingOffsets is for spark.read"):
        HeadwaterSource({"url": "http://localhost:1", "endingOffsets": "2026-01-01"}).streamReader(StructType([]))


# ---- conditions ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed() -> Iterator[tuple[Served, Served]]:
    """Two stores with topics of all kinds, whose times are not in order."""
    with serving(WatchedStore("s1")) as first, serving(WatchedStore("s2")) as second:
        for served, step in ((first, 7), (second, 11)):
            for number in range(MESSAGES):
                time = NOON + number * step % 40 * SECOND
                arrival = NOON + number // 3 * SECOND
                served.writer.take(TOPICS[number % len(TOPICS)], payload(time), arrival=arrival)
            served.writer.sync()
        yield first, second


Row = dict[str, Any]
COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
    IsNotNull: lambda found, _: found is not None,
    StringStartsWith: lambda found, value: found.startswith(value),
    StringEndsWith: lambda found, value: found.endswith(value),
    StringContains: lambda found, value: value in found,
}


def meets(condition: Filter, row: Row) -> bool:
    """As Spark has it."""
    if isinstance(condition, Not):
        return not meets(condition.child, row)
    [column] = condition.attribute  # type: ignore[attr-defined] # all others have it
    return COMPARISONS[type(condition)](row[column], getattr(condition, "value", None))


moments = st.integers(-2_000_000, 42_000_000).map(lambda tick: NOON_TIME + timedelta(microseconds=tick)) | st.integers(
    -1, 41
).map(lambda s: NOON_TIME + timedelta(seconds=s))
extremes = st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
bounds = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualNullSafe])
topics = st.sampled_from([*TOPICS, "a/+", "#", "", "no", "a\0", "x" * 2000, "/".join("abc" * 50)])
conditions = st.one_of(
    st.builds(EqualTo, st.just(("topic",)), topics),
    st.builds(StringStartsWith, st.just(("topic",)), topics | topics.map(lambda topic: topic[:2])),
    st.builds(lambda kind, topic: kind(("topic",), topic), st.sampled_from([StringEndsWith, StringContains]), topics),
    st.builds(EqualTo, st.just(("store",)), st.sampled_from(["s1", "s2", "s9"])),
    st.builds(lambda kind, at: kind(("time",), at), bounds, moments | extremes),
    st.builds(lambda kind, at: kind(("arrival",), at), bounds, moments | extremes),
    st.builds(lambda kind, at: kind(("position",), at), bounds, st.integers(-2, 63) | st.just((1 << 63) - 1)),
    st.builds(In, st.just(("position",)), st.just((3, 5))),
    st.just(IsNotNull(("topic",))),
)
conditions |= conditions.map(Not)


@given(
    st.lists(conditions, max_size=4),
    st.none() | st.sampled_from(["a/#", "+/b", "a/b", "#", "$SYS/#"]),
    st.none() | st.sampled_from(["s1", "s2"]),
    st.none() | moments,
    st.none() | moments,
)
@settings(max_examples=150, deadline=None)
def test_conditions_mean_what_they_mean_to_spark(
    mixed: tuple[Served, Served],
    filters: list[Filter],
    topic: str | None,
    store: str | None,
    start: datetime | None,
    end: datetime | None,
) -> None:
    if start is not None and end is not None and start >= end:
        end = start + timedelta(seconds=5)
    said = {"topic": topic, "store": store, "from": start and start.isoformat(), "to": end and end.isoformat()}
    reader = batch(*mixed, rowsPerPartition=25, **{name: value for name, value in said.items() if value is not None})
    left = list(reader.pushFilters(filters))
    found = [row for row in rows(reader, list(reader.partitions())) if all(meets(each, row) for each in left)]
    expected = [
        row
        for row in everything(*mixed)
        if all(meets(each, row) for each in filters)
        and topic_matches(topic, row["topic"])
        and store in (None, row["store"])
        and (start is None or row["time"] >= start)
        and (end is None or row["time"] < end)
    ]
    assert found == expected


def everything(*servers: Served) -> list[Row]:
    if not EVERY_ROW:
        reader = batch(*servers)
        EVERY_ROW.extend(rows(reader, list(reader.partitions())))
    return EVERY_ROW


EVERY_ROW: list[Row] = []
at = partial(datetime, 2025, 10, 9, 8, 53, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "left", "question"),
    [
        ([EqualTo(("topic",), "a/b%")], 0, {"filter": "a/b%"}),
        ([StringStartsWith(("topic",), "a/b")], 1, {"filter": "a/#"}),
        ([StringStartsWith(("topic",), "a/b"), EqualTo(("topic",), "a/bc")], 1, {"filter": "a/bc"}),
        ([StringStartsWith(("topic",), "/")], 1, {"filter": "/#"}),
        ([StringStartsWith(("topic",), "a")], 1, {"filter": None}),
        ([GreaterThanOrEqual(("time",), at(30))], 0, {"start": NOON + 10 * SECOND, "end": None}),
        ([LessThanOrEqual(("time",), at(30))], 0, {"start": None, "end": NOON + 10 * SECOND + 1}),
        ([GreaterThan(("position",), 5), LessThan(("position",), 9)], 0, {"after": 5, "before": 9}),
        ([EqualTo(("position",), 5)], 0, {"after": 4, "before": 6}),
        ([GreaterThanOrEqual(("arrival",), at(22)), LessThan(("arrival",), at(24))], 0, {"after": 6, "before": 13}),
        ([EqualTo(("store",), "s2"), GreaterThan(("position",), 58)], 0, None),
    ],
)
def test_conditions_reach_the_store(
    mixed: tuple[Served, Served], filters: list[Filter], left: int, question: dict[str, Any] | None
) -> None:
    reader = batch(*mixed)
    assert len(list(reader.pushFilters(filters))) == left
    partitions = list(reader.partitions())
    asked(mixed[0]).clear()
    rows(reader, partitions)
    if question is None:
        assert asked(mixed[0]) == []
    else:
        [query] = asked(mixed[0])
        assert {name: getattr(query, name) for name in question} == question


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("topic",), "a"), EqualTo(("topic",), "ab")],
        [EqualTo(("store",), "s1"), EqualTo(("store",), "s2")],
        [GreaterThan(("time",), at(30)), LessThan(("time",), at(20))],
        [EqualTo(("arrival",), at(21)), EqualTo(("arrival",), at(22))],
        [GreaterThan(("position",), 5), LessThan(("position",), 6)],
    ],
)
def test_for_contradictions_nobody_is_asked(filters: list[Filter]) -> None:
    reader = batch(url="http://127.0.0.1:9")
    assert list(reader.pushFilters(filters)) == []
    assert list(reader.partitions()) == []
