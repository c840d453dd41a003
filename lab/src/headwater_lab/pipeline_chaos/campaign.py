"""The pipeline as a part of a campaign: its episodes, and what is told of them."""

from __future__ import annotations

from typing import Any

from headwater.disk.crash_points import ICEBERG_POINTS, PIPELINE_POINTS
from headwater_lab.kill_campaign import Part, Totals
from headwater_lab.pipeline_chaos.aims import FIRST, Aims
from headwater_lab.pipeline_chaos.episode import Episode
from headwater_lab.pipeline_chaos.examining import WRONG
from headwater_lab.pipeline_chaos.storage import FOLDER


def killed_pipeline(
    sink: str, aims: tuple[str, ...], nodes: int, on_cluster: bool, lake: str = FOLDER, iceberg: bool = False
) -> Part:
    turns = Aims(aims)
    return Part(
        sink,
        episode=lambda seed, folder, kills: Episode(
            folder, seed, turns, nodes=nodes, sink=sink, on_cluster=on_cluster, lake=lake, iceberg=iceberg
        ).run(kills),
        line=lambda totals: f"{totals.counts['rows of bronze']:9,d} messages",
        facts=lambda totals: _facts(totals, aims),
        kinds=(*WRONG, "not stored", "stuck"),
    )


def _facts(totals: Totals, given: tuple[str, ...]) -> dict[str, Any]:
    kills = totals.kills
    aims = [aim.partition(":")[0] for aim in given]
    aimed = {aim.partition("/")[0] for aim in aims}
    of_points = {
        point: sum(count for place, count in kills.items() if place.partition("/")[0] == point)
        for point in (*PIPELINE_POINTS, *ICEBERG_POINTS)
        if point in aimed
    }
    tables = {place.partition("/")[0] for place in kills if "/" in place}
    named = [aim for aim in aims if aim != FIRST and aim not in tables]
    return {
        "kills by point": of_points,
        "kills by place": {place: kills[place] for place in dict.fromkeys([*named, *sorted(kills)])},
        "who died at points": dict(totals.victims),
        "episodes": totals.episodes,
        **dict(sorted(totals.counts.items())),
        "longest afterlife of a process, seconds": round(totals.longest.get("afterlife", 0.0), 1),
        "longest wait for a round, seconds": round(totals.longest.get("recovery", 0.0), 1),
    }
