"""Fields of documents as typed columns of silver: declared by a rule, or inferred from what appears.

**Declared**: path → type; what is not of the type is refused, the message goes to quarantine. Something that is not
there, or null, is null, unless the type says `not null`.

**Inferred**: each scalar of the document, also in objects in it but not in lists, becomes a column: numbers are
doubles, and there are booleans and strings. Who comes first establishes the type of a column, and what does not fit
it later is null there; `data` has it in any case. Which columns there are already is told to the rules by who knows
the table (`Rules.knowing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.pipeline.decoding.naming import LONGEST_COLUMN, column_name
from headwater.pipeline.decoding.paths import Path, at, moment, number, path
from headwater.pipeline.decoding.schemas import FURTHER
from headwater.suggestion import unknown

NOT_NULL: Final = " not null"
DEEPEST_FIELD: Final = 5
"""Objects in each other in which fields are looked for."""
LARGEST: Final = (1 << 63) - 1
EXACT: Final = float(1 << 53)


RESCUED: Final = "rescued"
"""The column of silver with what does not fit its own, as JSON by path, for rules that rescue."""


class Violation(ValueError):
    """A document has something else in a field than the rule declares."""


class Misfit(Violation):
    """It is there, and of another type."""

    def __init__(self, text: str, found: Any) -> None:
        super().__init__(text)
        self.found = found


@dataclass(frozen=True)
class Field:
    path: Path
    column: str
    type: str
    required: bool

    @classmethod
    def of(cls, where: str, declared: str) -> Field:
        """Raises ValueError that says what is wrong."""
        words = " ".join(declared.lower().split())
        type = words.removesuffix(NOT_NULL)
        if type not in FURTHER:
            raise ValueError(unknown("type", declared, FURTHER))
        names = path(where)
        return cls(names, column_name(names), type, type != words)

    def of_document(self, document: Any) -> Any:
        """The value for the column, or Violation."""
        found = at(document, self.path)
        where = ".".join(self.path)
        if found is None:
            if self.required:
                raise Violation(f"field {where} is missing, and declared not null")
            return None
        fitting = fit(self.type, found)
        if fitting is None:
            raise Misfit(f"field {where} is {shown(found)}, and declared as {self.type}", found)
        return fitting


def shown(found: Any) -> str:
    """In a sentence."""
    if isinstance(found, dict | list):
        return "an object" if isinstance(found, dict) else "a list"
    text = str(found).lower() if isinstance(found, bool) else repr(found)
    return text if len(text) <= 60 else f"{text[:60]}…"


def fit(type: str, found: Any) -> Any:
    """What a column of this type holds for it; None if it does not fit. Times are microseconds since 1970."""
    if type == "string":
        return found if isinstance(found, str) else None
    if type == "boolean":
        return found if isinstance(found, bool) else None
    if type == "double":
        return number(found)
    return moment(found) if type == "timestamp" else _integer(found)


def _integer(found: Any) -> int | None:
    if isinstance(found, float) and found.is_integer() and abs(found) <= EXACT:
        return int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        return None
    return found if -LARGEST - 1 <= found <= LARGEST else None


def scalars(document: Any) -> dict[str, Any]:
    """Column → scalar of a document. If two paths lead to one column, the first counts."""
    found: dict[str, Any] = {}
    if isinstance(document, dict):
        _gather(document, (), found)
    return found


def _gather(document: dict[str, Any], above: Path, found: dict[str, Any]) -> None:
    for full, value in document.items():
        name = full[:LONGEST_COLUMN]  # megabytes of a name would be remembered
        if isinstance(value, dict):
            if len(above) + 1 < DEEPEST_FIELD:
                _gather(value, (*above, name), found)
        elif isinstance(value, str | int | float):
            found.setdefault(column_name((*above, name)), value)


def established(known: Mapping[str, str], most: int, appearing: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Types of columns, the known ones and up to `most` in all, as they appear in this order."""
    columns = dict(known)
    for found in appearing:
        for name, value in found.items():
            if name not in columns and len(columns) < most:
                columns[name] = (
                    "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "double"
                )
    return columns
