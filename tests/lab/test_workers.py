"""`scripts/bench workers`: what it compares, and a slice with real workers."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headwater.fleet.process import BrokerError
from headwater_lab import workers as bench
from headwater_lab.cluster.traffic import Arrangement, Course
from headwater_lab.contest import Case, ContestOutcome
from headwater_lab.load import VIOLATIONS, LoadGenerator
from headwater_lab.scenarios import WORKLOADS
from headwater_lab.workers import FIGURES, ONE, TWO

SMALL = bench.Sizes(1, 0.2, 0.1)


@pytest.fixture
def without_nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """No processes; two workers cost 5 µs for what costs one process 4, and are as fast."""
    cases: dict[str, Case] = {}

    @contextlib.contextmanager
    def node(folder: Path, workers: int) -> Iterator[object]:
        yield object()

    def run(self: Course, case: Case, there: Mapping[str, Arrangement]) -> ContestOutcome:
        cases[case.key] = case
        fine = dict.fromkeys(VIOLATIONS, 0.0) | {"rate": 100.0, "p99": 3.0}
        return ContestOutcome(case, {ONE: [{"us": 4.0, **fine}], TWO: [{"us": 5.0, **fine, "lost": self.warmup}]})

    monkeypatch.setattr(bench, "build", LoadGenerator)
    monkeypatch.setattr(bench, "node", node)
    monkeypatch.setattr(Course, "run", run)
    monkeypatch.setattr(bench, "QUICK", SMALL._replace(warmup=0.0))
    monkeypatch.setattr(bench, "FULL", SMALL._replace(warmup=0.0))
    return cases


def test_every_figure_is_found(without_nodes: dict[str, Case], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--json", str(file), "--docs", str(tmp_path / "docs")]) == 0
    found = {each["name"]: each["ours"] for each in json.loads(file.read_text())}
    assert found == {
        "workers2/lock-W2/cpu_ratio": 1.25,
        "workers2/deep-W2/rate_ratio": 1.0,
        "workers2/deep-W2/cpu_ratio": 1.25,
        "workers2/lock-W2/projected_rate_ratio": 1.6,
        "workers2/paced/p99_ratio": 1.0,
    }
    assert set(found) == set(FIGURES)
    assert " ".join(without_nodes["workers2/lock-W2"].options) == f"{WORKLOADS['W2']} --window 1 --burst 1"


def test_what_is_lost_is_the_exit_status(without_nodes: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", SMALL._replace(warmup=3.0))
    assert bench.main(["--quick"]) == 1
    assert len(without_nodes) == 3


@pytest.mark.usefixtures("without_nodes")
def test_a_full_run_writes_the_documentation_and_says_what_is_projected(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("# Speed\n\nBy hand.\n")
    assert bench.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("# Speed\n\nBy hand.\n") and "<!-- bench workers: begin" in page
    assert "projected, not measured" in page
    (file,) = (tmp_path / "results").glob("workers-????-??-??.json")
    assert "workers2/lock-W2/two_workers/us" in [each["name"] for each in json.loads(file.read_text())]


def test_on_few_cores_the_rate_is_said_to_be_a_projection() -> None:
    assert "was not measured" in bench.limit(2)
    assert "Measured on 16 cores" in bench.limit(16)


def test_sockets_that_listen_are_counted() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        assert bench.listening(port) == 0
        first.listen()
        assert bench.listening(port) == 1


def test_workers_that_do_not_start_are_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "START_LIMIT", 0.1)
    monkeypatch.setattr(bench, "listening", lambda port: 1)
    with pytest.raises(BrokerError, match="1 of 2 workers listen"), bench.node(tmp_path, 2):
        pass


def test_a_slice_with_real_workers(tmp_path: Path) -> None:
    """Numbers of such a short run mean nothing, but nothing may be lost or come twice, or out of order."""
    campaign = bench.Campaign(tmp_path, SMALL, lambda text: None)
    campaign.run()
    assert campaign.findings.wrong() == []
    assert set(campaign.findings.values) == set(FIGURES)
    assert all(outcome.median(TWO, "delivered") > 0 for outcome in campaign.findings.outcomes)
