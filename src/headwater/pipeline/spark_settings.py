"""`[spark]` of a pipeline's settings: those of Spark, by Spark's names without `spark.` in front.

    [spark]
    driver.memory = "4g"
    ui.enabled = true

Dots are tables for TOML, so a name that is also the beginning of another one stands in quotes: `"speculation" = true`
and `"speculation.interval" = "1s"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

OURS: Final = {
    "spark.sql.session.timeZone": "times in the tables are in UTC",
    "spark.sql.python.filterPushdown.enabled": "conditions are pushed down where `pushdown` says so",
    "spark.sql.files.ignoreMissingFiles": "a file that is missing has to be said",
}
"""Names that may not be set, and why."""
MASTER: Final = "spark.master"


def read_spark(given: Mapping[str, Any]) -> dict[str, str]:
    """As Spark takes them, by their whole names. Raises ValueError."""
    found = dict(_flat(given, "spark"))
    for name, value in found.items():
        if name in OURS:
            raise ValueError(f"[spark] {name.removeprefix('spark.')} is {value!r}; it cannot be set: {OURS[name]}")
    return found


def _flat(given: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        whole = f"{above}.{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, whole)
        elif isinstance(value, bool):
            yield whole, str(value).lower()
        elif isinstance(value, str | int | float):
            yield whole, str(value)
        else:
            raise ValueError(f"[spark] {whole.removeprefix('spark.')} is {value!r}; it has to be a text or a number")
