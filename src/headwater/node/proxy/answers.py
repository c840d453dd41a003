"""What a proxy itself says to a client, or changes on its way, where the cluster needs it. All else passes as it is."""

from __future__ import annotations

from typing import Final

from headwater.wire.decode import FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
from headwater.wire.packets import CONNACK, V5, Connack, Disconnect, Properties
from headwater.wire.reasons import SERVER_UNAVAILABLE, SESSION_TAKEN_OVER

UNAVAILABLE_311: Final = 3
CLEAN_START: Final = 0x02


def refusal(version: int, reason: str) -> bytes:
    """CONNACK for a client that is not let in at the moment."""
    if version != V5:
        return encode(Connack(False, UNAVAILABLE_311), version)
    return encode(Connack(False, SERVER_UNAVAILABLE, Properties(reason_string=reason)), version)


def taken_over(version: int) -> bytes:
    """For a client that has connected elsewhere; 3.1.1 has no such packet."""
    return encode(Disconnect(SESSION_TAKEN_OVER), version) if version == V5 else b""


def started_clean(packet: bytes) -> bytes:
    """A whole CONNECT of 5.0, with Clean Start."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    at += 1
    flags = at + 2 + int.from_bytes(packet[at : at + 2], "big") + 1
    return packet[:flags] + bytes((packet[flags] | CLEAN_START,)) + packet[flags + 1 :]


def with_reason(data: bytes, reason: str, largest: int) -> bytes:
    """What comes from the broker first, with a reason in its CONNACK of 5.0, if that is whole, has none of its own, and
    has at most `largest` bytes then (0: any number)."""
    if data[0] >> 4 != CONNACK:
        return data
    reader = PacketReader()
    reader.feed(data)
    try:
        frame = reader.next_frame()
        if frame is None:
            return data
        packet = decode(frame[0], frame[1], V5, FROM_SERVER)
    except RemoteProtocolError:
        return data
    assert isinstance(packet, Connack)
    as_it_was = encode(packet, V5)
    properties = packet.properties or Properties()
    if properties.reason_string is not None or packet.reason or not data.startswith(as_it_was):
        return data  # what cannot be written again as it was stays as it is
    properties.reason_string = reason
    packet.properties = properties
    changed = encode(packet, V5)
    return data if 0 < largest < len(changed) else changed + data[len(as_it_was) :]
