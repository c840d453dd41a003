"""What the one behind a connection may do, and the answers that were given already.

Topics repeat, so each is judged once: the hot path asks with the bytes of a topic and pays one look-up. Rules that
change make new rights; nothing remembered here is ever corrected. What is remembered is bounded.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
RECEIVE: Final = 4

MAX_REMEMBERED: Final = 1024
LONGEST_REMEMBERED: Final = 256


@mypyc_attr(allow_interpreted_subclasses=True)
class Rights:
    def __init__(self) -> None:
        self._published: dict[bytes, bool] = {}
        self._received: dict[str, bool] = {}

    def decide(self, topic: str, action: int) -> bool:
        """Whether the rules allow it: PUBLISH to a topic name, or RECEIVE a message of it."""
        raise RuntimeError("rights without rules")

    def may_subscribe(self, filter: str, shared: bool) -> bool:
        """Whether a subscription with this filter (without `$share/name/`) may be made."""
        raise RuntimeError("rights without rules")

    def publishes(self, topic: bytes) -> bool:
        """Whether messages may be published to a valid topic name, given by its bytes."""
        known = self._published.get(topic)
        if known is None:
            known = self.decide(topic.decode(), PUBLISH)
            if len(topic) <= LONGEST_REMEMBERED:
                if len(self._published) >= MAX_REMEMBERED:
                    self._published.clear()
                self._published[topic] = known
        return known

    def receives(self, topic: str) -> bool:
        """Whether messages of this topic may be delivered to the one who has subscribed to it."""
        known = self._received.get(topic)
        if known is None:
            known = self.decide(topic, RECEIVE)
            if len(topic) <= LONGEST_REMEMBERED:
                if len(self._received) >= MAX_REMEMBERED:
                    self._received.clear()
                self._received[topic] = known
        return known
