"""Time of measurement and value of a message, from its payload.

A payload is looked into if it is JSON. A path such as `ts` or `data.temp` or `values.0` leads to each; of several, the
first that leads to something counts. A payload that is nothing but a number is its own value. Whatever a payload
holds, it is stored: without a time, the time of arrival stands for it, and without a number there is no value.

A time is a text in ISO 8601 (UTC if it names no zone) or a number since 1970, in a unit that is told, or guessed from
its size: up to 1e11 are seconds (until the year 5138), then milliseconds up to 1e14, microseconds up to 1e17, and
nanoseconds. Times outside the years 1 to 9999 are no times.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import datetime
from math import isfinite
from typing import Any, Final

from headwater.store.entry import EARLIEST, LATEST, microseconds
from headwater.store.intake import Taken

UNITS: Final[dict[str, float]] = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3, "auto": 0.0}
LONGEST: Final = 1 << 20
"""Bytes of payload that are looked into; more are stored unseen."""
NOTHING: Final = float("nan")
FARTHEST: Final = 1 << 70
"""In nanoseconds that is beyond all calendars."""


class Extraction:
    """`time` and `value` are paths in the order of preference, `unit` one of UNITS."""

    def __init__(self, time: list[str] | None = None, value: list[str] | None = None, unit: str = "auto") -> None:
        self.time_paths = [path.split(".") for path in (["ts", "date"] if time is None else time)]
        self.value_paths = [path.split(".") for path in (["value"] if value is None else value)]
        if unit not in UNITS:
            raise ValueError(f"there is no unit of time {unit!r}; there are {', '.join(UNITS)}")
        self.factor = UNITS[unit]
        # By name, because this file is compiled where orjson may not be installed.
        self._loads: Callable[[bytes], Any] = importlib.import_module("orjson").loads

    def columns(self, taken: Taken) -> tuple[list[int], list[float]]:
        """The times and values of messages; NaN is no value."""
        times: list[int] = []
        values: list[float] = []
        arrivals = taken.arrivals
        for index, payload in enumerate(taken.payloads):
            time = arrivals[index]
            value = NOTHING
            if payload and len(payload) <= LONGEST:
                document = self._document(payload)
                if isinstance(document, dict):
                    time = self._time(document, time)
                    value = self._value(document)
                else:
                    value = number(document)
            times.append(time)
            values.append(value)
        return times, values

    def _document(self, payload: bytes) -> Any:
        try:
            return self._loads(payload)
        except ValueError:
            return None

    def _time(self, document: dict[str, Any], arrival: int) -> int:
        for path in self.time_paths:
            found = document.get(path[0])
            if len(path) > 1:
                found = _below(found, path)
            if found is not None:
                return moment(found, self.factor, arrival)
        return arrival

    def _value(self, document: dict[str, Any]) -> float:
        for path in self.value_paths:
            found = document.get(path[0])
            if len(path) > 1:
                found = _below(found, path)
            if found is not None:
                return number(found)
        return NOTHING


def _below(found: Any, path: list[str]) -> Any:
    for name in path[1:]:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and len(name) < 10 and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def number(found: Any) -> float:
    """A finite number, or NaN."""
    if isinstance(found, float):
        return found if isfinite(found) else NOTHING
    if isinstance(found, int) and not isinstance(found, bool):
        try:
            return float(found)
        except OverflowError:
            return NOTHING
    return NOTHING


def moment(found: Any, factor: float, otherwise: int) -> int:
    """A time in microseconds; `factor` 0 is a guess."""
    try:
        if isinstance(found, str):
            exact = microseconds(datetime.fromisoformat(found))
        elif isinstance(found, bool) or not isinstance(found, int | float):
            return otherwise
        elif isinstance(found, int) and not -FARTHEST < found < FARTHEST:
            return otherwise  # larger ones are no floats, either
        else:
            if factor == 0.0:
                size = abs(found)
                factor = 1e6 if size < 1e11 else 1e3 if size < 1e14 else 1.0 if size < 1e17 else 1e-3
            exact = found * int(factor) if isinstance(found, int) and factor >= 1.0 else round(found * factor)
    except (ValueError, OverflowError):
        return otherwise
    return exact if EARLIEST <= exact <= LATEST else otherwise
