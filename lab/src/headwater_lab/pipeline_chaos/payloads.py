"""What is published: readings of all kinds, in time, late, with wrong clocks, and much that is no reading at all.

What a message contains follows from the seed, its publisher and its number, and from the time at which it is made.
"""

from __future__ import annotations

import json
from random import Random
from typing import Final

BROKEN: Final = (b"", b"{", b'{"value":', b"\xff\x00\xfe", b"NaN", b'{"value":1e999}', b"[1,2", b"\x00" * 300)
LARGE: Final = 60_000
MESSAGES_OF_A_COLUMN: Final = 25
"""After so many messages a payload of `wide` brings a column that nobody has seen."""
DECODING: Final = (
    {"filter": "wide/#", "decoder": "json", "mode": "inferred", "value": "value"},
    {"filter": "many/#", "decoder": "json", "each": "readings", "time": "at", "unit": "ms", "value": "v"},
    {"filter": "cold/#", "decoder": "json", "time": "ts", "unit": "ms", "value": "value", "device": "$.device"},
)


def message(seed: int, publisher: int, number: int, now: float) -> tuple[str, bytes]:
    """Topic and payload. `now` is seconds since 1970."""
    random = Random(f"{seed} {publisher} {number}")
    kind = random.choice(("cold",) * 8 + ("wide",) * 3 + ("many",) * 2 + ("plain",) * 2 + ("broken", "large"))
    topic = f"{kind}/{publisher}/{random.randint(0, 3)}"
    milliseconds = int((now - _age(random)) * 1000)
    return topic, _payload(random, kind, number, milliseconds)


def _age(random: Random) -> float:
    """Seconds between measurement and now: mostly none, sometimes too many, or the clock is wrong."""
    return random.choice((0.0,) * 12 + (random.uniform(0, 12), random.uniform(12, 50), 86_400.0, -3600.0))


def _payload(random: Random, kind: str, number: int, milliseconds: int) -> bytes:
    value = round(random.gauss(20, 3), 2)
    if kind == "broken":
        return random.choice(BROKEN)
    if kind == "plain":
        return random.choice((str(value), f"text {number}", "true", f" {value}\n")).encode()
    if kind == "large":
        return json.dumps({"number": number, "text": "x" * random.randint(1, LARGE)}).encode()
    if kind == "many":
        readings = [{"at": milliseconds - 100 * each, "v": value + each} for each in range(random.randint(0, 5))]
        return json.dumps({"number": number, "readings": readings}).encode()
    if kind == "wide":
        column = f"k{number // MESSAGES_OF_A_COLUMN}"
        return json.dumps({"number": number, "value": value, column: random.choice((1, 1.5, "one", None))}).encode()
    return json.dumps({"device": f"d{number % 5}", "number": number, "ts": milliseconds, "value": value}).encode()
