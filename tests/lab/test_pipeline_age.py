"""A few days of a simulated month: files, bytes and logs do not grow with age. Times are for the benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.pipeline.lake.keeping import Keeping
from headwater_lab.pipeline_age import ROWS, TOPICS, Plan, main, simulate

FEW, SUMMARY = Keeping().few_files, Keeping().checkpoint_every
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
    assert all((day.rows, day.files) == (TOPICS, 1) for day in latest)
    positions = DeltaTable(str(tmp_path / "bronze")).to_pyarrow_table(columns=["position"])["position"].to_pylist()
    assert sorted(positions) == list(range(1, 3 * ROWS * PLAN.commits + 1))


def test_without_upkeep_everything_grows_and_figures_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["--days", "2", "--commits", "10", "--without-upkeep", "--json", str(file)]) == 0
    assert "log bytes" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert found["plan"] == {"days": 2, "commits": 10, "kept": 600, "visit": 60, "upkeep": False}
    first, last = (day for day in found["days"] if day["table"] == "bronze")
    assert last["files"] == 2 * first["files"] == 20 and last["log_files"] > first["log_files"]
