"""The edge experiment: its arithmetic without any clock, and short slices of it in real time."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headwater.edge.copies import Copy
from headwater.edge.mirror import Report
from headwater.fleet.process import BrokerError
from headwater_lab.cli.reproduce import reproduce as app
from headwater_lab.reproduce.edge import experiment, ground, plan, results, tables, written
from headwater_lab.reproduce.edge.cloud import Arrival
from headwater_lab.reproduce.edge.devices import Begin, Sent, made
from headwater_lab.reproduce.edge.findings import Findings
from headwater_lab.reproduce.edge.ground import Ground, Stored
from headwater_lab.reproduce.edge.late import LateOutcome
from headwater_lab.reproduce.edge.plan import SCENARIOS, Line, Load, Scenario, Tier
from headwater_lab.reproduce.edge.results import measured
from headwater_lab.reproduce.edge.trial import EdgeOutcome, expect
from headwater_lab.reproduce.page import markdown, rich_table
from headwater_lab.reproduce.process import Process, ProcessError

FACTS = {"cpu": "a good one", "seed": "7"}
BEGIN = Begin(100.0, 1_700_000_000_000_000)
FIRST, *_, FIFTH, SIXTH = SCENARIOS
SMALL = Load("", "a small one", 1, 40)
FAST = Load("x100", "a fast one", 100, 40)


def outcome(scenario: Scenario = FIRST, load: Load = SMALL, seed: int = 7, late: float = 0.002) -> EdgeOutcome:
    """A run in which each message took `late` seconds, and the k-th a millisecond more for each k."""
    log = made(load, seed, BEGIN.wall)
    nexts: Counter[int] = Counter()
    arrivals, rest = [], []
    for number, row in enumerate(log):
        tier = scenario.owner(row[0])
        nexts[tier] += 1
        arrivals.append(Arrival(BEGIN.at + number / load.rate + late + number / 1000, tier, nexts[tier], *row))
        rest.append(Stored(tier, Copy(nexts[tier], *row)))
    cpu = {
        tier.name: [(0.5 * number, 3.0 + place + 0.25 * number) for number in range(1, 5)]
        for place, tier in enumerate(scenario.tiers)
    }
    used = {tier.name: 0.004 for tier in scenario.tiers}
    return EdgeOutcome(scenario, load, seed, BEGIN, Sent(len(log), 0.0005), cpu, used, log, arrivals, rest)


def late_outcome(scenario: Scenario = FIRST) -> LateOutcome:
    load = Load("late", "late", 5, 40)
    log = made(load, 7, BEGIN.wall)
    copies: list[list[Copy]] = [[] for _ in scenario.delivery]
    for row in log:
        mine = copies[scenario.owner(row[0])]
        mine.append(Copy(len(mine) + 1, *row))
    reports = [Report("s1", 40, 20, 20, 0, 0, 0, 40, 0, False, {}) for _ in copies]
    return LateOutcome(scenario, load, 7, 19, reports, log, copies)


def findings() -> Findings:
    runs = [measured(outcome(seed=7 + number, late=0.002 * (number + 1))) for number in range(2)]
    runs += [measured(outcome(load=FAST)), measured(outcome(SIXTH)), measured(outcome(SIXTH, FAST))]
    return Findings(FACTS, runs, [late_outcome(), late_outcome(SIXTH)])


# ---- the plan ----------------------------------------------------------------------------------------------------


def test_the_plan_is_the_papers() -> None:
    whole = plan.plan(quick=False)
    assert (whole.paper.readings, whole.paper.rate, whole.paper.seconds, whole.runs) == (400, 20.0, 20.0, 3)
    assert [(load.name, load.rate) for load in whole.higher] == [("x100", 2000.0), ("x1000", 20000.0)]
    topics = whole.paper.fleet(1).topics()
    assert len(topics) == 20
    assert topics[:4] == ["temperature/room0", "humidity/room0", "temperature/room1", "humidity/room1"]
    tiers = [(len(each.receiving), len(each.delivery), len({tier.edge for tier in each.tiers})) for each in SCENARIOS]
    assert tiers == [(1, 1, 1), (1, 1, 1), (1, 2, 1), (2, 2, 2), (2, 2, 2), (2, 4, 2)]
    assert [each.is_split for each in SCENARIOS] == [False, True, True, True, True, True]
    assert [each.number for each in SCENARIOS if each.moved] == [5, 6]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_delivery_tiers_share_the_work_at_any_time(scenario: Scenario) -> None:
    """Each topic has one owner, and of ten readings, those of half a second, each tier has about its share."""
    topics = SMALL.fleet(1).topics()
    for begin in (0, 10):
        shares = Counter(scenario.owner(topic) for topic in topics[begin : begin + 10])
        assert set(shares) == set(range(len(scenario.delivery)))
        assert max(shares.values()) - min(shares.values()) <= 2


@pytest.mark.parametrize("scenario", [FIFTH, SIXTH], ids=["5", "6"])
def test_half_of_the_devices_are_in_the_area_of_the_other_edge(scenario: Scenario) -> None:
    topics = SMALL.fleet(1).topics()
    edges = [(scenario.receiving[scenario.receiver(each)].edge, scenario.delivery[scenario.owner(each)].edge)
             for each in topics]  # fmt: skip
    assert [here != home for here, home in edges] == [scenario.is_forwarded(topic) for topic in topics]
    assert sum(here != home for here, home in edges) == 10
    assert scenario.is_forwarded(topics[-1])  # the 400th reading's, whose latency the paper shows
    assert {home for here, home in edges if here != home} == {"north", "south"}


def test_nothing_crosses_between_the_edges_of_scenario_4() -> None:
    fourth = SCENARIOS[3]
    for topic in SMALL.fleet(1).topics():
        assert fourth.receiving[fourth.receiver(topic)].edge == fourth.delivery[fourth.owner(topic)].edge


def test_a_quick_run_has_time_for_all_of_it() -> None:
    quick = plan.plan(quick=True)
    assert quick.paper == plan.plan(quick=False).paper
    together = (quick.paper.seconds + quick.late.seconds) * len(quick.scenarios) / quick.at_once
    assert quick.runs * (together + len(quick.scenarios) * sum(load.seconds for load in quick.higher)) < 70


def test_what_the_devices_made_can_be_said_again() -> None:
    assert made(SMALL, 7, BEGIN.wall) == made(SMALL, 7, BEGIN.wall)
    assert made(SMALL, 7, BEGIN.wall) != made(SMALL, 8, BEGIN.wall)


# ---- results -----------------------------------------------------------------------------------------------------


def test_latency_is_from_the_deadline_of_a_reading() -> None:
    assert results.latencies(outcome()) == pytest.approx([2.0 + number for number in range(40)])
    [summary] = results.summarised([measured(outcome()), measured(outcome(late=0.004))])
    assert (summary.mean, summary.most) == (pytest.approx(22.5), pytest.approx(43.0))
    assert summary.last == (pytest.approx(41.0), pytest.approx(43.0))


def test_the_last_reading_is_not_whatever_came_last() -> None:
    good = outcome()
    run = measured(good._replace(mqtt=good.mqtt[::-1]))
    assert run.last == pytest.approx(41.0)
    assert measured(good._replace(mqtt=good.mqtt[:-1])).last is None


def test_where_devices_have_moved_latency_is_of_what_was_forwarded() -> None:
    run = measured(outcome(FIFTH))
    assert list(run.numbers) == [*range(10, 20), *range(30, 40)]
    assert list(run.latencies) == pytest.approx([2.0 + number for number in run.numbers])
    assert run.by_mqtt == 40
    assert list(measured(outcome(SCENARIOS[3])).numbers) == list(range(40))


def test_the_line_goes_through_the_means_of_the_runs() -> None:
    line = results.fitted([[(1.0, 2.0), (2.0, 4.0)], [(1.0, 4.0), (2.0, 8.0)]])
    assert (line.slope, line.intercept) == (pytest.approx(3.0), pytest.approx(0.0))
    assert results.fitted([[(0.5, 7.0)]]) == Line(0.0, 7.0)
    assert results.fitted([[]]) == Line(0.0, 0.0)


def test_cpu_is_that_of_a_delivery_tier() -> None:
    """Tiers of scenario 6 in order: receiving, two delivery, and the same again; each has 1 % more than the last."""
    [summary] = results.summarised([measured(outcome(SIXTH))])
    assert (summary.cpu.slope, summary.cpu.intercept) == (pytest.approx(0.5), pytest.approx(3.0 + (1 + 2 + 4 + 5) / 4))
    assert [tier.cpu.intercept for tier in summary.tiers] == pytest.approx([3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert summary.per_message == pytest.approx(6 * 4000 / 40)
    assert summary.per_message_delivery == pytest.approx(4 * 4000 / 40)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_equal_logs_miss_nothing(scenario: Scenario) -> None:
    assert (results.missing(outcome(scenario)), results.unequal(outcome(scenario))) == (0, 0)
    assert results.late_missing(late_outcome(scenario)) == 0


@pytest.mark.parametrize("log", ["mqtt", "rest"])
def test_what_is_not_in_a_log_is_missing(log: str) -> None:
    good = outcome(FIFTH)
    rows = getattr(good, log)
    lost = good._replace(**{log: rows[:3] + rows[4:]})
    twice = good._replace(**{log: [*rows, rows[0]]})
    assert (results.missing(lost), results.unequal(lost)) == (1, 1)
    assert results.missing(twice) == 1


def test_another_payload_is_missing_and_unequal() -> None:
    good = outcome(FIFTH)
    other = b'{"number":0,'
    by_mqtt = good._replace(mqtt=[good.mqtt[0]._replace(payload=other), *good.mqtt[1:]])
    tier, copy = good.rest[0]
    by_rest = good._replace(rest=[Stored(tier, copy._replace(payload=other)), *good.rest[1:]])
    for wrong in (by_mqtt, by_rest):
        assert (results.missing(wrong), results.unequal(wrong)) == (1, 1)


def test_what_another_tier_has_is_missing_where_it_belongs() -> None:
    good = outcome(FIFTH)
    tier, copy = good.rest[0]
    stray = good._replace(rest=[Stored(1 - tier, copy), *good.rest[1:]])
    both = good._replace(rest=[*good.rest, Stored(1 - tier, copy._replace(position=1000))])
    assert results.missing(stray) == 1
    assert (results.missing(both), results.unequal(both)) == (1, 1)


def test_another_position_is_unequal_though_nothing_is_missing() -> None:
    good = outcome()
    [(_, one), (_, other), *rest] = good.rest
    swapped = good._replace(rest=[Stored(0, one._replace(position=2)), Stored(0, other._replace(position=1)), *rest])
    assert (results.missing(swapped), results.unequal(swapped)) == (0, 2)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda rows: rows[1:], 1),
        (lambda rows: rows[::-1], 1),
        (lambda rows: rows + rows[:2], 2),
    ],
)
def test_a_late_cloud_has_everything_in_order(change: Callable[[list[Copy]], list[Copy]], wrong: int) -> None:
    for scenario in (FIRST, SCENARIOS[1]):
        good = late_outcome(scenario)
        assert results.late_missing(good._replace(copies=[change(good.copies[0])])) == wrong


def test_no_order_is_asked_of_what_came_in_at_two_nodes() -> None:
    good = late_outcome(FIFTH)
    one, *others = good.copies
    near = [copy for copy in one if not FIFTH.is_forwarded(copy.topic)]
    far = [copy for copy in one if FIFTH.is_forwarded(copy.topic)]
    assert near and far
    assert results.late_missing(good._replace(copies=[far + near, *others])) == 0
    assert results.late_missing(good._replace(copies=[far[::-1] + near, *others])) == 1
    assert results.late_missing(good._replace(copies=[far, *others])) == len(near)


def test_names_that_programs_read() -> None:
    listed = {record["name"]: record for record in findings().records()}
    for scenario in ("scenario1", "scenario6", "x100", "scenario6/x100"):
        for figure in (
            *("latency_mean_ms", "latency_max_ms", "latency_last_mean_ms"),
            *("cpu_slope", "cpu_intercept", "cpu_mean", "cpu_per_message_us", "missing", "unequal"),
        ):
            assert f"{scenario}/{figure}" in listed
    assert listed.keys() >= {"late/recovered", "late/missing", "late1/missing", "late6/missing"}
    assert listed["scenario1/cpu_slope"] == {"name": "scenario1/cpu_slope", "paper": 0.33, "ours": 0.5, "unit": "%/s"}
    assert [listed[f"scenario{number}/cpu_intercept"]["paper"] for number in (1, 6)] == [23.65, 10.56]
    assert listed["scenario1/missing"] == {"name": "scenario1/missing", "paper": 0, "ours": 0, "unit": "messages"}
    south, north = (cast(float, listed[f"scenario6/{node}/cpu_mean"]["ours"]) for node in ("south-d2", "north-d1"))
    assert south > north
    assert listed["late/recovered"]["ours"] == 20
    assert listed["late6/recovered"]["ours"] == 80
    assert {record["paper"] for name, record in listed.items() if "x100/" in str(name)} == {None}
    assert len(listed) == len(findings().records())


def test_the_papers_figures_are_those_of_their_scenarios() -> None:
    runs = [measured(outcome(scenario)) for scenario in SCENARIOS]
    listed = {record["name"]: record["paper"] for record in Findings(FACTS, runs).records()}
    slopes = [listed[f"scenario{number}/cpu_slope"] for number in range(1, 7)]
    assert slopes == [0.33, 0.16, 0.09, 0.03, -0.01, 0.01]
    last = [listed[f"scenario{number}/latency_last_mean_ms"] for number in range(1, 7)]
    assert last == [None, 30.0, None, None, 29.0, None]


def test_large_logs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(outcome()).logs is not None
    monkeypatch.setattr(results, "MOST_LOGGED", 39)
    assert measured(outcome()).logs is None


def test_what_is_wrong_is_counted() -> None:
    assert findings().wrong == 0
    good = outcome()
    lost = measured(good._replace(mqtt=good.mqtt[1:]))
    late = late_outcome(SIXTH)
    assert Findings(FACTS, [lost], [late]).wrong == 2
    assert Findings(FACTS, [lost], [late._replace(copies=[late.copies[0][1:], *late.copies[1:]])]).wrong == 3


# ---- pages -------------------------------------------------------------------------------------------------------


def test_tables_have_the_paper_beside_ours() -> None:
    shown = "\n\n".join(markdown(table) for table in findings().tables())
    assert "| 1: one edge, not split | y = 0.33x + 23.65 | about 30 | y = 0.50x + 3.00 | 3.6 |" in shown
    sixth = "| 6: two edges of 1 + 2, with traffic between |"
    assert f"{sixth} 2 | 2×2 | 2 | 2×2 | 6 | 10 of 20 |" in shown
    assert f"{sixth} 600 (400) | 600 (400) |" in shown
    assert f"{sixth}  | 26.50 |" in shown  # of what was forwarded
    assert "| x100 | 21.50 | 22.00 |" in shown
    assert "| late" not in shown and "| a late cloud, scenario6 | 40 × 1 | 0 | 0 |  |" in shown
    console = Console(width=160, record=True)
    for table in findings().tables():
        console.print(rich_table(table))
    assert "y = 0.50x" in console.export_text()


def test_the_papers_rivals_are_shown_as_it_shows_them() -> None:
    qest, gaas, pulga = tables.rival_tables()
    assert [row[1][:2].strip(":") for row in qest.rows] == ["++", "++", "-", "++"]
    assert [row[2].partition(":")[0] for row in qest.rows] == ["+", "+", "++", "+"]
    assert [row[2].partition(":")[0] for row in gaas.rows] == ["+", "-", "++", "++"]
    assert [row[2].partition(":")[0] for row in pulga.rows] == ["-", "-", "++"]
    pages = Path(__file__).parents[2] / "docs"
    for table in (qest, gaas, pulga):
        assert "| --- | --- | --- | --- |" in markdown(table)
        for row in table.rows:
            for word in row[3].replace("(", " ").replace(")", " ").split():
                assert not word.endswith(".md") or (pages / word).is_file()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (Line(-0.01, 17.16), "y = −0.01x + 17.16"),
        (Line(-0.001, 2.0), "y = 0.00x + 2.00"),
        (Line(0.33, 23.65), "y = 0.33x + 23.65"),
    ],
)
def test_lines_are_written_as_the_paper_does(line: Line, text: str) -> None:
    assert tables.equation(line) == text


def test_what_a_folder_gets(tmp_path: Path) -> None:
    files = {file.name for file in written.report(findings()).write(tmp_path / "out")}
    pictures = {"edge-9-cpu.svg", "edge-11-latency.svg", "edge-latency-by-reading.svg", "edge-cpu-per-message.svg"}
    assert files == {"edge.md", "edge.json", "edge-cpu.csv", "edge-logs.csv", *pictures}
    assert files == {path.name for path in (tmp_path / "out").iterdir()}
    page = (tmp_path / "out" / "edge.md").read_text()
    assert "- seed: 7" in page
    assert "![edge-9-cpu](edge-9-cpu.svg)" in page
    with (tmp_path / "out" / "edge-logs.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 5 * 3 * 40
    assert [row["log"] for row in rows[:120]] == ["made"] * 40 + ["mqtt"] * 40 + ["rest"] * 40
    assert {row["tier"] for row in rows if row["scenario"] == "scenario6"} == {
        "", "north-d1", "north-d2", "south-d1", "south-d2"
    }  # fmt: skip
    with (tmp_path / "out" / "edge-cpu.csv").open(newline="") as lines:
        assert {row["tier"] for row in csv.DictReader(lines)} >= {"node", "north-r", "south-d2"}
    assert json.loads((tmp_path / "out" / "edge.json").read_text())["machine"] == FACTS


# ---- in real time ------------------------------------------------------------------------------------------------


def test_slices_of_it() -> None:
    """One edge as it is, and two edges of six tiers: a second at ten times the rate, and a late cloud."""
    paper, late = Load("", "a slice", 10, 200), Load("late", "a late slice", 2, 200)
    small = plan.Plan(1, 2, paper, late, (Load("x20", "faster", 20, 200),), (FIRST, SIXTH))
    found = experiment.experiment(small, FACTS, 7, Console(quiet=True))
    assert found.wrong == 0
    assert [run.label for run in found.runs] == ["scenario1", "scenario6", "x20", "scenario6/x20"]
    for run in found.runs:
        assert run.by_mqtt == run.by_rest == run.made == 200
        assert run.cpu.keys() == run.used.keys() == {tier.name for tier in run.scenario.tiers}
        assert min(run.latencies) > 0.0
        assert all(seconds > 0.0 for seconds in run.used.values())
    whole, split = found.runs[:2]
    assert [len(samples) for samples in (*whole.cpu.values(), *split.cpu.values())] == [2] * 7
    assert len(whole.latencies) == 200
    assert len(split.latencies) == 100
    assert split.logs is not None
    by_tier = [sorted(each.position for each in split.logs.mqtt if each.tier == tier) for tier in range(4)]
    assert [len(positions) for positions in by_tier] == [50] * 4
    assert all(positions == list(range(positions[0], positions[0] + 50)) for positions in by_tier)
    assert [late.scenario.number for late in found.lates] == [1, 6]
    for each in found.lates:
        assert each.recovered >= each.before > 50
        assert each.recovered + each.live == 200
    assert any(each.live for each in found.lates)


class _Swapped(Ground):
    """Its two delivery tiers own what the other one should."""

    def _options(self, tier: Tier, links: dict[str, int]) -> list[str]:
        owns = {each.name: each.owns for each in self.scenario.delivery}
        names = list(owns)
        other = owns.get(names[1 - names.index(tier.name)], ()) if tier.name in owns else ()
        return super()._options(replace(tier, owns=other), links)


def test_a_run_does_not_begin_while_messages_go_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "READY_LIMIT", 1.5)
    swapped = _Swapped(SCENARIOS[2])
    with pytest.raises(BrokerError, match="the tiers of scenario3 did not find their owners"), swapped:
        pytest.fail("it has begun")
    for node in swapped.nodes.values():
        with pytest.raises(ProcessLookupError):
            os.kill(node.pids()[0], 0)


class _Broken(Ground):
    """One of its tiers cannot start."""

    def _options(self, tier: Tier, links: dict[str, int]) -> list[str]:
        wrong = ["--set", "nonsense=1"] if tier.name == "north-r" else []
        return super()._options(tier, links) + wrong


def test_a_tier_that_cannot_start_leaves_nobody_behind() -> None:
    broken = _Broken(SCENARIOS[1])
    with pytest.raises(BrokerError, match="unknown setting"), broken:
        pytest.fail("it has begun")
    [node] = broken._started
    with pytest.raises(ProcessLookupError):
        os.kill(node.pids()[0], 0)


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
    wrong.runs[0] = wrong.runs[0]._replace(missing=3)
    monkeypatch.setattr(experiment, "experiment", lambda *given: wrong)
    done = CliRunner().invoke(app, ["edge", "--quick"])
    assert done.exit_code == 1
    assert "3 messages are missing or differ" in done.output


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "NEEDED", ("fastapi", "nonsense_that_is_not_there"))
    done = CliRunner().invoke(app, ["edge", "--quick"])
    assert done.exit_code == 1
    assert "a node needs nonsense_that_is_not_there (pip install headwater-lab)" in done.output
