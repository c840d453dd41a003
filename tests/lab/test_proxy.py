"""`scripts/bench proxy`: what it compares, and a slice with a real proxy."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater_lab import proxy as bench
from headwater_lab import proxy_groups
from headwater_lab.cluster.traffic import Arrangement, Course
from headwater_lab.contest import MOSQUITTO, Case, ContestOutcome
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, build
from headwater_lab.proxy import FIGURES, PROXY
from headwater_lab.proxy_groups import GROUPS
from headwater_lab.scenarios import WORKLOADS
from tests.brokers import find_mosquitto


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """Mosquitto costs 10 µs a message, the proxy 2; it adds 0.5 ms, and is half as fast."""
    cases: dict[str, Case] = {}

    @contextlib.contextmanager
    def started(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(port=0)

    def run(self: Course, case: Case, there: Mapping[str, Arrangement]) -> ContestOutcome:
        cases[case.key] = case
        fine = dict.fromkeys(VIOLATIONS, 0.0)
        alone = {"us": 10.0, "rate": 100.0, "p50": 100.0, "p99": 1000.0, **fine}
        through = {"us": 2.0, "rate": 50.0, "p50": 200.0, "p99": 1500.0, **fine, "lost": self.warmup}
        return ContestOutcome(case, {MOSQUITTO: [alone], PROXY: [through]})

    monkeypatch.setattr(bench, "worked_off", lambda port, services, name: 1000.0 * sum(services))
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
    assert found["proxy/groups/slow/mean_ms"] == pytest.approx(46.0)
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


def test_members_of_a_group_that_the_proxy_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice: all messages come, also where one member is slow."""
    find_mosquitto()  # or skip
    monkeypatch.setattr(proxy_groups, "MESSAGES", 40)
    command = f"{bench.COMMAND} {bench.KEEPS_GROUPS}"
    with bench.running(bench.mosquitto_command, tmp_path) as broker, bench.proxy(command, tmp_path, broker) as relay:
        for port in (broker.port, relay.port):
            assert proxy_groups.worked_off(port, GROUPS["slow"], f"g{port}") > 2.0


def test_a_message_of_a_group_that_does_not_come_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_groups, "MESSAGES", 4)
    monkeypatch.setattr(proxy_groups, "PATIENCE", 0.5)
    find_mosquitto()  # or skip
    with bench.running(bench.mosquitto_command, tmp_path) as broker, pytest.raises(LoadError, match="4 messages of"):
        proxy_groups.worked_off(broker.port, (60.0,), "g")
