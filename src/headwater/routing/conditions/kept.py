"""What is kept of a value that the next one is to be compared with: never more than a few bytes."""

from __future__ import annotations

import hashlib
from typing import Final

from headwater.routing.conditions.values import A_NUMBER, A_TEXT, ABSENT, NO_VALUE, kind_of

LONGEST: Final = 64
"""Characters of a text that is kept as it is; of a longer one there is a hash."""
WHOLE: Final = 1 << 63


def kept_value(value: object) -> object:
    """ABSENT for what cannot be compared."""
    kind = kind_of(value)
    if kind <= NO_VALUE:
        return ABSENT
    if kind == A_TEXT and isinstance(value, str) and len(value) > LONGEST:
        return "#" + hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    if kind == A_NUMBER and isinstance(value, int) and not -WHOLE < value < WHOLE:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return value
