"""The payloads of a fleet's day, made as columns: pieces of text are looked up in tables and joined by Arrow.

A payload is JSON of about 107 bytes; at noon half of the fleet begins to send another schema, with a battery instead of
the radio's strength, and an object. What is broken is so in six ways, each of which no reader of JSON takes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PLAIN: Final = 0
NEWER: Final = 1
HUGE: Final = 2
"""A number that is one, and beyond all measure."""
NAN: Final = 3
INFINITE: Final = 4
TRUNCATED: Final = 5
TEXT: Final = 6
BINARY: Final = 7
EMPTY: Final = 8
BROKEN: Final = NAN
"""From here on, kinds of messages have no reading."""
LARGEST_NUMBER: Final = 19_999
"""Hundredths; numbers behind it stand for kinds from HUGE on."""
TAILS: Final = 60
"""Ends of a payload, of each of two schemas."""

_KINDS: Final = EMPTY - HUGE + 1
_NAMES: Final = {HUGE: "1e300", NAN: "NaN", INFINITE: "1e999"}
_TEXTS: Final = pa.array(
    [f"{number // 100}.{number % 100:02d}" for number in range(LARGEST_NUMBER + 1)]
    + [_NAMES.get(HUGE + kind, "0") for kind in range(_KINDS)]
)
VALUES: Final[NDArray[numpy.float64]] = numpy.array(
    [*(float(text) for text in _TEXTS.to_pylist()[: LARGEST_NUMBER + 1]), 1e300, *([numpy.nan] * (_KINDS - 1))]
)
"""What a number is."""
_TAIL_TEXTS: Final = pa.array(
    [f',"unit":"C","status":"ok","fw":"1.4.2","rssi":{-90 + each}}}' for each in range(TAILS)]
    + [f',"unit":"C","fw":"2.0.0","battery":{each + 40},"place":{{"hall":{each % 7}}}}}' for each in range(TAILS)]
)


def payloads(
    device: NDArray[numpy.int64],
    milliseconds: NDArray[numpy.int64],
    number: NDArray[numpy.int64],
    kind: NDArray[numpy.int64],
    tail: NDArray[numpy.int64],
) -> Any:
    """An array of bytes."""
    heads = pa.array([f'{{"device":"sensor-{each:05d}","ts":' for each in range(int(device.max(initial=0)) + 1)])
    texts = pc.binary_join_element_wise(
        heads.take(pa.array(device)),
        pa.array(milliseconds).cast(pa.string()),
        ',"value":',
        _TEXTS.take(pa.array(number)),
        _TAIL_TEXTS.take(pa.array(tail)),
        "",
    )
    made = texts.cast(pa.binary())
    which = numpy.flatnonzero(kind >= TRUNCATED)
    if not len(which):
        return made
    others = [_broken(made[int(row)].as_py(), int(kind[row]), int(milliseconds[row])) for row in which]
    return pc.replace_with_mask(made, pa.array(kind >= TRUNCATED), pa.array(others, pa.binary()))


def _broken(payload: bytes, kind: int, chance: int) -> bytes:
    """The same for a message that comes again."""
    if kind == TRUNCATED:
        return payload[: 1 + chance % (len(payload) - 1)]
    if kind == TEXT:
        return b"sensor fault, see manual"
    return bytes([0xFF, chance % 256, 0x00, 0xFE]) if kind == BINARY else b""
