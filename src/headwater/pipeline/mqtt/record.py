"""A message as the spool keeps it and executors get it: one record, self-checking.

    length of the body (4) | CRC-32 of the body (4) | body
    body: fixed fields | topic | store | properties | payload

The same bytes are in the segment files and on the wire, so the spooler hands out ranges without looking into them, and
whoever reads checks each record. Needs the standard library only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

HEAD: Final = struct.Struct("<II")
FIXED: Final = struct.Struct("<qqIHBBHBI")
NO_POSITION: Final = -1


class DamagedRecord(Exception):
    """Bytes that are no record: they were changed or cut."""


class Arrival(NamedTuple):
    """A message that came. `received` is in microseconds since 1970; `properties` is JSON, or empty.

    `connection`, `session` and `packet_id` name it towards the broker until it is acknowledged (see `redelivery`);
    `store` and `position` are those of the broker's delivery store, empty and -1 if it told none."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: str = ""
    received: int = 0
    store: str = ""
    position: int = NO_POSITION
    connection: int = 0
    session: int = 0
    packet_id: int = 0


def size_of(arrival: Arrival) -> int:
    """About what its record will have, and never more than that: in bytes, of characters at least one each."""
    texts = len(arrival.topic) + len(arrival.store) + len(arrival.properties)
    return HEAD.size + FIXED.size + texts + len(arrival.payload)


def encode(arrival: Arrival) -> bytes:
    topic, store, properties = arrival.topic.encode(), arrival.store.encode(), arrival.properties.encode()
    fixed = FIXED.pack(
        arrival.received,
        arrival.position,
        arrival.session,
        arrival.packet_id,
        arrival.connection,
        arrival.qos | arrival.retain << 2,
        len(topic),
        len(store),
        len(properties),
    )
    body = b"".join((fixed, topic, store, properties, arrival.payload))
    return HEAD.pack(len(body), zlib.crc32(body)) + body


def decode(body: bytes) -> Arrival:
    received, position, session, packet_id, connection, flags, topic, store, properties = FIXED.unpack_from(body)
    topic_end = FIXED.size + topic
    store_end = topic_end + store
    properties_end = store_end + properties
    return Arrival(
        str(body[FIXED.size : topic_end], "utf-8"),
        bytes(body[properties_end:]),
        flags & 3,
        bool(flags & 4),
        str(body[store_end:properties_end], "utf-8"),
        received,
        str(body[topic_end:store_end], "utf-8"),
        position,
        connection,
        session,
        packet_id,
    )


class RecordStream:
    """Records out of bytes that come in parts of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Arrival]:
        """The records that are whole by now; raises DamagedRecord at one that is not what was written."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= HEAD.size:
            size, check = HEAD.unpack_from(data, at)
            end = at + HEAD.size + size
            if end > len(data):
                break
            body = data[at + HEAD.size : end]
            if zlib.crc32(body) != check or size < FIXED.size:
                raise DamagedRecord(f"a record of {size} bytes does not match its checksum")
            yield decode(body)
            at = end
        self._rest = data[at:]


def whole_records(data: bytes) -> Iterator[tuple[int, Arrival]]:
    """Where each record begins, and what it is, up to the first that is not whole."""
    at = 0
    while (end := _end_of_record(data, at)) is not None:
        yield at, decode(data[at + HEAD.size : end])
        at = end


def next_record(data: bytes, at: int) -> int | None:
    """Where behind `at`, at which none is, a whole record begins; None if nowhere."""
    found = (each for each in range(at + 1, len(data) - HEAD.size) if _end_of_record(data, each) is not None)
    return next(found, None)


def _end_of_record(data: bytes, at: int) -> int | None:
    """Of the whole record that begins there."""
    if len(data) - at < HEAD.size:
        return None
    size, check = HEAD.unpack_from(data, at)
    end: int = at + HEAD.size + size
    if end > len(data) or size < FIXED.size or zlib.crc32(data[at + HEAD.size : end]) != check:
        return None
    return end
