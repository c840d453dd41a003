"""Windows that are open are gold's, by the plain model of it, and are in no table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.jobs.remaking import note_settings
from headwater.pipeline.jobs.settings import Settings as PipelineSettings
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.made import UNTIL
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.provisional import (
    _micros,
    final_until,
    first_expected,
    provisional,
    remembered,
    windows,
)
from headwater.pipeline.tables import GOLD, SILVER, Table
from tests.pipeline.derive import plain
from tests.pipeline.derive.rows import NOON, Row, random_silver, reading

SETTINGS = Settings(window=60, lateness=120, gap=15, flatline=4, jump_readings=4, clock_behind=10_000)


def put(lake: Lake, table: Table, rows: list[Row], **notes: int) -> None:
    log = lake.log(table)
    schema = arrow_schema(table)
    batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
    log.commit(write_files([batch], str(log.folder), table.partition) if rows else [], notes)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake")


def by_key(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    found = {(row["window_start"], row["topic"], row["device"], row["metric"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_gold_would_be_now(lake: Lake, seed: int) -> None:
    silver = random_silver(Random(seed), 400, SETTINGS)
    put(lake, SILVER, silver)
    found = by_key(provisional(lake, SETTINGS).to_pylist())
    ever = (NOON - timedelta(days=30_000), NOON + timedelta(days=30_000))
    expected = by_key(plain.gold(silver, *ever, SETTINGS))
    assert found.keys() == expected.keys()
    now = max(row["arrival"] for row in silver if plain.is_number(row) and row["clock"] == "ok")
    for key, row in expected.items():
        for name, value in row.items():
            if name in ("gaps", "longest_gap", "flags", "why") and row["window_end"] > now:
                continue  # what is not over yet is not silent yet
            if isinstance(value, str | int) or value is None or name in ("window_start", "window_end", "day"):
                assert name == "why" or found[key][name] == value, (key, name)
            elif abs(value) < 1e300:
                assert found[key][name] == pytest.approx(float(value)), (key, name)
        if row["window_end"] <= now:
            assert bool(found[key]["why"]) == bool(row["why"])


def test_reasons_are_said_in_golds_words(lake: Lake) -> None:
    values = [20.0, 20.1, 20.2, 20.1, 20.0, 85.0, 20.1, 20.0]
    put(lake, SILVER, [reading(n, NOON + timedelta(seconds=n), value) for n, value in enumerate(values, 1)])
    put(lake, SILVER, [reading(99, NOON + timedelta(seconds=70), 1.0)])
    first, _ = provisional(lake, SETTINGS).to_pylist()
    assert first["flags"] == "gap,jump"
    assert first["why"] == "silent for 52.0 s; a step of 65 where 0.1 is typical"


def test_a_window_that_is_not_over_is_not_silent_at_its_end(lake: Lake) -> None:
    put(lake, SILVER, [reading(1, NOON + timedelta(seconds=1), 5.0), reading(2, NOON + timedelta(seconds=3), 6.0)])
    [row] = provisional(lake, SETTINGS).to_pylist()
    assert (row["count"], row["gaps"], row["longest_gap"]) == (2, 0, 2.0)


def test_only_windows_behind_gold_are_open_and_all_are_in_the_view(lake: Lake) -> None:
    minute = timedelta(minutes=1)
    silver = [reading(n, NOON + n * minute + timedelta(seconds=1), float(n)) for n in range(4)]
    put(lake, SILVER, silver)
    until = NOON + 2 * minute
    put(lake, GOLD, plain_rows(plain.gold(silver, NOON, until, SETTINGS)), **{UNTIL: _micros(until)})
    assert final_until(lake) == until
    found = windows(lake, SETTINGS).to_pylist()
    assert [(row["mean"], row["final"]) for row in found] == [(0.0, True), (1.0, True), (2.0, False), (3.0, False)]
    assert lake.snapshot(GOLD).rows == 2
    assert first_expected(lake, SETTINGS) == until + minute + timedelta(seconds=SETTINGS.lateness)


def plain_rows(rows: list[Row]) -> list[Row]:
    return [{**row, **{name: float(row[name]) for name in ("mean", "p50", "p95")}} for row in rows]


def test_where_nothing_has_come_nothing_is_expected(lake: Lake) -> None:
    assert provisional(lake, SETTINGS).num_rows == 0
    assert first_expected(lake, SETTINGS) is None
    put(lake, SILVER, [reading(1, NOON, None, text="on")])
    assert windows(lake, SETTINGS).num_rows == 0
    assert first_expected(lake, SETTINGS) is None


def test_the_settings_are_those_that_gold_notes(lake: Lake) -> None:
    assert (remembered(lake).window, remembered(lake).lateness) == (Settings().window, Settings().lateness)
    note_settings(lake, PipelineSettings(deriving=SETTINGS))
    found = remembered(lake)
    names = ("window", "lateness", "gap", "flatline", "jump_factor", "jump_readings", "jump_absolute")
    assert [getattr(found, name) for name in names] == [getattr(SETTINGS, name) for name in names]
