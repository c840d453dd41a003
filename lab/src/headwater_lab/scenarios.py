"""What is measured: every case of the comparison with Mosquitto, as data.

Workloads. W1: 10 publishers, 5 topics, 10 subscribers on each; W2: 50 pairs; W3: 50 publishers, one subscriber; all
QoS 0. W4: 10 pairs with QoS 1.
Regimes. deep: many messages under way, so that packets come in batches; mid: 20 under way and lock: one under way,
both with one packet per send; paced: a fixed rate, one packet per send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Measure = Literal["traffic", "storm", "connection memory", "subscription memory", "start"]

WORKLOADS: Final = {
    "W1": "--publishers 10 --subscribers 50 --topics 5",
    "W2": "--publishers 50 --subscribers 50 --topics 50",
    "W3": "--publishers 50 --subscribers 1 --topics 1",
    "W4": "--publishers 10 --subscribers 10 --topics 10 --qos 1",
}
DEEP: Final = {"W1": "--window 1000", "W2": "--window 1000", "W3": "--window 1000", "W4": "--window 100"}
REGIMES: Final = {
    "deep": DEEP,
    "mid": dict.fromkeys(WORKLOADS, "--window 20 --burst 1"),
    "lock": dict.fromkeys(WORKLOADS, "--window 1 --burst 1"),
    "paced": {"W1": "--rate 2000", "W2": "--rate 10000", "W3": "--rate 10000", "W4": "--rate 5000"},
}
FLOORS: Final = {
    "deep": {"W1": 50.0, "W2": 12.0, "W3": 12.0, "W4": 8.0},
    "lock": {"W1": 1.2, "W2": 1.1, "W3": 0.9, "W4": 1.0},
    "paced": {"W1": 1.0, "W2": 1.0, "W3": 0.9, "W4": 0.9},
}
"""Ratios that the compiled broker promises at least."""

P99_BOUND: Final = 1.5
"""The paced p99 of W1, W2 and W4 is promised to stay below this multiple of Mosquitto's."""

UNITS: Final[dict[Measure, str]] = {
    "traffic": "µs CPU / message",
    "storm": "µs CPU / connection",
    "connection memory": "KiB / connection",
    "subscription memory": "bytes / subscription",
    "start": "s until listening",
}


@dataclass(frozen=True)
class Case:
    """One comparison. `floor` is the least ratio promised, `bound` the most of the unit that ours may cost.

    `clients` and `subscriptions` are those of a memory case; `options` are the load generator's otherwise.
    `rounds` is how often both brokers take their turn unless the user says otherwise.
    """

    scenario: str
    name: str
    what: str
    measure: Measure = "traffic"
    options: tuple[str, ...] = ()
    mqtt: int = 4
    clients: int = 0
    subscriptions: int = 0
    rounds: int = 5
    floor: float | None = None
    bound: float | None = None

    @property
    def key(self) -> str:
        """The stable name in result files and for `--only`."""
        version = "/mqtt5" if self.mqtt == 5 else ""
        return f"{self.scenario}/{self.name}{version}"

    @property
    def unit(self) -> str:
        return UNITS[self.measure]


def _traffic(scenario: str, name: str, what: str, options: str, floor: float | None = None, mqtt: int = 4) -> Case:
    return Case(scenario, name, what, options=tuple(options.split()), floor=floor, mqtt=mqtt)


def _regimes() -> list[Case]:
    return [
        _traffic(
            regime,
            workload,
            f"{regime} {workload}",
            f"{WORKLOADS[workload]} {options}",
            FLOORS.get(regime, {}).get(workload),
        )
        for regime, by_workload in REGIMES.items()
        for workload, options in by_workload.items()
    ]


def _deep(workload: str) -> str:
    return f"{WORKLOADS[workload]} {DEEP[workload]}"


def _varied_traffic() -> list[Case]:
    """Traffic that no cache for one topic and no batch for one encoding helps with."""
    crowd = "--clients 100 --subscriptions 100000"
    hashes = "--filters hash"
    all_topics = _deep("W1").replace("--subscribers 50", "--subscribers 10") + " --filters everything"
    return [
        _traffic(
            "topics", "cycle", "deep W2, each message on the next of 100 topics", f"{_deep('W2')} --topic-cycle 100", 6
        ),
        _traffic("topics", "fresh", "deep W2, no topic used twice", f"{_deep('W2')} --fresh-topics {hashes}", 6),
        _traffic("wildcards", "hash", "deep W1, filters bench/topic/N/#", f"{_deep('W1')} {hashes}", 10),
        _traffic("wildcards", "plus", "deep W1, filters +/topic/N", f"{_deep('W1')} --filters plus", 10),
        _traffic("wildcards", "all", "deep W1, 10 subscribers of #", all_topics, 10),
        _traffic("properties", "two", "deep W2, two user properties", f"{_deep('W2')} --user-properties 2", 6, mqtt=5),
        _traffic("subscriptions", "same-topics", "deep W2 among 100,000 subscriptions", f"{_deep('W2')} {crowd}"),
        _traffic(
            "subscriptions",
            "fresh-topics",
            "deep W2, no topic used twice, among 100,000 subscriptions",
            f"{_deep('W2')} {crowd} --fresh-topics {hashes}",
        ),
        _traffic("retained", "deep", "deep, 10 pairs, every message retained", f"{_deep('W4')} --qos 0 --retain"),
        _traffic("qos2", "deep", "10 pairs QoS 2, 100 under way", f"{_deep('W4')} --qos 2"),
        _traffic("qos2", "lock", "10 pairs QoS 2, one under way", f"{WORKLOADS['W4']} --qos 2 --window 1 --burst 1"),
        _traffic(
            "many",
            "low-rate",
            "1,000 connections, 1,000 messages/s",
            "--publishers 500 --subscribers 500 --topics 500 --rate 1000",
        ),
    ]


def _resources() -> list[Case]:
    return [
        Case("storm", "connect", "connect and disconnect, 50 at a time", "storm", ("--parallel", "50")),
        Case(
            "memory",
            "connections",
            "10,000 idle connections, one subscription each",
            "connection memory",
            clients=10_000,
            subscriptions=10_000,
            rounds=3,
            bound=10.0,
        ),
        Case(
            "memory",
            "subscriptions-1",
            "100,000 subscriptions of one client",
            "subscription memory",
            clients=1,
            subscriptions=100_000,
            rounds=3,
        ),
        Case(
            "memory",
            "subscriptions-100",
            "100,000 subscriptions of 100 clients",
            "subscription memory",
            clients=100,
            subscriptions=100_000,
            rounds=3,
        ),
        Case("start", "listen", "from start until listening", "start", rounds=10, bound=0.5),
    ]


Versions = Literal["4", "5", "both"]


def all_cases(versions: Versions = "both") -> list[Case]:
    """Every case. With "both" the regimes run in both versions of MQTT, other traffic in the version it is about."""
    regimes, others = _regimes(), _varied_traffic() + _resources()
    if versions == "4":
        return [case for case in regimes + others if case.mqtt == 4]
    if versions == "5":
        return [dataclasses.replace(case, mqtt=5) for case in regimes + others]
    return regimes + [dataclasses.replace(case, mqtt=5) for case in regimes] + others


def full(versions: Versions = "both") -> list[Case]:
    """The cases of a full run: `mid` is there for those who ask for it by name."""
    return [case for case in all_cases(versions) if case.scenario != "mid"]


_QUICK: Final = (
    "deep/W1",
    "deep/W2",
    "deep/W3",
    "deep/W4",
    "deep/W1/mqtt5",
    "deep/W4/mqtt5",
    "lock/W1",
    "paced/W2",
    "topics/cycle",
    "topics/fresh",
    "wildcards/hash",
    "wildcards/plus",
    "properties/two/mqtt5",
    "retained/deep",
    "qos2/deep",
    "many/low-rate",
    "storm/connect",
    "memory/connections",
    "start/listen",
)


def quick() -> list[Case]:
    """A slice for continuous integration that touches every kind of traffic, in about a minute."""
    chosen = [case for case in all_cases() if case.key in _QUICK]
    return [
        dataclasses.replace(case, rounds=1, clients=case.clients // 10, subscriptions=case.subscriptions // 10)
        if case.measure != "start"
        else dataclasses.replace(case, rounds=3)
        for case in chosen
    ]


def select(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases that are named by scenario ("deep"), by case ("deep/W1") or by key ("deep/W1/mqtt5")."""
    for name in names:
        if not any(_is_named(case, name) for case in cases):
            known = ", ".join(dict.fromkeys(case.scenario for case in cases))
            raise ValueError(f"no scenario or case is called {name!r}; scenarios: {known}")
    return [case for case in cases if any(_is_named(case, name) for name in names)]


def _is_named(case: Case, name: str) -> bool:
    return name in (case.scenario, f"{case.scenario}/{case.name}", case.key)
