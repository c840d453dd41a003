"""An edge as one of its nodes sees it (status.py), from what all nodes declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwater.edge.declaration import Declaration, DeclaredClaim
from headwater.edge.owners import Owners
from headwater.edge.status import (
    MOVING,
    SETTLED,
    EdgeNode,
    EdgeStatus,
    Move,
    Ownership,
    Stretch,
    Unowned,
)


class Seen(NamedTuple):
    """What membership knows of a node."""

    state: str
    mqtt: str
    is_ready: bool


def status_of(
    owners: Owners, own: Declaration, seen: Mapping[str, Seen], rule: str, topics: int, last: tuple[str, ...]
) -> EdgeStatus:
    """`own` is what this node declares; `topics` and `last` are of those that nobody owns."""
    declared = {**owners.declared, owners.node: own}
    nodes = sorted(declared)
    return EdgeStatus(
        edge=own.edge,
        node=owners.node,
        nodes=tuple(_node(node, declared[node], seen.get(node, Seen("", "", False))) for node in nodes),
        ownership=tuple(_ownership(owners, declared)),
        moves=tuple(
            Move(each.filter, each.epoch, each.sources, node, each.step, each.since, each.waits)
            for node in nodes
            for each in declared[node].claims
            if each.step
        ),
        stores=tuple(
            Stretch(each.store, node, each.rest, (row.filter,), row.claim, row.epoch, row.first, row.last)
            for node, each in sorted(declared.items())
            if each.store
            for row in each.rows
        ),
        unowned=Unowned(rule, owners.view.table.rest, topics, last),
    )


def _node(node: str, declaration: Declaration, seen: Seen) -> EdgeNode:
    return EdgeNode(
        *(node, declaration.edge, declaration.roles, declaration.store, declaration.rest),
        *(seen.mqtt, seen.state, seen.is_ready),
    )


def _ownership(owners: Owners, declared: Mapping[str, Declaration]) -> list[Ownership]:
    """As all is known, whether messages go there from this node already or not."""
    found = []
    for claim in sorted(owners.target(), key=lambda each: each.filter):
        declaration = declared.get(claim.node)
        store = "" if declaration is None else declaration.store
        step = any(each.step for each in _same(declaration, claim.filter, claim.epoch))
        found.append(Ownership(claim.filter, claim.node, store, claim.epoch, MOVING if step else SETTLED))
    return found


def _same(declaration: Declaration | None, filter: str, epoch: int) -> list[DeclaredClaim]:
    if declaration is None:
        return []
    return [each for each in declaration.claims if each.filter == filter and each.epoch == epoch]
