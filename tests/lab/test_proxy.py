"""`scripts/bench proxy`: what it compares, and a slice with a real proxy."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headwater_lab import proxy as bench
from headwater_lab.cluster.traffic import Arrangement, Course
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.load import VIOLATIONS, LoadGenerator, build
from headwater_lab.proxy import FIGURES, PROXY
from headwater_lab.scenarios import WORKLOADS
from tests.brokers import find_mosquitto


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """Mosquitto costs 10 µs a message, the proxy 2; it adds 0.5 ms, and is half as fast."""
    cases: dict[str, Case] = {}

    @contextlib.contextmanager
    def started(*_: object) -> Iterator[object]:
        yield object()

    def run(self: Course, case: Case, there: Mapping[str, Arrangement]) -> ContestOutcome:
        cases[case.key] = case
        fine = dict.fromkeys(VIOLATIONS, 0.0)
        alone = {"us": 10.0, "rate": 100.0, "p50": 100.0, "p99": 1000.0, **fine}
        through = {"us": 2.0, "rate": 50.0, "p50": 200.0, "p99": 1500.0, **fine, "lost": self.warmup}
        return ContestOutcome(case, {MOSQUITTO: [alone], PROXY: [through]})

    monkeypatch.setattr(bench, "build", LoadGenerator)
    monkeypatch.setattr(bench, "running", started)
    monkeypatch.setattr(bench, "proxy", started)
    monkeypatch.setattr(Course, "run", run)
    monkeypatch.setattr(bench, "QUICK", bench.Sizes(1, 0.2, 0.0))
    return cases


def test_every_figure_is_found(without_processes: dict[str, Case], tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--json", str(file), "--docs", str(tmp_path / "docs")]) == 0
    found = {each["name"]: each["ours"] for each in json.loads(file.read_text())}
    assert set(found) == set(FIGURES)
    assert found["proxy/deep-W1/cpu_ratio"] == 0.2
    assert found["proxy/lock-W2/rate_ratio"] == 0.5
    assert found["proxy/paced/added_p99_ms"] == 0.5
    assert found["proxy/paced/added_p50_ms"] == 0.1
    assert " ".join(without_processes["proxy/lock-W2"].options) == f"{WORKLOADS['W2']} --window 1 --burst 1"


def test_a_message_that_is_lost_fails_the_run(
    without_processes: dict[str, Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "QUICK", bench.Sizes(1, 0.2, 1.0))
    assert bench.main(["--quick"]) == 1


def test_a_slice_with_a_real_proxy(tmp_path: Path) -> None:
    find_mosquitto()  # or skip
    course = Course(build(tmp_path), 1, 0.2, 0.1)
    case = Case("w2", "W2", tuple(f"{WORKLOADS['W2']} --window 20".split()))
    with (
        bench.running(bench.mosquitto_command, tmp_path) as broker,
        bench.proxy(bench.COMMAND, tmp_path, broker) as relay,
    ):
        outcome = course.run(case, {PROXY: bench.all_at([relay])})
    assert outcome.violations(PROXY) == {}
    assert outcome.median(PROXY, "rate") > 100
