"""Packets that arrive in parts, and what comes behind a CONNECT that is still being decided on.

What is kept is joined once, when a packet is whole. A large packet counts in the budget of all that waits, by what has
come of it and not by what it promised.
"""

from __future__ import annotations

from typing import Final

from headwater.node.channel import Channel
from headwater.node.sending import Sending
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.reasons import QUOTA_EXCEEDED

SMALL_PART: Final = 4096
MAX_BEHIND_CONNECT: Final = 1 << 17
"""Bytes that may come behind CONNECT while it is decided on; the socket is not read from meanwhile."""
LARGE_PACKET: Final = 65536
"""A packet that arrives in parts and is larger than this is counted in the budget while it is collected."""


class Collecting(Sending):
    def collect(self, channel: Channel, data: bytes) -> bytes | None:
        """More came: all that there is now, if that makes a whole packet, else None."""
        parts = channel.parts
        assert parts is not None
        size = len(data)
        if channel.deciding:
            parts.append(data)
            channel.have += size
            if channel.have > MAX_BEHIND_CONNECT:
                self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "too much came before CONNACK"))
            return None
        if channel.have + size < channel.need:
            if channel.need > LARGE_PACKET:
                if self.budget.used + size > self.budget.limit:
                    self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "no memory for such a large packet"))
                    return None
                self.budget.used += size
            if len(parts[-1]) < SMALL_PART:
                parts[-1] += data  # or a large packet in tiny segments would cost an object for each
            else:
                parts.append(data)
            channel.have += size
            return None
        parts.append(data)
        if channel.need > LARGE_PACKET:
            self.budget.used -= channel.have
        channel.need = 0
        channel.parts = None
        return b"".join(parts)

    def keep(self, channel: Channel, rest: bytes) -> None:
        """Part of a packet: remember it and how much it needs, so that a large packet is joined once."""
        size = len(rest)
        if channel.deciding:
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
        if need > LARGE_PACKET:
            # What came counts, not what was promised: five bytes must not take the memory of others.
            if self.budget.used + size > self.budget.limit:
                self.slow.failed(channel, RemoteProtocolError(QUOTA_EXCEEDED, "no memory for such a large packet"))
                return
            self.budget.used += size
        channel.parts = [rest]
        channel.have = size
        channel.need = need

    def take_kept(self, channel: Channel) -> bytes:
        """What came behind CONNECT while it was decided on."""
        kept = b"".join(channel.parts or [])
        channel.need = 0
        channel.parts = None
        return kept

    def discard_partial(self, channel: Channel) -> None:
        """The connection ends in the middle of a packet."""
        if channel.need > LARGE_PACKET:
            self.budget.used -= channel.have
        channel.need = 0
        channel.parts = None
