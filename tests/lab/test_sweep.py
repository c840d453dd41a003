"""A function over a grid: the same here and on Spark."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headwater_lab.cli.reproduce import reproduce as app
from headwater_lab.reproduce.balance.grid import points, run_point
from headwater_lab.reproduce.interest import plan as interest
from headwater_lab.reproduce.interest.trial import run_point as run_interest
from headwater_lab.sweep import PointFailed, sweep
from tests.spark_of_the_process import borrowed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    with borrowed(one_spark) as session:
        yield session


def third(point: int) -> float:
    return point / 3.0


def fails_at_seven(point: int) -> int:
    if point % 10 == 7:
        raise ValueError(f"{point} is not liked")
    return point


def test_results_come_in_the_order_of_the_grid() -> None:
    told: list[tuple[int, int]] = []
    assert sweep(third, [3, 1, 2], watch=lambda *both: told.append(both)) == [1.0, 1 / 3.0, 2 / 3.0]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_empty_grid_asks_nobody() -> None:
    assert sweep(fails_at_seven, []) == []


def test_the_first_point_that_fails_is_named_with_what_happened() -> None:
    with pytest.raises(PointFailed, match=r"it fails for 7: ValueError: 7 is not liked") as failed:
        sweep(fails_at_seven, range(30))
    assert failed.value.point == 7
    assert "in fails_at_seven" in failed.value.trace


@pytest.mark.slow
class TestOnSpark:
    def test_results_are_the_same_to_the_bit(self, spark: SparkSession) -> None:
        grid = points(seeds=[3], quick=True)[::9]
        told: list[tuple[int, int]] = []
        assert sweep(run_point, grid, spark, lambda *both: told.append(both)) == sweep(run_point, grid)
        assert told[-1] == (len(grid), len(grid))
        assert told == sorted(told)

    def test_filters_and_topics_are_the_same_everywhere(self, spark: SparkSession) -> None:
        grid = [interest.Point(setup, "n_t", 50, trial, 1) for setup in "abc" for trial in range(3)]
        assert sweep(run_interest, grid, spark) == sweep(run_interest, grid)

    def test_more_points_than_tasks(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headwater_lab.sweep.MOST_TASKS", 3)
        grid = list(range(11, 0, -1))
        assert sweep(third, grid, spark) == [third(each) for each in grid]

    def test_the_first_point_that_fails_is_named_with_what_happened(self, spark: SparkSession) -> None:
        with pytest.raises(PointFailed, match=r"it fails for 17: ValueError: 17 is not liked") as failed:
            sweep(fails_at_seven, [5, 17, 7, 27], spark)
        assert failed.value.point == 17
        assert "in fails_at_seven" in failed.value.trace

    def test_an_empty_grid_is_no_job(self, spark: SparkSession) -> None:
        assert sweep(third, [], spark) == []


# ---- the balance grid ----------------------------------------------------------------------------------------------


def test_the_grid_has_every_dispatcher_in_every_setting_with_every_seed() -> None:
    grid = points(seeds=[1, 2])
    assert len(set(grid)) == len(grid) == 5 * 5 * 2 * 2 * 7 * 2
    assert len(points(seeds=[1], quick=True)) == 2 * 5 * 2 * 7


def test_the_thesis_settings_come_out_as_in_the_balance_scenarios() -> None:
    """25/25/50 ms at 96 %: round robin leaves the slow member behind, `adaptive` is near the bound."""
    means = {
        point.dispatcher: run_point(point).mean_ms
        for point in points(seeds=[1], quick=True)
        if (point.setting.members, point.setting.load, point.setting.way) == ("25/25/50", 0.96, "acks")
    }
    assert means["round_robin"] > 1_000.0 > 100.0 > means["adaptive"]
    assert means["bound"] <= means["adaptive"] < 1.2 * means["bound"]


def test_the_command_writes_what_it_promises(tmp_path: Path) -> None:
    out, json_file = tmp_path / "out", tmp_path / "figures.json"
    words = ["balance", "--sweep", "--quick", "--seeds", "1", "--seed", "3"]
    result = CliRunner().invoke(app, [*words, "--out", str(out), "--json", str(json_file)])
    assert result.exit_code == 0, result.output
    assert "25/25/50 at 96%" in result.output
    with (out / "balance-sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    grid = points(seeds=[3], quick=True)
    assert [row["dispatcher"] for row in rows] == [point.dispatcher for point in grid]
    assert float(rows[-1]["mean_ms"]) == run_point(grid[-1]).mean_ms
    assert {row["seed"] for row in rows} == {"3"}
    figures = {each["name"]: each["ours"] for each in json.loads(json_file.read_text())}
    assert figures["25/25/50/96%/0/acks/bound"] == float(rows[-1]["mean_ms"])
    assert (out / "balance-sweep.svg").read_text().count("25/25/50 ms, acks") == 1
    assert "| 25/25/50 at 96% |" in (out / "balance-sweep.md").read_text()


def test_a_spark_that_is_not_there_is_told_in_a_sentence() -> None:
    result = CliRunner().invoke(app, ["balance", "--spark", "spark:/x"])
    assert result.exit_code == 1
    assert "headwater reproduce balance --sweep: 'spark:/x' is no address of a Spark" in result.output
