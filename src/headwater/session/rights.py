"""What the one behind a connection may do, and the answers that were given already.

Topics repeat, so each is judged once: the hot path asks with the bytes of a topic and pays one look-up. Rules that
change make new rights; nothing remembered here is ever corrected.

What is remembered is bounded for each of them, and for all together (`Remembered`): there are as many rights as clients
where rules name `%c`. Beyond that, those forget everything that began to remember first; if they are still in use, they
begin anew. Rights of clients that have gone are among them, so nobody has to tell of an end.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import text_size

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
RECEIVE: Final = 4

MAX_REMEMBERED: Final = 1024
LONGEST_REMEMBERED: Final = 256
REMEMBERED_BYTES: Final = 32 << 20
"""By all rights together."""
BEGINNING: Final = 1024
"""Bytes of rights that remember anything, and of two small dictionaries."""
ANSWER: Final = 128
"""Bytes of an answer beside its topic, in a dictionary that has just doubled (measured)."""


class Remembered:
    """What rights remember, in bytes, in the order in which they began to."""

    def __init__(self, limit: int = REMEMBERED_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.order: deque[Rights] = deque()

    def more(self, rights: Rights, size: int) -> None:
        """So many bytes more are remembered by these."""
        if rights.remembers == 0:
            self.order.append(rights)
            size += BEGINNING
        rights.remembers += size
        self.used += size
        while self.used > self.limit and len(self.order) > 1:
            self.order.popleft().forget()


@mypyc_attr(allow_interpreted_subclasses=True)
class Rights:
    def __init__(self, remembered: Remembered | None = None) -> None:
        """`remembered` is shared by all rights that are bounded together."""
        self._published: dict[bytes, bool] = {}
        self._received: dict[str, bool] = {}
        self._remembered = Remembered() if remembered is None else remembered
        self.remembers = 0
        """Bytes, as `Remembered` counts them."""

    def forget(self, left: int = 0) -> None:
        """All answers; `left` bytes still count."""
        self._published = {}
        self._received = {}
        self._remembered.used -= self.remembers - left
        self.remembers = left

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
                    self.forget(BEGINNING)
                self._published[topic] = known
                self._remembered.more(self, ANSWER + len(topic))
        return known

    def receives(self, topic: str) -> bool:
        """Whether messages of this topic may be delivered to the one who has subscribed to it."""
        known = self._received.get(topic)
        if known is None:
            known = self.decide(topic, RECEIVE)
            if len(topic) <= LONGEST_REMEMBERED:
                if len(self._received) >= MAX_REMEMBERED:
                    self.forget(BEGINNING)
                self._received[topic] = known
                self._remembered.more(self, ANSWER + text_size(topic))
        return known
