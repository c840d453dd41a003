"""The bench of the balance scenarios: its rows, tables, figures and command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headwater_lab.balance_brokers import PLACES, brokers
from headwater_lab.balance_campaign import main, row, run
from headwater_lab.balance_figures import cpu_percent, draw_all, report_bytes
from headwater_lab.balance_scenarios import SHOWN, Case, cases
from headwater_lab.balance_simulation import Scenario, SimulationOutcome, Worker
from headwater_lab.balance_tables import Row, full_table, intervals_table, losses, means_table, summary

COST = {
    "costs": [
        {"what": "report", "per_second": 100.0, "microseconds": 40.0},
        {"what": "report", "per_second": 1100.0, "microseconds": 20.0},
        {"what": "plain", "per_second": 100.0, "microseconds": 1.0},
    ]
}


def a_row(dispatcher: str, mean: float, part: str = "paper", key: str = "k", way: str = "acks") -> Row:
    return Row(part, key, way, f"name of {key}", dispatcher, mean, 0.0, mean, mean, 1.0, 2.0)


def test_every_case_has_a_key_of_its_own() -> None:
    keys = [(case.part, case.key, case.way) for case in cases()]
    assert len(keys) == len(set(keys))
    assert {key[0] for key in keys} == {"paper", "troubles", "connection only", "crowds", "intervals"}
    assert {case.way for case in cases()} == {"reports", "acks", "connection"}
    assert all(case.scenario.qos == (case.way == "acks") for case in cases())


def test_a_row_sums_up_the_seeds() -> None:
    case = Case("paper", "k", "reports", Scenario("two", (Worker(0.1), Worker(0.1)), 0.1, 10.0))
    outcomes = [SimulationOutcome([0.001, 0.003], [1, 1], 1.0, 20), SimulationOutcome([0.003, 0.005], [1, 1], 0.5, 60)]
    got = row(case, "adaptive", outcomes)
    assert (got.mean_ms, got.spread_ms, got.fairness, got.reports_per_second) == pytest.approx((3.0, 1.0, 0.75, 2.0))


def test_every_dispatcher_gets_the_same_messages() -> None:
    case = next(case for case in cases(quick=True) if case.key == "scenario2")
    case = replace(case, scenario=replace(case.scenario, duration=2.0, varying=0.5))
    rows = run([case], [1], lambda row: None)
    assert [each.dispatcher for each in rows] == list(SHOWN)
    assert min(rows, key=lambda each: each.mean_ms).dispatcher == "bound"


def test_tables_name_the_best_and_the_losses() -> None:
    rows = [a_row("round_robin", 5.0), a_row("adaptive", 7.0), a_row("bound", 1.0)]
    assert "| name of k, acks | **5.00** | 7.00 | 1.00 |" in means_table(rows)
    assert full_table(rows).count("\n") == 4
    loss = ["name of k, acks: mean 7.00 ms, round_robin 5.00", "name of k, acks: p99 7.00 ms, round_robin 5.00"]
    assert losses(rows) == loss
    assert losses([a_row("round_robin", 6.9), a_row("adaptive", 7.0)]) == []
    assert "### Where adaptive loses\n\n- name of k" in summary(rows, None)


def test_the_bytes_of_a_report_are_counted_from_a_real_one() -> None:
    packet = b'{"msgsInQueue": 3, "processingTimePerMsg": 18.123}'
    assert report_bytes() == 2 + 1 + len(packet) + 2


def test_the_cost_of_reports_is_read_between_what_was_measured() -> None:
    assert cpu_percent(100.0, COST) == pytest.approx(0.4)
    assert cpu_percent(600.0, COST) == pytest.approx(600 * 30e-4)
    assert cpu_percent(10.0, COST) == pytest.approx(10 * 40e-4)
    assert cpu_percent(2000.0, COST) == pytest.approx(2000 * 20e-4)


def test_brokers_are_chosen_by_what_their_members_can_do() -> None:
    """Unequal members, unequally spread: blindly, the broker of three members is given as much as that of ten."""
    case, compared = next(each for each in brokers() if each[0].key == "unequal-80%")
    blind, by_capacity, ours = (
        compared[name](1) for name in ("3 brokers, in turn", "3 brokers, capacity", "1 broker, adaptive with acks")
    )
    of_last = [sum(outcome.counts[17:]) / sum(outcome.counts) for outcome in (blind, by_capacity)]
    capacities = [1.0 / worker.service for worker in case.scenario.workers]
    assert of_last[0] == pytest.approx(1 / 3, abs=0.01)
    assert of_last[1] == pytest.approx(sum(capacities[17:]) / sum(capacities), abs=0.06)
    assert PLACES.count(2) == 3
    assert ours.mean < 0.2 * by_capacity.mean < 0.2 * blind.mean


def test_the_command_writes_tables_figures_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.json"
    main(["--quick", "--part", "connection only", "--json", str(data)])
    assert "adaptive" in capsys.readouterr().out
    content = json.loads(data.read_text())
    assert content["seeds"] == [201, 202]
    assert {each["dispatcher"] for each in content["rows"]} == set(SHOWN)
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    main(["--from", str(data), "--out", str(tmp_path / "out"), "--doc", str(page)])
    assert "| 0.99 |" in (tmp_path / "out" / "balance-scenarios-figures.md").read_text()
    assert page.read_text().startswith("# Mine\n")
    assert "### Neither reports nor acknowledgements" in page.read_text()


INTERVALS = [
    a_row(dispatcher, 2.0, "intervals", f"{kind}-{interval}{early}")
    for kind in ("steady", "varying", "frozen")
    for early in ("", "-early")
    for dispatcher in ("adaptive", "bound")
    for interval in (1, 2)
]


def test_the_table_of_the_intervals() -> None:
    lines = intervals_table(INTERVALS, COST).splitlines()
    assert lines[2] == "| 1 s and early | 2.00 | 2.00 | 2.00 | 2.0 | 110 | 4.0 |"
    assert lines[-1] == "| bound | 2.00 | 2.00 | 2.00 | | | |"


def test_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [vars(a_row(name, 3.0, "crowds", f"{n}-50%")) for name in SHOWN for n in (3, 10)]
    rows += [vars(each) for each in INTERVALS]
    draw_all(rows, COST, tmp_path)
    assert "broker CPU" in (tmp_path / "balance-intervals.svg").read_text()
    assert "used to 50%" in (tmp_path / "balance-crowds.svg").read_text()
