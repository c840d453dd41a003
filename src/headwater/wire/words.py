"""Reason codes in words, for people."""

from __future__ import annotations

from typing import Final

from headwater.wire import reasons

_AMBIGUOUS: Final = {0x00: "success", 0x01: "granted QoS 1", 0x02: "granted QoS 2"}


def reason_words(reason: int) -> str:
    """A reason code in words, from the name it has in `wire.reasons`."""
    if reason in _AMBIGUOUS:
        return _AMBIGUOUS[reason]
    for name, value in vars(reasons).items():
        if name.isupper() and not name.startswith("_") and isinstance(value, int) and value == reason:
            return name.lower().replace("_", " ")
    return f"reason 0x{reason:02x}"
