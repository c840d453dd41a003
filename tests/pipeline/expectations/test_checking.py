"""Where messages and readings go that fail a rule: each message to one place, whatever rules there are."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.pipeline.decoding import Rules, decode
from headwater.pipeline.expectations.checking import EXAMPLE, Checked, Checks, check_readings, check_windows
from headwater.pipeline.expectations.rule import MOST, ExpectationError, deciding, expectations_of
from headwater.pipeline.jobs.settings import make_settings
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import DROPPED, GOLD, GOLD_QUARANTINE, SILVER_RULES
from tests.pipeline.decoding.bronze import NOON, SECOND, bronze

RULES = Rules.from_settings([{"filter": "#", "decoder": "json", "each": "v"}])
COLUMNS = {
    "silver": {"value": "double", "topic": "string", "position": "bigint", "metric": "string"},
    "gold": {each.name: each.type for each in GOLD.columns},
}
ODD = {"name": "odd", "condition": "value < 100"}


def checks_of(*rules: dict[str, Any]) -> Checks:
    made: Checks = pickle.loads(pickle.dumps(Checks(expectations_of(rules, COLUMNS))))
    return made


def checked(
    values: list[list[float]], *rules: dict[str, Any], topics: str | list[str] = "plant/1", **more: Any
) -> Checked:
    """Messages with these readings each."""
    batch = bronze([json.dumps({"v": each}).encode() for each in values], topics, **more)
    return check_readings(batch, decode(batch, RULES), checks_of(*rules))


def positions(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("position").to_pylist()
    return found


def counts(found: Checked) -> dict[str, tuple[int, int]]:
    rows = found.counts.to_pylist()
    return {row["rule"]: (row["checked"], row["failed"]) for row in rows}


def test_what_is_only_expected_stays_and_is_counted() -> None:
    found = checked([[1.0, 200.0], [300.0], [4.0]], ODD)
    assert positions(found.readings) == [1, 1, 2, 3]
    assert counts(found) == {"odd": (4, 2)}
    assert found.quarantined.num_rows == found.dropped.num_rows == 0


def test_a_message_with_a_bad_reading_is_quarantined_whole_with_the_rule() -> None:
    found = checked([[1.0, 200.0], [5.0], [7.0, 8.0]], {**ODD, "action": "quarantine"})
    assert positions(found.readings) == [2, 3, 3]
    [row] = found.quarantined.to_pylist()
    assert (row["position"], row["decoder"], row["reason"]) == (1, "json", "expectation odd: value < 100")
    assert row["payload"] == b'{"v": [1.0, 200.0]}'


def test_dropped_readings_are_named_and_a_message_without_others_is_dropped_whole() -> None:
    found = checked([[1.0, 200.0], [300.0, 400.0], [5.0]], {**ODD, "action": "drop"})
    assert positions(found.readings) == [1, 3]
    there = [(row["position"], row["part"], row["rule"], row["whole"]) for row in found.dropped.to_pylist()]
    assert there == [(1, 1, "odd", False), (2, 0, "odd", True), (2, 1, "odd", True)]
    assert found.dropped.schema == arrow_schema(DROPPED)


def test_quarantine_goes_before_drop_and_the_first_rule_is_named() -> None:
    drop = {"name": "drop", "condition": "value < 50", "action": "drop"}
    first = {"name": "first", "condition": "value < 400", "action": "quarantine"}
    found = checked([[60.0, 500.0], [60.0]], drop, first, {**ODD, "action": "quarantine"})
    assert positions(found.readings) == []
    assert [row["reason"] for row in found.quarantined.to_pylist()] == ["expectation first: value < 400"]
    assert [(row["position"], row["whole"]) for row in found.dropped.to_pylist()] == [(2, True)]
    assert counts(found) == {"drop": (3, 3), "first": (3, 1), "odd": (3, 1)}


def test_every_message_is_in_one_place() -> None:
    values = [[float(7 * n % 11), float(5 * n % 13)][: 1 + n % 2] for n in range(200)]
    rules = [
        {"name": "a", "condition": "value <> 3", "action": "drop"},
        {"name": "b", "condition": "value <> 4", "action": "quarantine"},
        {"name": "c", "condition": "value IN (1, 3, 4, 5, 6)", "action": "drop", "filter": "plant/1"},
    ]
    found = checked(values, *rules, topics=[f"plant/{n % 2}" for n in range(200)])
    silver, away = set(positions(found.readings)), set(positions(found.quarantined))
    whole = {row["position"] for row in found.dropped.to_pylist() if row["whole"]}
    assert silver | away | whole == set(range(1, 201))
    assert not silver & away and not silver & whole and not away & whole
    assert silver and away and whole


def test_a_rule_is_asked_of_its_topics_only() -> None:
    rule = {**ODD, "action": "quarantine", "filter": ["plant/+/hot", "other"]}
    found = checked([[500.0], [500.0], [5.0]], rule, topics=["plant/1/hot", "plant/1/cold", "other"])
    assert positions(found.readings) == [2, 3]
    assert counts(found) == {"odd": (2, 1)}


def test_counts_are_by_minute_of_arrival() -> None:
    arrivals = [NOON + each * SECOND for each in (0, 10, 70)]
    found = checked([[500.0], [5.0], [500.0]], ODD, arrivals=arrivals)
    rows = found.counts.to_pylist()
    assert [(row["minute"].second, row["checked"], row["failed"]) for row in rows] == [(0, 2, 1), (0, 1, 1)]
    assert rows[0]["minute"] < rows[1]["minute"] and rows[0]["day"] == rows[0]["minute"].date()
    assert found.counts.schema.names == [*SILVER_RULES.names, EXAMPLE]


def test_a_rule_that_fails_names_a_row() -> None:
    found = checked([[5.0], [500.0]], {**ODD, "action": "fail"})
    assert found.counts.column(EXAMPLE).to_pylist() == ["message s1:2 of plant/1"]
    assert positions(found.readings) == [1, 2]


def test_a_batch_without_readings_says_nothing() -> None:
    found = checked([[]], {**ODD, "action": "drop"})
    assert (found.counts.num_rows, found.readings.num_rows, found.quarantined.num_rows) == (0, 0, 1)


def test_windows_that_fail_stay_away_from_gold() -> None:
    schema = arrow_schema(GOLD)
    start = pc.cast(pa.array([0, 600_000_000]), schema.field("window_start").type)
    values: dict[str, Any] = {"window_start": start, "topic": ["a", "b"], "count": [1, 9], "mean": [1.0, 2.0]}
    columns = [
        pa.array(values[each.name], each.type) if each.name in values else pa.nulls(2, each.type) for each in schema
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema([each.with_nullable(True) for each in schema]))
    few = {"name": "enough", "table": "gold", "condition": "count >= 5"}
    stay, away, counted = check_windows(rows, checks_of({**few, "action": "quarantine"}))
    assert stay.column("topic").to_pylist() == ["b"]
    assert [(row["topic"], row["rule"]) for row in away.to_pylist()] == [("a", "enough")]
    assert away.schema.names == list(GOLD_QUARANTINE.names)
    assert [(row["checked"], row["failed"]) for row in counted.to_pylist()] == [(1, 1), (1, 0)]
    stay, away, _ = check_windows(rows, checks_of({**few, "action": "drop"}))
    assert (stay.num_rows, away.num_rows) == (1, 0)


# ---- functions ---------------------------------------------------------------------------------------------------


def small(rows: pa.RecordBatch) -> pa.Array:
    return pc.less(rows.column("value"), 100.0)


def listed(rows: pa.RecordBatch) -> list[bool | None]:
    return [None if value == 7.0 else value < 100 for value in rows.column("value").to_pylist()]


def broken(rows: pa.RecordBatch) -> list[bool]:
    raise KeyError("x")


def short(rows: pa.RecordBatch) -> list[bool]:
    return [True]


def by(name: str) -> dict[str, Any]:
    return {"name": name, "function": f"{__name__}:{name}", "action": "drop"}


def test_a_function_answers_for_a_batch() -> None:
    assert positions(checked([[5.0], [500.0], [7.0]], by("small")).readings) == [1, 3]
    assert positions(checked([[5.0], [500.0], [7.0]], by("listed")).readings) == [1]


def test_a_function_that_fails_is_no_fault_of_rows() -> None:
    with pytest.raises(ExpectationError, match=r"expectation broken: .*:broken failed: KeyError: 'x'"):
        checked([[5.0]], by("broken"))
    with pytest.raises(ExpectationError, match="gave 1 answers for 2 rows"):
        checked([[5.0], [6.0]], by("short"))


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {**ODD, "condition": "valu < 3"},
            "expectation 2 \\(odd\\): condition 'valu < 3': at \"valu\" .*did you mean 'value'",
        ),
        ({**ODD, "acton": "drop"}, "unknown setting 'acton' of an expectation; did you mean 'action'"),
        ({**ODD, "action": "dropp"}, "did you mean 'drop'"),
        ({**ODD, "table": "bronze"}, "unknown table 'bronze'; there are silver, gold"),
        ({"name": "x"}, "a condition, or a function"),
        ({**ODD, "function": "a:b"}, "a condition, or a function"),
        ({"condition": "value < 3"}, "expectation 2: name is a text"),
        ({**ODD, "filter": "a/#/b"}, "filter 'a/#/b'"),
        ({**ODD, "name": "first"}, "another one has this name"),
        ({"name": "f", "function": "nowhere:f"}, "cannot be imported"),
        ({**ODD, "table": "gold"}, "did you mean|unknown column 'value'"),
        ("x", "a table of settings"),
    ],
)
def test_a_rule_that_cannot_be_is_named_before_anything_starts(rule: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_settings({"expectations": [{"name": "first", "condition": "value > 1"}, rule]})


def test_there_are_so_many_rules_at_most() -> None:
    rules = [{"name": str(n), "condition": "value > 1"} for n in range(MOST + 1)]
    with pytest.raises(ValueError, match="101 expectations, and 100 are allowed"):
        make_settings({"expectations": rules})
    make_settings({"expectations": rules[:MOST]})


def test_declared_fields_can_be_asked() -> None:
    rule = {"name": "hot", "condition": "temp < 80 AND meta_site = 'a'"}
    fields = {"temp": "double", "meta.site": "string"}
    given = {"expectations": [rule], "decoding": [{"decoder": "json", "fields": fields}]}
    assert [each.name for each in make_settings(given).checks()["silver"].rules] == ["hot"]
    with pytest.raises(ValueError, match="unknown column 'temp'"):
        make_settings({"expectations": [rule]})


def test_only_rules_that_keep_rows_away_decide_a_table() -> None:
    rules = [{**ODD, "action": each, "name": each} for each in ("expect", "drop", "quarantine", "fail")]
    assert [each["name"] for each in deciding(rules, "silver")] == ["drop", "quarantine"]
    assert deciding(rules, "gold") == []
