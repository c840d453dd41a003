"""Publishers that cannot be told that there is no room in queues, and wait until there is.

Theory. A message of QoS 1 or 2 that cannot be kept is not acknowledged (admission.py). The publisher learns it in the
words of its version:

    5.0            PUBACK or PUBREC with 0x97; nobody gets the message
    3.1.1          has no word for it: the publisher is not read from until there is room; after `publisher_wait`
    and bridges    its connection ends, the message unacknowledged, so that it comes again

Nobody tells when memory is free again, because that is the hot path's business; who waits is looked at again every few
hundredths of a second. Then its acknowledgements are read, though they come behind the message that waits: a client
that publishes and subscribes over one connection may be the one that the memory waits for, and would otherwise be cut
off, come back, publish first and wait for itself again, for ever.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from headwater.node.bridge.inside import PREFIX
from headwater.node.plane.channel import Channel
from headwater.node.plane.collecting import MAX_BEHIND
from headwater.node.plane.timers import Timer
from headwater.node.protocol.admission import Admission, Publication
from headwater.node.protocol.core import ClientTask, Core
from headwater.session.connection import CLOSING
from headwater.wire.packets import V5, Publish
from headwater.wire.reasons import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from headwater.node.protocol.publishing import Publishing

log = logging.getLogger("headwater.server")

LOOK_AGAIN: Final = 0.05
"""Seconds between two looks at those who wait."""
AT_A_TIME: Final = 256
"""Of those, how many are looked at."""


class _Waiting(ClientTask):
    """One PUBLISH of a client that cannot be told to come again."""

    def __init__(self, waits: PublisherWaits, channel: Channel, packet: Publish, publication: Publication) -> None:
        core = waits.core
        super().__init__(core, channel)
        self.waits = waits
        self.packet = packet
        self.publication = publication
        self.until = core.hot.now + core.config.publisher_wait
        self.looked = 0
        """Bytes behind it that hold no acknowledgement."""

    def step(self) -> bool:
        core = self.core
        channel = self.channel
        # What came behind it waits for it: that must not be what keeps it waiting.
        if self.waits.admission.has_room(self.publication.message.topic, channel.session, channel.counted):
            self.waits.publishing.take(channel, self.packet, self.publication)
            return False
        if core.hot.now >= self.until:
            log.info("%.200r (%s) waited too long for room in queues; cut off", channel.client_id, channel.address)
            core.disconnect(channel, QUOTA_EXCEEDED, "there is no room for more messages")
            return False
        if channel.busy:  # not in the turn in which it came
            self._read_acknowledgements()
            if channel.state == CLOSING:
                return False
        channel.waits = self
        self.waits.look_later(self)
        return True

    def _read_acknowledgements(self) -> None:
        core = self.core
        channel = self.channel
        if channel.have <= MAX_BEHIND // 2:
            core.plane.read(channel)
        self.looked, found = core.hot.take_acknowledgements(channel, self.looked)
        for first_byte, body in found:
            if channel.state != CLOSING:
                core.packet(channel, first_byte, body)


class PublisherWaits:
    publishing: Publishing

    def __init__(self, core: Core, admission: Admission) -> None:
        self.core = core
        self.admission = admission
        self.waiting: dict[_Waiting, None] = {}
        """Those whose publishers are not read from, in the order in which they came."""
        self._timer: Timer | None = None

    def can_be_told(self, channel: Channel) -> bool:
        """A bridge could be told, but would not bring the message again."""
        return channel.version == V5 and not channel.client_id.startswith(PREFIX)

    def wait(self, channel: Channel, packet: Publish, publication: Publication) -> None:
        """Deal with this PUBLISH when there is room, and with nothing else of its client until then."""
        self.core.begin(_Waiting(self, channel, packet, publication))

    def look_later(self, task: _Waiting) -> None:
        self.waiting[task] = None
        if self._timer is None:
            self._timer = self.core.timers.at(self.core.hot.now + LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._timer = None
        for task in list(islice(self.waiting, AT_A_TIME)):
            channel = task.channel
            if channel.waits is task:
                channel.waits = None
                self.core.background.add(task)
            del self.waiting[task]  # or its client has gone, or has read, which made it a background task already
        if self.waiting and self._timer is None:
            self._timer = self.core.timers.at(self.core.hot.now + LOOK_AGAIN, self._look)
