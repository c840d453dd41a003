"""Rules for the quality of silver and gold, through the steps: nothing is lost to them, and counts are true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs.expectations import rule_counts
from headwater.pipeline.jobs.pipeline import PipelineError
from headwater.pipeline.jobs.remaking import make_plan
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.jobs.status import look
from headwater.pipeline.lake import log as lake_log
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import (
    BRONZE,
    DROPPED,
    GOLD,
    GOLD_QUARANTINE,
    GOLD_RULES,
    LATEST,
    OUTCOMES,
    QUARANTINE,
    SILVER,
    SILVER_RULES,
    Table,
)
from tests.pipeline.jobs.a_lake import NOON, a_message, bring_up_to_date, contents, land, pipeline, settings
from tests.spark_of_the_process import borrowed

CHECKED = (SILVER, QUARANTINE, DROPPED, SILVER_RULES, OUTCOMES, GOLD, GOLD_QUARANTINE, GOLD_RULES, LATEST)
LIST = [{"filter": "#", "decoder": "json", "each": "v"}]
RULES = [
    {"name": "small", "condition": "value < 30"},
    {"name": "even", "condition": "value NOT IN (5, 7, 9)", "action": "drop", "filter": "plant/+"},
    {"name": "known", "condition": "value <> 11 AND value <> 12", "action": "quarantine"},
    {"name": "sane", "condition": "value < 1000", "action": "fail"},
    {"name": "enough", "table": "gold", "condition": "count >= 2", "action": "quarantine"},
    {"name": "calm", "table": "gold", "condition": "max < 40"},
]


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


def with_rules(*rules: dict[str, Any], **more: Any) -> Settings:
    return settings(decoding=LIST, expectations=list(rules or RULES), **more)


def messages(first: int, last: int, body: bytes | None = None) -> list[dict[str, Any]]:
    """Two readings each, of which the second is 1000 at most."""
    return [
        a_message(each, body or json.dumps({"v": [each, 0] if each % 5 else [each]}).encode())
        for each in range(first, last + 1)
    ]


def everything(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    there = {table.name for table in lake.tables()}
    return {table.name: contents(lake, table) for table in CHECKED if table.name in there}


def sums(lake: Lake, table: Table) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in contents(lake, table):
        checked, failed = found.get(row["rule"], (0, 0))
        found[row["rule"]] = (checked + row["checked"], failed + row["failed"])
    return found


class Killed(BaseException):
    pass


def test_every_message_is_accounted_for_whatever_steps_there_were_and_who_was_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lake in one piece; the other in parts, killed behind each commit of a step once."""
    whole, lake = Lake(tmp_path / "whole"), Lake(tmp_path / "parts")
    land(whole, [*messages(1, 60), a_message(61, b"no json")])
    bring_up_to_date(pipeline(spark, whole, with_rules()))
    expected = everything(whole)
    left = ["silver_rules", "dropped", "silver", "gold_rules", "gold_quarantine"]
    point = lake_log.crash_point

    def dies(name: str, table: str = "") -> None:
        point(name, table)
        if name == "pipeline-after-commit" and table in left and pipelines:
            left.remove(table)
            raise Killed

    pipelines: list[int] = []
    monkeypatch.setattr(lake_log, "crash_point", dies)
    for part in (messages(1, 17), messages(18, 40), [*messages(41, 60), a_message(61, b"no json")]):
        land(lake, part)
        while True:
            pipelines.append(1)
            try:
                bring_up_to_date(pipeline(spark, lake, with_rules()))
                break
            except Killed:
                continue
        pipelines.clear()
    assert left == []
    for name, rows in everything(lake).items():
        assert rows == expected[name], name
    check_accounts(lake)


def check_accounts(lake: Lake) -> None:
    readings = {(row["position"], row["part"]): row["value"] for row in contents(lake, SILVER)}
    assert {5.0, 7.0, 9.0, 11.0, 12.0}.isdisjoint(readings.values())
    assert {row["position"] for row in contents(lake, QUARANTINE)} == {11, 12, 61}
    dropped = {(row["position"], row["part"]): (row["rule"], row["whole"]) for row in contents(lake, DROPPED)}
    assert dropped == {(5, 0): ("even", True), (7, 0): ("even", False), (9, 0): ("even", False)}
    assert sums(lake, SILVER_RULES) == {"small": (108, 31), "even": (108, 3), "known": (108, 2), "sane": (108, 0)}
    rows = contents(lake, OUTCOMES)
    total = {name: sum(row[name] for row in rows) for name in ("messages", "silver", "quarantine", "dropped")}
    assert total == {"messages": 59, "silver": 56, "quarantine": 2, "dropped": 1}  # the last minute is not over
    assert {row["unaccounted"] for row in rows} == {0}
    away = contents(lake, GOLD_QUARANTINE)
    assert all(row["count"] < 2 and row["rule"] == "enough" for row in away)
    assert all(row["count"] >= 2 for row in contents(lake, GOLD))
    assert sums(lake, GOLD_RULES)["enough"] == (len(away) + len(contents(lake, GOLD)), len(away))
    found = {each.rule: asdict(each) for each in rule_counts(lake)}
    assert (found["small"]["checked"], found["small"]["failed"], found["small"]["action"]) == (108, 31, "expect")
    assert found["calm"]["table"] == "gold" and found["small"]["minute"] == NOON + timedelta(minutes=10)
    seen = look(lake, None, settings=with_rules())
    assert seen.outcomes == {**total, "unaccounted": 0}
    assert [each.rule for each in seen.rules] == ["even", "known", "sane", "small", "calm", "enough"]
    assert seen.changed == {}


def test_a_rule_that_fails_stops_and_nothing_of_the_batch_is_there(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, messages(1, 10))
    bring_up_to_date(pipeline(spark, lake, with_rules()))
    before = everything(lake)
    land(lake, [*messages(11, 20), a_message(21, b'{"v": [5000]}'), a_message(22, b'{"v": [6000]}')])
    words = r"silver: 2 of \d+ rows fail the expectation sane \(value < 1000\), such as message a:21 of plant/0"
    with pytest.raises(PipelineError, match=words):
        bring_up_to_date(pipeline(spark, lake, with_rules()))
    assert everything(lake) == before
    assert len(contents(lake, BRONZE)) == 22
    milder = [{**rule, "action": "expect"} if rule["name"] == "sane" else rule for rule in RULES]
    bring_up_to_date(pipeline(spark, lake, with_rules(*milder)))  # such a rule decides no rows: nothing is remade
    assert {5000.0, 6000.0} <= {row["value"] for row in contents(lake, SILVER)}


def test_rules_that_keep_rows_away_are_refused_on_tables_made_with_others_and_remade(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, fresh = Lake(tmp_path / "lake"), Lake(tmp_path / "fresh")
    for each in (lake, fresh):
        land(each, messages(1, 60))
    bring_up_to_date(pipeline(spark, lake, settings(decoding=LIST)))
    assert not {table.name for table in lake.tables()} & {"dropped", "silver_rules", "gold_rules", "outcomes"}
    with pytest.raises(PipelineError, match=r"silver was made with other rules of expectations.*remake silver"):
        bring_up_to_date(pipeline(spark, lake, with_rules()))
    bring_up_to_date(pipeline(spark, lake, with_rules(), remake=make_plan(["silver"])))
    bring_up_to_date(pipeline(spark, fresh, with_rules()))
    assert everything(lake) == everything(fresh)
    lake.log(SILVER).open().delete("arrival < '2026-01-31 12:03:00Z'")
    lake.log(SILVER_RULES).open().delete("minute < '2026-01-31 12:03:00Z'")
    lake.log(GOLD_QUARANTINE).open().delete("window_start < '2026-01-31 12:03:00Z'")
    plan = make_plan(["silver"], NOON, NOON + timedelta(minutes=4))
    bring_up_to_date(pipeline(spark, lake, with_rules(), remake=plan))
    assert everything(lake) == everything(fresh)
    bring_up_to_date(pipeline(spark, lake, settings(decoding=LIST, changed_settings="remake")))  # without rules again
    assert len(contents(lake, SILVER)) == 60 + 48
    assert contents(lake, DROPPED) == contents(lake, GOLD_QUARANTINE) == []


def test_rules_that_come_later_count_from_then_on(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, messages(1, 12))
    bring_up_to_date(pipeline(spark, lake, settings(decoding=LIST)))
    rules = (RULES[0], RULES[5])
    land(lake, messages(13, 24))
    bring_up_to_date(pipeline(spark, lake, with_rules(*rules)))
    assert sums(lake, SILVER_RULES)["small"][0] == 12 + 10
    land(lake, messages(25, 30))
    bring_up_to_date(pipeline(spark, lake, settings(decoding=LIST)))
    land(lake, messages(31, 36))
    bring_up_to_date(pipeline(spark, lake, with_rules(*rules)))
    assert sums(lake, SILVER_RULES)["small"][0] == 22 + 6 + 5
    assert len(contents(lake, SILVER)) == 36 + 29
