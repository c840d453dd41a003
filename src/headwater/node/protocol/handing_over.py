"""One message for very many, a few of them at a time.

Theory. A message for two thousand shared groups, or a large one for ten recipients who each get an encoding of their
own, takes milliseconds. Its publisher waits, as for any packet that takes long (background.py): it is not read from, so
the order of its messages stays, and it gets its acknowledgement when all have been given the message. If it goes
meanwhile, the others still get theirs.

What is handed over in several turns is committed in several batches. A QoS 1 message that a crash cuts off was not
acknowledged, and comes again. One of QoS 2 would come twice to some, so where there is a journal it is handed over at
once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.destinations.destination import EACH, LONG, Fanout
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.session.connection import CLOSING
from headwater.session.session import Session
from headwater.wire.packets import Publish

if TYPE_CHECKING:
    from headwater.node.protocol.publishing import Publishing

MOST: Final = 64
"""Messages that are handed over so at a time; others at once. One whose publisher has gone waits for nobody, so this is
what bounds them."""
PIECE: Final = 16 * 4096
"""A piece of work: 16 small messages, or as many bytes."""


class HandingOver(BackgroundTask):
    def __init__(
        self,
        publishing: Publishing,
        channel: Channel,
        session: Session,
        packet: Publish,
        message: Message,
        fanout: Fanout,
        reason: int,
    ) -> None:
        self.publishing = publishing
        self.channel = channel
        self.session = session
        self.packet = packet
        self.message = message
        self.fanout = fanout
        self.reason = reason
        self.size = len(message.topic) + len(message.payload)
        self.some = max(1, PIECE // (EACH + self.size))
        self.destination = 0
        self.next = 0
        self.postponed = False

    def begin(self) -> None:
        """As much as this turn has time for, which may be nothing: to decode it may have taken all."""
        core = self.publishing.core
        while time.monotonic() <= core.hot.until:
            if not self._more():
                self._end()
                return
        self.postponed = True
        self.publishing.long_ones += 1
        core.budget.used += self.size
        core.be_busy(self.channel)
        core.background.add(self)

    def piece(self) -> bool:
        if self._more():
            return True
        self._release()
        self._end()
        return False

    def failed(self) -> None:
        self._release()
        self.publishing.core.crashed(self.channel)

    def _more(self) -> bool:
        """Give it to some; False: all have it."""
        destinations = self.fanout.destinations
        if self.destination < len(destinations):
            destination = destinations[self.destination]
            self.next = destination.deliver_some(self.message, self.session, self.next, self.some)
            if self.next == 0:
                self.destination += 1
        return self.destination < len(destinations)

    def _release(self) -> None:
        if self.postponed:
            self.postponed = False
            self.publishing.long_ones -= 1
            self.publishing.core.budget.used -= self.size

    def _end(self) -> None:
        """All have it: its publisher is told, if it is still there."""
        channel = self.channel
        if channel.state == CLOSING or channel.session is not self.session:
            if self.packet.qos == 2:
                self.session.received.add(self.packet.packet_id)
            return
        self.publishing.acknowledge(channel, self.session, self.packet, self.reason)
        self.publishing.core.go_on(channel)


def is_long(fanout: Fanout, message: Message) -> bool:
    return fanout.width * (EACH + len(message.topic) + len(message.payload)) > LONG
