"""Whether a message of QoS 1 or 2 can be kept for all that it is for: asked before its publisher is acknowledged.

Theory. An acknowledgement says that the message is ours now, so what cannot be kept is not acknowledged. Two things can
be in the way: `max_queue_memory` is used up, or, with `queue_full = "refuse"`, the queue of a session or group that it
is for is full. Then the publisher learns it, in the words of its version:

    5.0            PUBACK or PUBREC with 0x97; nobody gets the message
    3.1.1          has no word for it: the publisher is not read from until there is room; after `publisher_wait`
    and bridges    its connection ends, the message unacknowledged, so that it comes again

Nobody tells when memory is free again, because that is the hot path's business; who waits is looked at again every few
hundredths of a second. Then its acknowledgements are read, though they come behind the message that waits: a client
that publishes and subscribes over one connection may be the one that the memory waits for, and would otherwise be cut
off, come back, publish first and wait for itself again, for ever. Messages that the broker publishes itself (wills,
`$SYS`) are kept whatever there is.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from headwater.message import NEVER
from headwater.node.bridge.inside import PREFIX
from headwater.node.plane.channel import Channel
from headwater.node.plane.collecting import MAX_BEHIND
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import ClientTask, Core
from headwater.session.connection import CLOSING
from headwater.session.session import Session
from headwater.wire.packets import V5, Publish
from headwater.wire.reasons import QUOTA_EXCEEDED

if TYPE_CHECKING:
    from headwater.node.protocol.publishing import Publishing

log = logging.getLogger("headwater.server")

LOOK_AGAIN: Final = 0.05
"""Seconds between two looks at those who wait."""
AT_A_TIME: Final = 256
"""Of those, how many are looked at."""
TELL_AGAIN: Final = 60.0
"""Seconds between two lines of the log about the same lack."""


class _Waiting(ClientTask):
    """One PUBLISH of a client that cannot be told to come again."""

    def __init__(self, admission: Admission, channel: Channel, packet: Publish, topic: str) -> None:
        core = admission.core
        super().__init__(core, channel)
        self.admission = admission
        self.packet = packet
        self.topic = topic
        self.until = core.hot.now + core.config.publisher_wait
        self.looked = 0
        """Bytes behind it that hold no acknowledgement."""

    def step(self) -> bool:
        core = self.core
        channel = self.channel
        # What came behind it waits for it: that must not be what keeps it waiting.
        if self.admission.has_room(self.topic, channel.session, channel.counted):
            self.admission.publishing.take(channel, self.packet, self.topic)
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
        self.admission.look_later(self)
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


class Admission:
    publishing: Publishing

    def __init__(self, core: Core) -> None:
        self.core = core
        self.waiting: dict[_Waiting, None] = {}
        """Those whose publishers are not read from, in the order in which they came."""
        self._timer: Timer | None = None
        self._told_at = -NEVER

    def has_room(self, topic: str, publisher: Session | None, own: int = 0) -> bool:
        """Whether a message of QoS 1 or 2 can be kept for all that it is for; `own` bytes that count are not in its
        way."""
        core = self.core
        budget = core.budget
        is_full = budget.used - own >= budget.limit
        if not is_full and not budget.full_lines:
            return True
        fanout = core.hot.fanouts.of(topic)
        if is_full:
            return not fanout.owed
        return all(destination.has_room(publisher) for destination in fanout.destinations)

    def refuses(self, channel: Channel, topic: str) -> bool:
        """The same for a PUBLISH of a client; True: the caller answers with 0x97, or lets it `wait`."""
        if self.has_room(topic, channel.session, channel.counted):
            return False
        self.core.stats.publish_refused += 1
        self._tell()
        return True

    def can_be_told(self, channel: Channel) -> bool:
        """A bridge could be told, but would not bring the message again."""
        return channel.version == V5 and not channel.client_id.startswith(PREFIX)

    def wait(self, channel: Channel, packet: Publish, topic: str) -> None:
        """Deal with this PUBLISH when there is room, and with nothing else of its client until then."""
        self.core.begin(_Waiting(self, channel, packet, topic))

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

    def _tell(self) -> None:
        core = self.core
        now = core.hot.now
        if now < self._told_at + TELL_AGAIN:
            return
        self._told_at = now
        why = "queues are full"
        if core.budget.used >= core.budget.limit:
            why = f"max_queue_memory ({core.budget.limit} bytes) is used up"
        log.warning(
            "%s: messages of QoS 1 and 2 are refused (0x97), or their publishers wait; %d until now",
            why,
            core.stats.publish_refused,
        )
