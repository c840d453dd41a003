"""How a SUBSCRIBE says which condition it asks for (node/protocol/conditioning.py)."""

from __future__ import annotations

from typing import Final

FILTER_PROPERTY: Final = "filter"
"""The user property of SUBSCRIBE that is a condition; in SUBACK, the one that is applied."""
MARK: Final = "?"


def parts_of(name: str) -> tuple[str, str | None]:
    """The topic filter in what a client wrote, and the condition behind it; None: there is none."""
    at = 0
    while True:
        at = name.find(MARK, at)
        if at < 0:
            return name.replace(MARK * 2, MARK), None
        if name[at + 1 : at + 2] != MARK:
            return name[:at].replace(MARK * 2, MARK), name[at + 1 :]
        at += 2
