"""A session of Spark on this machine, with our source and our sink: what they are for, once through."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from headwater.pipeline.lake.log import Log
from headwater.pipeline.source.progress import Behind, MetricsListener, behind, with_metrics
from headwater.store.columns import COLUMNS
from headwater.store.query import Query
from headwater.store.reader import StoreReader
from tests.pipeline.lake.some_rows import contents
from tests.pipeline.source.some_stores import WatchedStore, fill, names, span
from tests.spark_of_the_process import borrowed
from tests.store.messages import NOON, SECOND, payload
from tests.store.rest.served import EVERYTHING, Served, serving

PATIENCE = 120
TOPICS = ["a", "a/b", "a/b/c", "a/b%", "a/b_c", "a/bxc", "ab", "$SYS/x", "ü/日", "it's"]


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


@pytest.fixture
def stores() -> Iterator[tuple[Served, Served]]:
    with serving(WatchedStore("s1")) as first, serving(WatchedStore("s2")) as second:
        yield first, second


def options(*servers: Served, **more: object) -> dict[str, str]:
    given = {"url": ",".join(each.url for each in servers), "token": EVERYTHING, "waitForStore": 30, **more}
    return {name: str(value) for name, value in given.items()}


# ---- conditions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixed:
    """Two stores with topics of all kinds, whose times are not in order; and all that is in them."""

    spark: SparkSession
    servers: tuple[Served, Served]
    rows: list[Any]

    def load(self, **more: str) -> DataFrame:
        return self.spark.read.format("headwater").options(**options(*self.servers, **more)).load()

    def asked(self) -> list[Query]:
        """Of both, since the last time."""
        stores = [each.store for each in self.servers]
        found = [query for store in stores if isinstance(store, WatchedStore) for query in store.asked]
        for store in stores:
            store.asked.clear()  # type: ignore[attr-defined] # they are watched
        return found


@pytest.fixture(scope="module")
def mixed(spark: SparkSession) -> Iterator[Mixed]:
    with serving(WatchedStore("s1")) as first, serving(WatchedStore("s2")) as second:
        for served, step in ((first, 7), (second, 11)):
            for number in range(40):
                moment, arrival = NOON + number * step % 40 * SECOND, NOON + number // 3 * SECOND
                served.writer.take(TOPICS[number % len(TOPICS)], payload(moment), arrival=arrival)
            served.writer.sync()
        yield Mixed(spark, (first, second), Mixed(spark, (first, second), []).load().collect())


def test_the_source_gives_all_columns_with_their_types(mixed: Mixed) -> None:
    assert mixed.load().dtypes == [("store", "string"), *((each.name, each.type) for each in COLUMNS)]
    assert sorted((row.store, row.position) for row in mixed.rows) == span("s1", 1, 40) + span("s2", 1, 40)


def test_that_java_goes_first_is_no_news(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    server: Any = getattr(spark.sparkContext, "_accumulatorServer")  # noqa: B009 # it is not typed
    for error, words in (
        (EOFError(), ""),
        (ConnectionResetError(), ""),
        (ValueError("of ours"), "ValueError: of ours"),
    ):
        try:
            raise error
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
        said = capfd.readouterr().err
        assert words in said
        assert bool(words) == bool(said)


def test_queries_of_a_dataframe_do_not_mix(mixed: Mixed) -> None:
    source = mixed.load()
    assert source.where("topic = 'a'").count() == 8
    assert source.count() == 80
    assert source.where("topic = 'a'").union(source.where("position > 38")).count() == 8 + 4
    assert source.where("1 = 0 and position > 3").count() == source.where("position > 50").count() == 0


moments = st.integers(-1, 41).map(lambda s: f"timestamp'2025-10-09 08:53:20Z' + interval {s} seconds")
comparisons = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
texts = st.sampled_from([*TOPICS, "a/", "a/b/", "ü/", "/", "", "+", "a/+", "#"]).map(
    lambda text: text.replace("'", "\\'")
)
conditions = st.one_of(
    st.builds("topic = '{}'".format, texts),
    st.builds("topic like '{}%'".format, texts),
    st.builds("topic like '{}_%'".format, texts),
    st.builds("startswith(topic, '{}')".format, texts),
    st.builds("topic in ('{}', '{}')".format, texts, texts),
    st.builds("store {} 's{}'".format, comparisons, st.integers(1, 3)),
    st.builds("position {} {}".format, comparisons, st.integers(-1, 42)),
    st.builds("{} {} {}".format, st.sampled_from(["time", "arrival"]), comparisons, moments),
    st.builds("time between {} and {}".format, moments, moments),
)
joined = st.lists(conditions, min_size=1, max_size=4).map(" and ".join) | st.builds(
    "({} or {}) and not ({})".format, conditions, conditions, conditions
)


@given(joined)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_conditions_give_what_a_full_read_gives(mixed: Mixed, condition: str) -> None:
    source = mixed.load(pushdown="true")
    plain = mixed.spark.createDataFrame(mixed.rows, source.schema)
    assert sorted(source.where(condition).collect()) == sorted(plain.where(condition).collect())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_are_the_same_in_every_zone(mixed: Mixed, zone: str) -> None:
    mixed.asked()
    mixed.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        span = "time >= timestamp'2025-10-09 08:53:30Z' and time < timestamp'2025-10-09 08:53:40Z'"
        assert mixed.load(pushdown="true").where(span).count() == 20
    finally:
        mixed.spark.conf.set("spark.sql.session.timeZone", "UTC")
    bounds = (NOON + 10 * SECOND, NOON + 20 * SECOND)
    assert [(query.start, query.end) for query in mixed.asked()] == [bounds, bounds]


def test_conditions_reach_the_store(mixed: Mixed) -> None:
    mixed.asked()
    found = mixed.load(pushdown="true").where("topic = 'a/b%' and position > 20 and store = 's2'")
    assert found.count() == 2
    [query] = mixed.asked()
    assert (query.filter, query.after, query.before) == ("a/b%", 20, 41)


def test_columns_that_one_names_are_all_there_is(spark: SparkSession, stores: tuple[Served, Served]) -> None:
    fill(stores[0], 3)
    reading = spark.read.format("headwater").options(**options(stores[0]))
    found = reading.schema("position bigint, topic string").load()
    assert found.columns == ["position", "topic"]
    assert sorted(map(tuple, found.collect())) == [(1, "a/1"), (2, "a/2"), (3, "a/0")]


@pytest.mark.parametrize(
    ("more", "said"),
    [({"token": "nobody"}, "show a token"), ({"topik": "a"}, "did you mean 'topic'?"), ({"from": "x"}, "is a time")],
)
def test_what_is_wrong_is_said_through_spark(
    spark: SparkSession, stores: tuple[Served, Served], more: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("headwater").options(**{**options(stores[0]), **more}).load().count()
    assert said in str(error.value)


# ---- streams into bronze -------------------------------------------------------------------------------------------


def land(spark: SparkSession, folder: Path, given: dict[str, str], **trigger: Any) -> StreamingQuery:
    messages = spark.readStream.format("headwater").options(**given).load()
    writer = messages.withColumn("day", f.to_date("arrival")).writeStream.format("headwater-delta")
    writer = writer.options(
        app="bronze", table="bronze", byPosition="true", checkpointLocation=str(folder / "checkpoint")
    )
    return writer.trigger(**trigger).start(str(folder / "bronze"))


def wait_until(query: StreamingQuery, condition: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


def check(folder: Path, *servers: Served) -> None:
    """Bronze has every message of the stores once, as it is there."""
    expected = []
    for served in servers:
        for batch in StoreReader(served.url, token=EVERYTHING).read(dictionaries=False):
            expected += [{"store": served.store.id, **row, "day": row["arrival"].date()} for row in batch.to_pylist()]
    found = contents(folder / "bronze")
    assert names(found) == names(expected)
    assert found == expected


def test_a_query_that_is_stopped_goes_on_and_one_without_its_checkpoint_too(
    spark: SparkSession, stores: tuple[Served, Served], tmp_path: Path
) -> None:
    one, two = stores
    fill(one, 60)
    fill(two, 30)
    given = options(one, two, maxRowsPerTrigger=10, rowsPerPartition=4, reader="lake")
    log = Log(tmp_path / "bronze", "day")

    query = land(spark, tmp_path, given, processingTime="0 seconds")
    wait_until(query, lambda: log.exists() and (log.batch("bronze") or 0) >= 2)
    query.stop()
    landed = sum(log.positions("bronze").values())
    assert landed >= 30

    fill(one, 20)
    query = land(spark, tmp_path, given, availableNow=True)
    assert query.awaitTermination(PATIENCE)
    check(tmp_path, one, two)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(sizes) <= 10 and sum(sizes) in (110 - landed, 110 - landed + 10)  # the last batch may be repeated
    assert one.store.reader("lake").position > 40
    assert behind(query.lastProgress, given) == Behind({"s1": 0, "s2": 0}, 0.0)

    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    fill(two, 15)
    known = json.dumps(log.positions("bronze"))
    query = land(spark, tmp_path, {**given, "startingOffsets": known}, availableNow=True)
    assert query.awaitTermination(PATIENCE)
    check(tmp_path, one, two)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 15


def test_a_query_that_begins_anew_over_its_table_is_refused(
    spark: SparkSession, stores: tuple[Served, Served], tmp_path: Path
) -> None:
    fill(stores[0], 10)
    land(spark, tmp_path, options(stores[0]), availableNow=True).awaitTermination(PATIENCE)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    fill(stores[0], 5)
    query = land(spark, tmp_path, options(stores[0]), availableNow=True)
    with pytest.raises(PySparkException, match=r"s1 up to position 10.*startingOffsets"):
        query.awaitTermination(PATIENCE)
    assert [position for _, position in names(contents(tmp_path / "bronze"))] == list(range(1, 11))
    assert len(list((tmp_path / "bronze").rglob("*.parquet"))) == 1


# ---- as users of Kafka's source know it ----------------------------------------------------------------------------


def test_declared_columns_headers_and_metrics(spark: SparkSession, tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    with serving(WatchedStore("s1")) as served:
        for number in range(6):
            body = json.dumps({"value": number / 2, "unit": "C"}).encode()
            served.writer.take("a", body, arrival=NOON + number * SECOND, properties=b'{"user":[["k","v"]]}')
        served.writer.sync()
        given = options(
            served,
            payloadSchema="value double, unit string",
            payloadColumn="data",
            includeHeaders=True,
            maxOffsetsPerTrigger=4,
        )
        listener = MetricsListener(heard.append)
        spark.streams.addListener(listener)
        try:
            query = (
                spark.readStream.format("headwater")
                .options(**given)
                .load()
                .selectExpr("data.value as value", "data.unit as unit", "headers[0].key as key")
                .writeStream.format("memory")
                .queryName("declared")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            query.processAllAvailable()
            until = time.monotonic() + PATIENCE
            while sum(each["numInputRows"] for each in heard) < 6 and time.monotonic() < until:
                time.sleep(0.05)
            query.stop()
        finally:
            spark.streams.removeListener(listener)
    found = sorted(map(tuple, spark.table("declared").collect()))
    assert found == [(number / 2, "C", "k") for number in range(6)]
    behind_by = [each["sources"][0]["metrics"]["maxOffsetsBehindLatest"] for each in heard if each["numInputRows"]]
    assert behind_by == ["2", "0"]
    assert with_metrics(query.lastProgress)["sources"][0]["metrics"]["offsetsBehindLatest.s1"] == "0"
