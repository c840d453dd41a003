"""Any Python object as the plain objects that JSON has: for what comes from CBOR and from decoders of users.

Bytes become Base64, times ISO 8601, keys that are no text their text. What JSON has no word for is refused, and so is
what would become larger than it was: an object that stands in many places of a small payload, or in itself.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

from headwater.pipeline.decoding.json_text import DEEPEST, LARGEST_INTEGER, LONGEST_NAME, SMALLEST_INTEGER

Scalar = str | int | float | bool | None
REASONABLE_KEYS: Final = (str, int, float, bool, bytes, UUID, date)


class NotPlain(ValueError):
    """Says in words why there is no JSON for it."""


def plain(found: Any, most: int) -> Any:
    """`most` bounds characters and objects together."""
    return _Plain(most).of(found, 1)


class _Plain:
    def __init__(self, most: int) -> None:
        self._left = most

    def of(self, found: Any, depth: int) -> Any:
        self._spend(1)
        if isinstance(found, Mapping | list | tuple | set | frozenset):
            if depth > DEEPEST:
                raise NotPlain(f"is nested deeper than {DEEPEST} levels")
            if isinstance(found, Mapping):
                return self._mapping(found, depth)
            return [self.of(each, depth + 1) for each in found]
        return self._scalar(found)

    def _mapping(self, found: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in found.items():
            if not isinstance(key, REASONABLE_KEYS):
                raise NotPlain(f"has a key of type {type(key).__name__}")
            name = self._scalar(key)
            text = name if isinstance(name, str) else str(name)
            if len(text) > LONGEST_NAME:
                raise NotPlain(f"has a name of more than {LONGEST_NAME} characters")
            if text in made:
                raise NotPlain(f"has the key {text[:40]!r} twice")
            made[text] = self.of(value, depth + 1)
        return made

    def _scalar(self, found: Any) -> Scalar:
        if found is None or isinstance(found, bool):
            return found
        if isinstance(found, str):
            return self._text(found)
        if isinstance(found, int):
            return int(found) if SMALLEST_INTEGER <= found <= LARGEST_INTEGER else _double(found)
        if isinstance(found, float | Decimal):
            return _double(found)
        if isinstance(found, bytes | bytearray | memoryview):
            self._spend(len(found))
            return b64encode(found).decode()
        if isinstance(found, datetime | date | time):
            return found.isoformat()
        if isinstance(found, UUID):
            return str(found)
        raise NotPlain(f"has a value of type {type(found).__name__}, for which JSON has no word")

    def _text(self, found: str) -> str:
        self._spend(len(found))
        try:
            found.encode()
        except UnicodeEncodeError:
            raise NotPlain("has a text with half of a surrogate pair") from None
        return str(found)

    def _spend(self, much: int) -> None:
        self._left -= much
        if self._left < 0:
            raise NotPlain("becomes too large")


def _double(found: float | Decimal) -> float:
    try:
        exact = float(found)
    except (OverflowError, ValueError):
        raise NotPlain("has a number that is beyond a double") from None
    if not isfinite(exact):
        raise NotPlain("has a number that is not finite")
    return exact
