"""The figures of a run by name, with what is asked of them, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Final, NamedTuple

from headwater_lab import results
from headwater_lab.contest import ContestOutcome
from headwater_lab.report import facts, number, table

RATIO, MICROSECONDS = "", "µs"


class Figure(NamedTuple):
    """`bar`: at most that much (`≤`), at least (`≥`), or nothing is asked."""

    what: str
    unit: str
    sign: str = ""
    bar: float = 0.0

    def is_met(self, value: float) -> bool:
        return not self.sign or (value >= self.bar if self.sign == "≥" else value <= self.bar)

    @property
    def asked(self) -> str:
        return f"{self.sign} {self.bar:g}" if self.sign else ""


FIGURES: Final = {
    "off/deep-W2/ratio": Figure(
        "messages per CPU second with a cluster's name and no peers, over one without", RATIO, "≥", 0.97
    ),
    "cross2/deep-W2/cpu_ratio": Figure("CPU per message from one node to another, over one node", RATIO, "≤", 2.2),
    "cross2/lock-W2/cpu_ratio": Figure("the same, one message under way", RATIO, "≤", 2.2),
    "cross2/qos1-sync/cpu_ratio": Figure("the same, QoS 1 from disk to disk", RATIO),
    "topology/MLT-SGL/cpu_ratio": Figure("eight publishers and a subscriber of all at each of two nodes", RATIO),
    "topology/MLT-SHD/cpu_ratio": Figure("the same with one shared group of two at each", RATIO),
    "local5/lock-W2/cpu_ratio": Figure(
        "five nodes with the load of one at each, a topic's clients at one of them, over one node alone",
        RATIO,
        "≤",
        1.1,
    ),
    "local5/over-unlinked/lock-W2/cpu_ratio": Figure("the same, over five nodes that are no cluster", RATIO),
    "local5/unlinked/lock-W2/cpu_ratio": Figure("five nodes that are no cluster, over one node alone", RATIO),
    "local5/split/lock-W2/cpu_ratio": Figure("the load of one node spread over five, topic by topic", RATIO),
    "local5/one/lock-W2/cpu_ratio": Figure("all clients at one of five nodes, each in its turn", RATIO),
    "churn600/deep-W2/cpu_ratio": Figure("600 changes a second at another node, over none", RATIO, "≤", 1.5),
    "bloom/messages_ratio": Figure("messages that cross by bloom, over subscribe", RATIO, "≤", 1.01),
    "bloom/state_bytes_ratio": Figure("bytes of the whole state by bloom, over subscribe", RATIO, "≤", 0.2),
    "bloom/churn_bytes_ratio": Figure("bytes of changes by bloom, over subscribe", RATIO),
    "bloom/growth_bytes_ratio": Figure("bytes of growing by a fifth by bloom, over subscribe", RATIO),
    "hop/flood/us_per_message": Figure("CPU of a second node per message, flood", MICROSECONDS),
    "hop/subscribe/us_per_message": Figure("the same, subscribe", MICROSECONDS),
    "hop/bloom/us_per_message": Figure("the same, bloom", MICROSECONDS),
}


class Findings:
    """A ratio is the median of those of single rounds, in which both take their turns within seconds; `spread` is half
    the distance between the quartiles of these. So a round in which the machine did something else counts as one."""

    def __init__(self, figures: Mapping[str, Figure] = FIGURES) -> None:
        self._figures = figures
        self.values: dict[str, float] = {}
        self.spreads: dict[str, float] = {}
        self.outcomes: list[ContestOutcome] = []

    def add(self, name: str, value: float, spread: float = 0.0) -> None:
        assert name in self._figures
        self.values[name] = value
        self.spreads[name] = spread

    def compare(self, name: str, outcome: ContestOutcome, above: str, below: str, measure: str = "us") -> None:
        each = outcome.ratios(above, below, measure)
        low, middle, high = quantiles(each, n=4, method="inclusive") if len(each) > 1 else (each[0],) * 3
        self.add(name, middle, (high - low) / 2)

    def missed(self) -> list[str]:
        return [
            f"{name} is {number(value)} ± {number(self.spreads[name])}, asked is {self._figures[name].asked}"
            for name, value in self.values.items()
            if not self._figures[name].is_met(value)
        ]

    def wrong(self) -> list[str]:
        """What was lost, repeated, reordered or changed on its way."""
        return [
            f"{outcome.case.key}, {name}: {count} {what}"
            for outcome in self.outcomes
            for name in outcome.samples
            for what, count in outcome.violations(name).items()
        ]

    def records(self) -> list[results.Record]:
        return [results.record(name, None, value, self._figures[name].unit) for name, value in self.values.items()]

    def details(self, machine: Mapping[str, str]) -> list[results.Record]:
        """More of them: what each arrangement had, the spreads, and the machine."""
        found = self.records()
        found += [results.record(f"{name}/spread", None, each, "") for name, each in self.spreads.items() if each]
        for outcome in self.outcomes:
            for name in outcome.samples:
                key = f"{outcome.case.key}/{name.replace(' ', '_')}"
                found.append(results.record(f"{key}/us", None, outcome.median(name), MICROSECONDS))
                found.append(results.record(f"{key}/msgs_per_s", None, outcome.median(name, "rate"), "1/s"))
        return found + [
            {"name": f"machine/{name}", "paper": None, "ours": value, "unit": "text"} for name, value in machine.items()
        ]

    def markdown(self, machine: Mapping[str, str]) -> str:
        rows = [
            [self._figures[name].what, f"`{name}`", self._figures[name].asked, self._shown(name, value)]
            for name, value in self.values.items()
        ]
        arranged = [
            [outcome.case.what, name, number(outcome.median(name)), f"{outcome.median(name, 'rate'):,.0f}"]
            for outcome in self.outcomes
            for name in outcome.samples
        ]
        missed = self.missed()
        parts = [
            facts(dict(machine)),
            table(["", "figure", "asked", "found"], rows),
            table(["traffic", "arrangement", "µs CPU of all measured nodes", "messages/s"], arranged),
            "Missed: " + ("; ".join(missed) if missed else "none") + ".",
        ]
        return "\n\n".join(parts) + "\n"

    def _shown(self, name: str, value: float) -> str:
        spread = self.spreads[name]
        return f"{number(value)} ± {number(spread)}" if spread else number(value)


def progress(outcome: ContestOutcome) -> str:
    """One line for the terminal."""
    said: Sequence[str] = [
        f"{name} {number(outcome.median(name))} µs, {outcome.median(name, 'rate'):,.0f}/s" for name in outcome.samples
    ]
    return f"{outcome.case.key}: {'; '.join(said)}"
