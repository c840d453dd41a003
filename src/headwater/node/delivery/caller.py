"""Somebody who calls REST, with rights as they were when the request came. Whoever has them as data can judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.node.access.publish_rights import may_publish
from headwater.session.rights import Rights
from headwater.store.rest.gate import Caller

MOST_REMEMBERED: Final = 65_536
"""Topics of which a caller's rights are remembered."""
AT_ONCE: Final = 32
"""Topics of one question to the guards: the broker's loop does nothing else while it is answered."""


class JudgedCaller(Caller):
    """`rights` None: everything. `asks`: the guards of `acl_check` have a say. `steers`: topics of `$headwater/` are
    not closed to it. `sees_all`: as in Caller."""

    def __init__(self, name: str, rights: Rights | None, asks: bool, steers: bool, sees_all: bool) -> None:
        self.name = name
        self.rights = rights
        self.asks = asks
        self.steers = steers
        self.sees_all = sees_all
        self.may_erase = rights is None and steers
        self.is_unrestricted = rights is None and not asks
        self._reads_all = sees_all and not asks
        self._known: dict[str, bool] = {}

    def guards_allow(self, topics: Sequence[str]) -> list[bool]:
        """To read them, AT_ONCE at the most; asked of any thread."""
        raise NotImplementedError

    def may_read(self, topic: str) -> bool:
        if self._reads_all and not topic.startswith("$"):
            return True
        known = self._known.get(topic)
        return self._judge([topic])[topic] if known is None else known

    def may_read_each(self, topics: Sequence[str]) -> list[bool]:
        if self._reads_all:
            return [self.may_read(topic) for topic in topics]
        known = {topic: self._known.get(topic) for topic in topics}
        found = self._judge([topic for topic, may in known.items() if may is None])
        return [found[topic] if known[topic] is None else bool(known[topic]) for topic in topics]

    def _judge(self, topics: Sequence[str]) -> dict[str, bool]:
        found = {topic: self._has_right(topic) for topic in topics}
        if self.asks:
            asked = [topic for topic, may in found.items() if may]
            for start in range(0, len(asked), AT_ONCE):
                some = asked[start : start + AT_ONCE]
                found.update(zip(some, self.guards_allow(some), strict=True))
        for topic, may in found.items():
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[topic] = may
        return found

    def _has_right(self, topic: str) -> bool:
        rights = self.rights
        return rights is None or (rights.receives(topic) and rights.may_subscribe(topic, False))

    def may_publish(self, topic: str) -> bool:
        return may_publish(topic, self.rights, self.steers)
