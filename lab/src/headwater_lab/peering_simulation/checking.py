"""What a simulation has to show. Each finding is a sentence; none means that all is well."""

from __future__ import annotations

from typing import Final

from headwater.routing.topics import matches
from headwater_lab.peering_simulation.world import SETTLED, Publication, Subscriber, World

UNDISTURBED: Final = 3.0
"""Seconds: longer than until both ends of a broken link know of it."""


def findings(world: World) -> list[str]:
    found = []
    for subscriber in world.subscribers:
        found += _twice_or_wrong(subscriber)
        found += _out_of_order(subscriber)
        found += _lost(world, subscriber)
    if world.frames_sent != world.frames_when_quiet:
        found.append(f"{world.frames_sent - world.frames_when_quiet} frames in a cluster that has nothing to do")
    for member in world.members.values():
        if member.life is not None and any(spool.waiting for spool in member.life.spools.values()):
            found.append(f"{member.node} still owes messages to a peer")
        if member.life is not None and member.life.published:
            found.append(f"{member.node} still lets publishers wait")
    return found


def _twice_or_wrong(subscriber: Subscriber) -> list[str]:
    seen: set[int] = set()
    found = []
    for _, publication in subscriber.got:
        if publication.number in seen:
            found.append(f"{_said(publication, subscriber)} came twice")
        if not matches(subscriber.filter, publication.topic):
            found.append(f"{_said(publication, subscriber)} came unasked")
        seen.add(publication.number)
    return found


def _out_of_order(subscriber: Subscriber) -> list[str]:
    last: dict[tuple[str, int, str, int], int] = {}
    found = []
    for _, publication in subscriber.got:
        key = (publication.node, publication.client, publication.topic, publication.qos)
        if publication.number < last.get(key, -1):
            found.append(f"{_said(publication, subscriber)} came behind {last[key]}")
        last[key] = max(publication.number, last.get(key, -1))
    return found


def _lost(world: World, subscriber: Subscriber) -> list[str]:
    if subscriber.ended is not None:
        return []
    got = {publication.number for _, publication in subscriber.got}
    return [
        f"{_said(publication, subscriber)} is lost"
        for publication in world.publications
        if publication.number not in got
        and subscriber.number in publication.owed
        and matches(subscriber.filter, publication.topic)
        and _was_promised(world, publication, subscriber)
    ]


def _was_promised(world: World, publication: Publication, subscriber: Subscriber) -> bool:
    """QoS ≥ 1: if it was acknowledged. QoS 0: if links stayed as they were for a while."""
    if publication.qos:
        return publication.acknowledged is not None
    behind = min((time for time in world.changes if time > publication.time), default=SETTLED)
    return behind - publication.time > UNDISTURBED and subscriber.node in publication.reached


def _said(publication: Publication, subscriber: Subscriber) -> str:
    return (
        f"message {publication.number} (QoS {publication.qos}, {publication.topic}, at {publication.node}, "
        f"{publication.time:.3f} s) for {subscriber.filter} at {subscriber.node}"
    )
