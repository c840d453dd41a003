"""The seam between shared groups here and their members at other nodes (links/groups.py)."""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from headwater.message import Message
from headwater.routing.shared import Group


class MembersElsewhere(NamedTuple):
    """A group's members at another node, as this one knows them."""

    node: str
    is_linked: bool
    members: int
    online: int
    credit: int
    """Messages that they had room for, as the node last told."""
    sent: int
    """Messages that went there from here, since the link is up."""
    under_way: int
    """Of these, the ones that the node had not got when it last told."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Elsewhere:
    """The members of held groups at other nodes; without a cluster there are none."""

    def any_online(self, group: Group) -> bool:
        return False

    def deliver(self, group: Group, message: Message) -> None:
        """To a member anywhere, or let it wait here."""
        raise NotImplementedError

    def nodes(self, group: Group) -> list[MembersElsewhere]:
        """Who has them, for people to look at."""
        return []
