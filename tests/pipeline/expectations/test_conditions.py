"""A condition means what Spark means by it, or is refused with the place."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.expectations.checking import _evaluated
from headwater.pipeline.expectations.conditions import ConditionError, condition
from headwater.pipeline.lake.types import ARROW
from tests.spark_of_the_process import borrowed

COLUMNS = {
    "value": "double",
    "mean": "double",
    "part": "int",
    "position": "bigint",
    "topic": "string",
    "text": "string",
    "time": "timestamp",
    "arrival": "timestamp",
    "retain": "boolean",
    "raw": "binary",
}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = pa.schema([pa.field(name, ARROW[type]) for name, type in COLUMNS.items()])
NUMBERS = (None, 0.0, -0.0, 1.0, -2.5, 125.0, 1e300, -1e300)
TEXTS = (None, "", "a", "plant/1", "plant/%", "ä b", " on ", "a_c", "A")
REFUSED = ("names no column", "write the result", "no condition to choose by")
"""What random conditions may be refused for."""
MOMENTS = (None, *(NOON + timedelta(seconds=each) for each in (-86_400, -1, 0, 0.000001, 300, 301)))


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def rows(chance: Random, count: int) -> pa.RecordBatch:
    made = [
        {
            "value": chance.choice(NUMBERS),
            "mean": chance.choice(NUMBERS),
            "part": chance.choice((None, 0, 1, -3)),
            "position": chance.choice((None, 0, 1, 2, 1 << 40)),
            "topic": chance.choice(TEXTS),
            "text": chance.choice(TEXTS),
            "time": chance.choice(MOMENTS),
            "arrival": chance.choice(MOMENTS),
            "retain": chance.choice((None, True, False)),
            "raw": chance.choice((None, b"x")),
        }
        for _ in range(count)
    ]
    return pa.RecordBatch.from_pylist(made, SCHEMA)


class Conditions:
    """Random ones, of all that there is."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def truth(self, depth: int) -> str:
        one = self.chance.choice
        if depth == 0:
            return one(["retain", "value > 1", "topic = 'a'", "true", "null"])
        deeper = depth - 1
        sign = one(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
        return one(
            [
                lambda: f"({self.truth(deeper)}) {one(['AND', 'OR'])} ({self.truth(deeper)})",
                lambda: f"NOT ({self.truth(deeper)})",
                lambda: f"({self.truth(deeper)}) IS {one(['', 'NOT '])}{one(['TRUE', 'FALSE', 'NULL'])}",
                lambda: f"{self.number(deeper)} {sign} {self.number(deeper)}",
                lambda: f"{self.whole(deeper)} {sign} {self.whole(deeper)}",
                lambda: f"{self.text(deeper)} {sign} {self.text(deeper)}",
                lambda: f"{self.moment()} {sign} {self.moment()}",
                lambda: f"arrival - time {sign} INTERVAL {one(['5 MINUTES', '0.5 SECOND', '1 DAY'])}",
                lambda: f"value {one(['', 'NOT '])}BETWEEN {self.number(0)} AND {self.number(0)}",
                lambda: f"part {one(['', 'NOT '])}IN (0, 1{one(['', ', NULL'])})",
                lambda: f"topic {one(['', 'NOT '])}LIKE '{one(['plant/%', '%', 'a_c', 'plant/_', '', '% b'])}'",
                lambda: f"{one(['startswith', 'endswith', 'contains'])}({self.text(deeper)}, '{one(['a', '', ' '])}')",
                lambda: f"isnan({self.number(deeper)})",
                lambda: f"if({self.truth(deeper)}, {self.truth(deeper)}, {self.truth(deeper)})",
                lambda: f"raw IS {one(['', 'NOT '])}NULL",
            ]
        )()

    def number(self, depth: int) -> str:
        one = self.chance.choice
        if depth <= 0:
            return one(["value", "mean", "value", "125.5D", "CAST(part AS DOUBLE)", "-2.5e0"])
        deeper = depth - 1
        return one(
            [
                lambda: f"({self.number(deeper)} {one('+-*')} {self.number(deeper)})",
                lambda: f"({self.number(deeper)} + {one(['1', '2.5', '-0.25'])})",
                lambda: f"({self.number(deeper)} / {one(['2', '-0.5', '4.0'])})",
                lambda: f"try_divide({self.number(deeper)}, {self.number(0)})",
                lambda: f"abs({self.number(deeper)})",
                lambda: f"(- {self.number(deeper)})",
                lambda: f"coalesce({self.number(deeper)}, {one(['0', 'mean', '1.5'])})",
                lambda: f"nullif({self.number(deeper)}, 0)",
                lambda: f"CASE WHEN {self.truth(deeper)} THEN value WHEN {self.truth(0)} THEN part END",
            ]
        )()

    def whole(self, depth: int) -> str:
        one = self.chance.choice
        if depth <= 0:
            return one(["part", "position", "3", "-1"])
        return one(
            [
                lambda: f"({self.whole(depth - 1)} {one('+-')} position)",
                lambda: f"length({self.text(depth - 1)})",
                lambda: f"abs({one(['part', 'position'])})",
                lambda: "unix_micros(time)",
            ]
        )()

    def text(self, depth: int) -> str:
        one = self.chance.choice
        return one(["topic", "text", "'a'", "''", "trim(text)", "coalesce(text, topic)", "nullif(topic, 'a')"])

    def moment(self) -> str:
        said = "TIMESTAMP '2026-01-31T12:00:00Z'"
        return self.chance.choice(["time", "arrival", said, "time + INTERVAL 5 MINUTES", "arrival - INTERVAL 1 DAY"])


def test_random_conditions_mean_what_spark_means(spark: SparkSession) -> None:
    chance = Random(7)
    made, batch = Conditions(chance), rows(chance, 200)
    said = []
    while len(said) < 150:
        text = made.truth(3).replace("125.5D", "CAST(125 AS DOUBLE)")
        try:
            condition(text, COLUMNS)
        except ConditionError as error:
            assert any(each in str(error) for each in REFUSED), (text, error)
            continue
        said.append(text)
    compiled = pickle.loads(pickle.dumps([condition(each, COLUMNS) for each in said]))
    found = [list(map(bool, mask)) for mask in _evaluated(batch, compiled)]
    asked = spark.createDataFrame(pa.Table.from_batches([batch])).selectExpr(
        *(f"coalesce({text}, false) AS c{number}" for number, text in enumerate(said))
    )
    answers = [tuple(row) for row in asked.collect()]
    for number, text in enumerate(said):
        assert found[number] == [row[number] for row in answers], text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("valu > 3", "\"valu\" (character 1): unknown column 'valu'; did you mean 'value'?"),
        ("value > 3 AND rlike(topic, 'a')", '"rlike" (character 15): REGEXPLIKE cannot be used'),
        ("value > 'a'", "do not go together: a number, a text"),
        ("position > 1.5", "CAST(… AS DOUBLE)"),
        ("value / mean > 1", "TRY_DIVIDE"),
        ("value / 0 > 1", "TRY_DIVIDE"),
        ("time > '2026-01-31 12:00:00'", "no time with its zone"),
        ("value", "no condition but a value (a number)"),
        ("1 = 1", "names no column"),
        ("value > 1; value < 2", "more than one condition"),
        ("", "it is empty"),
        ("value > 'a", "does not end"),
        ("value > (", "cannot be read"),
        ("raw = 'a'", "do not go together"),
        ("silver.value > 1", "leave the table's name away"),
        ("sum(value) > 1", "SUM cannot be used"),
        ("value > (SELECT 1)", "SUBQUERY cannot be used"),
        ("topic LIKE 'a\\\\x'", "stands before"),
        ("arrival - time > INTERVAL 1 MONTH", "seconds, minutes, hours"),
        ("retain > true", "only equal or not"),
        ("value > 1 " + "AND value > 1 " * 1000, "10000 are allowed"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(ConditionError) as caught:
        condition(text, COLUMNS)
    assert words in str(caught.value)


def evaluate(text: str, **row: Any) -> bool:
    batch = pa.RecordBatch.from_pylist([row], SCHEMA)
    [mask] = _evaluated(batch, [condition(text, COLUMNS)])
    return bool(mask[0])


def test_names_of_columns_have_no_case_and_null_does_not_hold() -> None:
    assert evaluate("VALUE > 1", value=2.0)
    assert not evaluate("value > 1")
    assert not evaluate("NOT value > 1")
    assert evaluate("value IS NULL OR value > 1")


def test_nan_is_above_all_numbers_as_spark_has_it() -> None:
    nan = float("nan")
    assert evaluate("value + 0 > 1e300", value=nan)
    assert evaluate("value + 0 = mean + 0", value=nan, mean=nan)
    assert not evaluate("value + 0 < 5", value=nan)
