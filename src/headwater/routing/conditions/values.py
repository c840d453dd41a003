"""What values are, and how they compare.

Theory. Truth has three values, as in SQL: what is not there (`ABSENT`), or cannot be compared, makes a comparison
neither true nor false, and only what is true lets a message through. So neither `value > 30` nor `not value > 30` holds
for a message without a value. With FALSE < UNKNOWN < TRUE, `and` is the least, `or` the greatest, `not x` is TRUE - x.

Kinds: numbers, texts, true and false, null. Values of different kinds are unequal, and neither is less; nor is one of
two texts of which one is very long. Lists, objects and bytes compare with nothing, and so does NaN, which is taken for
absent. Infinity is a number. Whole numbers compare exactly, however long.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

FALSE: Final = 0
UNKNOWN: Final = 1
TRUE: Final = 2


class Absent:
    """Of what is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

NO_VALUE: Final = 0
A_NUMBER: Final = 1
A_TEXT: Final = 2
A_TRUTH: Final = 3
A_NULL: Final = 4
OTHER: Final = -1
"""What compares with nothing; it is there, all the same."""

EQUAL: Final = "="
UNEQUAL: Final = "!="
LESS: Final = "<"
AT_MOST: Final = "<="
MORE: Final = ">"
AT_LEAST: Final = ">="

LONGEST_ORDERED: Final = 1024
"""Characters of a text that is less or more than another one: to find out may take as long as it has characters."""
LONGEST_NUMBER: Final = 64
"""Characters of a topic level or user property that may be a number."""
DIGITS: Final = "+-.0123456789eE"


def kind_of(value: object) -> int:
    if value is None:
        return A_NULL
    if isinstance(value, str):
        return A_TEXT
    if isinstance(value, bool):
        return A_TRUTH
    if isinstance(value, int):
        return A_NUMBER
    if isinstance(value, float):
        return NO_VALUE if value != value else A_NUMBER  # NaN
    return NO_VALUE if value is ABSENT else OTHER


def number_in(text: str) -> object:
    """The number that a text is; ABSENT: it is none."""
    if not text or len(text) > LONGEST_NUMBER:
        return ABSENT
    for char in text:
        if char not in DIGITS:
            return ABSENT
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return ABSENT
    return number if isfinite(number) else ABSENT


def truth(value: bool) -> int:
    return TRUE if value else FALSE


def compare(sign: str, left: object, right: object) -> int:
    kind = kind_of(left)
    other = kind_of(right)
    if kind <= NO_VALUE or other <= NO_VALUE:
        return UNKNOWN
    if sign == EQUAL:
        return truth(kind == other and left == right)
    if sign == UNEQUAL:
        return truth(kind != other or left != right)
    if kind != other:
        return UNKNOWN
    if kind == A_NUMBER:
        assert isinstance(left, (int, float)) and isinstance(right, (int, float))
        return truth(_is_so(sign, left < right, left == right))
    if kind == A_TEXT:
        assert isinstance(left, str) and isinstance(right, str)
        if len(left) > LONGEST_ORDERED or len(right) > LONGEST_ORDERED:
            return UNKNOWN
        return truth(_is_so(sign, left < right, left == right))
    return UNKNOWN


def _is_so(sign: str, less: bool, equal: bool) -> bool:
    if sign == LESS:
        return less
    if sign == AT_MOST:
        return less or equal
    if sign == MORE:
        return not (less or equal)
    return not less


def differs(old: object, new: object, band: float) -> bool:
    """Whether two values that were kept (`kept_value`) are more than `band` apart; what is not a number, at all."""
    kind = kind_of(new)
    if kind_of(old) != kind:
        return True
    if old == new:
        return False
    if kind != A_NUMBER:
        return True
    assert isinstance(old, (int, float)) and isinstance(new, (int, float))
    try:
        return abs(new - old) > band
    except OverflowError:
        return True
