"""The simulation does what it says, and in it `adaptive` is as good as it is claimed to be."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from headwater_lab.balance_scenarios import EQUAL, FOUR, UNEQUAL, Case, cases, crowd, group
from headwater_lab.balance_simulation import Scenario, SimulationOutcome, Worker, jain, simulate

REPORTS = Scenario("reports", UNEQUAL, 0.0104, 15.0)
ACKS = replace(REPORTS, name="acks", qos=1, reports=0.0)
PHASES = [0.0, 0.2, 0.35, 0.5, 0.7, 0.85]

both_ways = pytest.mark.parametrize("scenario", [REPORTS, ACKS], ids=["reports", "acks"])


def one_worker(worker: Worker, count: int = 4) -> list[float]:
    outcome = simulate(Scenario("one", (worker,), 0.05, 0.05 * count - 0.01), "round_robin")
    return [round(1000.0 * latency, 6) for latency in outcome.latencies]


@pytest.mark.parametrize(
    ("worker", "latencies"),
    [
        (Worker(0.05), [0, 0, 0, 0]),
        (Worker(0.08), [0, 30, 60, 90]),
        (Worker(0.05, delay=0.01), [10, 10, 10, 10]),
        (Worker(0.05, slow=((0.05, 0.06, 2.0),)), [0, 0, 50, 50]),
        (Worker(0.05, frozen=((0.06, 0.16),)), [0, 0, 100, 100]),
        (Worker(0.05, frozen=((0.05, 0.15),)), [0, 100, 100, 100]),
    ],
)
def test_a_worker_does_one_after_the_other(worker: Worker, latencies: list[float]) -> None:
    assert one_worker(worker) == latencies


def test_who_leaves_gets_no_more_and_who_joins_gets_some() -> None:
    workers = (Worker(0.01), Worker(0.01, leaves=1.0), Worker(0.01, joins=2.0))
    outcome = simulate(Scenario("visits", workers, 0.1, 2.95), "round_robin")
    assert sum(outcome.counts) == len(outcome.latencies) == 30
    assert outcome.counts[1] == 5
    assert outcome.counts[2] in (4, 5)


def test_reports_come_at_their_interval_and_early_when_the_queue_grows() -> None:
    idle = Scenario("idle", EQUAL, 0.1, 10.0, early=False)
    assert simulate(idle, "round_robin").reports == 30
    assert simulate(replace(idle, reports=0.0), "round_robin").reports == 0
    overloaded = Scenario("overloaded", (Worker(1.0),), 0.1, 10.0, early=False)
    assert simulate(overloaded, "round_robin").reports == 10
    assert simulate(replace(overloaded, early=True), "round_robin").reports > 40


def test_a_run_can_be_repeated() -> None:
    scenario = crowd(10, 0.8, 500)
    first, second, other = (simulate(scenario, "random", seed).latencies for seed in (1, 1, 2))
    assert first == second != other


def test_the_paper_is_met_by_round_robin_and_the_bound() -> None:
    assert simulate(REPORTS, "round_robin").mean == pytest.approx(1.492, rel=0.02)
    assert simulate(REPORTS, "bound").mean < 0.0021
    assert simulate(replace(REPORTS, period=0.0100), "bound").mean == pytest.approx(0.002, rel=0.05)


@both_ways
@pytest.mark.parametrize("begins", [0.0, 2.4], ids=["from the start", "after some reports"])
@pytest.mark.parametrize("phase", PHASES)
def test_adaptive_is_near_the_bound(scenario: Scenario, begins: float, phase: float) -> None:
    scenario = replace(scenario, begins=begins, phase=phase)
    assert simulate(scenario, "adaptive").mean <= 1.5 * simulate(scenario, "bound").mean


@both_ways
def test_adaptive_is_near_the_bound_on_a_real_network(scenario: Scenario) -> None:
    scenario = replace(scenario, varying=0.02, workers=tuple(replace(each, delay=0.0005) for each in UNEQUAL))
    means = [(simulate(scenario, "adaptive", seed).mean, simulate(scenario, "bound", seed).mean) for seed in range(5)]
    assert all(mean <= 2.0 * bound for mean, bound in means), means


@both_ways
@pytest.mark.parametrize("period", [0.0104, 0.0100])
def test_equal_members_get_equal_shares_as_with_round_robin(scenario: Scenario, period: float) -> None:
    scenario = replace(scenario, workers=EQUAL, period=period)
    outcome = simulate(scenario, "adaptive")
    assert outcome.mean <= simulate(scenario, "round_robin").mean
    assert max(outcome.counts) - min(outcome.counts) <= 3


def test_the_start_fault_of_score_shows_and_is_mended() -> None:
    late = [replace(REPORTS, begins=2.4, phase=phase) for phase in PHASES]
    faulty, mended, ours = (
        fmean(simulate(scenario, name).mean for scenario in late) for name in ("score", "score_mended", "adaptive")
    )
    assert faulty > 1.2 * mended
    assert mended > 2.0 * ours


SOME = [case for case in cases(quick=True) if case.part in ("paper", "troubles", "connection only")]


@pytest.mark.parametrize("case", SOME, ids=lambda case: f"{case.key}-{case.way}")
def test_adaptive_is_best_or_near_the_best(case: Case) -> None:
    scenario = case.seeded(1)
    names = ("round_robin", "least_pending", "score_mended")
    best = min(simulate(scenario, name).mean for name in names)
    assert simulate(scenario, "adaptive").mean <= 1.1 * best + 0.0005


@pytest.mark.parametrize(("way", "most"), [("acks", 2), ("reports", 36)])
def test_what_a_freeze_of_three_seconds_costs(way: str, most: int) -> None:
    """Of 37 messages in a second it is sent one more if it acknowledges; if it reports, those of 1.2 s at most (at
    half of what the group can do, fewer), and never those of all three seconds, which round robin loses."""
    scenario = group(FOUR, 0.5, 15.0)
    frozen = replace(scenario, workers=(replace(scenario.workers[0], frozen=((5.0, 8.0),)), *scenario.workers[1:]))
    if way == "acks":
        frozen = replace(frozen, qos=1, reports=0.0)
    caught = [sum(late > 0.5 for late in simulate(frozen, name).latencies) for name in ("adaptive", "round_robin")]
    assert 0 < caught[0] <= most < caught[1]


@pytest.mark.parametrize("interval", [0.05, 1.0, 10.0])
def test_early_reports_make_the_interval_unimportant(interval: float) -> None:
    scenario = replace(REPORTS, reports=interval)
    assert simulate(scenario, "adaptive").mean <= 1.5 * simulate(scenario, "bound").mean


def in_ms(outcome: SimulationOutcome) -> float:
    return 1000.0 * outcome.mean


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("utilisation", [0.5, 0.8, 0.95])
def test_crowds_that_acknowledge(count: int, utilisation: float) -> None:
    scenario = replace(crowd(count, utilisation, 4_000), qos=1, reports=0.0)
    ours = in_ms(simulate(scenario, "adaptive"))
    assert ours <= 1.5 * in_ms(simulate(scenario, "bound")) + 1.0
    assert ours <= in_ms(simulate(scenario, "least_pending"))


@pytest.mark.parametrize("utilisation", [0.5, 0.8, 0.95])
def test_crowds_that_report(utilisation: float) -> None:
    scenario = crowd(30, utilisation, 4_000)
    assert in_ms(simulate(scenario, "adaptive")) <= 0.3 * in_ms(simulate(scenario, "least_pending"))


def test_a_thousand_members() -> None:
    scenario = replace(crowd(1_000, 0.8), qos=1, reports=0.0)
    outcome = simulate(scenario, "adaptive")
    assert in_ms(outcome) < 1.0
    assert outcome.fairness > 0.95
    assert min(outcome.counts) > 0


def test_fairness_is_that_of_what_each_can_do() -> None:
    assert jain([0.5, 0.5]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0, 0.0]) == 1.0
    visits = Scenario("visits", (Worker(0.01), Worker(0.01, leaves=1.0)), 0.02, 4.0)
    assert simulate(visits, "bound").fairness > 0.85, (
        "who is there for a quarter of the time does a quarter of the work"
    )


def test_the_bound_knows_of_ways_and_freezes() -> None:
    freezes = Scenario("freezes", (Worker(0.01, frozen=((1.0, 2.0),)), Worker(0.01)), 0.02, 3.0)
    assert max(simulate(freezes, "bound").latencies) < 0.011
    near = Scenario("near", (Worker(0.0125), Worker(0.0125, delay=0.05)), 0.01, 5.0)
    assert simulate(near, "bound").mean < 0.02, "who waits for a near one makes all wait that come later"


def test_what_waits_to_be_sent_is_seen_when_the_kernel_is_full() -> None:
    slow = replace(group((0.02, 0.1), 0.9, 20.0), reports=0.0, samples=0.1)
    blind, seeing = (simulate(replace(slow, size=size), "adaptive").mean for size in (100, 10_000))
    assert seeing < 0.5 * blind
    assert blind == pytest.approx(simulate(slow, "round_robin").mean, rel=0.1)
