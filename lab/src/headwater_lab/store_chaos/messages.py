"""What is written at a position: it follows from the seed of the episode, the life, and the position."""

from __future__ import annotations

import zlib
from typing import Final

from headwater.store.entry import Entry
from headwater.store.extract import Extraction
from headwater.store.intake import RETAIN, Intake

EXTRACTION: Final = Extraction(unit="us")
NOON: Final = 1_800_000_000_000_000
TOPICS: Final = 7


def message_at(seed: int, life: int, position: int) -> Entry:
    """Topics are of three kinds: always there, of some lives, and with a message or two each."""
    number = zlib.crc32(b"%d %d %d" % (seed, life, position))
    kind = number % 10
    if kind < 6:
        topic = f"always/{number % TOPICS}"
    else:
        topic = f"life/{life}/{number % TOPICS}" if kind < 9 else f"once/{life}/{position // 2}"
    time, value = NOON - number % 100_000, float(number % 1000)
    fill = b"x" * (number >> 8 & (1023 if number % 50 == 0 else 127))
    payload = b'{"ts":%d,"value":%d,"life":%d,"fill":"%b"}' % (time, value, life, fill)
    properties = b'{"user":[["number","%d"]]}' % number if number % 3 == 0 else b""
    return Entry(
        *(position, topic, payload, number % 3, number % 5 == 0, f"device-{number % 11}", time, NOON + position),
        *(value, properties),
    )


def take(intake: Intake, seed: int, life: int) -> None:
    """The next message."""
    entry = message_at(seed, life, intake.next)
    flags = entry.qos | (RETAIN if entry.retain else 0)
    optional = {"properties": entry.properties} if entry.properties else None
    intake.take(entry.topic.encode(), entry.payload, flags, entry.publisher, entry.arrival, optional)
