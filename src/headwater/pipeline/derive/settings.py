"""What decides how answers are derived from readings. Needs nothing but the standard library."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headwater.suggestion import check_known, check_value

DAY = 86_400


@dataclass(frozen=True)
class Settings:
    """Times are in seconds.

    A reading belongs to the window in which its time is, if it arrived before the window's end + `lateness`. A silence
    longer than `gap` is a gap. A window of at least `flatline` readings that are all equal is a flatline. A step from
    one reading to the next is a jump if it is more than `jump_factor` times the window's typical step (asked of windows
    with at least `jump_readings`), or more than `jump_absolute`; None switches the rule off.

    `clock_ahead` and `clock_behind` are how far a reading's time may be from its arrival before its clock is said to
    be wrong: decoders mark that. A clock that is behind cannot be told from a message that was kept for long, so
    `clock_behind` has to be beyond all that is on time.
    """

    window: int = 600
    lateness: float = 900.0
    gap: float = 150.0
    flatline: int = 5
    jump_factor: float | None = 20.0
    jump_readings: int = 8
    jump_absolute: float | None = None
    clock_ahead: float = 300.0
    clock_behind: float = 7.0 * DAY

    def __post_init__(self) -> None:
        for name in ("window", "flatline", "jump_readings"):
            check_value(type(getattr(self, name)) is int, name, getattr(self, name), "a whole number")
        for name in ("lateness", "gap", "jump_factor", "jump_absolute", "clock_ahead", "clock_behind"):
            value = getattr(self, name)
            missing = value is None and name in ("jump_factor", "jump_absolute")
            check_value(missing or _is_number(value), name, value, "a finite number")
        check_value(
            self.window > 0 and DAY % self.window == 0, "window", self.window, "seconds that divide a day, as 600 do"
        )
        check_value(0 <= self.lateness <= 366 * DAY, "lateness", self.lateness, "from 0 to the seconds of a year")
        check_value(self.gap > 0, "gap", self.gap, "more than 0 seconds")
        check_value(self.flatline >= 2, "flatline", self.flatline, "at least 2: one reading is equal to itself")
        check_value(
            self.jump_readings >= 3,
            "jump_readings",
            self.jump_readings,
            "at least 3: two have one step, the typical one",
        )
        for name in ("jump_factor", "jump_absolute"):
            value = getattr(self, name)
            check_value(value is None or value > 0, name, value, "more than 0, or None to switch the rule off")
        check_value(self.clock_ahead >= 0, "clock_ahead", self.clock_ahead, "0 seconds or more")
        least = self.window + self.lateness
        wanted = (
            f"at least window + lateness ({least:g}), or readings that are on time would be refused for their clock"
        )
        check_value(self.clock_behind >= least, "clock_behind", self.clock_behind, wanted)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Settings:
        """From names and values as a configuration has them; what is not named has its default."""
        check_known("setting", settings, (each.name for each in fields(cls)), " of [deriving]")
        return cls(**settings)


MOST_DEFINITIONS = 20
"""Of windows, beside the one of `[deriving]`."""
OF_CLOCKS = ("clock_ahead", "clock_behind")
TAKEN = ("rules", "quarantine", "open")
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


def definition_of(given: Mapping[str, Any], common: Settings) -> tuple[str, Settings]:
    """One of `[[windows]]`: its name, and what it is; what is not said is as in `[deriving]`. Raises ValueError."""
    if not isinstance(given, Mapping):
        raise ValueError(f"a definition is a table of settings, not {given!r}")
    known = [each.name for each in fields(Settings) if each.name not in OF_CLOCKS]
    check_known("setting", given, ("name", *known), " of windows")
    name = given.get("name")
    wanted = "small letters, figures and _, beginning with a letter: its table is gold_NAME"
    check_value(isinstance(name, str) and NAME.fullmatch(name) is not None, "name", name, wanted)
    check_value(name not in TAKEN, "name", name, f"another one than {', '.join(TAKEN)}, which are tables already")
    return str(name), replace(common, **{key: value for key, value in given.items() if key != "name"})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
