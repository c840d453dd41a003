"""Edges as a part of a campaign: what is done to them in an episode, and what is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.disk.crash_points import EDGE_POINTS
from headwater.edge.status import encode
from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.lives import BrokerFailed
from headwater_lab.cluster_chaos.campaign import spread
from headwater_lab.cluster_chaos.checker import CLUSTER_KINDS, QOS2
from headwater_lab.cluster_chaos.faults import Faults
from headwater_lab.edge_chaos.checker import DISORDER, EDGE_KINDS, NOT_STORED, PIPELINE, RECONNECTS, TWICE, UNREADABLE
from headwater_lab.edge_chaos.episode import EdgeEpisode, EdgeSetup, edge_faults, kind_of
from headwater_lab.edge_chaos.faults import POINTS, KillAtStep
from headwater_lab.kill_campaign import EpisodeOutcome, KillCampaign, Part, Totals
from headwater_lab.results import record, write_json

PART: Final = "edge"
MORE: Final = 6
"""Episodes after the last one that was asked for, at most, until each step of a move has struck; and the kills of each,
all of them at such steps."""
IN_EACH: Final = 4
KINDS: Final = (*EDGE_KINDS, *CLUSTER_KINDS)
SPLIT: Final = {
    "split/lost": (NOT_STORED, "lost"),
    "split/stored_twice": (TWICE, QOS2, "doubled"),
    "split/device_reconnects": (RECONNECTS,),
    "split/disorder": (DISORDER, "reordered"),
    "split/unreadable": (UNREADABLE,),
}
"""Figures, and the kinds of violations that they count."""
STEPS: Final = edge_faults((KillAtStep,))
UNITS: Final = {"_ms_max": "ms", "_ms": "ms", "_mb": "MB", "_s": "s"}
"""By how a name ends; all others are counts."""


@dataclass(slots=True)
class ChaoticEdge:
    """`kills`: faults that were asked for. `all_steps`: go on until each has struck."""

    setup: EdgeSetup
    faults: Faults
    kills: int
    all_steps: bool = True
    more: int = 0
    """Episodes since there were as many faults as were asked for."""
    moving: list[float] = field(default_factory=list)
    still: list[float] = field(default_factory=list)
    """Seconds that publishers waited, while a filter moved and while none did."""
    healed: list[float] = field(default_factory=list)

    def part(self) -> Part:
        name = self.setup.broken or PART
        return Part(name, self._episode, _line, self._facts, KINDS, self._ends, at_least=1)

    def _ends(self, totals: Totals) -> int:
        """While a step of a move has not struck, there is another episode, up to a limit."""
        ends = totals.kills.total()
        is_missing = self.all_steps and any(not totals.kills[point] for point in EDGE_POINTS)
        if ends < self.kills or not is_missing or totals.wrong or self.more == MORE:
            return ends
        self.faults = STEPS
        return self.kills - IN_EACH

    def _episode(self, seed: int, folder: Path, faults: int) -> EpisodeOutcome:
        self.more += self.faults is STEPS
        episode = EdgeEpisode(seed, folder, self.setup, self.faults)
        try:
            episode.run(faults)
        except BrokerFailed as error:
            text = str(error)
            episode.outcome.wrong.append(str(Violation(kind_of(text), len(episode.world.history.events), text)))
        self.moving += episode.waits.moving
        self.still += episode.waits.still
        self.healed += [seconds for _, seconds in episode.healed]
        if episode.outcome.wrong:
            episode.world.history.save(folder / "history.ndjson")
            if episode.last_status is not None:
                write_json(folder / "edge.json", encode(episode.last_status))
        return episode.outcome

    def _facts(self, totals: Totals) -> dict[str, Any]:
        counts = totals.counts
        points = (*EDGE_POINTS, *POINTS)
        return {
            "figures": self.figures(totals),
            "faults": dict(sorted(totals.kills.items())),
            "hits": {point: totals.kills[point] for point in points},
            "never hit": [point for point in points if not totals.kills[point]],
            "episodes": totals.episodes,
            "network": self.setup.cluster.network,
            "messages published": counts["published"],
            "publish packets sent": counts["sent"],
            "messages acknowledged": counts["acknowledged"],
            "messages stored": counts["stored"],
            "deliveries": counts["received"],
            "QoS 0 sent": counts["qos 0 sent"],
            "QoS 0 lost where something broke": counts["qos 0 not there"],
            "moves ordered": counts["orders"],
            "moves taken": counts["orders taken"],
            "of these joins": counts["joins taken"],
            "moves in peace": counts["moves in peace"],
            "devices that moved": counts["moves"],
            "publishers waited in s": {"while filters moved": spread(self.moving), "else": spread(self.still)},
            "slowest move in peace in s": round(totals.longest.get("move", 0.0), 3),
            "slowest drain in s": round(totals.longest.get("drain", 0.0), 3),
            "healed in s": spread(self.healed),
            **(self._of_pipeline(totals) if self.setup.pipeline else {}),
        }

    def _of_pipeline(self, totals: Totals) -> dict[str, int]:
        names = ("rows of bronze", "rounds of the pipeline", "pipeline started again")
        return {name: totals.counts[name] for name in names}

    def figures(self, totals: Totals) -> dict[str, float]:
        return {
            "faults": totals.kills.total(),
            **{name: sum(totals.wrong[kind] for kind in kinds) for name, kinds in SPLIT.items()},
            "split/pause_ms_max": round(1000 * max(self.moving, default=0.0), 1),
            "still/pause_ms_max": round(1000 * max(self.still, default=0.0), 1),
            **{f"kills/{point}": totals.kills[point] for point in EDGE_POINTS},
            **({"pipeline/violations": totals.wrong[PIPELINE]} if self.setup.pipeline else {}),
            **({"pipeline/bronze_rows": totals.counts["rows of bronze"]} if self.setup.pipeline else {}),
        }


def _line(totals: Totals) -> str:
    counts = totals.counts
    return (
        f"{counts['acknowledged']:8,d} acknowledged, {counts['stored']:9,d} stored, {counts['orders taken']:4,d} moves"
    )


class EdgeCampaign(KillCampaign):
    """Its result is a list of figures; what else is known is beside it."""

    def write(self, file: Path, result: dict[str, Any]) -> None:
        super().write(file.with_name(f"{file.stem}-facts.json"), result)
        write_json(file, [record(*each) for each in figures_of(result)])


def figures_of(result: dict[str, Any]) -> list[tuple[str, None, float, str]]:
    found = {name: value for part in result.values() for name, value in part.get("figures", {}).items()}
    return [(name, None, value, unit_of(name)) for name, value in found.items()]


def unit_of(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
