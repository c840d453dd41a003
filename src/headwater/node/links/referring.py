"""Clients that ask for positions are sent to the node that gives them, if that is wanted (`edge.elsewhere = "refer"`).

Who subscribes with that wish to topics that all are one other node's is disconnected with 0x9D (Server moved) and that
node's address; so is who has done so already, when its topics go to another node. Clients of MQTT 5 only: others cannot
ask. Whose filter reaches topics of several nodes, or of this one, stays: there is no place where it would get more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headwater.edge.owners import Owners
from headwater.edge.ownership import covers, overlap, specificity
from headwater.message import Subscription
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.session.connection import CONNECTED
from headwater.wire.packets import V5
from headwater.wire.reasons import SERVER_MOVED

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server

WHY: Final = "another node has the positions of these topics"
LOOKS: Final = 4
"""Clients that are looked at in a piece of work."""


class Referring:
    """`address_of` says where clients of a node connect; "": it is not known."""

    def __init__(self, server: Server, owners: Owners, address_of: Callable[[str], str]) -> None:
        self.server = server
        self.referred = 0
        self._owners = owners
        self._address_of = address_of

    def start(self) -> None:
        self.server.hooks.add("subscribed", self._subscribed)

    def _subscribed(self, client: Channel, subscription: Subscription, reason: int) -> None:
        if reason < 0x80:
            self._look_at(client, subscription)

    def moved(self) -> None:
        """Some topics are another node's now."""
        self.server.background.add(_Looking(self, list(self.server.channels)))

    def look_at_all(self, channel: Channel) -> None:
        session = channel.session
        if channel.state == CONNECTED and session is not None and channel.version == V5:
            for subscription in session.subscriptions.values():
                if self._look_at(channel, subscription):
                    return

    def _look_at(self, channel: Channel, subscription: Subscription) -> bool:
        """Whether it is sent elsewhere."""
        if not subscription.positions or channel.version != V5:
            return False
        address = self._address_of(self._elsewhere(subscription.filter))
        if not address:
            return False
        self.referred += 1
        self.server.disconnect_soon(channel, SERVER_MOVED, WHY, address)
        return True

    def _elsewhere(self, filter: str) -> str:
        """The other node that has all topics of a filter; "": there is none."""
        table = self._owners.view.table
        if not any(covers(claim.filter, filter) for claim in table):
            return ""
        nodes = {
            claim.node
            for claim in table
            if overlap(claim.filter, filter) and not _is_hidden(claim.filter, filter, table.claims)
        }
        return nodes.pop() if len(nodes) == 1 and self._owners.node not in nodes else ""


class _Looking(BackgroundTask):
    def __init__(self, referring: Referring, channels: list[Channel]) -> None:
        self._referring = referring
        self._channels = channels

    def piece(self) -> bool:
        for _ in range(min(LOOKS, len(self._channels))):
            self._referring.look_at_all(self._channels.pop())
        return bool(self._channels)


def _is_hidden(wide: str, filter: str, others: Iterable[str]) -> bool:
    """Whether a more specific filter takes all topics of `filter` from `wide`."""
    own = specificity(wide)
    return any(covers(each, filter) and specificity(each) < own for each in others)
