"""A few days of a simulated month: files, bytes and logs do not grow with age. Times are for the benchmark."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.pipeline.lake.pages import SMALLEST
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater_lab.pipeline_age import ROWS, TOPICS, Plan, bytes_of_latest, main, simulate

FEW, SUMMARY = UpkeepSettings().few_files, UpkeepSettings().checkpoint_every
PLAN = Plan(days=3, commits=60, kept=20, visit=20)


def test_tables_are_on_the_last_day_as_on_the_first(tmp_path: Path) -> None:
    days = simulate(tmp_path, PLAN)
    bronze, latest = ([day for day in days if day.table == name] for name in ("bronze", "latest"))
    for table in (bronze, latest):
        assert all(day.log_files <= PLAN.kept + 2 * SUMMARY + 10 for day in table)  # 200 without upkeep
        assert all(day.beside <= 1.25 * table[0].beside for day in table)
        assert all(day.beside_files <= PLAN.kept + PLAN.visit for day in table)
    assert [day.rows for day in bronze] == [ROWS * PLAN.commits * number for number in (1, 2, 3)]
    assert all(day.files <= day.day + 2 * FEW for day in bronze)  # 180 without upkeep
    assert all((day.rows, day.files) == (TOPICS, math.ceil(TOPICS / SMALLEST)) for day in latest)
    positions = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table(columns=["position"])["position"].to_pylist()
    assert sorted(positions) == list(range(1, 3 * ROWS * PLAN.commits + 1))


def test_without_upkeep_everything_grows_and_figures_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["--days", "2", "--commits", "10", "--without-upkeep", "--json", str(file)]) == 0
    assert "log bytes" in capsys.readouterr().out
    found = json.loads(file.read_text())
    expected = {"days": 2, "commits": 10, "kept": 600, "visit": 60, "upkeep": False, "period": 86_400.0, "links": False}
    assert found["plan"] == expected
    first, last = (day for day in found["days"] if day["table"] == "bronze")
    assert last["files"] == 2 * first["files"] == 20 and last["log_files"] > first["log_files"]


def test_hours_of_a_commit_a_second_are_figures_of_hours(tmp_path: Path) -> None:
    """Here with fewer commits: links in place of files change nothing of what is measured."""
    hours = simulate(tmp_path, Plan(days=3, commits=60, kept=20, visit=20, period=60.0, links=True))
    bronze = [hour for hour in hours if hour.table == "bronze"]
    assert [hour.rows for hour in bronze] == [ROWS * 60 * number for number in (1, 2, 3)]
    assert all(hour.files <= 2 * FEW + 2 for hour in bronze)


def test_a_commit_of_latest_writes_what_changed(tmp_path: Path) -> None:
    found = bytes_of_latest(tmp_path, topics=2_000, changed=4, commits=30)
    whole = found.pop("the whole table")
    assert set(found) == {"the same ones", "any", "1/12 of all in turn"}
    assert all(0 < size < whole / 2 for size in found.values())
    assert found["the same ones"] < whole / 10
