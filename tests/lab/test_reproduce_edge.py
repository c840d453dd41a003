"""The edge experiment: its arithmetic without any clock, and one short slice of it in real time."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headwater.edge.copies import Copy
from headwater.edge.mirror import Report
from headwater_lab.cli.reproduce import reproduce as app
from headwater_lab.reproduce.edge import experiment, plan, results, written
from headwater_lab.reproduce.edge.cloud import Arrival
from headwater_lab.reproduce.edge.devices import Begin, Sent, made
from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import Line, Scenario
from headwater_lab.reproduce.edge.results import measured
from headwater_lab.reproduce.edge.trial import EdgeOutcome, expect
from headwater_lab.reproduce.page import markdown, rich_table
from headwater_lab.reproduce.process import Process, ProcessError

FACTS = {"cpu": "a good one", "seed": "7"}
BEGIN = Begin(100.0, 1_700_000_000_000_000)
SMALL = Scenario("scenario1", "a small one", 1, 8, 2)


def outcome(scenario: Scenario = SMALL, seed: int = 7, late: float = 0.002) -> EdgeOutcome:
    """A run in which each message took `late` seconds, and the k-th a millisecond more for each k."""
    log = made(scenario, seed, BEGIN.wall)
    arrivals = [
        Arrival(BEGIN.at + number / scenario.rate + late + number / 1000, number + 1, *row)
        for number, row in enumerate(log)
    ]
    cpu = [(0.5 * number, 3.0 + 0.25 * number) for number in range(1, 5)]
    rest = [Copy(number + 1, *row) for number, row in enumerate(log)]
    return EdgeOutcome(scenario, seed, BEGIN, Sent(len(log), 0.0005), cpu, log, arrivals, rest)


def late_outcome() -> LateOutcome:
    log = made(SMALL, 7, BEGIN.wall)
    report = Report("s1", 8, 3, 5, 0, 0, 0, 8, 0, False)
    return LateOutcome(SMALL, 7, 4, report, log, [Copy(number + 1, *row) for number, row in enumerate(log)])


def findings() -> Findings:
    return Findings(FACTS, [measured(outcome()), measured(outcome(seed=8, late=0.004))], late_outcome())


# ---- the plan ----------------------------------------------------------------------------------------------------


def test_the_plan_is_the_papers() -> None:
    first, hundred, thousand = plan.scenarios(quick=False)
    assert (first.name, first.readings, first.rate, first.seconds, first.runs) == ("scenario1", 400, 20.0, 20.0, 3)
    assert (hundred.name, hundred.rate, thousand.name, thousand.rate) == ("x100", 2000.0, "x1000", 20000.0)
    topics = first.fleet(1).topics()
    assert len(topics) == 20
    assert topics[:4] == ["temperature/room0", "humidity/room0", "temperature/room1", "humidity/room1"]


def test_a_quick_run_has_time_for_all_of_it() -> None:
    quick = plan.scenarios(quick=True)
    assert quick[0] == replace(plan.scenarios(quick=False)[0], runs=1)
    assert sum(each.seconds * each.runs for each in [*quick, plan.late(quick=True)]) < 35


def test_what_the_devices_made_can_be_said_again() -> None:
    assert made(SMALL, 7, BEGIN.wall) == made(SMALL, 7, BEGIN.wall)
    assert made(SMALL, 7, BEGIN.wall) != made(SMALL, 8, BEGIN.wall)


# ---- results -----------------------------------------------------------------------------------------------------


def test_latency_is_from_the_deadline_of_a_reading() -> None:
    assert results.latencies(outcome()) == pytest.approx([2.0 + number for number in range(8)])
    [summary] = results.summarised([measured(outcome()), measured(outcome(late=0.004))])
    assert (summary.mean, summary.most) == (pytest.approx(6.5), pytest.approx(11.0))
    assert summary.last == (pytest.approx(9.0), pytest.approx(11.0))


def test_the_line_goes_through_the_means_of_the_runs() -> None:
    line = results.fitted([[(1.0, 2.0), (2.0, 4.0)], [(1.0, 4.0), (2.0, 8.0)]])
    assert (line.slope, line.intercept) == (pytest.approx(3.0), pytest.approx(0.0))
    assert results.fitted([[(0.5, 7.0)]]) == Line(0.0, 7.0)
    assert results.fitted([[]]) == Line(0.0, 0.0)


def test_equal_logs_miss_nothing() -> None:
    assert (results.missing(outcome()), results.unequal(outcome())) == (0, 0)


@pytest.mark.parametrize("log", ["mqtt", "rest"])
def test_what_is_not_in_a_log_is_missing(log: str) -> None:
    good = outcome()
    rows = getattr(good, log)
    lost = good._replace(**{log: rows[:3] + rows[4:]})
    twice = good._replace(**{log: [*rows, rows[0]]})
    other = good._replace(**{log: [rows[0]._replace(payload=b'{"number":0,'), *rows[1:]]})
    assert (results.missing(lost), results.unequal(lost)) == (1, 1)
    assert results.missing(twice) == 1
    assert (results.missing(other), results.unequal(other)) == (1, 1)


def test_another_position_is_unequal_though_nothing_is_missing() -> None:
    good = outcome()
    swapped = good._replace(rest=[good.rest[0]._replace(position=2), good.rest[1]._replace(position=1), *good.rest[2:]])
    assert (results.missing(swapped), results.unequal(swapped)) == (0, 2)


def test_a_late_cloud_has_everything_in_order() -> None:
    good = late_outcome()
    assert results.late_missing(good) == 0
    assert results.late_missing(good._replace(copies=good.copies[1:])) == 1
    assert results.late_missing(good._replace(copies=good.copies[::-1])) == 1
    assert results.late_missing(good._replace(copies=good.copies + good.copies[:2])) == 2


def test_names_that_programs_read() -> None:
    listed = {record["name"]: record for record in findings().records()}
    assert {"scenario1/latency_mean_ms", "scenario1/latency_max_ms", "late/recovered"} <= listed.keys()
    assert listed["scenario1/cpu_slope"] == {"name": "scenario1/cpu_slope", "paper": 0.33, "ours": 0.5, "unit": "%/s"}
    assert listed["scenario1/cpu_intercept"]["paper"] == 23.65
    assert listed["scenario1/missing"] == {"name": "scenario1/missing", "paper": 0, "ours": 0, "unit": "messages"}
    assert listed["late/recovered"]["ours"] == 5
    other = Findings(FACTS, [measured(outcome(replace(SMALL, name="x100")))], None)
    assert {record["paper"] for record in other.records()} == {None}


def test_large_logs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(outcome()).logs is not None
    monkeypatch.setattr(results, "MOST_LOGGED", 7)
    assert measured(outcome()).logs is None


def test_what_is_wrong_is_counted() -> None:
    assert findings().wrong == 0
    good = outcome()
    assert Findings(FACTS, [measured(good._replace(mqtt=good.mqtt[1:]))], late_outcome()).wrong == 2


# ---- pages -------------------------------------------------------------------------------------------------------


def test_tables_have_the_paper_beside_ours() -> None:
    shown = "\n\n".join(markdown(table) for table in findings().tables())
    assert "| a small one | y = 0.33x + 23.65 | y = 0.50x + 3.00 | 3.6 |" in shown
    assert "about 30" in shown
    console = Console(width=120, record=True)
    for table in findings().tables():
        console.print(rich_table(table))
    assert "y = 0.50x" in console.export_text()


def test_what_a_folder_gets(tmp_path: Path) -> None:
    files = {file.name for file in written.report(findings()).write(tmp_path / "out")}
    pictures = {"edge-9-cpu.svg", "edge-11-latency.svg", "edge-latency-by-reading.svg"}
    assert files == {"edge.md", "edge.json", "edge-cpu.csv", "edge-logs.csv", *pictures}
    assert files == {path.name for path in (tmp_path / "out").iterdir()}
    page = (tmp_path / "out" / "edge.md").read_text()
    assert "- seed: 7" in page
    assert "![edge-9-cpu](edge-9-cpu.svg)" in page
    with (tmp_path / "out" / "edge-logs.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 3 * 8
    assert [row["log"] for row in rows[:24]] == ["made"] * 8 + ["mqtt"] * 8 + ["rest"] * 8
    assert json.loads((tmp_path / "out" / "edge.json").read_text())["machine"] == FACTS


# ---- in real time ------------------------------------------------------------------------------------------------


def test_a_slice_of_it() -> None:
    """A second at ten times the rate, and a late cloud: processes, sockets, a node."""
    scenario = Scenario("x10", "a slice", 10, 200, 1)
    late = Scenario("late", "a late slice", 10, 200, 1)
    found = experiment.experiment([scenario], late, FACTS, 7, Console(quiet=True))
    assert found.wrong == 0
    [run] = found.runs
    assert len(run.latencies) == run.by_rest == run.made == 200
    assert run.logs is not None
    assert [arrival.position for arrival in run.logs.mqtt] == list(range(1, 201))
    assert len(run.cpu) == 2
    assert all(percent > 0.0 for _, percent in run.cpu)
    assert min(run.latencies) > 0.0
    assert found.late is not None
    assert found.late.report.recovered >= found.late.before > 50
    assert found.late.report.live > 0


def _fail(parent: object) -> None:
    parent.send("no luck")  # type: ignore[attr-defined]


def test_a_process_that_fails_is_named() -> None:
    with Process("devices", _fail) as process, pytest.raises(ProcessError, match="the devices failed: no luck"):
        expect(process, Sent, 30.0)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "experiment", lambda *given: findings())
    done = CliRunner().invoke(app, ["edge", "--quick", "--json", str(tmp_path / "j"), "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert {record["name"] for record in json.loads((tmp_path / "j").read_text())} >= {"scenario1/missing"}
    assert "equality of the logs" in done.output
    wrong = findings()
    wrong.summaries = [wrong.summaries[0]._replace(missing=3)]
    monkeypatch.setattr(experiment, "experiment", lambda *given: wrong)
    done = CliRunner().invoke(app, ["edge", "--quick"])
    assert done.exit_code == 1
    assert "3 messages are missing or differ" in done.output


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "NEEDED", ("fastapi", "nonsense_that_is_not_there"))
    done = CliRunner().invoke(app, ["edge", "--quick"])
    assert done.exit_code == 1
    assert "a node needs nonsense_that_is_not_there (pip install headwater-lab)" in done.output
