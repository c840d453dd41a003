"""The paper's experiment with interest filters: its filters, its counts, and that every method is asked fairly."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from headwater.routing.topics import check_filter, matches
from headwater_lab.reproduce.interest.broker_cost import cases, draw, measure
from headwater_lab.reproduce.interest.broker_cost import records as cost_records
from headwater_lab.reproduce.interest.experiment import run
from headwater_lab.reproduce.interest.plan import METHODS, Parameters, Point, points
from headwater_lab.reproduce.interest.results import records, rows, tables
from headwater_lab.reproduce.interest.trial import one_filter, run_point, with_wildcards


def test_every_form_is_as_likely_as_any_other() -> None:
    random = Random(1)
    drawn = Counter("/".join(with_wildcards(["a", "b", "c"], 0, random)) for _ in range(14_000))
    forms = {"+/b/c", "a/+/c", "a/b/+", "+/+/c", "+/b/+", "a/+/+", "+/+/+"}
    forms |= {"#", "a/#", "+/#", "a/b/#", "+/b/#", "a/+/#", "+/+/#"}
    assert set(drawn) == forms
    assert all(850 < count < 1150 for count in drawn.values())


def test_the_first_level_that_may_have_wildcards() -> None:
    random = Random(1)
    drawn = {"/".join(with_wildcards(["a", "b", "c"], 1, random)) for _ in range(500)}
    assert drawn == {"a/+/c", "a/b/+", "a/+/+", "a/#", "a/b/#", "a/+/#"}
    assert with_wildcards(["a"], 1, random) == ["a"]


@pytest.mark.parametrize("setup", ["a", "b", "c"])
def test_filters_are_what_the_set_up_says(setup: str) -> None:
    random, topic = Random(2), ["t1", "t2"]
    drawn = ["/".join(one_filter(setup, Parameters(n_lv=2), topic, random)) for _ in range(400)]
    for each in drawn:
        check_filter(each, 10)
    alone = [each for each in drawn if not set(each) - {"+", "#", "/"}]
    assert bool(alone) == (setup == "a")
    assert sum("+" in each or "#" in each for each in drawn) in range(120, 280)
    assert setup != "c" or not any(matches(each, "t1/t2") for each in drawn)


def test_the_known_point() -> None:
    """A slice of it: set-up c with ten levels, one trial."""
    found = run_point(Point("c", "n_lv", 10, 0, 1))
    probes = dict(zip(METHODS, found.probes, strict=True))
    assert (probes["bf-paper"], probes["bf"]) == (2047, 3071)
    assert 1500 < probes["bfp-paper"] <= probes["bfp"] < 1640
    assert 26 <= probes["prefix-paper"] < probes["prefix"] <= 34
    assert probes["summary"] <= 20
    assert not any(found.found)
    assert not found.is_wanted


def test_what_is_wanted_is_found() -> None:
    for trial in range(3):
        found = run_point(Point("a", "n_t", 2000, trial, 1))
        assert found.is_wanted
        assert all(found.found)
        assert all(1 <= count <= 3 for count in found.probes)


def test_results_and_names() -> None:
    grid = points(quick=True, trials=1, seed=1)
    assert [point.row for point in grid] == ["a/n_lv=10", "b/n_lv=10", "c/n_lv=10"]
    assert len(points(quick=False, trials=10, seed=1)) == 3 * 21 * 10
    small = [Point(each.setup, "n_t", 20, 0, 1) for each in grid]
    found = rows(small, [run_point(each) for each in small])
    listed = records(found)
    assert [each["name"] for each in listed[:2]] == ["a/n_t=20/bf-paper/probes", "a/n_t=20/bf/probes"]
    assert len(listed) == 3 * len(METHODS)
    assert len(tables(found)) == 3


def test_a_folder_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [Point(setup, "n_t", value, trial, 1) for setup in "abc" for value in (20, 40) for trial in (0, 1)]
    monkeypatch.setattr("headwater_lab.reproduce.interest.experiment.points", lambda *_: small)
    data = tmp_path / "data.json"
    assert run(True, data, tmp_path / "out", 1, 2) == 0
    assert {each["unit"] for each in json.loads(data.read_text())} == {"probes"}
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert names == {
        "interest.md",
        "interest.csv",
        "interest.json",
        *(f"interest-{n}.svg" for n in ("4-a", "5-b", "6-c")),
    }
    assert "figure 6, set-up c" in (tmp_path / "out" / "interest.md").read_text()


def test_what_it_costs_a_broker(tmp_path: Path) -> None:
    """A slice: every kind of broker once, a tenth of a second each."""
    listed = list(cases())
    assert len(listed) == 1 + 5 + 4 * 5
    chosen = [case for case in listed if case.name in ("none", "queries=1000", "summary/n_lv=2")]
    found = measure(0.2, lambda done, count: None, chosen)
    none, asked, _ = found
    assert none.rate > 2 * asked.rate > 0
    assert asked.latency > none.latency > 0
    assert [each["name"] for each in cost_records(found)][:2] == ["figure7/none/msgs_per_s", "figure7/none/latency_ms"]
    draw(found, tmp_path / "7.svg")
    assert (tmp_path / "7.svg").stat().st_size > 1000
