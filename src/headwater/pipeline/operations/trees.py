"""Which topics deserve a multicast tree of their own in the network: rows only, as nobody builds trees yet.

Flow entries of switches are few, so a tree is for topics that many messages go by, to or from many, and whose members
stay. What the tables know of members are publishers, and the members of shared groups whose filter matches; ordinary
subscribers are in no table. Churn is the part of a group's members that is not there in a minute, in the mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.operations.advice import TREE, Basis, Proposal, row_of
from headwater.pipeline.operations.settings import Settings
from headwater.pipeline.tables import ADVICE
from headwater.routing.topics import matches, split_shared

MOST_TOPICS: Final = 10_000
"""That are looked at: the busiest."""


@dataclass(frozen=True)
class Busy:
    topic: str
    rate: float
    """Messages a minute, of those minutes in which there were some."""
    publishers: int


@dataclass(frozen=True)
class Crowd:
    group: str
    members: int
    present: float
    """Members of whom something is known in a minute, in the mean."""


def tree_advice(traffic: DataFrame, members: DataFrame, settings: Settings, basis: Basis) -> DataFrame:
    """ADVICE's rows, from TRAFFIC's and MEMBERS' of the time to be judged by."""
    minutes = F.count_distinct("minute")
    busy = (
        traffic.groupBy("topic")
        .agg((F.sum("messages") / minutes).alias("rate"), F.max("publishers").cast("int").alias("publishers"))
        .where(F.col("rate") >= settings.tree_messages)
        .orderBy(F.desc("rate"), "topic")
        .limit(MOST_TOPICS)
    )
    crowds = members.groupBy("group").agg(
        F.count_distinct("member").cast("int").alias("members"), (F.count("*") / minutes).alias("present")
    )
    proposals = deserving(
        [Busy(**row.asDict()) for row in busy.collect()], [Crowd(**row.asDict()) for row in crowds.collect()], settings
    )
    made = [row_of(each, basis, settings.life) for each in proposals]
    return traffic.sparkSession.createDataFrame([tuple(row[name] for name in ADVICE.names) for row in made], ADVICE.ddl)


def deserving(busy: Iterable[Busy], crowds: Iterable[Crowd], settings: Settings) -> list[Proposal]:
    """Those with most messages times members first."""
    known = [(split_shared(crowd.group)[1], crowd) for crowd in crowds]
    found = []
    for each in busy:
        mine = [crowd for filter, crowd in known if matches(filter, each.topic)]
        count = each.publishers + sum(crowd.members for crowd in mine)
        churn = max((1.0 - crowd.present / crowd.members for crowd in mine), default=0.0)
        if each.rate >= settings.tree_messages and count >= settings.tree_members and churn <= settings.tree_churn:
            found.append((each.rate * count, _proposal(each, count, churn)))
    found.sort(key=lambda pair: (-pair[0], pair[1].subject))
    return [proposal for _, proposal in found[: settings.most_trees]]


def _proposal(each: Busy, count: int, churn: float) -> Proposal:
    content = {"messages_per_minute": round(each.rate, 3), "members": count, "churn": round(churn, 3)}
    why = f"{each.rate:.4g} messages a minute, {count} members, of whom {100 * churn:.3g} % come and go"
    return Proposal(TREE, each.topic, content, why)
