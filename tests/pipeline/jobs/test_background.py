"""Tables are made again while new messages go on coming: readers see what is new, all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.jobs import pipeline as jobs_pipeline
from headwater.pipeline.jobs import requests
from headwater.pipeline.jobs.pipeline import Pipeline
from headwater.pipeline.jobs.remaking import make_plan, stored_plan
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.tables import DROPPED, GOLD, LATE, LATEST, QUARANTINE, SILVER, SILVER_RULES
from tests.pipeline.jobs.a_lake import NOON, a_message, bring_up_to_date, contents, land, pipeline, settings
from tests.spark_of_the_process import borrowed

DERIVED = (SILVER, QUARANTINE, GOLD, LATE, LATEST)
BY_V = [{"filter": "#", "decoder": "json", "value": "v"}]


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark, {"spark.sql.codegen.wholeStage": "false"}) as session:
        yield session


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_pipeline, "FIRST_SLICE", 40)
    monkeypatch.setattr(jobs_pipeline, "SLICE", 0.0)  # none is larger
    monkeypatch.setattr(jobs_pipeline, "SLICE_OF_RANGE", 200)


def messages(first: int, last: int) -> list[dict[str, Any]]:
    """By the field v, all are 7; else by their position."""
    return [a_message(each, b'{"v": 7}') for each in range(first, last + 1)]


def values(lake: Lake) -> set[float]:
    return {row["value"] for row in contents(lake, SILVER)}


def rounds(made: Pipeline, lake: Lake, landed: int) -> int:
    """Until nothing is left to be made again; three messages land before each. How many have landed then."""
    while made.remake is not None:
        land(lake, messages(landed + 1, landed + 3))
        landed += 3
        made.round({})
        if made.remake is not None:
            assert len(contents(lake, SILVER)) == landed  # readers see what is new
    return landed


def same_as_in_one_piece(spark: SparkSession, lake: Lake, landed: int, given: Settings, folder: Path) -> None:
    fresh = Lake(folder)
    land(fresh, messages(1, landed))
    bring_up_to_date(pipeline(spark, fresh, given))
    bring_up_to_date(pipeline(spark, lake, given))
    for table in DERIVED:
        assert contents(lake, table) == contents(fresh, table), table.name


def test_other_rules_are_applied_behind_the_back_of_readers(spark: SparkSession, tmp_path: Path) -> None:
    """A start with other settings; the tables go on by the former ones until the new ones take their place."""
    lake = Lake(tmp_path / "lake")
    land(lake, messages(1, 70))
    bring_up_to_date(pipeline(spark, lake, settings()))
    given = settings(decoding=BY_V, deriving={"window": 120, "lateness": 0, "clock_behind": 90_000.0})
    made = pipeline(spark, lake, given, remake=make_plan(["silver"]))
    with made:
        landed = 70
        seen = []
        while made.remake is not None:
            land(lake, messages(landed + 1, landed + 3))
            landed += 3
            made.round({})
            seen.append(values(lake))
        assert len(seen) >= 3
        assert all(each == {float(number) for number in range(1, 71 + 3 * at + 3)} for at, each in enumerate(seen[:-1]))
        assert seen[-1] == {7.0}
    same_as_in_one_piece(spark, lake, landed, given, tmp_path / "fresh")
    assert {row["window_end"] - row["window_start"] for row in contents(lake, GOLD)} == {timedelta(minutes=2)}


def test_who_is_killed_while_it_is_made_again_goes_on_with_it(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    land(lake, messages(1, 70))
    bring_up_to_date(pipeline(spark, lake, settings()))
    given = settings(decoding=BY_V, changed_settings="remake")
    landed = 70
    for _ in range(2):
        with pipeline(spark, lake, given) as made:
            land(lake, messages(landed + 1, landed + 3))
            landed += 3
            made.round({})
            assert made.remake is not None
            assert values(lake) == {float(each) for each in range(1, landed + 1)}
    with pipeline(spark, lake, given) as made:
        landed = rounds(made, lake, landed)
    assert values(lake) == {7.0}
    same_as_in_one_piece(spark, lake, landed, given, tmp_path / "fresh")


def test_a_command_asks_the_pipeline_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    """For all of silver by settings that are read again, then for a range of it, while messages come."""
    lake = Lake(tmp_path / "lake")
    land(lake, messages(1, 60))
    rules = [{"name": "even", "condition": "value <> 7 OR position < 200", "action": "drop"}]
    given = settings(decoding=BY_V, expectations=rules)
    with pipeline(spark, lake, settings(), reread=lambda: given) as made:
        made.round({})
        asker = Asker(lake, make_plan(["silver"]))
        with pytest.raises(LakeError, match="has been asked for something else"):
            requests.ask(lake, make_plan(["gold"]))
        land(lake, messages(61, 63))
        made.round({})
        assert made.remake is not None
        landed = rounds(made, lake, 63)
        asker.ended()
        assert values(lake) == {7.0}
        lake.log(SILVER).open().delete("position between 20 and 40")
        lake.log(SILVER_RULES).open().delete("minute < '2026-01-31 12:03:00Z'")
        asker = Asker(lake, make_plan(["silver"], NOON, NOON + timedelta(days=1)))
        land(lake, messages(landed + 1, landed + 3))
        made.round({})
        assert made.remake is not None
        landed = 3 + landed
        while made.remake is not None:
            land(lake, messages(landed + 1, landed + 3))
            landed += 3
            made.round({})
        asker.ended()
    same_as_in_one_piece(spark, lake, landed, given, tmp_path / "fresh")
    for table in (DROPPED, SILVER_RULES):
        assert contents(lake, table) == contents(Lake(tmp_path / "fresh"), table), table.name
    assert sum(row["checked"] for row in contents(lake, SILVER_RULES)) == landed


def test_what_cannot_be_made_again_is_answered_and_the_pipeline_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, messages(1, 30))

    def mistaken() -> Settings:
        raise ValueError("pipeline.toml is no TOML")

    with pipeline(spark, lake, settings(), reread=mistaken) as made:
        made.round({})
        number = requests.ask(lake, make_plan(["silver"]))
        made.round({})
        assert requests.wait(lake, number) == requests.Answer(number, "pipeline.toml is no TOML")
        assert made.remake is None and stored_plan(lake) is None
        made._reread = None
        asked = requests.ask(lake, make_plan(["silver"]))
        made._slice = 5
        made.round({})
        assert made.remake is not None and requests.answered(lake, asked) == requests.Answer(asked)
        asked = requests.ask(lake, None)
        made.round({})
        assert requests.wait(lake, asked) == requests.Answer(asked)
        assert made.remake is None and not (tmp_path / "building").exists()
        land(lake, messages(31, 32))
        made.round({})
        assert len(contents(lake, SILVER)) == 32
    (tmp_path / requests.ASKED).write_text(
        '{"number": 5, "plan": {"tables": ["bronze"], "number": 5, "start": null, "end": null}}'
    )
    assert requests.take(lake) is None
    said = requests.answered(lake, 5)
    assert said is not None and "bronze is what came" in said.error
    number = requests.ask(lake, make_plan(["silver"]))
    assert "has ended" in requests.wait(lake, number).error  # nobody writes to the lake


class Asker:
    """Waits in a thread of its own, as a command does in a process of its own."""

    def __init__(self, lake: Lake, plan: Any) -> None:
        self.said: list[requests.Answer] = []
        number = requests.ask(lake, plan)
        self._thread = threading.Thread(
            target=lambda: self.said.append(requests.wait(Lake(lake.folder), number)), daemon=True
        )
        self._thread.start()

    def ended(self) -> None:
        self._thread.join(60)
        assert [each.error for each in self.said] == [""]
