"""Which share of its group's messages each member should get.

Theory. A member that takes p seconds for a message and has b of them under way can do H/p - b more in the next H
seconds. If shares are in proportion to that, all end at the same time. H is how long the advice holds; a long backlog
leaves at least LEAST of what the member can do, so that it still shows what it can. Weights are divided by their
geometric mean and cut at `most_weight`.

Of members whose p is not known nothing is said: they have weight 1 at the node, as the mean of the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.operations.advice import WEIGHTS, Basis, Proposal, newest, worth_saying
from headwater.pipeline.operations.settings import Settings
from headwater.pipeline.tables import ADVICE

LEAST: Final = 0.1
MOST_MEMBERS: Final = 1000
MOST_GROUPS: Final = 1000
"""As nodes take them; the busiest."""
MOST_FIGURES: Final = 100_000
MOST_BYTES: Final = 48_000
"""Of weights in a document, of which nodes take 65,536."""
NAMED: Final = 5
"""Members that `why` speaks of."""


@dataclass(frozen=True)
class Figures:
    """Of a member over the minutes that are looked at."""

    group: str
    member: str
    minutes: int
    dispatched: int
    backlog: float
    """In the last minute."""
    processing: float
    """Seconds."""


def weights_advice(members: DataFrame, settings: Settings, basis: Basis, last: DataFrame | None = None) -> DataFrame:
    """ADVICE's rows for the groups of `members` (MEMBERS' rows of the time to be judged by); `last` has the rows of
    before, the newest of each subject at least."""
    known = members.where((F.col("processing") > 0) & F.col("minute").isNotNull())
    part = F.greatest(F.coalesce("dispatched", F.lit(0)), F.lit(1))
    figures = (
        known.groupBy("group", "member")
        .agg(
            F.count_distinct("minute").alias("minutes"),
            F.coalesce(F.sum("dispatched"), F.lit(0)).alias("dispatched"),
            F.coalesce(F.max_by("backlog", "minute"), F.lit(0.0)).alias("backlog"),
            (F.sum(F.col("processing") * part) / F.sum(part)).alias("processing"),
        )
        .where(F.col("minutes") >= settings.least_minutes)
        .orderBy(F.desc("dispatched"), "group", "member")
        .limit(MOST_FIGURES)
    )
    rows = [] if last is None else [row.asDict() for row in last.where(F.col("kind") == WEIGHTS).collect()]
    proposals = recommend((Figures(**row.asDict()) for row in figures.collect()), settings)
    made = worth_saying(proposals, newest(rows, WEIGHTS), basis, settings.life, _differs(settings))
    return members.sparkSession.createDataFrame([tuple(row[name] for name in ADVICE.names) for row in made], ADVICE.ddl)


def recommend(figures: Iterable[Figures], settings: Settings) -> list[Proposal]:
    """For each group with two members or more, the busiest first."""
    groups: dict[str, list[Figures]] = {}
    for each in figures:
        if each.group in groups or len(groups) < MOST_GROUPS:
            groups.setdefault(each.group, []).append(each)
    return [_proposal(name, found[:MOST_MEMBERS], settings) for name, found in groups.items() if len(found) >= 2]


def _proposal(group: str, found: list[Figures], settings: Settings) -> Proposal:
    rates = {each.member: _can_do(each, settings.life) for each in found}
    mean = math.exp(sum(math.log(rate) for rate in rates.values()) / len(rates))
    most = settings.most_weight
    weights = {member: float(f"{min(max(rate / mean, 1 / most), most):.3g}") for member, rate in rates.items()}
    fitting = _fitting(weights)
    return Proposal(WEIGHTS, group, fitting, _why([each for each in found if each.member in fitting], fitting))


def _fitting(weights: Mapping[str, float]) -> dict[str, float]:
    """Those that matter most, as many as there is room for: who is left out has the mean."""
    room = MOST_BYTES
    chosen: dict[str, float] = {}
    for member, weight in sorted(weights.items(), key=lambda item: (-abs(math.log(item[1])), item[0])):
        room -= len(json.dumps(member, ensure_ascii=False).encode()) + len(f": {weight}, ")
        if room < 0:
            break
        chosen[member] = weight
    return chosen


def _can_do(each: Figures, seconds: float) -> float:
    all = seconds / each.processing
    return max(all - each.backlog, LEAST * all)


def _why(found: list[Figures], weights: Mapping[str, float]) -> str:
    shown = sorted(found, key=lambda each: (-abs(math.log(weights[each.member])), each.member))[:NAMED]
    words = [
        f"{each.member[:100]} takes {each.processing * 1000:.3g} ms for a message and has {each.backlog:.3g} "
        f"under way: {weights[each.member]:g}"
        for each in shown
    ]
    more = f"; and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    least = min((each.minutes for each in found), default=0)
    return f"by {least} minutes or more: {'; '.join(words)}{more}"


def _differs(settings: Settings) -> Any:
    def differs(proposal: Proposal, said: dict[str, float] | None) -> bool:
        before = said or {}
        return any(
            abs(math.log(proposal.content.get(member, 1.0) / before.get(member, 1.0)))
            > math.log1p(settings.least_change)
            for member in proposal.content.keys() | before.keys()
        )

    return differs
