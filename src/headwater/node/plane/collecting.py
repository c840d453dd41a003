"""Packets that arrive in parts, and what comes behind one that is not dealt with to its end yet.

What is kept is joined once, when a packet is whole. It counts by what has come and not by what was promised: of those
who are not connected, all of it, in the memory for them (strangers.py); of clients, what is large or comes behind, in
the budget of all that waits.
"""

from __future__ import annotations

from typing import Final

from headwater.node.plane.channel import Channel
from headwater.node.plane.sending import Sending
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, V5
from headwater.wire.properties import MOST_BYTES
from headwater.wire.reasons import QUOTA_EXCEEDED

SMALL_PART: Final = 4096
MAX_BEHIND: Final = 1 << 17
"""Bytes that may come behind a packet that takes long; the socket is not read from meanwhile."""
ACKNOWLEDGEMENTS: Final = (PUBACK, PUBREC, PUBCOMP)
LARGE_PACKET: Final = 65536
"""A packet that arrives in parts and is larger than this is counted in the budget while it is collected."""


class Collecting(Sending):
    def collect(self, channel: Channel, data: bytes) -> bytes | None:
        """More came: all that there is now, if that makes a whole packet, else None."""
        parts = channel.parts
        assert parts is not None
        size = len(data)
        if channel.busy:
            if not self._count(channel, size, channel.known):
                return None
            parts.append(data)
            channel.have += size
            if channel.have > MAX_BEHIND:
                self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "too much came before an answer"))
            return None
        if channel.have + size < channel.need:
            if (channel.need > LARGE_PACKET or not channel.known) and not self._count(channel, size, False):
                return None
            if len(parts[-1]) < SMALL_PART:
                parts[-1] += data  # or a large packet in tiny segments would cost an object for each
            else:
                parts.append(data)
            channel.have += size
            return None
        parts.append(data)
        self.discard_partial(channel)
        return b"".join(parts)

    def _count(self, channel: Channel, size: int, forced: bool) -> bool:
        """So many bytes more are kept; False: there is no room, and the connection has ended."""
        if not channel.known:
            if not self.slow.keeps(channel, size):
                return False
        elif forced or self.budget.used + size <= self.budget.limit:
            self.budget.used += size
        else:
            self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "no memory for such a large packet"))
            return False
        channel.counted += size
        return True

    def keep(self, channel: Channel, rest: bytes) -> None:
        """Part of a packet: remember it and how much it needs, so that a large packet is joined once."""
        size = len(rest)
        if channel.busy:
            if self._count(channel, size, channel.known):
                channel.parts = [rest]
                channel.have = size
            return
        need = size + 1
        if size >= 2:
            remaining = 0
            shift = 0
            for i in range(1, min(size, 5)):
                remaining |= (rest[i] & 0x7F) << shift
                shift += 7
                if rest[i] < 0x80:
                    need = 1 + i + remaining
                    break
        large = need > LARGE_PACKET
        if large and channel.version == V5 and rest[0] >> 4 == PUBLISH and _begins_with_too_much(rest):
            self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "too many bytes of properties"))
            return
        # What came counts, not what was promised: five bytes must not take the memory of others.
        if (large or not channel.known) and not self._count(channel, size, False):
            return
        channel.parts = [rest]
        channel.have = size
        channel.need = need

    def be_busy(self, channel: Channel, size: int) -> None:
        """Keep what comes from now on, until `take_kept`; so many bytes of the packet before it count as long."""
        channel.busy = True
        channel.parts = []
        channel.have = 0
        channel.need = 1
        if size:
            self.count_more(channel, size)

    def count_more(self, channel: Channel, size: int) -> None:
        """A client that is busy has us keep so many bytes more until `take_kept`."""
        channel.counted += size
        self.budget.used += size

    def take_kept(self, channel: Channel) -> bytes:
        """What came while the channel was busy, which it is no more."""
        channel.busy = False
        kept = b"".join(channel.parts or [])
        self.discard_partial(channel)
        return kept

    def take_acknowledgements(self, channel: Channel, looked: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Of what came while the channel was busy: the packets that acknowledge messages of ours, which need not wait
        for those before them. There are none in the first `looked` bytes. Returns how much has been looked at now."""
        parts = channel.parts
        if not channel.busy or not parts or channel.have <= looked:
            return looked, []
        data = b"".join(parts)
        found: list[tuple[int, bytes]] = []
        left = [data[:looked]]
        at = looked
        while True:
            body, end = _extent(data, at)
            if end < 0 or end > len(data):
                break
            if data[at] >> 4 in ACKNOWLEDGEMENTS:
                found.append((data[at], data[body:end]))
            else:
                left.append(data[at:end])
            at = end
        rest = b"".join(left)
        looked = len(rest)
        if at < len(data):
            rest += data[at:]
        gone = len(data) - len(rest)
        channel.parts = [rest]
        channel.have -= gone
        channel.counted -= gone
        self.budget.used -= gone
        return looked, found

    def discard_partial(self, channel: Channel) -> None:
        """Nothing is collected any more: the packet is whole, or the connection ends in the middle of it."""
        if channel.counted:
            if channel.known:
                self.budget.used -= channel.counted
            else:
                self.slow.keeps(channel, -channel.counted)
            channel.counted = 0
        channel.need = 0
        channel.parts = None


def _extent(data: bytes, start: int) -> tuple[int, int]:
    """Where the body of the packet at `start` begins and ends; -1: its length is not there, or wrong."""
    remaining = 0
    shift = 0
    at = start + 1
    while at < len(data) and shift < 28:
        byte = data[at]
        at += 1
        remaining |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at, at + remaining
        shift += 7
    return -1, -1


def _begins_with_too_much(part: bytes) -> bool:
    """Whether the beginning of a PUBLISH announces more bytes of properties than are allowed: it need not be waited
    for, nor put together."""
    at = 1
    while at < len(part) and part[at] & 0x80:
        at += 1
    at += 1
    if at + 2 > len(part):
        return False
    at += 2 + (part[at] << 8 | part[at + 1]) + (2 if part[0] & 0x06 else 0)
    length = 0
    shift = 0
    while at < len(part) and shift < 28:
        length |= (part[at] & 0x7F) << shift
        if part[at] < 0x80:
            return length > MOST_BYTES
        shift += 7
        at += 1
    return False
