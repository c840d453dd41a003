"""The coordination benchmark in real time: its generator against brokers that make mistakes, Mosquittos, proxies."""

from __future__ import annotations

import asyncio
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headwater.fleet.process import BrokerError
from headwater_lab.load import LoadError
from headwater_lab.reproduce.coordination import experiment, mixed, plan
from headwater_lab.reproduce.coordination.detector import signs
from headwater_lab.reproduce.coordination.generator import Generator, Trial
from headwater_lab.reproduce.coordination.plan import SETUPS, SINGLE, Course
from headwater_lab.reproduce.coordination.results import Results, summarised
from headwater_lab.reproduce.coordination.systems import System, running
from tests.brokers import find_mosquitto
from tests.lab.fake_broker import FakeBroker, Fault, faithful

BRIEF = Course(10.0, 0.7, 0.1, 0.05, 2.0)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return Generator(tmp_path_factory.mktemp("paced"))


def against(generator: Generator, fault: Fault, course: Course = BRIEF) -> Trial:
    """A trial with a broker that makes mistakes."""

    async def scenario() -> Trial:
        async with FakeBroker(fault) as broker:
            system = System([broker.port], {})
            return await asyncio.to_thread(generator.run, SINGLE, plan.LOCAL, "fixed", system, course)

    return asyncio.run(scenario())


def of_publisher(packet: bytes, publisher: int, sequence: int) -> bool:
    found: tuple[int, int] = struct.unpack_from("=II", packet, len(packet) - 32)
    return b"/topic/" in packet and found == (publisher, sequence)


def test_a_faithful_broker(generator: Generator) -> None:
    found = against(generator, faithful)
    assert found.counted.received == found.counted.expected == 10 * found.counted.sent
    assert found.counted.repeated == found.counted.misrouted == found.counted.corrupt == 0
    assert found.probes
    assert all(each.completed and each.received and each.sent <= each.completed for each in found.probes)


def test_a_message_that_is_lost_is_ten_that_are_missing(generator: Generator) -> None:
    found = against(generator, lambda number, packet: [] if of_publisher(packet, 3, 2) else [packet])
    assert found.counted.expected - found.counted.received == 10
    assert summarised(found).loss == pytest.approx(10 / found.counted.expected)


def test_a_message_that_comes_twice_is_not_received_twice(generator: Generator) -> None:
    found = against(generator, lambda number, packet: [packet, packet] if of_publisher(packet, 3, 2) else [packet])
    assert found.counted.repeated == 10
    assert found.counted.received == found.counted.expected
    assert Results([found]).lost == 10


def test_a_window_that_shrinks_is_seen(generator: Generator) -> None:
    """Of real sockets, whose subscribers get more than they read: each message comes 40 times."""
    course = Course(50.0, 1.5, 0.1, 0.1, 0.2, slow_us=1000)
    found = against(generator, lambda number, packet: [packet * 40] if b"/topic/" in packet else [packet], course)
    assert "receive window" in signs(found.samples).causes


def test_a_broker_that_closes_connections_is_said(generator: Generator) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            system = System([server.sockets[0].getsockname()[1]], {})
            await asyncio.to_thread(generator.run, SINGLE, plan.LOCAL, "fixed", system, BRIEF)

    with pytest.raises(LoadError, match=r"the broker closed a connection|cannot (send|receive)"):
        asyncio.run(scenario())


def test_a_short_run_with_mosquitto(tmp_path: Path) -> None:
    """One broker, both placements, and a generator that is slow on purpose."""
    find_mosquitto()
    slow = replace(plan.QUICK.slow, seconds=1.5)
    sizes = plan.Sizes(replace(BRIEF, interval_ms=25.0, seconds=1.5), slow, patience=0.0)
    found = Results(experiment.experiment([SINGLE], sizes, Console(quiet=True)))
    assert found.lost == 0
    assert {each.key for each in found.all} == {("single", "local"), ("single", "scattered")}
    one = found.fixed["single", "local"]
    due = one.trial.counted.sent + one.trial.samples[-1].overdue  # where other programs take the processor
    assert due == pytest.approx(2000 * 1.6, rel=0.1)
    assert set(one.cpu) == {"broker0"}
    assert one.cpu_per_delivered > 0
    assert 0 < one.latency.least <= one.latency.mean
    assert found.slow is not None
    assert "processor" in found.slow.signs.causes


def test_a_line_of_bridges(tmp_path: Path, generator: Generator) -> None:
    """Each message crosses to subscribers at all three, once."""
    find_mosquitto()
    three = replace(SETUPS["bridges5"], count=3)
    with running(three, tmp_path) as system:
        found = generator.run(three, plan.SCATTERED, "fixed", system, replace(BRIEF, interval_ms=50.0))
    assert found.counted.received == found.counted.expected
    assert found.counted.repeated == 0
    assert found.is_far
    assert set(found.samples[0].cpu) == {"broker0", "broker1", "broker2"}


def test_makes_that_are_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generator: Generator) -> None:
    """Mosquitto, RabbitMQ and NATS behind proxies, and a node of ours; for so long that there are fences for echoes."""
    makes = ("mosquitto", "rabbitmq", "nats")
    for name in ("mosquitto", "rabbitmq-server", "nats-server"):
        find_mosquitto(name)
    monkeypatch.setattr(mixed, "MAKES_WANTED", makes)
    setup = SETUPS["mixed5"]
    with running(setup, tmp_path) as system:
        found = generator.run(setup, plan.SCATTERED, "fixed", system, Course(25.0, 4.0, 0.1, 0.1, 10.0))
    assert found.counted.received == found.counted.expected
    assert found.counted.repeated == 0
    assert set(found.samples[0].cpu) == {"ours", *makes, *(f"proxy of {name}" for name in makes)}


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing_aedes() -> None:
        raise BrokerError("aedes is not installed")

    monkeypatch.setattr(mixed, "check_makes", missing_aedes)
    assert "mixed5" not in [each.name for each in experiment.chosen(False, [])]
    assert "mixed5 is left out: aedes is not installed" in capsys.readouterr().err
    assert [each.name for each in experiment.chosen(False, ["mixed5"])] == ["mixed5"]
    monkeypatch.setattr(mixed, "check_makes", lambda: None)
    assert {each.name for each in experiment.chosen(False, [])} == set(SETUPS)


@pytest.mark.parametrize("method", ["flood", "subscribe"])
def test_a_line_of_proxies(method: str, tmp_path: Path, generator: Generator) -> None:
    """Three Mosquittos that know nothing of each other are one."""
    find_mosquitto()
    three = replace(SETUPS[f"line5-{method}"], count=3)
    with running(three, tmp_path) as system:
        found = generator.run(three, plan.SCATTERED, "fixed", system, replace(BRIEF, interval_ms=50.0))
    assert found.counted.received == found.counted.expected
    assert found.counted.repeated == 0
    assert found.is_far
    assert set(found.samples[0].cpu) == {f"{name}{number}" for name in ("broker", "proxy") for number in range(3)}
