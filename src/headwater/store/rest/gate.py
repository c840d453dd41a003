"""Who asks, and what they may: the seam between REST and whoever knows users, rules and the way to publish.

A gate may belong to another thread and loop; REST awaits it in its own. Every request is brought before it. What it
raises is the answer: `Refused` has the status, the short word for programs and the sentence for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Refused(Exception):
    """The answer is no."""

    def __init__(self, status: int, error: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail
        self.more = more
        """What else the answer says."""


class Unauthorized(Refused):
    """Nobody, or nobody that is known; the text says what to show."""

    def __init__(self, detail: str) -> None:
        super().__init__(401, "unauthorized", detail)


class Approach(NamedTuple):
    """How somebody comes: the headers `Authorization`, `Host` and `Origin`, and the address, `host:port`."""

    authorization: str | None
    address: str
    host: str = ""
    origin: str | None = None


class Caller:
    """Somebody with rights. Called from several threads."""

    name = ""
    """For the log, and the publisher of what is published; empty: nobody in particular."""

    is_unrestricted = False
    """Whether no rule holds for the caller, so that nobody need be asked."""
    sees_all = False
    """Whether the caller may read all topics but those that begin with `$`: such callers, and no others, see statistics
    and readers, and move the readers."""

    may_erase = False
    """Whether it may erase messages: who shows the token of `rest.token`."""

    def may_read(self, topic: str) -> bool:
        """Whether the caller may subscribe to the topic and receive its messages."""
        raise NotImplementedError

    def may_read_each(self, topics: Sequence[str]) -> list[bool]:
        """The same of many topics."""
        return [self.may_read(topic) for topic in topics]

    def may_publish(self, topic: str) -> bool:
        raise NotImplementedError

    def is_current(self) -> bool:
        """False once rights have changed or ended: what goes on for long is ended then, and asks anew."""
        return True


class Publication(NamedTuple):
    """A message on its way in, checked as far as that is possible without the broker's settings."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    content_type: str | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    expiry: int | None = None


class Gate:
    async def authenticate(self, approach: Approach) -> Caller:
        """Raises Unauthorized, or Refused with another status."""
        raise NotImplementedError

    async def publish(self, caller: Caller, publication: Publication) -> int | None:
        """Returns when the message is on disk, with its position; None if its topic is not stored. Raises Refused."""
        raise NotImplementedError

    async def settled(self) -> int:
        """A moment, in microseconds since 1970: every message that arrived before it can be read when this returns, and
        those to come arrive at it or later. Raises Refused."""
        raise NotImplementedError

    async def edge(self) -> dict[str, Any] | None:
        """Which messages of which topics are in which store; None: this is the only one (docs/edge-tiers.md)."""
        return None

    async def history(self) -> dict[str, Any] | None:
        """What is in object storage, as `HistoryView` in rest/readers.py; None: nothing goes there."""
        return None

    @property
    def largest_payload(self) -> int:
        return 16 << 20

    def is_ready(self) -> bool:
        """Whether clients are taken."""
        return True
