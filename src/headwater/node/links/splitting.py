"""Advice of how to split a store's load is followed, if that is wanted: filters go to other delivery nodes of the edge.

Advice names parts, each a list of filters (node/advice/document.py); the subject is a store. The part that has what the
node owns itself stays, or else the first one; the others go to the other delivery nodes of its edge, in turn, those
that own least first. One filter at a time, as filters that overlap do not move together. What is not in question any
more (the topics are another node's already, the node is away) is left out. When advice ends nothing goes back: whoever
wants that joins the filters, or the next advice has other parts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headwater.edge.owners import Owners
from headwater.edge.ownership import covers
from headwater.edge.status import DELIVERY
from headwater.node.advice.document import SPLIT, Advice

log = logging.getLogger("headwater.edge")

MOST: Final = 64
"""Filters of one advice that are looked at."""


class LoadSplits:
    """`is_linked` says whether a node can be asked, `order` asks it to own a filter, and tells what has come of it."""

    def __init__(
        self,
        owners: Owners,
        is_linked: Callable[[str], bool],
        order: Callable[[str, str, Callable[[bool, str], None]], None],
    ) -> None:
        self.store_id = ""
        self._owners = owners
        self._is_linked = is_linked
        self._order = order
        self._waiting: list[tuple[str, str]] = []
        """Filters, and where they are to go."""
        self._is_asking = False

    def advised(self, subject: str, advice: Advice | None) -> None:
        """Of kind split; None: it is over."""
        if subject != self.store_id:
            return
        self._waiting = [] if advice is None else self._plan(advice.parts)
        if advice is not None:
            said = "; ".join(f"{filter} to node {node}" for filter, node in self._waiting)
            log.info("%s advice %d: %s", SPLIT, advice.number, said or "nothing is to go from here")
        self.go_on()

    def _plan(self, parts: tuple[tuple[str, ...], ...]) -> list[tuple[str, str]]:
        owners = self._owners
        others = sorted(
            (node for node, each in owners.declared.items() if self._may_have(each.edge, each.roles)),
            key=lambda node: (len(owners.declared[node].claims), node),
        )
        if not others:
            return []
        own = owners.claims
        stays = next((number for number, part in enumerate(parts) if any(filter in own for filter in part)), 0)
        found = []
        for number, part in enumerate(parts[:stays] + parts[stays + 1 :]):
            found += [(filter, others[number % len(others)]) for filter in part]
        return found[:MOST]

    def _may_have(self, edge: str, roles: tuple[str, ...]) -> bool:
        return edge == self._owners.part.edge and DELIVERY in roles

    def _is_here(self, filter: str) -> bool:
        """Whether all of its topics are this node's, and there is something left that stays."""
        owners = self._owners
        table = owners.target()
        if filter in table.claims:
            return False
        wider = table.wider(filter)
        if wider is None:
            return table.rest == owners.node and not table.losers(filter) - {owners.node}
        return wider.node == owners.node and table.losers(filter) == {owners.node} and covers(wider.filter, filter)

    def go_on(self) -> None:
        """From time to time."""
        if self._is_asking or not self._waiting or self._is_something_moving():
            return
        while self._waiting:
            filter, node = self._waiting.pop(0)
            if self._is_linked(node) and self._is_here(filter):
                self._is_asking = True
                self._order(node, filter, self._answered)
                return

    def _is_something_moving(self) -> bool:
        return any(claim.step for each in self._owners.declared.values() for claim in each.claims)

    def _answered(self, is_done: bool, text: str) -> None:
        self._is_asking = False
        log.info("by advice: %s", text)
