"""The data types that packets are made of (MQTT 5.0, section 1.5), read from bytes and written to bytes.

Whatever the peer sent is read through a `Reader`, which raises RemoteProtocolError and nothing else; whatever we were
asked to write goes through the `encode_…` functions, which raise LocalProtocolError and nothing else.
"""

from __future__ import annotations

from typing import Final

from .errors import LocalProtocolError, RemoteProtocolError
from .reasons import MALFORMED_PACKET, PROTOCOL_ERROR

VARINT_MAX: Final = 268_435_455
"""The largest value of four bytes with seven bits each; also the largest remaining length of a packet."""

UINT16_MAX: Final = 0xFFFF
UINT32_MAX: Final = 0xFFFF_FFFF
FOR_EVER: Final = UINT32_MAX
"""Seconds of a session expiry that never comes."""


ANY_NUMBER: Final = 1 << 30


class Reader:
    """A cursor over `data[pos:end]`."""

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end
        self.most_pairs = ANY_NUMBER
        """User properties that a packet may have."""

    def left(self) -> int:
        return self.end - self.pos

    def take(self, count: int) -> int:
        """Move over `count` bytes and return where they start."""
        start = self.pos
        if count > self.end - start:
            raise RemoteProtocolError(MALFORMED_PACKET, "packet ends within a field")
        self.pos = start + count
        return start

    def byte(self) -> int:
        return self.data[self.take(1)]

    def uint16(self) -> int:
        start = self.take(2)
        return self.data[start] << 8 | self.data[start + 1]

    def uint32(self) -> int:
        data, start = self.data, self.take(4)
        return data[start] << 24 | data[start + 1] << 16 | data[start + 2] << 8 | data[start + 3]

    def varint(self) -> int:
        value = 0
        shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise RemoteProtocolError(MALFORMED_PACKET, "variable byte integer longer than four bytes")
        if byte == 0 and shift > 0:  # [MQTT-1.5.5-1]
            raise RemoteProtocolError(MALFORMED_PACKET, "variable byte integer longer than needed")
        return value

    def binary(self) -> bytes:
        size = self.uint16()
        start = self.take(size)
        return self.data[start : start + size]

    def string(self) -> str:
        """A UTF-8 string; U+FEFF stays in it wherever it stands [MQTT-1.5.4-3]."""
        try:
            # Python's strict decoder refuses surrogates and overlong forms as well [MQTT-1.5.4-1].
            text = self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise RemoteProtocolError(MALFORMED_PACKET, "string is not well-formed UTF-8") from None
        if "\0" in text:  # [MQTT-1.5.4-2]
            raise RemoteProtocolError(MALFORMED_PACKET, "string contains U+0000")
        return text

    def packet_id(self) -> int:
        value = self.uint16()
        if value == 0:  # [MQTT-2.2.1-3]
            raise RemoteProtocolError(PROTOCOL_ERROR, "packet identifier 0")
        return value

    def rest(self) -> bytes:
        start = self.pos
        self.pos = self.end
        return self.data[start : self.end]

    def finish(self) -> None:
        """The packet must end here."""
        if self.pos != self.end:
            raise RemoteProtocolError(MALFORMED_PACKET, f"{self.end - self.pos} bytes after the end of the packet")


def encode_unsigned(value: int, size: int) -> bytes:
    if not 0 <= value < 1 << (8 * size):
        raise LocalProtocolError(f"{value} does not fit into {size} bytes")
    return value.to_bytes(size, "big")


def encode_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise LocalProtocolError(f"{value} does not fit into a variable byte integer")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_binary(value: bytes) -> bytes:
    if len(value) > UINT16_MAX:
        raise LocalProtocolError(f"{len(value)} bytes in a field that holds {UINT16_MAX}")
    return len(value).to_bytes(2, "big") + value


def encode_string(text: str) -> bytes:
    if "\0" in text:  # [MQTT-1.5.4-2]
        raise LocalProtocolError("string contains U+0000")
    try:
        return encode_binary(text.encode("utf-8"))
    except UnicodeEncodeError:  # [MQTT-1.5.4-1]
        raise LocalProtocolError("string contains a surrogate, which UTF-8 cannot hold") from None


def encode_packet_id(packet_id: int) -> bytes:
    if not 0 < packet_id <= UINT16_MAX:  # [MQTT-2.2.1-3]
        raise LocalProtocolError(f"packet identifier {packet_id} is not within 1..{UINT16_MAX}")
    return packet_id.to_bytes(2, "big")
