"""The load generator finds every kind of wrong delivery, shown by a broker that makes them."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path

import pytest

from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, Result, build
from headwater_lab.tls import Certificate
from tests.lab.fake_broker import FakeBroker, Fault, faithful

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


def test_publishers_may_be_at_another_broker(load: LoadGenerator) -> None:
    async def scenario() -> tuple[Result, FakeBroker, FakeBroker]:
        async with FakeBroker() as there, FakeBroker() as here:
            words = f"{PAIRS} --publisher-port {here.port} {BRIEFLY}".split()
            return await asyncio.to_thread(load.run, "traffic", there.port, words, limit=30), here, there

    result, here, there = asyncio.run(scenario())
    assert len(here.published) == result["lost"] == result["published"] > 0  # nobody carries them over
    assert len(there.filters) == 2 and not here.filters and not there.published


GROUP = "--share workers --publishers 2 --subscribers 3 --topics 1 --window 10"


@pytest.mark.parametrize("mqtt", [4, 5])
def test_group_gets_each_message_once(load: LoadGenerator, mqtt: int) -> None:
    broker = FakeBroker()
    result = run(load, broker, f"{GROUP} --mqtt {mqtt}")
    assert violations(result) == {}
    assert set(broker.filters) == {b"$share/workers/bench/topic/00000"}
    assert result["delivered"] == result["published"] == len(broker.published) > 100
    assert result["least"] <= result["most"] <= result["least"] + 1


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (SwapOnce(), {"disorder": 1}),
        (drop_once, {"lost": 1}),
        (repeat_once, {"disorder": 1, "repeated": 1}),
        (shorten_once, {"corrupt": 1}),
    ],
    ids=["swapped", "dropped", "repeated", "shortened"],
)
def test_fault_in_a_group_is_found(load: LoadGenerator, fault: Fault, found: dict[str, float]) -> None:
    options = "--share workers --publishers 1 --subscribers 1 --topics 1 --window 10"
    assert violations(run(load, FakeBroker(fault), options)) == found


def test_message_for_two_members_is_found(load: LoadGenerator) -> None:
    result = run(load, FakeBroker(everybody_gets_all=True), GROUP)
    assert result["lost"] == 0
    assert result["published"] < result["repeated"] <= 2 * result["published"]


def test_group_of_another_topic_is_found(load: LoadGenerator) -> None:
    options = "--share workers --publishers 2 --subscribers 2 --topics 2 --window 10"
    assert violations(run(load, FakeBroker(), options)) == {}
    assert run(load, FakeBroker(everybody_gets_all=True), options)["misrouted"] > 0


def test_publisher_in_lock_waits_for_its_own_message_only(load: LoadGenerator) -> None:
    """A lost message stops its publisher and not the other one."""
    options = "--share workers --publishers 2 --subscribers 1 --topics 1 --window 1 --burst 1"
    result = run(load, FakeBroker(drop_once), options)
    assert violations(result) == {"lost": 1}
    assert result["published"] > 100


def test_repeated_message_does_not_open_the_window(load: LoadGenerator) -> None:
    def repeat_then_drop(number: int, packet: bytes) -> list[bytes]:
        return {20: [packet, packet], 21: []}.get(number, [packet])

    options = "--share workers --publishers 1 --subscribers 1 --topics 1 --window 1 --burst 1"
    result = run(load, FakeBroker(repeat_then_drop), options)
    assert violations(result) == {"lost": 1, "disorder": 1, "repeated": 1}
    assert result["published"] == 22


def test_clients_are_spread_over_brokers(load: LoadGenerator) -> None:
    async def scenario(first: FakeBroker, second: FakeBroker) -> Result:
        async with first, second:
            words = f"--publishers 4 --subscribers 2 --topics 2 --window 10 {BRIEFLY}".split()
            return await asyncio.to_thread(load.run, "traffic", [first.port, second.port], words, limit=30)

    brokers = FakeBroker(), FakeBroker()
    result = asyncio.run(scenario(*brokers))
    assert violations(result) == {}
    assert [broker.connections for broker in brokers] == [3, 3]
    assert [set(broker.published) for broker in brokers] == [{b"bench/topic/00000"}, {b"bench/topic/00001"}]
    assert result["delivered"] == sum(len(broker.published) for broker in brokers)


def test_latency_is_measured_at_full_speed_if_wanted(load: LoadGenerator) -> None:
    assert run(load, FakeBroker(), PAIRS)["mean"] == 0
    result = run(load, FakeBroker(), f"{PAIRS} --latency")
    assert 0 < result["p50"] <= result["p99"]
    assert 0 < result["mean"] <= result["p99"]


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


def test_with_tls_the_same_is_found(tmp_path: Path) -> None:
    """What the generator counts does not depend on what lies below it, and its reads overlook nothing."""
    certificate = Certificate.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    load = build(tmp_path, tls=certificate.file)
    for options in (PAIRS, f"{PAIRS} --payload 3000", f"{PAIRS} --window 1 --burst 1", f"{PAIRS} --rate 500"):
        broker = FakeBroker(tls=context)
        result = run(load, broker, options)
        assert violations(result) == {}
        assert result["delivered"] == len(broker.published) > 50
    assert violations(run(load, FakeBroker(drop_once, tls=context), PAIRS))["gaps"] == 1

    async def agreed() -> str:
        async with FakeBroker(tls=context) as broker:
            return await asyncio.to_thread(load.cipher, broker.port)

    assert asyncio.run(agreed()).startswith("TLSv1.3 TLS_")


def test_with_tls_strangers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, other = Certificate.make(tmp_path), Certificate.make(tmp_path / "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.file, other.key)
    with pytest.raises(LoadError, match="certificate verify failed"):
        run(build(tmp_path, tls=certificate.file), FakeBroker(tls=context), PAIRS)
    with pytest.raises(LoadError, match="TLS handshake failed"):
        run(build(tmp_path, tls=certificate.file), FakeBroker(), PAIRS)
    with pytest.raises(LoadError, match="built without TLS"):
        run(build(tmp_path), FakeBroker(), f"{PAIRS} --tls {certificate.file}")
