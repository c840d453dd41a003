"""JSON as devices write it, and the text of it that may stand in a table.

Theory. The text in a table is read by others: Spark's `parse_json` refuses a key that is there twice, deep nesting,
endless names and numbers of a thousand digits, and one such row would stop a query. So a text is *canonical* here if
every reader takes it and all see the same: UTF-8, no NaN or Infinity and nothing beyond a double, no half of a
surrogate pair, at most DEEPEST levels, no key twice in an object, no name longer than LONGEST_NAME and no number than
LONGEST_NUMBER. Most documents are so as they came, and their bytes are kept: they need to be looked at, not to be
written again, and a number of 25 digits keeps them all. Only keys that come twice (the last one counts) and endless
numbers (as doubles) need a new text.

How to see that no key comes twice: outside of strings each member of an object has one colon, so there are as many of
them as keys in the parsed document, or there is a key twice.

orjson reads it where it is installed, the standard library where not; both take and refuse the same.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

quick: Any
try:
    quick = importlib.import_module("orjson")
except ImportError:
    quick = None

DEEPEST: Final = 200
"""Levels of objects and lists in each other. orjson writes 254, Spark reads 1000."""
LONGEST_NUMBER: Final = 320
"""Digits in a row, of which a number has three: before its point, behind it, and in its exponent. Spark reads 1000."""
LONGEST_NAME: Final = 10_000
"""Characters of a name in an object. Spark reads 50,000."""
LONG: Final = min(2 * DEEPEST, LONGEST_NUMBER)
"""Payloads shorter than this in bytes are not too deep and have no such number."""
WHITE_SPACE: Final = b" \t\r\n"
# Both look at each byte once, whatever the text: a string without end goes to the end, digits are counted from the
# first of a run.
STRING: Final = re.compile(rb'(?s)"(?:[^"\\]|\\.)*+(?:"|\\?\Z)')
ENDLESS: Final = re.compile(rb"(?<![0-9])[0-9]{%d}" % LONGEST_NUMBER)
BRACKETS: Final = re.compile(rb"[\[\]{}]")
LARGEST_INTEGER: Final = (1 << 64) - 1
SMALLEST_INTEGER: Final = -(1 << 63)


class NotJson(ValueError):
    """Says in words what is wrong with a text."""


def parse(payload: bytes) -> Any:
    """The document in a payload, or NotJson. Integers beyond 64 bits are floats."""
    if len(payload) >= LONG and is_deep(payload):
        raise NotJson(f"is nested deeper than {DEEPEST} levels")
    try:
        document = loads(payload)
    except ValueError as error:
        raise NotJson(f"is no JSON: {error}" if payload else "is empty") from None
    if len(payload) > LONGEST_NAME and has_long_name(document):
        raise NotJson(f"has a name of more than {LONGEST_NAME} characters")
    return document


def dump(document: Any) -> str:
    """The text of a document of plain objects, not deeper than DEEPEST."""
    if quick is not None:
        text: str = quick.dumps(document).decode()
        return text
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical(payload: bytes, document: Any) -> str | None:
    """A new text for a document that was parsed; None: its bytes are canonical as they are."""
    if has_key_twice(payload, document) or (len(payload) >= LONGEST_NUMBER and ENDLESS.search(payload)):
        return dump(document)
    return None


def has_key_twice(payload: bytes, document: Any) -> bool:
    keys = keys_in(document)
    # Behind each key is `":`, and in strings there may be more of them; if there are none, this is quicker.
    if payload.translate(None, WHITE_SPACE).count(b'":') == keys:
        return False
    return STRING.sub(b"", payload).count(b":") != keys


def keys_in(document: Any) -> int:
    """Of all objects in it."""
    # Documents are not deeper than DEEPEST, so neither is this.
    found = 0
    if type(document) is dict:
        found = len(document)
        document = document.values()
    elif type(document) is not list:
        return 0
    for each in document:
        if type(each) is dict or type(each) is list:
            found += keys_in(each)
    return found


def has_long_name(document: Any) -> bool:
    if isinstance(document, dict):
        if any(len(name) > LONGEST_NAME for name in document):
            return True
        document = document.values()
    return not isinstance(document, str | int | float | None) and any(map(has_long_name, document))


def is_deep(text: bytes) -> bool:
    """Also of what is no JSON; then it may be wrong, and does no harm."""
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for bracket in BRACKETS.findall(STRING.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEEPEST:
            return True
    return False


# ---- the standard library's way ------------------------------------------------------------------------------------


def _strict_loads(payload: bytes) -> Any:
    """As orjson reads: what json takes beyond the standard is refused."""
    text = payload.decode()
    try:
        document = json.loads(text, parse_float=_finite, parse_int=_integer, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("too many levels") from None
    if "\\ud" in text or "\\uD" in text:
        # UnicodeEncodeError is a ValueError: half of a surrogate pair has no UTF-8.
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is beyond a double")
    return number


def _integer(text: str) -> int | float:
    if len(text) > 20:
        return _finite(text)
    number = int(text)
    return number if SMALLEST_INTEGER <= number <= LARGEST_INTEGER else float(number)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


loads: Callable[[bytes], Any] = _strict_loads if quick is None else quick.loads
"""Raises ValueError. Knows no bound of depth of its own that one could rely on: look at `is_deep` before."""
