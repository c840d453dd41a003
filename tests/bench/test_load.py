"""The load generator finds every kind of wrong delivery, shown by a broker that makes them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from headwater.bench.load import VIOLATIONS, LoadError, LoadGenerator, Result, build
from tests.bench.fake_broker import FakeBroker, Fault, faithful

PAIRS = "--publishers 2 --subscribers 2 --topics 2 --window 10"
BRIEFLY = f"--seconds 0.15 --warmup 0.05 --drain 0.2 --broker-pids {os.getpid()}"


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> LoadGenerator:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return build(tmp_path_factory.mktemp("loadgen"))


def run(load: LoadGenerator, broker: FakeBroker, options: str, mode: str = "traffic") -> Result:
    async def scenario() -> Result:
        async with broker:
            words = f"{options} {BRIEFLY}".split()
            return await asyncio.to_thread(load.run, mode, broker.port, words, limit=30)

    return asyncio.run(scenario())


def violations(result: Result) -> dict[str, float]:
    return {name: result[name] for name in VIOLATIONS if result[name]}


class SwapOnce:
    """Sends message 20 after message 21."""

    def __init__(self) -> None:
        self.held = b""

    def __call__(self, number: int, packet: bytes) -> list[bytes]:
        if number == 20:
            self.held = packet
            return []
        if number == 21:
            return [packet, self.held]
        return [packet]


def drop_once(number: int, packet: bytes) -> list[bytes]:
    return [] if number == 20 else [packet]


def repeat_once(number: int, packet: bytes) -> list[bytes]:
    return [packet, packet] if number == 20 else [packet]


def shorten_once(number: int, packet: bytes) -> list[bytes]:
    return [packet[:1] + bytes([packet[1] - 1]) + packet[2:-1]] if number == 20 else [packet]


def retained_before(number: int, packet: bytes) -> list[bytes]:
    """As if the topic had a retained message, which arrives in the middle of the stream and with an old stamp."""
    return [packet, b"\x31" + packet[1:]] if number == 20 else [packet]


@pytest.mark.parametrize("mqtt", [4, 5])
@pytest.mark.parametrize("payload", [16, 80, 3000])
def test_faithful_broker_has_no_violations(load: LoadGenerator, mqtt: int, payload: int) -> None:
    broker = FakeBroker()
    result = run(load, broker, f"{PAIRS} --mqtt {mqtt} --payload {payload}")
    assert violations(result) == {}
    assert result["delivered"] == len(broker.published) > 100
    assert result["rate"] > 0
    assert result["us"] > 0


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (SwapOnce(), {"gaps": 1, "disorder": 1}),
        (drop_once, {"lost": 1, "gaps": 1}),
        (repeat_once, {"lost": -1, "disorder": 1}),
        (shorten_once, {"gaps": 1, "corrupt": 1}),
        (retained_before, {}),
    ],
    ids=["swapped", "dropped", "repeated", "shortened", "retained"],
)
def test_fault_is_found(load: LoadGenerator, fault: Fault, found: dict[str, float]) -> None:
    one_pair = "--publishers 1 --subscribers 1 --topics 1 --window 10"
    result = run(load, FakeBroker(fault), one_pair)
    assert result["delivered"] > 100
    assert violations(result) == found


def test_swap_across_topics_of_one_publisher_is_found(load: LoadGenerator) -> None:
    options = "--publishers 1 --subscribers 1 --topics 1 --window 10 --topic-cycle 7"
    broker = FakeBroker(SwapOnce())
    assert violations(run(load, broker, options)) == {"gaps": 1, "disorder": 1}
    assert broker.published[20] != broker.published[21]


def test_messages_of_other_topics_are_found(load: LoadGenerator) -> None:
    result = run(load, FakeBroker(everybody_gets_all=True), PAIRS)
    assert result["misrouted"] > 0
    assert result["disorder"] == result["gaps"] == 0


def test_dropped_user_properties_are_found(load: LoadGenerator) -> None:
    def without_properties(number: int, packet: bytes) -> list[bytes]:
        topic_end = 4 + int.from_bytes(packet[2:4], "big")
        after = topic_end + 1 + packet[topic_end]
        rest = packet[2:topic_end] + b"\0" + packet[after:]
        return [packet[:1] + bytes([len(rest)]) + rest]

    options = f"{PAIRS} --mqtt 5 --payload 16 --user-properties 2"
    assert violations(run(load, FakeBroker(), options)) == {}
    result = run(load, FakeBroker(without_properties), options)
    assert result["corrupt"] == result["delivered"] > 0


def test_packets_in_pieces_are_put_together(load: LoadGenerator) -> None:
    result = run(load, FakeBroker(piece=7), PAIRS)
    assert violations(result) == {}
    assert result["delivered"] > 20


def test_cycling_publisher_uses_each_topic_in_turn(load: LoadGenerator) -> None:
    broker = FakeBroker()
    run(load, broker, "--publishers 1 --subscribers 1 --topics 1 --window 10 --topic-cycle 5")
    assert len(set(broker.published)) == 5
    assert broker.published[:5] == broker.published[5:10]


def test_fresh_topics_never_repeat_even_in_the_next_run(load: LoadGenerator) -> None:
    seen: list[bytes] = []
    for _ in range(2):
        broker = FakeBroker(everybody_gets_all=True)
        run(load, broker, "--publishers 1 --subscribers 1 --topics 1 --window 10 --fresh-topics --filters plus")
        assert broker.filters == [b"+/topic/00000/+/+"]
        seen += broker.published
    assert len(set(seen)) == len(seen) > 100


def test_paced_publishers_keep_the_rate_and_measure_latency(load: LoadGenerator) -> None:
    late = run(load, FakeBroker(faithful), f"{PAIRS} --rate 500")
    assert violations(late) == {}
    assert late["delivered"] == pytest.approx(500 * 0.2, rel=0.2)
    assert 0 < late["p50"] <= late["p99"]


def test_storm_counts_connections(load: LoadGenerator) -> None:
    broker = FakeBroker()
    result = run(load, broker, "--parallel 3", mode="storm")
    assert 0 < result["connections"] <= broker.connections


def test_hold_shares_filters_among_clients_until_released(load: LoadGenerator) -> None:
    def hold(port: int) -> Result:
        with load.hold(port, clients=3, subscriptions=500) as result:
            return result

    async def scenario(broker: FakeBroker) -> Result:
        async with broker:
            return await asyncio.to_thread(hold, broker.port)

    broker = FakeBroker()
    result = asyncio.run(scenario(broker))
    assert (result["clients"], result["granted"], result["refused"]) == (3, 500, 0)
    assert len(set(broker.filters)) == 500
    result = asyncio.run(scenario(FakeBroker(granted=0x80)))
    assert (result["granted"], result["refused"]) == (0, 500)


def test_refused_subscriptions_are_an_error_for_traffic(load: LoadGenerator) -> None:
    with pytest.raises(LoadError, match="refused 1 subscriptions"):
        run(load, FakeBroker(granted=0x80), PAIRS)


def test_without_gcc_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LoadError, match="gcc is needed"):
        build(tmp_path)
