"""Hostile clients, and what others notice of them: scripts/bench hostile [--only slowloris,take-overs] [--rounds N]

Each attack goes against a fresh broker with default settings. Good clients, fifty pairs at a fixed rate with QoS 0,
measure how long their messages take alone, while the attack goes on, and after it, in rounds. The broker has to stay
up, to keep its memory below the attack's bound, and to give it back or at least to need no more in later rounds. The
p99 of the others is to stay within twice what it is alone: told, and remarked on, but a figure of the machine, too, so
the exit status does not depend on it. A full run writes docs/results/hostile-DATE.json and the table of
docs/hostile.md. One that was made in parts (`--only … --json FILE`), so that each had a quiet machine, is put together
by `--join FILE …`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from headwater.fleet.process import BrokerError
from headwater_lab import machine, report, results
from headwater_lab.contenders import raise_file_limit
from headwater_lab.hostile_field import Attack
from headwater_lab.hostile_ground import ATTACKS, Ground, be_urgent, ground
from headwater_lab.load import VIOLATIONS, LoadError, LoadGenerator, build
from headwater_lab.options import output_options

PAIRS: Final = 50
RATE: Final = 10_000
WARM_UP: Final = 0.3
P99_RATIO: Final = 2.0
GROWTH: Final = 8 << 20
"""Bytes that later rounds may need beyond the first one, and a tenth of what the attack takes: what the allocator does
not get back together at once. What the attack may have the broker keep comes on top: the C library gives only the end
of its heap back to the system, so of memory that is free again much may stay resident, up to the most that there was.
"""
PHASES: Final = ("alone", "during", "after")


@dataclass
class AttackOutcome:
    """What one attack did. Times are microseconds by phase and round, memory is bytes: before, the most, after the
    first round and after the last."""

    attack: str
    p50: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    p99: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    counts: dict[str, int] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    cpu: float = 0.0
    before: int = 0
    peak: int = 0
    after_first: int = 0
    after: int = 0
    error: str = ""

    @property
    def ratio(self) -> float:
        """Of p99 during the attack to p99 alone: the median over the rounds."""
        return statistics.median(
            during / alone for during, alone in zip(self.p99["during"], self.p99["alone"], strict=True)
        )

    def failures(self) -> list[str]:
        """What must not be."""
        if self.error:
            return [self.error]
        said = [f"{name} {count} messages of good clients" for name, count in self.violations.items() if count]
        bound = ATTACKS[self.attack].most_memory
        if self.peak - self.before > bound:
            said.append(f"took {_mib(self.peak - self.before)} MiB, more than {_mib(bound)}")
        may_stay = ATTACKS[self.attack].stated + ATTACKS[self.attack].comes_and_goes
        if self.after - self.after_first > GROWTH + (self.peak - self.before) // 10 + may_stay:
            said.append(
                f"memory grows: {_mib(self.after_first)} MiB after the first round, {_mib(self.after)} after the last"
            )
        return said

    def remarks(self) -> list[str]:
        """Failures, and what is only worse than it should be."""
        said = self.failures()
        if not self.error and self.ratio > P99_RATIO:
            said.append(f"p99 of others above {P99_RATIO:g} ×")
        return said


class Campaign:
    """Runs attacks; `extra` are more arguments of the broker's command line. `beside`: attacks go to another broker, so
    that what is left is what the machine itself makes others wait."""

    def __init__(
        self, load: LoadGenerator, folder: Path, rounds: int, seconds: float, extra: str, beside: bool = False
    ) -> None:
        self._load = load
        self._folder = folder
        self._rounds = rounds
        self._seconds = seconds
        self._extra = extra
        self._beside = beside

    def run(self, attack: Attack) -> AttackOutcome:
        outcome = AttackOutcome(attack.name)
        try:
            with contextlib.ExitStack() as stack:
                place = stack.enter_context(ground(attack.needs, self._folder, self._extra))
                target = place
                if self._beside:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
                    target = stack.enter_context(ground(attack.needs, folder, self._extra))
                    target.be_ordinary()
                self._measure(place, outcome, None)  # so that everything is loaded once
                outcome.before = place.broker.resident_bytes()
                for number in range(self._rounds):
                    self._round(place, target, attack, outcome)
                    if number == 0:
                        outcome.after_first = place.broker.resident_bytes()
                outcome.after = place.broker.resident_bytes()
                outcome.peak = place.broker.peak_bytes()
                place.check()
        except (BrokerError, LoadError) as problem:
            outcome.error = str(problem)
        return outcome

    def _round(self, place: Ground, target: Ground, attack: Attack, outcome: AttackOutcome) -> None:
        self._measure(place, outcome, "alone")
        before = place.cpu_seconds()
        with target.attacked(attack.name, self._seconds + 2 * WARM_UP) as counts:
            self._measure(place, outcome, "during")
            outcome.cpu += place.cpu_seconds() - before
            outcome.seconds += self._seconds + WARM_UP
        place.check()
        for name, count in counts.items():
            outcome.counts[name] = outcome.counts.get(name, 0) + count
        self._measure(place, outcome, "after")

    def _measure(self, place: Ground, outcome: AttackOutcome, phase: str | None) -> None:
        seconds = self._seconds if phase == "during" else self._seconds / 2
        words = f"--publishers {PAIRS} --subscribers {PAIRS} --topics {PAIRS} --rate {RATE}".split()
        words += ["--seconds", str(seconds), "--warmup", str(WARM_UP)]
        result = self._load.run("traffic", place.broker.port, words, limit=seconds + 60)
        if phase is not None:
            outcome.p50[phase].append(result["p50"])
            outcome.p99[phase].append(result["p99"])
        for name in VIOLATIONS:
            outcome.violations[name] = outcome.violations.get(name, 0) + int(result[name])


# ---- results -----------------------------------------------------------------------------------------------------


def joined(files: Sequence[Path]) -> tuple[dict[str, str], list[AttackOutcome]]:
    """Facts and outcomes of a run that was made in parts. ValueError: they are not parts of one whole run."""
    parts = [json.loads(file.read_text()) for file in files]
    outcomes = {each["attack"]: AttackOutcome(**each) for part in parts for each in part["results"]}
    if len(outcomes) != sum(len(part["results"]) for part in parts):
        raise ValueError("an attack is in two parts")
    missing = [name for name in ATTACKS if name not in outcomes]
    if missing or len(outcomes) > len(ATTACKS):
        raise ValueError(f"not in any part, or unknown: {', '.join(missing or set(outcomes) - set(ATTACKS))}")
    facts: dict[str, str] = dict(parts[0]["machine"])
    varying = ("date", "load before")
    for part in parts[1:]:
        if any(part["machine"].get(name) != value for name, value in facts.items() if name not in varying):
            raise ValueError("parts are of different machines, commits or rounds")
    facts["load before"] = ", ".join(part["machine"]["load before"] for part in parts)
    return facts, [outcomes[name] for name in ATTACKS]


def keep(docs: Path, facts: dict[str, str], outcomes: Sequence[AttackOutcome]) -> None:
    """Of a whole run: the file of results, and the table."""
    results.keep(docs, "hostile", {"machine": facts, "results": [asdict(outcome) for outcome in outcomes]})
    report.update(docs / "hostile.md", markdown(outcomes, facts), "hostile")


def line(outcome: AttackOutcome) -> str:
    """For the terminal."""
    if outcome.error:
        return f"{outcome.attack:20} FAILED: {outcome.error}"
    medians = {phase: statistics.median(outcome.p99[phase]) for phase in PHASES}
    times = " / ".join(f"{medians[phase]:.0f}" for phase in PHASES)
    text = f"{outcome.attack:20} p99 {times} µs, ratio {outcome.ratio:.2f}"
    text += f"; memory {' / '.join(map(_mib, (outcome.before, outcome.peak, outcome.after)))} MiB"
    text += f"; CPU {100 * outcome.cpu / outcome.seconds:.0f} %; {_per_second(outcome)}"
    return text + "".join(f"  {remark.upper()}" for remark in outcome.remarks())


def markdown(outcomes: Sequence[AttackOutcome], facts: dict[str, str]) -> str:
    """The generated part of docs/hostile.md."""
    rows = []
    for outcome in outcomes:
        attack = ATTACKS[outcome.attack]
        if outcome.error:
            rows.append([attack.name, attack.what, outcome.error, "", "", attack.answer, attack.setting])
            continue
        alone, during = (statistics.median(outcome.p99[phase]) for phase in ("alone", "during"))
        memory = " / ".join(map(_mib, (outcome.before, outcome.peak, outcome.after)))
        rows.append(
            [
                attack.name,
                f"{attack.what} ({_per_second(outcome)})",
                f"{outcome.ratio:.2f} ({alone:.0f} → {during:.0f})",
                f"{100 * outcome.cpu / outcome.seconds:.0f} %",
                memory,
                attack.answer,
                attack.setting,
            ]
        )
    head = [
        "attack",
        "what",
        "p99 of others × (µs)",
        "broker's CPU",
        "MiB before / most / after",
        "the broker",
        "bounded by",
    ]
    losses = [f"- {outcome.attack}: {'; '.join(outcome.remarks())}." for outcome in outcomes if outcome.remarks()]
    said = "\n".join(losses) or "- None."
    return f"{report.facts(facts)}\n\n{report.table(head, rows)}\n\nLosses:\n\n{said}\n"


def _per_second(outcome: AttackOutcome) -> str:
    counts = {name: count / outcome.seconds for name, count in outcome.counts.items() if name != "ends"}
    said = [f"{value:,.0f} {name}/s" for name, value in counts.items() if name != "bytes" and value >= 1]
    if counts.get("bytes", 0) >= 1e6:
        said.append(f"{counts['bytes'] / 1e6:.0f} MB/s")
    return ", ".join(said)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="attacks, with commas between them (see --list)")
    parser.add_argument("--list", action="store_true", help="list the attacks")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each attack (default: 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="time of an attack in a round (default: 4)")
    parser.add_argument("--broker-arguments", default="", help="more for the broker: --broker-arguments='--data-dir D'")
    parser.add_argument(
        "--beside", action="store_true", help="attack another broker: what others wait because of the machine alone"
    )
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="run nothing: these are all the parts")
    output_options(parser)
    options = parser.parse_args(arguments)
    if options.join:
        try:
            keep(options.docs, *joined(options.join))
        except ValueError as problem:
            parser.error(str(problem))
        return 0
    chosen = [name for name in options.only.split(",") if name] or list(ATTACKS)
    unknown = [name for name in chosen if name not in ATTACKS]
    if unknown:
        parser.error(f"no attack is called {', '.join(unknown)}")
    if options.list:
        print("\n".join(f"{attack.name:20} {attack.what}" for attack in ATTACKS.values()))
        return 0
    facts = machine.describe(f"headwater broker {options.broker_arguments}".strip())
    facts["load before"] = f"{os.getloadavg()[0]:.1f}"
    facts["priority"] = "the broker and good clients before others" if be_urgent() else "the same for all"
    facts["rounds"] = f"{options.rounds} of {options.seconds:g} s"
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    raise_file_limit()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="headwater-hostile-") as name:
        campaign = Campaign(
            build(Path(name)), Path(name), options.rounds, options.seconds, options.broker_arguments, options.beside
        )
        for attack in chosen:
            outcomes.append(campaign.run(ATTACKS[attack]))
            print(line(outcomes[-1]), flush=True)
    if options.json:
        data = {"machine": facts, "results": [asdict(outcome) for outcome in outcomes]}
        results.write_json(options.json, data)
    if chosen == list(ATTACKS) and not options.no_docs and not options.beside:
        keep(options.docs, facts, outcomes)
    return 1 if any(outcome.failures() for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
