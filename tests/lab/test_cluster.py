"""`scripts/bench cluster`: what it compares, that it finds what goes wrong, and a slice with real nodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab.cluster import __main__ as bench
from headwater_lab.cluster import interest, nodes
from headwater_lab.cluster.churn import churning, filter_of
from headwater_lab.cluster.figures import FIGURES, Findings
from headwater_lab.cluster.nodes import linked, single
from headwater_lab.cluster.traffic import Arranged, Arrangement, Course, all_at, crossing, in_turns
from headwater_lab.contest import Case, ContestOutcome
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, Result
from headwater_lab.reproduce.interest.plan import Parameters
from headwater_lab.scenarios import WORKLOADS

SMALL = bench.Sizes(1, 0.2, 0.1, 300, 60, 2000, controls=True)
NOTHING_WRONG = dict.fromkeys(VIOLATIONS, 0.0)
PAIRS = ("--publishers", "4", "--subscribers", "4", "--topics", "4", "--window", "10")


def sample(us: float, rate: float = 1000.0, **wrong: float) -> Result:
    return {"us": us, "rate": rate, **NOTHING_WRONG, **wrong}


class Fake:
    """Where a node would be."""

    port = 0


@pytest.fixture
def without_nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """No processes; a message costs an arrangement as many µs as it has measured nodes. Returns what was arranged."""
    arranged: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def made(count: int, *_: object, **__: object) -> Iterator[list[Fake]]:
        yield [Fake() for _ in range(count)]

    def run(self: Course, case: Case, there: Mapping[str, Arranged]) -> ContestOutcome:
        arranged[case.key] = list(there)
        found = {name: each if isinstance(each, Arrangement) else each() for name, each in there.items()}
        load = {name: (len(each.subscribe_at), " ".join(each.instead)) for name, each in found.items()}
        if case.key == "local5/lock-W2":  # the load of one node at each of five
            assert load["five nodes"] == load[bench.UNLINKED] == (5, " ".join(bench.FIVE_TIMES))
            assert load["one node"] == load["one of five in turns"] == (1, "")
            assert load["one load over five"] == (5, "")
        samples = {name: [sample(float(len(each.measured)))] * self.rounds for name, each in found.items()}
        return ContestOutcome(case, samples)

    monkeypatch.setattr(bench, "build", LoadGenerator)
    monkeypatch.setattr(bench, "single", lambda *_: made(1))
    monkeypatch.setattr(bench, "linked", made)
    monkeypatch.setattr(Course, "run", run)
    monkeypatch.setattr(bench, "QUICK", SMALL)
    monkeypatch.setattr(bench, "FULL", SMALL)
    return arranged


def test_every_figure_is_found(without_nodes: dict[str, list[str]], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--json", str(file), "--docs", str(tmp_path / "docs")]) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    found = {each["name"]: each for each in json.loads(file.read_text())}
    assert set(found) == set(FIGURES)
    assert all(set(each) == {"name", "paper", "ours", "unit"} and each["paper"] is None for each in found.values())
    assert found["cross2/deep-W2/cpu_ratio"]["ours"] == 2.0
    assert found["hop/bloom/us_per_message"]["ours"] == 1.0
    assert found["local5/lock-W2/cpu_ratio"]["ours"] == found["local5/unlinked/lock-W2/cpu_ratio"]["ours"] == 5.0
    assert found["local5/split/lock-W2/cpu_ratio"]["ours"] == found["local5/one/lock-W2/cpu_ratio"]["ours"] == 5.0
    assert found["churn600/deep-W2/cpu_ratio"]["ours"] == found["off/deep-W2/ratio"]["ours"] == 1.0
    assert without_nodes["off/deep-W2"] == ["one node 0", "a name 0", "one node 1", "a name 1"]
    assert without_nodes["cross2/deep-W2"] == ["one node", "flood", "subscribe", "bloom"]


@pytest.mark.usefixtures("without_nodes")
def test_a_full_run_writes_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("# Speed\n\nBy hand.\n")
    assert bench.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("# Speed\n\nBy hand.\n") and "<!-- bench cluster: begin" in page
    assert "local5/lock-W2/cpu_ratio is 5" in page
    (file,) = (tmp_path / "results").glob("cluster-????-??-??.json")
    names = [each["name"] for each in json.loads(file.read_text())]
    assert "cross2/lock-W2/two_nodes/us" in names and "machine/cpu" in names


def test_the_workload_of_the_comparison_with_mosquitto_is_the_one_that_is_used() -> None:
    case = bench._w2("cross2", "lock", "")
    assert " ".join(case.options) == f"{WORKLOADS['W2']} --window 1 --burst 1"


def test_slow_is_missed_and_lost_is_wrong() -> None:
    findings = Findings()
    findings.add("cross2/lock-W2/cpu_ratio", 2.3, 0.1)
    findings.add("off/deep-W2/ratio", 0.98)
    findings.add("bloom/churn_bytes_ratio", 100.0)
    assert [each.split(" is ")[0] for each in findings.missed()] == ["cross2/lock-W2/cpu_ratio"]
    assert findings.wrong() == []
    case = Case("local5/lock-W2", "", ())
    findings.outcomes = [ContestOutcome(case, {"a": [sample(1.0)], "b": [sample(1.0), sample(1.0, lost=3.0)]})]
    assert findings.wrong() == ["local5/lock-W2, b: 3 lost"]
    assert bench.publish(None, None, findings) == 1


def test_a_ratio_is_the_median_of_rounds_and_its_spread_half_that_of_their_quartiles() -> None:
    """One round of the second that stood alone moves neither."""
    above = [sample(each) for each in (10.0, 11.0, 12.0, 13.0, 14.0)]
    below = [sample(each) for each in (10.0, 10.0, 10.0, 10.0, 0.1)]
    findings = Findings()
    findings.compare("local5/lock-W2/cpu_ratio", ContestOutcome(Case("", "", ()), {"a": above, "b": below}), "a", "b")
    assert findings.values["local5/lock-W2/cpu_ratio"] == pytest.approx(1.2)
    assert findings.spreads["local5/lock-W2/cpu_ratio"] == pytest.approx(0.1)
    assert "1.200 ± 0.100" in findings.markdown({})
    assert "local5/lock-W2/cpu_ratio is 1.200 ± 0.100, asked is ≤ 1.1" in findings.markdown({})


def test_each_node_has_its_turn() -> None:
    nodes = [Fake(), Fake(), Fake()]
    arrange = in_turns(nodes)  # type: ignore[arg-type]
    made = [arrange() for _ in range(4)]
    assert [each.publish_at for each in made] == [[nodes[at]] for at in (0, 1, 2, 0)]
    assert all(each.publish_at == each.subscribe_at and each.measured == nodes for each in made)


def test_five_times_the_load_is_five_times_that_of_one_node() -> None:
    words = WORKLOADS["W2"].split()
    assert [int(each) for each in bench.FIVE_TIMES[1::2]] == [5 * int(each) for each in words[1::2]]
    assert bench.FIVE_TIMES[::2] == tuple(words[::2])


# ---- interest ----------------------------------------------------------------------------------------------------


def test_what_crosses_by_bloom_is_what_crosses_exactly_and_little_more() -> None:
    crossed = interest.messages(500, 2000)
    assert crossed.denied == 0
    assert 0 < crossed.exact <= crossed.summary < crossed.topics


def test_bytes_of_states_and_changes() -> None:
    filters = interest.wildcard_filters(200)
    assert len(filters) == len(set(filters)) == 200
    assert all("+" in each or "#" in each for each in filters)
    told = interest.told_bytes("subscribe", 200, 60, 600.0)
    assert told.state == sum(len(each) + 2 for each in filters)
    come = interest.wildcard_filters(30, interest.SEED + 1)
    assert told.changes == 2 * sum(len(each) + 3 for each in come)  # each of them came and went
    grown = interest.wildcard_filters(40, interest.SEED + 2)
    assert told.growth == sum(len(each) + 3 for each in grown)
    summary = interest.told_bytes("bloom", 200, 60, 600.0)
    assert 0 < summary.state < told.state and summary.changes > 0 and summary.growth > 0


def test_names_are_as_the_paper_has_them() -> None:
    assert Parameters().n_lv == interest.LEVELS and Parameters().n_t == interest.FILTERS


# ---- real nodes --------------------------------------------------------------------------------------------------


def test_nodes_that_are_not_linked_are_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "LINK_LIMIT", 0.3)
    with (
        single(tmp_path) as one,
        single(tmp_path) as other,
        pytest.raises(BrokerError, match="2 of the ways between 2 nodes"),
    ):
        nodes.wait_for_links([*one, *other])


def test_a_churn_that_a_node_does_not_keep_up_with_is_an_error(tmp_path: Path) -> None:
    with single(tmp_path) as (node,):
        with churning(node.port, 100.0) as churn:
            while churn.acknowledged < 20:
                node.check_alive()
        with pytest.raises(LoadError, match="changes a second were acknowledged"), churning(node.port, 1e7) as churn:
            while not churn.acknowledged:
                node.check_alive()


def test_churn_filters_match_no_topic_of_the_traffic() -> None:
    assert filter_of(3) != filter_of(4)
    assert filter_of(3).split("/")[3:] == ["churn", "3", "#"]  # topics of the load generator have three levels


def check(outcome: ContestOutcome) -> None:
    """Numbers of such a short run mean nothing, but nothing may be lost or come twice."""
    assert {name: outcome.violations(name) for name in outcome.samples} == {name: {} for name in outcome.samples}
    assert all(outcome.median(name, "delivered") > 0 and outcome.median(name) > 0 for name in outcome.samples)


def test_a_slice_with_real_nodes(tmp_path: Path) -> None:
    campaign = bench.Campaign(tmp_path, SMALL, lambda text: None)
    with single(tmp_path) as one, linked(2, tmp_path) as (here, there):
        several = {
            "one": all_at(one),
            "two": crossing([here, there]),
            "back": Arrangement([there], [here], [here]),
            "churn": all_at([here, there])._replace(meanwhile=lambda: churning(there.port, 50.0)),
        }
        check(campaign.course.run(Case("slice", "", PAIRS), several))


def test_a_slice_from_disk_to_disk(tmp_path: Path) -> None:
    campaign = bench.Campaign(tmp_path, SMALL, lambda text: None)
    case = Case("slice", "", (*PAIRS, "--qos", "1", "--keep-sessions"))
    campaign.cross("cross2/qos1-sync/cpu_ratio", case, nodes.SYNC)
    check(campaign.findings.outcomes[0])
    assert campaign.findings.values["cross2/qos1-sync/cpu_ratio"] > 0
