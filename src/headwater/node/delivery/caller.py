"""Somebody who calls REST, with rights as they were when the request came. Whoever has them as data can judge."""

from __future__ import annotations

from typing import Final

from headwater.node.access.publish_rights import may_publish
from headwater.session.rights import Rights
from headwater.store.rest.gate import Caller

MOST_REMEMBERED: Final = 65_536
"""Topics of which a caller's rights are remembered."""


class JudgedCaller(Caller):
    """`rights` None: everything. `asks`: the guards of `acl_check` have a say. `steers`: topics of `$headwater/` are
    not closed to it. `sees_all`: as in Caller."""

    def __init__(self, name: str, rights: Rights | None, asks: bool, steers: bool, sees_all: bool) -> None:
        self.name = name
        self.rights = rights
        self.asks = asks
        self.steers = steers
        self.sees_all = sees_all
        self.is_unrestricted = rights is None and not asks
        self._reads_all = sees_all and not asks
        self._known: dict[str, bool] = {}

    def guards_allow(self, topic: str) -> bool:
        """To read it; asked of any thread."""
        raise NotImplementedError

    def may_read(self, topic: str) -> bool:
        if self._reads_all and not topic.startswith("$"):
            return True
        known = self._known.get(topic)
        if known is None:
            known = self._decide(topic)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[topic] = known
        return known

    def _decide(self, topic: str) -> bool:
        rights = self.rights
        if rights is not None and not (rights.receives(topic) and rights.may_subscribe(topic, False)):
            return False
        return not self.asks or self.guards_allow(topic)

    def may_publish(self, topic: str) -> bool:
        return may_publish(topic, self.rights, self.steers)
