"""A broker as a part of a campaign: what is done to it in an episode, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater_lab.chaos.checker import KINDS, Violation
from headwater_lab.chaos.episode import BOUNDS, RANDOM, STOPS, STORED_BOUNDS, Aim, Episode
from headwater_lab.chaos.lives import BrokerFailed, Lives, Serve
from headwater_lab.chaos.stored import STORED_KINDS
from headwater_lab.kill_campaign import EpisodeOutcome, Part, Totals, number_of_kills


@dataclass(slots=True)
class KilledBroker:
    name: str
    serve: Serve | None
    command: str = ""
    graceful: bool = False
    stored: bool = False
    """The broker has a delivery store."""

    def part(self) -> Part:
        """With no kills it lives for a while."""
        bounds = STORED_BOUNDS if self.stored else BOUNDS
        aim = Aim(dict(bounds))
        return Part(
            self.name,
            episode=lambda seed, folder, kills: self._episode(seed, folder, aim, kills),
            line=_line,
            facts=lambda totals: _facts(totals, tuple(bounds)),
            kinds=(*KINDS, *STORED_KINDS) if self.stored else KINDS,
            ends=_all_ends if self.graceful else number_of_kills,
            at_least=1,
        )

    def _episode(self, seed: int, folder: Path, aim: Aim, kills: int) -> EpisodeOutcome:
        episode = Episode(seed, Lives(folder, self.serve, self.command), aim, self.graceful, self.stored)
        try:
            episode.run(kills)
        except BrokerFailed as error:
            place = len(episode.world.history.events)
            episode.outcome.wrong.append(str(Violation("broker", place, str(error))))
        if episode.outcome.wrong:
            episode.world.history.save(folder / "history.ndjson")
        return episode.outcome


def _all_ends(totals: Totals) -> int:
    return totals.kills.total() + totals.counts[STOPS]


def _line(totals: Totals) -> str:
    return f"{totals.counts['acknowledged']:8,d} acknowledged, {totals.counts['received']:9,d} delivered"


def _facts(totals: Totals, points: tuple[str, ...]) -> dict[str, Any]:
    counts = totals.counts
    return {
        "kills by point": {point: totals.kills[point] for point in (RANDOM, *points)},
        "friendly ends": counts[STOPS],
        "episodes": totals.episodes,
        "messages published": counts["published"],
        "publish packets sent": counts["sent"],
        "messages acknowledged": counts["acknowledged"],
        "deliveries": counts["received"],
        **({"messages stored": counts["stored"]} if counts["stored"] else {}),
        **({"rows read by REST": counts["read by REST"]} if counts["read by REST"] else {}),
        "connections accepted": counts["connected"],
        "slowest recovery in s": round(totals.longest.get("recovery", 0.0), 3),
    }
