"""A cluster as a part of a campaign: what is done to it in an episode, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.lives import BrokerFailed
from headwater_lab.cluster_chaos.checker import (
    CLUSTER_KINDS,
    GROUP_TWICE,
    QOS2,
    RETAINED,
    STUCK,
    WILLS_MISSING,
    WILLS_TWICE,
)
from headwater_lab.cluster_chaos.episode import ClusterEpisode, Setup
from headwater_lab.cluster_chaos.faults import Faults
from headwater_lab.kill_campaign import EpisodeOutcome, Part, Totals


@dataclass(slots=True)
class ChaoticCluster:
    setup: Setup
    faults: Faults
    healed: dict[str, list[float]] = field(default_factory=dict)
    """By kind of fault, seconds."""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from CONNECT to CONNACK of clients that moved while nothing was wrong."""

    def part(self) -> Part:
        return Part(self.setup.disk, self._episode, _line, self._facts, CLUSTER_KINDS, at_least=1)

    def _episode(self, seed: int, folder: Path, faults: int) -> EpisodeOutcome:
        episode = ClusterEpisode(seed, folder, self.setup, self.faults)
        try:
            episode.run(faults)
        except BrokerFailed as error:
            text = str(error)
            kind = "node" if "its log ends with" in text else STUCK
            episode.outcome.wrong.append(str(Violation(kind, len(episode.world.history.events), text)))
        self.takeovers += episode.world.takeovers
        for kind, seconds in episode.healed:
            self.healed.setdefault(kind, []).append(seconds)
        if episode.outcome.wrong:
            episode.world.history.save(folder / "history.ndjson")
        return episode.outcome

    def _facts(self, totals: Totals) -> dict[str, Any]:
        counts = totals.counts
        every = [seconds for each in self.healed.values() for seconds in each]
        return {
            "figures": self._figures(totals, every),
            "faults": dict(sorted(totals.kills.items())),
            "episodes": totals.episodes,
            "network": self.setup.network,
            "shape": self.setup.shape,
            "heartbeat in s": self.setup.heartbeat,
            "patience in s": self.setup.patience,
            "session_lost": self.setup.session_lost or "of both kinds",
            "messages published": counts["published"],
            "publish packets sent": counts["sent"],
            "messages acknowledged": counts["acknowledged"],
            "deliveries": counts["received"],
            "moves": counts["moves"],
            "wills": counts["wills"],
            "sessions begun anew": counts["begun anew"],
            "taken over in s": spread(self.takeovers),
            "slowest drain in s": round(totals.longest.get("drain", 0.0), 3),
            "slowest start in s": round(totals.longest.get("start", 0.0), 3),
            "healed in s": {
                "all": spread(every),
                **{kind: spread(self.healed[kind]) for kind in sorted(self.healed)},
            },
        }

    def _figures(self, totals: Totals, healed: list[float]) -> dict[str, float]:
        return {
            "faults": totals.kills.total(),
            "acknowledged_lost": totals.wrong["lost"],
            **{kind: totals.wrong[kind] for kind in (QOS2, RETAINED, WILLS_TWICE, WILLS_MISSING, GROUP_TWICE, STUCK)},
            "heal/p99_s": spread(healed).get("p99", 0.0),
            "takeover/p99_ms": round(1000 * spread(self.takeovers).get("p99", 0.0), 1),
        }


def spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"times": 0}
    p99 = quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]
    return {
        "times": len(seconds),
        "median": round(median(seconds), 3),
        "p99": round(p99, 3),
        "longest": round(max(seconds), 3),
    }


def _line(totals: Totals) -> str:
    return f"{totals.counts['acknowledged']:8,d} acknowledged, {totals.counts['received']:9,d} delivered"
