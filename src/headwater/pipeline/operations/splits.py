"""How to split the load of each store: rows of advice from the traffic of topics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.operations.advice import SPLIT, Basis, Proposal, newest, worth_saying
from headwater.pipeline.operations.settings import Settings
from headwater.pipeline.operations.splitting import Parts, loads_of_parts, split
from headwater.pipeline.tables import ADVICE

MOST_TOPICS: Final = 20_000
"""Of a store that are looked at one by one: the heaviest."""
SHOWN: Final = 3
"""Filters of a part that `why` names."""


def split_advice(
    traffic: DataFrame,
    filters: Mapping[str, Sequence[str]],
    settings: Settings,
    basis: Basis,
    last: DataFrame | None = None,
) -> DataFrame:
    """ADVICE's rows for the stores in `filters`, with the filters that each stores by, from TRAFFIC's rows of the time
    to be judged by. What was advised last stays as long as it is even enough."""
    load = F.sum(F.col("bytes") + F.col("messages") * settings.message_bytes).alias("load")
    rows = [] if last is None else [row.asDict() for row in last.where(F.col("kind") == SPLIT).collect()]
    before = newest(rows, SPLIT)
    proposals: list[Proposal] = []
    loads: dict[str, dict[str, float]] = {}
    for store, kept in sorted(filters.items()):
        heaviest = traffic.where(F.col("store") == store).groupBy("topic").agg(load)
        found = heaviest.orderBy(F.desc("load"), "topic").limit(MOST_TOPICS).collect()
        loads[store] = {row["topic"]: row["load"] for row in found}
        proposal = propose(store, loads[store], kept, settings)
        if proposal is not None:
            proposals.append(_as_before(proposal, before, loads, settings))

    def differs(proposal: Proposal, said: list[list[str]] | None) -> bool:
        return said is None or loads_of_parts(said, loads[proposal.subject]).unevenness > settings.uneven

    made = worth_saying(proposals, before, basis, settings.life, differs)
    return traffic.sparkSession.createDataFrame([tuple(row[name] for name in ADVICE.names) for row in made], ADVICE.ddl)


def propose(store: str, loads: Mapping[str, float], filters: Sequence[str], settings: Settings) -> Proposal | None:
    """None if there is nothing to split."""
    parts = split(loads, filters, settings.parts, settings.most_filters)
    if len(parts.filters) < 2 or not sum(parts.loads):
        return None
    return _proposal(store, parts)


def _as_before(
    proposal: Proposal, last: Mapping[str, Any], loads: Mapping[str, Mapping[str, float]], settings: Settings
) -> Proposal:
    """What is even enough is renewed as it is: moving topics from part to part costs more than it gains."""
    row = last.get(proposal.subject)
    if row is None:
        return proposal
    old = loads_of_parts(json.loads(row["advice"])["parts"], loads[proposal.subject])
    return _proposal(proposal.subject, old) if old.unevenness <= settings.uneven else proposal


def _proposal(store: str, parts: Parts) -> Proposal:
    return Proposal(SPLIT, store, [list(part) for part in parts.filters], _why(parts))


def _why(parts: Parts) -> str:
    total = sum(parts.loads) or 1.0
    words = []
    for part, load in zip(parts.filters, parts.loads, strict=True):
        more = f" and {len(part) - SHOWN} more" if len(part) > SHOWN else ""
        shown = ", ".join(each[:100] for each in part[:SHOWN])
        words.append(f"{100 * load / total:.3g} % by {shown}{more}")
    return f"the heaviest part has {parts.unevenness:.3g} times the mean load: {'; '.join(words)}"[:4000]
