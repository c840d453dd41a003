"""Many episodes, one after the other, each with a seed and a folder of its own; what came of them."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.disk.crash_points import BROKER_POINTS
from headwater_lab.chaos.checker import KINDS, Violation
from headwater_lab.chaos.episode import BOUNDS, RANDOM, STORED_BOUNDS, Aim, Episode, EpisodeOutcome
from headwater_lab.chaos.lives import BrokerFailed, Lives, Serve
from headwater_lab.chaos.stored import STORED_KINDS


@dataclass(slots=True)
class Plan:
    kills: int
    seed: int
    folder: Path
    serve: Serve | None
    command: str = ""
    per_episode: int = 25
    graceful: bool = False
    stored: bool = False
    """The broker has a delivery store."""

    @property
    def bounds(self) -> dict[str, int]:
        return STORED_BOUNDS if self.stored else BOUNDS


@dataclass(slots=True)
class Totals:
    """Sums over the episodes; `failures` has a text for each violation, with its episode's seed. `kinds` are those of
    violations."""

    points: tuple[str, ...] = BROKER_POINTS
    kinds: tuple[str, ...] = KINDS
    episodes: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    slowest_recovery: float = 0.0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: EpisodeOutcome) -> None:
        self.episodes += 1
        self.kills += outcome.kills
        self.stops += outcome.stops
        self.counts += outcome.counts
        self.slowest_recovery = max(self.slowest_recovery, outcome.slowest_recovery)
        for violation in outcome.violations:
            self.violations[violation.kind] += 1
            self.failures.append(f"seed {outcome.seed}: {violation}")

    def missed_points(self) -> list[str]:
        return [point for point in self.points if not self.kills[point]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "kills": self.kills.total(),
            "kills by point": {point: self.kills[point] for point in (RANDOM, *self.points)},
            "friendly ends": self.stops,
            "episodes": self.episodes,
            "messages published": self.counts["published"],
            "publish packets sent": self.counts["sent"],
            "messages acknowledged": self.counts["acknowledged"],
            "deliveries": self.counts["received"],
            **({"messages stored": self.counts["stored"]} if self.counts["stored"] else {}),
            **({"rows read by REST": self.counts["read by REST"]} if self.counts["read by REST"] else {}),
            "connections accepted": self.counts["connected"],
            "slowest recovery in s": round(self.slowest_recovery, 3),
            "violations": {kind: self.violations[kind] for kind in self.kinds},
            "seconds": round(self.seconds, 1),
            "failures": self.failures[:100],
        }


def run_campaign(plan: Plan, progress: Callable[[Totals, EpisodeOutcome], None]) -> Totals:
    """The folders of episodes without violations are removed; the others keep the data and the history."""
    totals = Totals(tuple(plan.bounds), (*KINDS, *STORED_KINDS) if plan.stored else KINDS)
    aim = Aim(dict(plan.bounds))
    began = time.monotonic()
    while (
        left := plan.kills - totals.kills.total() - (totals.stops if plan.graceful else 0)
    ) > 0 or not totals.episodes:
        seed = plan.seed + totals.episodes
        folder = plan.folder / f"seed-{seed}"
        folder.mkdir(parents=True)
        outcome = run_episode(plan, seed, folder, aim, min(left, plan.per_episode))
        totals.add(outcome)
        totals.seconds = time.monotonic() - began
        progress(totals, outcome)
        if not outcome.violations:
            shutil.rmtree(folder)
    return totals


def run_episode(plan: Plan, seed: int, folder: Path, aim: Aim, kills: int) -> EpisodeOutcome:
    episode = Episode(seed, Lives(folder, plan.serve, plan.command), aim, plan.graceful, plan.stored)
    try:
        episode.run(kills)
    except BrokerFailed as error:
        place = len(episode.world.history.events)
        episode.outcome.violations.append(Violation("broker", place, str(error)))
    if episode.outcome.violations:
        episode.world.history.save(folder / "history.ndjson")
    return episode.outcome
