"""The seam: how a node's interest is told (`Announcement`) and kept by others (`Hearing`). Five operations:

    note    at the node itself: its clients want a filter, or no longer
    due     … what others have to be told now: changes, or everything anew
    whole   at both: all of it, for a link that has nothing
    take    at the others: what was told
    wants   … whether the node may want a topic: never no if it does

A node chooses its own method and every node understands all of them, so nodes of one cluster may use different ones,
and change theirs while it runs: the next state that they send says by which method it was made.

What the methods promise differs in `wants`:

| method | no means | yes means | so "nobody anywhere" (0x10) is known |
|---|---|---|---|
| flood | never said | nothing | never, unless there are no peers |
| subscribe | nobody there | somebody there | always |
| bloom | nobody there | somebody, but for 0.1 % | whenever it is said; 0.1 % of the topics that nobody wants get 0x00 |

None says no while it is not sure: before the first state, and while a whole state arrives.
"""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from headwater.routing.feed import RouteChange


class Told(NamedTuple):
    """A step of a node's interest: everything (`is_whole`), or what has changed since the step before. Everything may
    be heard in parts, cut anywhere: each is dealt with as it comes, as all of it at once takes long."""

    is_whole: bool
    data: bytes
    has_more: bool = False
    """Other parts follow."""


class TooMuch(Exception):
    """What another node wants does not fit the bound here: to be taken as if it wanted everything."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Announcement:
    """A node's own interest. `method` is what others read it by."""

    method = ""
    is_too_large = False
    """Whether the whole of it has more than `MAX_STATE` bytes: the node then has to say that it wants everything."""

    def note(self, change: RouteChange, now: float) -> None:
        raise NotImplementedError

    def due(self, now: float) -> list[Told]:
        """In order; nothing, if nothing has changed. A change has `MAX_CHANGE` bytes at most."""
        raise NotImplementedError

    def whole(self) -> bytes:
        """As of the last `due`."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Hearing:
    """Another node's interest."""

    method = ""
    is_exact = False
    """Whether somebody is there when `wants` says so."""

    def take(self, told: Told) -> list[str] | None:
        """The filters whose topics it may answer otherwise for now; None: any. Raises MalformedFrame, TooMuch, and
        Unsure if everything is needed anew."""
        raise NotImplementedError

    def whole(self) -> bytes:
        raise NotImplementedError

    def wants(self, topic: str) -> bool:
        raise NotImplementedError

    def filters(self) -> list[str] | None:
        """All that it wants; None: it cannot be told, or is everything."""
        return None


class Unsure(Exception):
    """A change does not fit what is here."""
