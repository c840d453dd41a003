"""The benchmarks of shared subscriptions: their cases, their tables, and a slice of each with real brokers.

The slices check that every message came to exactly one member, never how long it took.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headwater_lab import campaign, shared, shared_cost, shared_fleet, topologies
from headwater_lab.contest import Case, ContestOutcome
from tests.lab.outcomes import outcome

COST = {case.key: case for case in shared_cost.cases(None, quick=False)}
(FLEET,) = shared_fleet.cases(None, quick=False)
TOPOLOGIES = {case.key: case for case in topologies.cases(None, quick=False)}


def test_cost_has_both_regimes_qos_sizes_and_versions_with_their_goals() -> None:
    assert len(COST) == 16
    assert {case.goal for key, case in COST.items() if "/3" in key} == {1.3}
    assert {case.goal for key, case in COST.items() if "/1000" in key} == {2.0}
    assert [case.mqtt for case in shared_cost.cases(5, quick=True)] == [5] * 8
    assert [case.mqtt for case in shared_cost.cases(None, quick=True)] == [4] * 8


def test_cost_table_shows_both_ratios_and_tells_what_is_above_the_goal() -> None:
    fine = outcome(COST["deep/qos0/3"], adaptive=[1.2, 1.2], round_robin=[1.0, 1.0], mosquitto=[6.0, 7.2])
    dear = outcome(COST["lock/qos1/1000/mqtt5"], adaptive=[2.4], round_robin=[1.0], mosquitto=[1.2])
    text = shared_cost.markdown([fine, dear, ContestOutcome(COST["lock/qos0/3"], error="no answer")])
    assert "| deep, QoS 0, 3 members | 3.1.1 | 1.20 ± 0.00 | ≤ 1.3 | 5.50 ± 0.50 | 1.200 | 1.000 | 6.600 |" in text
    losses = text.partition("Losses:")[2]
    assert "deep, QoS 0" not in losses
    assert "1,000 members, MQTT 5.0: adaptive is above its goal: 2.40; Mosquitto is ahead: 0.50." in losses
    assert "lock, QoS 0, 3 members, MQTT 3.1.1: no answer." in losses


def test_goal_says_nothing_about_other_dispatchers() -> None:
    assert not shared_cost.is_above_goal(outcome(COST["deep/qos0/3"], adaptive=[9.0], random=[1.0]))
    assert shared_cost.is_above_goal(outcome(COST["deep/qos0/3"], adaptive=[1.31], round_robin=[1.0]))


def test_fleet_table_has_a_line_for_each_broker_and_tells_where_mosquitto_is_ahead() -> None:
    compared = outcome(FLEET, adaptive=[50.0], round_robin=[40.0], mosquitto=[45.0])
    compared.samples["mosquitto"][0] |= {"p99": 150.0, "lost": 7.0}
    text = shared_fleet.markdown([compared])
    assert "| ours, adaptive | 0.90 | 50.0 | 110 | 100 | 200 | 1,000 | 0 | 1.0 |" in text
    assert "| Mosquitto | 1.00 | 45.0 | 110 | 100 | 150 | 1,000 | 7 | 1.0 |" in text
    assert "mosquitto: lost 7; Mosquitto is ahead in CPU: 0.90; Mosquitto is ahead in p99: 0.75" in text


def test_topologies_put_every_client_at_a_broker_of_its_topic() -> None:
    """Client i goes to broker i mod brokers and has topic i mod topics: these must be the same."""
    for key, case in TOPOLOGIES.items():
        options = dict(zip(case.options[::2], case.options[1::2], strict=False))
        assert int(options["--topics"]) == case.brokers, key
        assert int(options["--publishers"]) == 8
        assert ("--share" in case.options) == key.endswith("SHD")
    sizes = {key.rpartition("/")[2]: (case.brokers, case.options[3]) for key, case in TOPOLOGIES.items()}
    assert sizes == {"SGL-SGL": (1, "1"), "SGL-SHD": (1, "2"), "MLT-SGL": (2, "2"), "MLT-SHD": (2, "4")}


def test_topologies_table() -> None:
    compared = outcome(TOPOLOGIES["full/qos0/SGL-SHD"], adaptive=[2.0], mosquitto=[8.0])
    compared.samples["adaptive"][0]["rate"] = 900.0
    text = topologies.markdown([compared, ContestOutcome(TOPOLOGIES["paced/qos0/MLT-SHD"], error="no answer")])
    assert (
        "| SGL-SHD, full, QoS 0 | 4.00 | 900 | 1,000 | 110 | 110 | 200 | 200 | 2.000 | 8.000 |\n"
        "| MLT-SHD, paced, QoS 0 | failed |"
    ) in text
    assert "Mosquitto is ahead in throughput: 0.90." in text


def test_every_line_of_a_table_has_as_many_cells_as_its_head() -> None:
    costs = {"adaptive": [1.0], "round_robin": [1.0], "mosquitto": [1.0]}
    for benchmark in shared.BENCHMARKS:
        first, *_ = benchmark.cases(None, False)
        table = benchmark.markdown([outcome(first, **costs), ContestOutcome(first, error="no answer")]).split("\n\n")[0]
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize("benchmark", shared.BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_terminal_names_every_contender(benchmark: campaign.Benchmark) -> None:
    first, *_ = benchmark.cases(None, False)
    line = benchmark.line(outcome(first, random=[1.0], sticky=[2.0], mosquitto=[3.0]))
    assert all(name in line for name in ("random", "sticky", "mosquitto"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.skipif(
    shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None, reason="needs mosquitto"
)
@pytest.mark.parametrize(
    ("benchmark", "only"),
    [
        (shared_cost.BENCHMARK, "deep/qos0/3,lock/qos1/3"),
        (shared_cost.BENCHMARK, "deep/qos1/1000"),
        (shared_fleet.BENCHMARK, "fleet"),
        (topologies.BENCHMARK, "full/qos1/SGL-SHD,full/qos0/MLT-SHD,paced/qos0/MLT-SGL"),
    ],
    ids=["cost", "cost-large", "fleet", "topologies"],
)
def test_slice_delivers_every_message_exactly_once(benchmark: campaign.Benchmark, only: str, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert campaign.main(benchmark, ["--quick", "--seconds", "0.2", "--only", only, "--json", str(file)]) == 0
    outcomes = [ContestOutcome.from_json(data) for data in json.loads(file.read_text())["results"]]
    assert {compared.case.key for compared in outcomes} >= set(only.split(","))
    for compared in outcomes:
        for contender in (*benchmark.dispatchers, "mosquitto"):
            (sample,) = compared.samples[contender]
            assert compared.violations(contender) == {}
            assert sample["delivered"] == sample["published"] > 0
            assert sample["least"] <= sample["most"] <= sample["delivered"]
            assert sample["peak_bytes"] > 2**20


def test_case_knows_its_version_by_name() -> None:
    assert Case("a", "b", (), mqtt=5).version == "5.0"
    assert Case("a", "b", ()).version == "3.1.1"
