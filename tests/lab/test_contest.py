"""What the samples of several brokers are made into, and whose turn it is."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwater.fleet.process import RunningBroker
from headwater_lab.contenders import command_from, headwater_command, running
from headwater_lab.contest import MOSQUITTO, Case, Contest, ContestOutcome, Launcher, unconnected
from headwater_lab.load import LoadError, LoadGenerator, Result
from tests.lab.outcomes import outcome, sample

CASE = Case("deep", "deep traffic", ("--window", "10"), mqtt=5, brokers=2, goal=1.3)


def test_ratio_is_of_medians_and_spread_is_of_single_rounds() -> None:
    compared = outcome(CASE, adaptive=[1.0, 2.0, 4.0], round_robin=[4.0, 1.0, 1.0])
    assert compared.ratio("adaptive", "round_robin") == 2.0
    assert compared.spread("adaptive", "round_robin") == (4.0 - 0.25) / 2


def test_violations_of_any_round_fail_unless_they_are_mosquittos() -> None:
    compared = outcome(CASE, adaptive=[1.0, 1.0], mosquitto=[1.0, 1.0])
    assert not compared.failed
    compared.samples[MOSQUITTO][1]["lost"] = 5.0
    assert compared.violations(MOSQUITTO) == {"lost": 5}
    assert not compared.failed
    compared.samples["adaptive"][1] |= {"repeated": 2.0, "lost": -1.0}
    assert compared.violations("adaptive") == {"lost": -1, "repeated": 2}
    assert compared.failed
    assert ContestOutcome(CASE, error="no answer").failed


def test_outcome_survives_json() -> None:
    compared = outcome(CASE, adaptive=[1.0, 3.0], mosquitto=[2.0, 6.0])
    data = json.loads(json.dumps(compared.as_json()))
    assert data["median"]["mosquitto"]["us"] == 4.0
    assert ContestOutcome.from_json(data) == compared


class StandInBroker(RunningBroker):
    """A broker that is not there."""

    def __init__(self, port: int) -> None:
        self.port = port

    def pids(self) -> list[int]:
        return [self.port + 1]

    def peak_bytes(self) -> int:
        return 100

    def check_alive(self) -> None:
        pass


def stand_ins(first_port: int) -> Launcher:
    @contextlib.contextmanager
    def launch(count: int, folder: Path) -> Iterator[list[RunningBroker]]:
        yield [StandInBroker(first_port + number) for number in range(count)]

    return launch


class Recorder(LoadGenerator):
    """Notes who was loaded with what, and fails for one of the ports."""

    def __init__(self, broken: int = 0) -> None:
        self.broken = broken
        self.runs: list[tuple[Sequence[int], list[str]]] = []

    def run(self, mode: str, port: int | Sequence[int], options: Sequence[str], *, limit: float) -> Result:
        ports = [port] if isinstance(port, int) else port
        self.runs.append((ports, list(options)))
        if self.broken in ports:
            raise LoadError("the broker closed a connection")
        return sample(1.0)


def test_every_round_begins_with_another_contender(tmp_path: Path) -> None:
    load = Recorder()
    contest = Contest({"a": stand_ins(10), "b": stand_ins(20), "c": stand_ins(30)}, load, tmp_path, rounds=3)
    (outcome,) = contest.run([CASE])
    assert [ports[0] for ports, _ in load.runs] == [10, 20, 30, 20, 30, 10, 30, 10, 20]
    assert {name: len(samples) for name, samples in outcome.samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_load_reaches_all_brokers_of_a_topology(tmp_path: Path) -> None:
    load = Recorder()
    (outcome,) = Contest({"a": stand_ins(10)}, load, tmp_path, rounds=1, seconds=3).run([CASE])
    ports, options = load.runs[0]
    assert ports == [10, 11]
    words = "--window 10 --mqtt 5 --broker-pids 11,12 --seconds 3 --warmup 0.5"
    assert options == words.split()
    assert outcome.median("a", "peak_bytes") == 200


def test_failing_contender_is_named_and_the_next_case_runs(tmp_path: Path) -> None:
    contest = Contest({"a": stand_ins(10), "b": stand_ins(20)}, Recorder(broken=21), tmp_path, rounds=1)
    alone = Case("lock", "lock", (), brokers=1)
    broken, fine = contest.run([CASE, alone])
    assert broken.error == "b: the broker closed a connection"
    assert not fine.failed


def test_broker_that_does_not_start_is_an_error_of_the_case(tmp_path: Path) -> None:
    launch = unconnected(command_from(f"{sys.executable} -c 'raise SystemExit(9)' {{port}}"))
    (outcome,) = Contest({"a": launch}, Recorder(), tmp_path).run([CASE])
    assert "ended with status 9" in outcome.error


def test_launcher_starts_so_many_brokers_with_that_dispatcher_and_stops_them(tmp_path: Path) -> None:
    command = headwater_command(f"{sys.executable} -m headwater broker --port {{port}} --config {{config}}", "sticky")
    with unconnected(command)(2, tmp_path) as brokers:
        assert len({broker.port for broker in brokers}) == 2
        for broker in brokers:
            resident = broker.resident_bytes()  # first: a broker that has just started may still grow
            assert (
                broker.peak_bytes() > 0.9 * resident > 0
            )  # the kernel counts pages per thread, and sums up now and then
    for broker in brokers:
        assert (tmp_path / f"headwater-{broker.port}.toml").read_text() == 'shared_dispatcher = "sticky"\n'
        with pytest.raises(Exception, match="ended with status"):
            broker.check_alive()


def test_dispatcher_that_does_not_exist_is_refused_by_the_broker(tmp_path: Path) -> None:
    template = f"{sys.executable} -m headwater broker --port {{port}} --config {{config}}"
    with (
        pytest.raises(Exception, match="there is no dispatcher 'fairest'"),
        running(headwater_command(template, "fairest"), tmp_path),
    ):
        pass
