"""Episodes, one after the other, and their sums."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.disk.crash_points import PIPELINE_POINTS
from headwater_lab.pipeline_chaos.aims import EVERYTHING, FIRST, Aims
from headwater_lab.pipeline_chaos.episode import Episode, EpisodeOutcome
from headwater_lab.pipeline_chaos.examining import WRONG


@dataclass
class Totals:
    aims: tuple[str, ...]
    episodes: int = 0
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    who: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    afterlife: float = 0.0
    recovery: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: EpisodeOutcome) -> None:
        self.episodes += 1
        self.kills += outcome.kills
        self.who += outcome.who
        self.counts += outcome.counts
        self.afterlife = max(self.afterlife, outcome.afterlife)
        self.recovery = max(self.recovery, outcome.recovery)
        for text in outcome.wrong:
            self.wrong[text.partition(":")[0]] += 1
            self.failures.append(f"seed {outcome.seed}: {text}")

    def as_dict(self) -> dict[str, Any]:
        aimed = {aim.partition(":")[0].partition("/")[0] for aim in self.aims}
        of_points = {
            point: sum(count for place, count in self.kills.items() if place.partition("/")[0] == point)
            for point in PIPELINE_POINTS
            if point in aimed
        }
        tables = {place.partition("/")[0] for place in self.kills if "/" in place}
        aims = [aim.partition(":")[0] for aim in self.aims]
        named = [aim for aim in aims if aim != FIRST and aim not in tables]
        return {
            "kills": self.kills.total(),
            "kills by point": of_points,
            "kills by place": {place: self.kills[place] for place in dict.fromkeys([*named, *sorted(self.kills)])},
            "who died at points": dict(self.who),
            "episodes": self.episodes,
            **dict(sorted(self.counts.items())),
            "longest afterlife of a process, seconds": round(self.afterlife, 1),
            "longest wait for a round, seconds": round(self.recovery, 1),
            "violations": {kind: self.wrong[kind] for kind in (*WRONG, "not stored", "stuck")},
            "seconds": round(self.seconds, 1),
            "failures": self.failures[:100],
        }


@dataclass(frozen=True)
class Plan:
    kills: int
    seed: int
    folder: Path
    per_episode: int
    nodes: int = 2
    sink: str = "honest"
    aims: tuple[str, ...] = EVERYTHING
    on_cluster: bool = False


def run_campaign(plan: Plan, progress: Callable[[Totals, EpisodeOutcome], None]) -> Totals:
    """The folders of episodes without violations are removed."""
    totals = Totals(plan.aims)
    aims = Aims(plan.aims)
    began = time.monotonic()
    while (left := plan.kills - totals.kills.total()) > 0:
        seed = plan.seed + totals.episodes
        folder = plan.folder / f"seed-{seed}"
        folder.mkdir(parents=True)
        episode = Episode(folder, seed, aims, nodes=plan.nodes, sink=plan.sink, on_cluster=plan.on_cluster)
        outcome = episode.run(min(left, plan.per_episode))
        totals.add(outcome)
        totals.seconds = time.monotonic() - began
        progress(totals, outcome)
        if outcome.wrong and not outcome.kills:
            break
        if not outcome.wrong:
            shutil.rmtree(folder)
    return totals
