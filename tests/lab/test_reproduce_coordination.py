"""The coordination experiment without any clock: placement, detector, limit, statistics, tables, the search."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headwater_lab.cli.reproduce import reproduce as app
from headwater_lab.reproduce.coordination import experiment, plan, trials
from headwater_lab.reproduce.coordination.detector import signs
from headwater_lab.reproduce.coordination.generator import Counted, Generator, Probe, Sample, Trial, read_probes
from headwater_lab.reproduce.coordination.placement import pairs, place, plan_text
from headwater_lab.reproduce.coordination.plan import SINGLE, Course, Setup
from headwater_lab.reproduce.coordination.results import (
    Results,
    Step,
    delivered_share,
    limit,
    rates,
    spread,
    summarised,
)
from headwater_lab.reproduce.coordination.systems import System, cluster_settings
from headwater_lab.reproduce.coordination.tables import all_tables
from headwater_lab.reproduce.coordination.written import report
from headwater_lab.reproduce.page import markdown

FACTS = {"cpu": "a good one"}


def sample(second: float, **changed: float) -> Sample:
    """So many seconds after the start, 2,000 messages each, with everything well."""
    whole = Sample(
        *(100.0 + second, int(2000 * second), int(2000 * second), int(20_000 * second), 0, 0),
        *(0.05 * second, 0.01 * second, 0.1 * second, 0.02 * second),
        *(0, 0, int(30_000 * second), 1.0, 0, 0),
        {"broker0": 0.2 * second, "broker1": 0.1 * second},
    )
    return replace(whole, **changed)  # type: ignore[arg-type]


def samples(**changed: float) -> list[Sample]:
    """Two seconds; what is changed grows with each half."""
    grown = [{name: value * number for name, value in changed.items()} for number in range(5)]
    return [sample(1.0 + 0.5 * number, **each) for number, each in enumerate(grown)]


def trial(setup: str = "single", placement: str = plan.LOCAL, purpose: str = "fixed", **changed: object) -> Trial:
    probes = [Probe(0, number, 101.0 + number / 10, 101.0 + number / 10, 101.001 + number / 10) for number in range(10)]
    counted = Counted(6000, 60_000, 60_000, 0, 0, 0)
    made = Trial(setup, placement, purpose, Course(25.0, 2.0), 0.01, samples(), probes, counted)
    return replace(made, **changed)  # type: ignore[arg-type]


# ---- placement ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.sampled_from(plan.PLACEMENTS))
def test_each_topic_has_its_clients(brokers: int, placement: str) -> None:
    placed = place(placement, brokers)
    assert {each.broker for each in placed} <= set(range(brokers))
    counted = Counter((each.kind, each.topic) for each in placed)
    assert counted == {(kind, topic): 10 for kind in ("publisher", "subscriber") for topic in range(5)}
    publishers = {(each.topic, each.broker) for each in placed if each.kind == "publisher"}
    assert publishers == {(topic, topic % brokers) for topic in range(5)}


def test_local_is_one_broker_a_topic_and_scattered_all() -> None:
    for topic in range(5):
        wanted = [each for each in place(plan.LOCAL, 5) if each.topic == topic]
        assert {each.broker for each in wanted} == {topic}
        over = Counter(
            each.broker for each in place(plan.SCATTERED, 5) if each.topic == topic and each.kind == "subscriber"
        )
        assert over == dict.fromkeys(range(5), 2)
    assert place(plan.LOCAL, 1) == place(plan.SCATTERED, 1)
    with pytest.raises(ValueError, match="local or scattered"):
        place("everywhere", 5)


def test_what_the_generator_reads() -> None:
    text = plan_text(place(plan.LOCAL, 2), [1883, 1884])
    assert text.splitlines()[:1] == ["publisher 1883 0"]
    assert "subscriber 1884 1" in text.splitlines()
    assert len(text.splitlines()) == 100
    assert pairs([1883]) == [(1883, 1883)]
    assert pairs([1, 2, 3]) == [(1, 1), (1, 3)]


# ---- detector ----------------------------------------------------------------------------------------------------


def test_a_generator_that_is_well_is_not_flagged() -> None:
    found = signs(samples())
    assert found.causes == []
    assert found.processor == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("cause", "changed"),
    [
        ("processor", {"receiver": 0.48, "receiver_waited": 0.0}),
        ("processor", {"sender": 0.3, "sender_waited": 0.18}),  # it wanted a processor that another program had
        ("retransmissions", {"retransmitted": 200}),
        ("retransmissions", {"out_of_order": 200}),
        ("send queue", {"overdue": 20}),
    ],
)
def test_what_flags_a_generator(cause: str, changed: dict[str, float]) -> None:
    assert signs(samples(**changed)).causes == [cause]
    tenth = {name: value / 10 for name, value in changed.items()}
    assert signs(samples(**tenth)).causes == []


def test_a_window_that_shrinks_flags() -> None:
    shrunk = [*samples()[:4], replace(samples()[4], window=0.49)]
    assert signs(shrunk).causes == ["receive window"]
    assert signs([*samples()[:4], replace(samples()[4], window=0.51)]).causes == []


def test_what_the_broker_holds_back_does_not_flag() -> None:
    assert signs(samples(held=1000, unsent=100_000)).causes == []


def test_one_full_half_second_does_not_flag() -> None:
    busy = [sample(1.0 + number / 2, receiver=0.1 + (0.5 if number > 4 else 0.0)) for number in range(10)]
    assert signs(busy).causes == []


# ---- statistics --------------------------------------------------------------------------------------------------


def test_mean_and_deviation() -> None:
    assert spread([1.0, 2.0, 3.0]) == (2.0, pytest.approx((2 / 3) ** 0.5), 1.0, 2.0, 3.0, 3)
    assert spread([]).values == 0


def test_rates_are_of_each_half_second() -> None:
    found = rates(samples(), "received")
    assert found == [(pytest.approx(0.25 + number / 2), pytest.approx(20_000)) for number in range(4)]


def test_the_rule_of_the_paper() -> None:
    assert delivered_share(1000, 10_000) == 1.0
    assert delivered_share(1000, 9_900) == pytest.approx(0.99)
    assert delivered_share(0, 0) == 0.0
    steps = [Step(100.0, 1.0, 1.0), Step(25.0, 0.99, 1.0), Step(5.0, 0.9899, 1.0), Step(3.0, 0.995, 1.0)]
    assert limit(steps) == 3.0  # the smallest that satisfies it, as the paper says, though 5 ms did not
    assert limit(steps[:3]) == 25.0
    assert limit(steps[2:3]) is None


def test_a_publisher_that_is_held_back_has_no_such_interval() -> None:
    """A broker that reads slowly delivers all that it reads."""
    assert limit([Step(5.0, 1.0, 1.0), Step(3.0, 1.0, 0.6)]) == 5.0


@given(st.lists(st.tuples(st.sampled_from(plan.INTERVALS), st.floats(0, 1), st.floats(0, 1)), max_size=7))
def test_the_limit_passes_and_no_smaller_one_does(given_steps: list[tuple[float, float, float]]) -> None:
    steps = [Step(*each) for each in given_steps]
    found = limit(steps)
    passing = {step.interval_ms for step in steps if step.share >= 0.99 and step.kept >= 0.95}
    assert (found is None) == (not passing)
    assert found is None or (found in passing and not any(each < found for each in passing))


def test_what_a_trial_says() -> None:
    found = summarised(trial())
    assert found.ingress.mean == pytest.approx(2000)
    assert found.egress.deviation == pytest.approx(0, abs=1e-6)
    assert found.step == (25.0, 1.0, pytest.approx(1.0))
    assert found.loss == 0.0
    assert found.latency.mean == pytest.approx(1.0)
    assert found.cpu == {"broker0": pytest.approx(100.0), "broker1": pytest.approx(50.0)}
    assert found.cpu_per_delivered == pytest.approx(15.0)
    assert found.busiest == "broker0"
    assert found.projected == pytest.approx(10_000)


def test_latency_is_that_of_the_way_through_all_brokers() -> None:
    far = [Probe(1, 0, 101.0, 101.0, 101.004), Probe(1, 1, 102.0, 102.0, None)]
    found = summarised(trial(probes=[*trial().probes, *far]))
    assert found.near.mean == pytest.approx(1.0)
    assert found.latency.mean == pytest.approx(4.0)
    assert found.probes_lost == 1


def test_points_of_time_of_probes() -> None:
    text = '{"ready": 1}\n{"pair": 0, "number": 0, "completed": 2000000000}\n'
    text += '{"pair": 0, "number": 0, "sent": 1000000000}\n'
    text += '{"pair": 1, "number": 0, "sent": 5000000000}\n{"pair": 0, "number": 0, "received": 3000000000}\n'
    text += '{"pair": 1, "number": 0, "rece'
    assert read_probes(text) == [Probe(0, 0, 1.0, 2.0, 3.0), Probe(1, 0, 5.0, None, None)]


# ---- what programs read ------------------------------------------------------------------------------------------


def everything() -> Results:
    lost = Counted(6000, 60_000, 59_400, 0, 0, 0)
    half = [replace(each, cpu={name: seconds / 2 for name, seconds in each.cpu.items()}) for each in samples()]
    full = replace(trial().course, interval_ms=1.0)
    return Results(
        [
            trial(),
            trial(placement=plan.SCATTERED),
            trial("line5-subscribe", samples=half),
            trial("line5-flood", plan.SCATTERED, counted=lost),
            trial(purpose="searched"),
            trial(purpose="searched", course=full),
            trial(purpose="limit"),
            trial(purpose="slow", samples=samples(receiver=0.49)),
        ]
    )


def test_names_that_programs_read() -> None:
    listed = {record["name"]: record for record in everything().records()}
    assert listed["single/cpu_us_per_message"]["ours"] == 15.0
    assert listed["single/speedup_projected"]["ours"] == 1.0
    assert listed["line5-subscribe/speedup_projected"]["ours"] == 2.0
    assert listed["line5-subscribe/speedup_projected"]["paper"] == 3.0
    assert listed["line5-flood/scattered/loss"]["ours"] == pytest.approx(0.01)
    assert listed["line5-flood/scattered/loss"]["paper"] is None
    assert listed["single/loss"] == {"name": "single/loss", "paper": 0.0, "ours": 0.0, "unit": ""}
    assert listed["single/interval_ms"]["ours"] == 25.0  # at 1 ms publishers sent 2,000 of 50,000
    assert listed["single/interval_ms"]["paper"] == 3.0
    assert listed["single/latency_mean_ms"]["ours"] == pytest.approx(1.0)
    assert listed["single/flagged"]["ours"] == 0.0
    assert listed["slow-generator/flagged"]["ours"] == 1.0
    assert everything().lost == 600


def test_tables_have_the_paper_beside_ours() -> None:
    shown = "\n\n".join(markdown(table) for table in all_tables(everything()))
    assert "| one broker | 3 | 16,667 | 25 | 2,000 |" in shown
    assert "| one broker, the paper's large server | 1 | 50,000 |" in shown
    assert "| single | 15.00 | broker0 100.0 | 10,000 | 1.00 | 0.00 | no |" in shown
    assert "a generator that is slow on purpose | 100 |" in shown


def test_what_a_folder_gets(tmp_path: Path) -> None:
    files = {file.name for file in report(everything(), FACTS).write(tmp_path)}
    assert files == {path.name for path in tmp_path.iterdir()}
    assert {"coordination.md", "coordination.json", "coordination-8-single.svg", "coordination-15-latency.svg"} <= files
    with (tmp_path / "coordination-probes.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert (rows[0]["sent"], rows[0]["received"]) == ("0.000000", "0.001000")
    assert len(json.loads((tmp_path / "coordination.json").read_text())["trials"]) == 8


def test_set_ups_are_chosen_by_name() -> None:
    assert [each.name for each in experiment.chosen(True, [])] == [each.name for each in plan.NAMED]
    assert [each.name for each in experiment.chosen(True, ["bridges5"])] == ["bridges5"]
    with pytest.raises(experiment.ExperimentError, match="no set-up twice; there are single"):
        experiment.chosen(False, ["twice"])


def test_a_quick_run_has_time_for_all_of_it() -> None:
    load = plan.QUICK.fixed.total * len(plan.NAMED) * 2 + plan.QUICK.slow.total
    assert load < 60  # of the 120 s: the rest is starting brokers and proxies


def test_a_line_of_neighbours() -> None:
    settings = cluster_settings("n1", 2000, ["127.0.0.1:1999"], ["n0", "n2"], "bloom")
    assert settings["neighbours"] == ["n0", "n2"]
    assert "neighbours" not in cluster_settings("n0", 2000, [], [], "flood")


# ---- the search for the limit ------------------------------------------------------------------------------------


class Pretended:
    """Measures nothing: what passes is said."""

    def __init__(self, passes: Callable[[float], bool], flagged: int = 0) -> None:
        """The first so many trials are flagged."""
        self.passes = passes
        self.flagged = flagged

    def run(self, setup: Setup, placement: str, purpose: str, system: System, course: Course) -> Trial:
        if self.flagged:
            self.flagged -= 1
            return trial(setup.name, placement, purpose, course=course, samples=samples(overdue=100))
        share = 1.0 if self.passes(course.interval_ms) else 0.5
        rate = course.nominal or 1000.0
        made = [
            sample(second, attempted=int(rate * second), received=int(10 * share * rate * second))
            for second in (1.0, 1.5, 2.0)
        ]
        return trial(setup.name, placement, purpose, course=course, samples=made)


def searched(
    passes: Callable[[float], bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[str, float]]:
    monkeypatch.setattr(trials._Fresh, "system", lambda fresh: System([1], {}))
    pretended: Generator = Pretended(passes)  # type: ignore[assignment]
    made = trials.Trials(pretended, tmp_path, plan.whole(5.0), lambda words, course: None).run([SINGLE])
    return [(each.purpose, each.course.interval_ms) for each in made if each.placement == plan.LOCAL]


def test_a_flagged_trial_is_run_once_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trials._Fresh, "system", lambda fresh: System([1], {}))
    told: list[str] = []

    def of(flagged: int, patience: float) -> list[Trial]:
        told.clear()
        pretended: Generator = Pretended(lambda interval: True, flagged)  # type: ignore[assignment]
        sizes = replace(plan.QUICK, patience=patience)
        return list(trials.Trials(pretended, tmp_path, sizes, lambda words, course: told.append(words)).run([SINGLE]))

    first, *_ = of(1, 60.0)
    assert signs(first.samples).causes == []
    assert len(told) == 4
    first, second, *_ = of(2, 60.0)
    assert signs(first.samples).causes == ["send queue"]
    assert signs(second.samples).causes == []
    assert len(told) == 4
    first, *_ = of(1, 0.0)
    assert signs(first.samples).causes == ["send queue"]
    assert len(told) == 3


def test_the_search_ends_after_two_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = searched(lambda interval: interval >= 5.0, monkeypatch, tmp_path)
    intervals = [interval for purpose, interval in found if purpose == "searched"]
    assert intervals == [100.0, 50.0, 25.0, 5.0, 3.0, 1.0]
    assert found[0] == ("fixed", 25.0)
    assert ("limit", 5.0) in found
    assert found[-1] == ("slow", 25.0)


def test_a_system_that_never_passes_has_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = searched(lambda interval: False, monkeypatch, tmp_path)
    assert [purpose for purpose, _ in found] == ["fixed", "searched", "searched", "slow"]


# ---- the command -------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [each for each in everything().all if each.loss == 0.0]
    monkeypatch.setattr(experiment, "experiment", lambda *given: [each.trial for each in good])
    done = CliRunner().invoke(app, ["coordination", "--quick", "--json", str(tmp_path / "j")])
    assert done.exit_code == 0, done.output
    assert {record["name"] for record in json.loads((tmp_path / "j").read_text())} >= {"slow-generator/flagged"}
    monkeypatch.setattr(experiment, "experiment", lambda *given: [each.trial for each in everything().all])
    done = CliRunner().invoke(app, ["coordination", "--quick"])
    assert done.exit_code == 1
    assert "600 messages did not come" in done.output
    done = CliRunner().invoke(app, ["coordination", "--setup", "twice"])
    assert done.exit_code == 1
    assert "no set-up twice" in done.output


def test_a_slow_generator_that_is_not_noticed_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "experiment", lambda *given: [trial(), trial(purpose="slow")])
    done = CliRunner().invoke(app, ["coordination", "--quick"])
    assert done.exit_code == 1
    assert "the slow generator was not noticed" in done.output
