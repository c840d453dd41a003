"""Property blocks of PUBLISH that were checked before.

Clients send the same few blocks again and again. A block that the ordinary way would write just as it came, and that
means the same to every subscriber, may be passed on as bytes; whether it is such a block is decided once.
"""

from __future__ import annotations

from typing import Final

from headwater.message import POSITION_PROPERTY
from headwater.node.delivery.properties import optional_columns
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import PUBLISH, V5, Publish
from headwater.wire.primitives import ANY_NUMBER
from headwater.wire.properties import MOST_USER_PROPERTIES, encode_properties

MAX_CACHED: Final = 4096
LONGEST_CACHED: Final = 512


class KnownProperties:
    def __init__(self) -> None:
        self.blocks: dict[bytes, bytes] = {}
        self.columns: dict[bytes, dict[str, bytes]] = {}
        self.most_pairs = MOST_USER_PROPERTIES
        self.positions_are_ours = False
        """A delivery store is there: the property that carries positions may not be passed on."""

    def end(self, data: bytes, start: int, end: int) -> int:
        """Where the properties of a PUBLISH end if they can be passed on as they are, else 0."""
        length = data[start]
        p = start + 1
        if length > 0x7F:
            if p >= end or data[p] > 0x7F or data[p] == 0:
                return 0
            length = length & 0x7F | data[p] << 7
            p += 1
        stop = p + length
        if stop > end:
            return 0
        block = data[start:stop]
        known = self.blocks.get(block)
        if known is None:
            known = self._canonical(block)
            if len(block) <= LONGEST_CACHED:
                if len(self.blocks) >= MAX_CACHED:
                    self.blocks.clear()
                self.blocks[block] = known
        return stop if known == block else 0

    def optional_columns(self, block: bytes) -> dict[str, bytes]:
        """A block that can be passed on, as a delivery store keeps it."""
        found = self.columns.get(block)
        if found is None:
            packet = decode(0x30, b"\x00\x01t" + block, V5, FROM_CLIENT, ANY_NUMBER)
            assert isinstance(packet, Publish)
            found = optional_columns(message_of(packet, "", 0.0), 0.0)
            if len(block) <= LONGEST_CACHED:
                if len(self.columns) >= MAX_CACHED:
                    self.columns.clear()
                self.columns[block] = found
        return found

    def _canonical(self, block: bytes) -> bytes:
        """The properties as the ordinary way would write them; b"" when they are wrong or not the same for all."""
        try:
            packet = decode(0x30, b"\x00\x01t" + block, V5, FROM_CLIENT, self.most_pairs)
        except RemoteProtocolError:
            return b""
        assert isinstance(packet, Publish)
        properties = packet.properties
        if properties is None or properties.topic_alias is not None or properties.message_expiry_interval is not None:
            return b""
        if self.positions_are_ours and properties.user_properties is not None:
            for pair in properties.user_properties:
                if pair[0] == POSITION_PROPERTY:
                    return b""
        return encode_properties(properties, PUBLISH)
