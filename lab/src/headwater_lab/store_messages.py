"""The messages that a store is measured with.

Theory. Ten thousand devices take turns, and each measures every ten seconds, so that ten million messages are those of
2.8 hours. A payload is JSON of about 107 bytes, of which time and value, a random walk, differ from one message to the
next, and the rest hardly does: what fleets send. The same seed makes the same messages. Each device speaks through one
of a hundred publishers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy
from numpy.typing import NDArray

DEVICES: Final = 10_000
PERIOD: Final = 10_000
"""Milliseconds between two measurements of a device."""
PUBLISHERS: Final = 100
START: Final = 1_790_000_000_000
"""Milliseconds since 1970 at the first measurement."""
SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
"""In microseconds, as the store has times."""

_PAYLOAD: Final = '{"device":"sensor-%05d","ts":%d,"value":%d.%02d,"unit":"C","status":"%s","fw":"1.4.2","rssi":%d}'


class Readings(NamedTuple):
    """Messages in the order in which they are sent, as columns; time is in microseconds."""

    device: NDArray[numpy.int64]
    time: NDArray[numpy.int64]
    value: NDArray[numpy.float64]
    payload: list[bytes]


def topic_of(device: int) -> str:
    return f"fleet/site-{device % 20:02d}/sensor-{device:05d}/temperature"


def publisher_of(device: int) -> str:
    return f"gateway-{device % PUBLISHERS:02d}"


def readings(messages: int, seed: int, devices: int = DEVICES) -> Iterator[Readings]:
    """So many messages, in rounds in which each device has its turn once; the last round may be cut off."""
    chance = numpy.random.default_rng(seed)
    device = numpy.arange(devices)
    cents = chance.integers(1500, 2500, devices)
    rssi = chance.integers(-90, -40, devices)
    turn = device * PERIOD // devices
    for start in range(0, messages, devices):
        cents = numpy.clip(cents + numpy.round(chance.normal(0.0, 10.0, devices)).astype(numpy.int64), 0, 9999)
        rssi = numpy.clip(rssi + chance.integers(-1, 2, devices), -99, -30)
        bad = chance.random(devices) < 0.001
        stamp = START + start // devices * PERIOD + turn + chance.integers(0, 4, devices)
        status = numpy.where(bad, "low battery", "ok")
        columns = (device, stamp, cents // 100, cents % 100, status, rssi)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        payload = [(_PAYLOAD % row).encode() for row in rows]
        left = min(devices, messages - start)
        yield Readings(device[:left], stamp[:left] * 1000, (cents / 100)[:left], payload[:left])
