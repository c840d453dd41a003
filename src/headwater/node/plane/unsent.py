"""Where packets begin in bytes that a socket did not take, so that those of a shared group can go to another member.

The bytes that wait for a socket (`Channel.backlog`) begin with the rest of a packet that has been sent in part, `cut`
bytes, and go on with whole packets. A channel that is in a group (`shares`) keeps count of that, which costs a look at
each packet header when a socket takes only a part; for all others bytes are bytes.
"""

from __future__ import annotations

from collections import deque


def packet_end(data: bytes, start: int) -> int:
    """Where the packet that begins at `start` ends."""
    remaining = 0
    shift = 0
    at = start + 1
    while True:
        byte = data[at]
        at += 1
        remaining |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + remaining
        shift += 7


def cut_behind(data: bytes, cut: int, sent: int) -> int:
    """The new `cut` of `data`, which has one, when `sent` bytes of it have been sent."""
    at = cut
    while at < sent:
        at = packet_end(data, at)
    return at - sent


def pieces_of(data: bytes, cut: int, most: int) -> list[bytes]:
    """The data in pieces of about `most` bytes at least, that begin where packets do, except the first."""
    pieces: list[bytes] = []
    start = 0
    at = cut
    while at < len(data):
        if at - start >= most:
            pieces.append(data[start:at])
            start = at
        at = packet_end(data, at)
    pieces.append(data[start:])
    return pieces


def unsent_part(backlog: deque[bytes] | None, cut: int) -> bytes:
    """What is left of the packet that has been sent in part."""
    return b"".join(backlog or ())[:cut]


def unsent_packets(backlog: deque[bytes] | None, cut: int) -> list[bytes]:
    """The whole packets that wait for the socket, in order."""
    data = b"".join(backlog or ())
    packets: list[bytes] = []
    at = cut
    while at < len(data):
        end = packet_end(data, at)
        packets.append(data[at:end])
        at = end
    return packets
