"""A fleet's day: what it promises to hold, and that the pipeline finds in it what is true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.derive.completeness import completeness, holes
from headwater.pipeline.derive.gold import gold
from headwater.pipeline.derive.late import late
from headwater.pipeline.derive.latest import latest
from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.derive.traffic import traffic
from headwater.pipeline.tables import BRONZE
from headwater.store.extract import Extraction
from headwater.store.intake import Taken
from headwater_lab.fleet_day import MICROSECONDS, START, Plan, batches, topic_of, turns
from headwater_lab.fleet_day_payloads import EMPTY, PLAIN
from headwater_lab.fleet_day_truth import Truth, truth
from tests.spark_of_the_process import borrowed

SMALL = Plan(
    devices=60,
    seconds=7200,
    period=20,
    stores=3,
    seed=5,
    longest_kept=2400.0,
    silent=0.1,
    kept=0.2,
    wrong_clocks=0.1,
    still=0.05,
    moving=0.1,
    cut_off=(1800.0, 5400.0),
    spikes=0.003,
    broken=0.02,
    huge=0.0005,
    repeated=0.02,
)
SETTINGS = Settings(window=300, lateness=600.0, gap=65.0, flatline=8, jump_factor=15.0, clock_ahead=120.0)
Tables = tuple[pa.Table, pa.Table]
RANGE = (datetime(1990, 1, 1, tzinfo=UTC), datetime(2110, 1, 1, tzinfo=UTC))
DAY = tuple(datetime.fromtimestamp(START / MICROSECONDS + at, UTC) for at in (0, 10_800))


@pytest.fixture(scope="module")
def day() -> list[pa.RecordBatch]:
    return list(batches(SMALL))


@pytest.fixture(scope="module")
def bronze(day: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(day)


@pytest.fixture(scope="module")
def true() -> Truth:
    return truth(SMALL, SETTINGS)


# ---- the day -----------------------------------------------------------------------------------------------------


def test_times_and_values_are_what_the_store_extracts_from_the_payloads(bronze: pa.Table) -> None:
    taken = Taken(1)
    taken.payloads = bronze["payload"].to_pylist()
    taken.arrivals = bronze["arrival"].cast(pa.int64()).to_pylist()
    times, values = Extraction().columns(taken)
    assert times == bronze["time"].cast(pa.int64()).to_pylist()
    assert [None if value != value else value for value in values] == bronze["value"].to_pylist()


def test_rows_are_bronze(bronze: pa.Table) -> None:
    assert tuple(bronze.column_names) == BRONZE.names
    assert [each.name for each in BRONZE.columns if not each.nullable and bronze[each.name].null_count] == []
    assert bronze["day"].to_pylist() == [arrival.date() for arrival in bronze["arrival"].to_pylist()]


def test_positions_of_a_store_have_no_gaps_and_its_arrivals_never_go_back(bronze: pa.Table) -> None:
    for store in ("store-00", "store-01", "store-02"):
        own = bronze.filter(pc.equal(bronze["store"], store))
        assert own["position"].to_pylist() == list(range(1, own.num_rows + 1))
        assert own.num_rows > 1000
        assert all(before <= after for before, after in pairwise(own["arrival"].to_pylist()))


def test_the_same_plan_makes_the_same_day_and_another_seed_does_not(bronze: pa.Table) -> None:
    again, other = (pa.Table.from_batches(batches(plan)) for plan in (SMALL, replace(SMALL, seed=6)))
    assert again.equals(bronze)
    assert not other.equals(bronze)


def test_the_store_that_is_cut_off_comes_later_and_the_others_do_not_wait(day: list[pa.RecordBatch]) -> None:
    seen = START
    waits = dict.fromkeys(("store-00", "store-01", "store-02"), 0)
    for batch in day:
        store, last = batch["store"][0].as_py(), batch["arrival"].cast(pa.int64())[-1].as_py()
        waits[store] = max(waits[store], seen - last)
        seen = max(seen, last)
    assert waits["store-02"] > 3000 * MICROSECONDS
    assert max(waits["store-00"], waits["store-01"]) < 60 * MICROSECONDS


def test_all_that_goes_wrong_on_a_day_does(bronze: pa.Table, true: Truth) -> None:
    kinds = numpy.concatenate([turn.messages.kind for turn in turns(SMALL)])
    assert set(kinds.tolist()) == set(range(PLAIN, EMPTY + 1))
    payloads = set(bronze["payload"].to_pylist())
    assert len(payloads) < bronze.num_rows  # repeats
    assert sum(b'"battery"' in payload for payload in payloads) > 1000
    flags = {flag for row in set(true.gold["flags"].to_pylist()) for flag in row.split(",")}
    assert flags == {"", "gap", "flatline", "jump"}
    assert min(pc.sum(true.late[side]).as_py() for side in ("behind", "ahead")) > 100
    times = bronze["time"].to_pylist()
    assert {time.year for time in times} == {2000, 2026, 2100}
    pairs = zip(bronze["arrival"].to_pylist(), times, strict=True)
    apart = [(arrival - time).total_seconds() for arrival, time in pairs]
    assert any(60 < each < SETTINGS.lateness for each in apart)
    assert any(SETTINGS.lateness + SETTINGS.window < each < 3000 for each in apart)
    assert len(set(rows(bronze, ["topic", "store"]))) > SMALL.devices  # some moved


def test_the_default_is_ten_thousand_devices_for_a_day() -> None:
    plan = Plan()
    assert plan.devices * plan.seconds // plan.period == 14_400_000
    ten_minutes = next(turns(plan)).messages
    assert abs(len(ten_minutes.device) - 100_000) < 2000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"devices": 19}, "devices is 19; it has to be at least 20"),
        ({"seconds": 59}, "seconds is 59; it has to be at least 60"),
        ({"stores": 1}, "stores is 1; it has to be at least 2"),
        ({"stores": 101}, "stores is 101; there can be 100"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**given)  # type: ignore[arg-type]


# ---- the pipeline finds the truth -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


@pytest.fixture(scope="module")
def decoded(day: list[pa.RecordBatch]) -> Tables:
    rules = Rules.from_settings(
        [{"filter": "fleet/#", "decoder": "json", "device": "{3}"}],
        ahead=SETTINGS.clock_ahead,
        behind=SETTINGS.clock_behind,
    )
    parts = [decode(batch, rules) for batch in day]
    return tuple(pa.Table.from_batches(each) for each in zip(*parts, strict=True))  # type: ignore[return-value]


def rows(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def by_key(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
    return {row[:-1]: row[-1] for row in rows}


def test_every_message_is_read_or_in_quarantine(decoded: Tables, bronze: pa.Table, true: Truth) -> None:
    readings, quarantined = decoded
    assert readings.num_rows + quarantined.num_rows == bronze.num_rows == pc.sum(true.messages["messages"]).as_py()
    counted = quarantined.group_by("store").aggregate([("position", "count")])
    assert rows(counted, ["store", "position_count"]) == rows(true.quarantined, ["store", "messages"])


def test_gold_is_the_truth(spark: SparkSession, decoded: Tables, true: Truth) -> None:
    found = gold(spark.createDataFrame(decoded[0]), *RANGE, SETTINGS).toArrow()
    exact = ["window_start", "topic", "count", "min", "max", "first", "last", "gaps", "longest_gap", "flags"]
    assert rows(found, exact) == rows(true.gold, exact)
    means = ["window_start", "topic", "mean"]
    assert by_key(rows(found, means)) == pytest.approx(by_key(rows(true.gold, means)), rel=1e-12)
    assert set(zip(found["topic"].to_pylist(), found["device"].to_pylist(), strict=True)) <= {
        (topic_of(device), f"sensor-{device:05d}") for device in range(SMALL.devices)
    }


def test_late_is_the_truth(spark: SparkSession, decoded: Tables, true: Truth) -> None:
    found = late(spark.createDataFrame(decoded[0]), *RANGE, SETTINGS).toArrow()
    names = ["window_start", "topic", "minute", "behind", "ahead"]
    assert rows(found, names) == rows(true.late, names)


def test_latest_is_the_truth(spark: SparkSession, decoded: Tables, true: Truth) -> None:
    found = latest(spark.createDataFrame(decoded[0])).toArrow()
    names = ["topic", "time", "arrival", "value", "store", "position"]
    assert rows(found, names) == rows(true.latest, names)


def test_traffic_and_completeness_are_the_truth(spark: SparkSession, bronze: pa.Table, true: Truth) -> None:
    """Half of the messages came by MQTT as well, each third of these twice."""
    all_rows = spark.createDataFrame(bronze)
    stores = {"store-00": 0, "store-01": 0, "store-02": 0}
    live = all_rows.where("position % 2 = 0").selectExpr("store", "position", "topic", "arrival AS received", "day")
    live = live.unionByName(live.where("position % 6 = 0"))
    found = completeness(all_rows, live, stores, *DAY).toArrow()
    expected = rows(true.messages, ["store", "minute", "messages"])
    assert [row for row in rows(found, ["store", "minute", "made"]) if row[2]] == expected
    assert pc.sum(found["lost"]).as_py() == 0
    per_store = [bronze.filter(pc.equal(bronze["store"], store)).num_rows for store in stores]
    assert pc.sum(found["live"]).as_py() == sum(count // 2 for count in per_store)
    assert pc.sum(found["duplicate"]).as_py() == sum(count // 6 for count in per_store)
    expected_holes = {store: (1, count) for store, count in zip(stores, per_store, strict=True)}
    assert holes(all_rows, expected_holes).count() == 0
    carried = traffic(all_rows, *DAY).toArrow().group_by(["store", "minute"]).aggregate([("messages", "sum")])
    assert rows(carried, ["store", "minute", "messages_sum"]) == expected


def test_truth_knows_when_a_figure_is_wrong(true: Truth) -> None:
    """Another lateness is another truth, so the comparison above is not of what is always the same."""
    other = truth(SMALL, replace(SETTINGS, lateness=0.0))
    assert pc.sum(other.gold["count"]).as_py() < pc.sum(true.gold["count"]).as_py()
    counted = [
        sum(pc.sum(column).as_py() for column in (each.gold["count"], each.late["behind"], each.late["ahead"]))
        for each in (true, other)
    ]
    assert counted[0] == counted[1]
