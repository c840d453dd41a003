"""One other node as this one sees it, whether a link to it is up or not: what it is owed, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headwater.node.plane.channel import Channel
from headwater.peering.applied import Applied
from headwater.peering.frames import v1
from headwater.peering.frames.frame import Frame, Publisher
from headwater.peering.spool import LinkSpool

if TYPE_CHECKING:
    from headwater.node.plane.turn import Turn

MAX_PUBLISHERS: Final = 4096
"""Clients that have a number on a link at a time; the one that got its number first gives way."""
MAX_PUBLISHER_BYTES: Final = 4 << 20
"""Of their ids."""


LARGE: Final = 1 << 20
"""Bytes of a run that may take long to send."""


class PublisherNumbers:
    """Runs name their clients by numbers, of which the peer is told (`Publisher`) before the first run. The peer keeps
    what it was told: numbers that were freed and not given again are told without a name."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._free: list[int] = []
        self.freed: list[int] = []
        """By the last `give`, which the peer has to be told."""
        self._bytes = 0

    def get(self, client_id: str, protocol: int) -> int:
        """-1: it has none."""
        return self._numbers.get((client_id, protocol), -1)

    def give(self, client_id: str, protocol: int) -> int:
        """A number that nobody has any more; the peer has to be told."""
        size = len(client_id.encode())
        freed = self.freed = []
        while self._numbers and (len(self._numbers) >= MAX_PUBLISHERS or self._bytes + size > MAX_PUBLISHER_BYTES):
            oldest = next(iter(self._numbers))
            freed.append(self._numbers.pop(oldest))
            self._bytes -= len(oldest[0].encode())
        if freed:
            number = freed.pop()
            self._free += freed
        else:
            number = self._free.pop() if self._free else len(self._numbers)
        self._numbers[client_id, protocol] = number
        self._bytes += size
        return number


class PeerEnd:
    def __init__(self, turn: Turn, peer: str, spool: LinkSpool, applied: Applied) -> None:
        self.turn = turn
        self.peer = peer
        self.spool = spool
        self.applied = applied
        self.channel: Channel | None = None
        """Of the link that is up."""
        self.publishers = PublisherNumbers()
        self.frames_sent = 0
        """Over this link, the Hello not counted."""
        self.large = 0
        """The number of the last large one."""
        self.unread = 0
        """Bytes of frames other than runs since nothing waited for its socket."""
        self.bytes_sent = 0
        self.messages_sent = 0
        self.messages_received = 0
        self.dropped = 0
        self.is_proven = False
        """It has been linked; what others only tell of may not exist."""
        self.services: frozenset[str] | None = None
        """For which it takes notes and letters, as its last Hello said; None: it has not been linked in this life."""
        self.skipped = 0
        """Notes and letters of it for services that this node does not have."""
        self.is_renamed = False
        """Its spool, since this link is up, because the peer knew it better than this node."""
        self.is_full = False
        """Its spool has no room, and publishers are refused."""
        self.is_told = False
        """The log says that publishers are paused because of it."""

    def has_service(self, name: str) -> bool:
        """Whether it may be sent notes and letters for that; what is not known yet may be."""
        return self.services is None or name in self.services

    def link_up(self, channel: Channel, frames_sent: int, services: Iterable[str]) -> None:
        self.channel = channel
        self.services = frozenset(services)
        self.frames_sent = frames_sent
        self.large = 0
        self.unread = 0
        self.publishers = PublisherNumbers()
        self.is_renamed = False

    def link_down(self) -> None:
        self.channel = None
        self.spool.cut()
        self.applied.cut()

    def write(self, data: bytes) -> None:
        """Bytes of one frame, behind all that was written before; the link has to be up."""
        channel = self.channel
        if channel is None:
            return
        self.frames_sent += 1
        self.bytes_sent += len(data)
        self.unread += len(data)
        channel.out.append(data)
        self.touch(channel)

    def write_run(self, channel: Channel, head: bytes, packets: bytes, messages: int) -> None:
        """The same for a run, in two pieces."""
        self.frames_sent += 1
        self.bytes_sent += len(head) + len(packets)
        if len(packets) > LARGE:
            self.large = self.frames_sent
        self.messages_sent += messages
        channel.out.append(head)
        channel.out.append(packets)
        self.touch(channel)

    def send(self, frame: Frame) -> None:
        self.write(v1.encode(frame))

    def touch(self, channel: Channel) -> None:
        """Something is to be sent when this turn ends."""
        if not channel.dirty:
            channel.dirty = True
            self.turn.dirty.append(channel)

    def number_of(self, client_id: str, protocol: int) -> int:
        number = self.publishers.get(client_id, protocol)
        if number < 0:
            number = self.publishers.give(client_id, protocol)
            for freed in self.publishers.freed:
                self.write(v1.encode(Publisher(freed, protocol, "")))
            self.write(v1.encode(Publisher(number, protocol, client_id)))
        return number
