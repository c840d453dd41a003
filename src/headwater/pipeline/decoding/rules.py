"""An ordered list of rules: the first whose filter matches a topic says how its messages are decoded; `auto` for the
rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.decoding.fields import RESCUED
from headwater.pipeline.decoding.outcome import Decoder
from headwater.pipeline.decoding.rule import Rule, SettingsError, rule_of
from headwater.pipeline.decoding.schemas import FIXED, FURTHER, arrow_schema
from headwater.pipeline.tables import SILVER

AHEAD: Final = 300.0
BEHIND: Final = 7 * 86400.0
LONGEST: Final = 4 << 20
MOST_COLUMNS: Final = 200
MOST_REMEMBERED: Final = 100_000
"""Topics whose rule is remembered."""


@dataclass(frozen=True)
class Limits:
    """`ahead` and `behind`: seconds that a time may be from the arrival with `clock` still ok. `longest`: bytes of a
    document or text. `most_columns`: further columns of silver, the declared and the known ones included, up to which
    new ones are made."""

    ahead: float = AHEAD
    behind: float = BEHIND
    longest: int = LONGEST
    most_columns: int = MOST_COLUMNS

    def __post_init__(self) -> None:
        for name, found in vars(self).items():
            if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
                raise SettingsError(f"{name} is a number from 0 on, not {found!r}")


class Rules:
    """Can be pickled. `columns` are the further columns of silver that are known, with Spark's names of their types."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        limits: Limits | None = None,
        known: Mapping[str, str] | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        self.rules: Final = (*rules, Rule())
        self.limits: Final = limits or Limits()
        self.columns: Final = _merged(self.rules, known or {})
        self.said: Final = dict(said or {})
        """The settings of which they were made."""
        self.closed = False
        self._numbers: dict[str, int] = {}
        self._decoders: dict[int, Decoder] = {}

    @classmethod
    def from_settings(
        cls,
        rules: Iterable[Mapping[str, Any]],
        *,
        ahead: float = AHEAD,
        behind: float = BEHIND,
        longest: int = LONGEST,
        most_columns: int = MOST_COLUMNS,
    ) -> Rules:
        """Raises SettingsError, which names the rule by its number, from 1. Decoders that do not exist here are an
        error, too."""
        made = []
        given = list(rules)
        limits = Limits(ahead, behind, longest, most_columns)
        for number, settings in enumerate(given, 1):
            try:
                rule = rule_of(settings)
                rule.made(limits.longest)
            except SettingsError as error:
                raise SettingsError(f"rule {number}: {error}") from error
            made.append(rule)
        return cls(made, limits, said={"decoding": [dict(each) for each in given], **vars(limits)})

    @property
    def infers(self) -> bool:
        """Whether decoding may bring columns that are not known yet."""
        return not self.closed and any(rule.columns.inferred for rule in self.rules)

    @property
    def schema(self) -> pa.Schema:
        """Of readings, without columns that are not known yet."""
        return arrow_schema(SILVER, self.columns)

    def knowing(self, columns: Mapping[str, str], *, closed: bool = False) -> Rules:
        """The same rules for a table that has these further columns: their types are established. If `closed`, no
        others are made: then every batch has the same schema."""
        further = {name: type for name, type in columns.items() if name not in FIXED}
        made = Rules(self.rules[:-1], self.limits, {**self.columns, **further}, self.said)
        made.closed = closed
        return made

    def number_of(self, topic: str) -> int:
        """Which rule is the topic's."""
        number = self._numbers.get(topic)
        if number is None:
            if len(self._numbers) >= MOST_REMEMBERED:
                self._numbers.clear()
            # The last one is for the rest, also of topics that no wildcard reaches.
            asked = enumerate(self.rules[:-1])
            number = next((each for each, rule in asked if rule.matches(topic)), len(self.rules) - 1)
            self._numbers[topic] = number
        return number

    def decoder(self, number: int) -> Decoder:
        """Raises SettingsError if this machine has it not: that is no fault of a message."""
        if number not in self._decoders:
            self._decoders[number] = self.rules[number].made(self.limits.longest)
        return self._decoders[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_numbers": {}, "_decoders": {}}


def _merged(rules: Iterable[Rule], known: Mapping[str, str]) -> dict[str, str]:
    columns = dict(known)
    for name, type in columns.items():
        if type not in FURTHER:
            raise SettingsError(f"column {name!r} is {type}, and further columns are {', '.join(FURTHER)}")
    for rule in rules:
        if rule.columns.rescues and columns.setdefault(RESCUED, "string") != "string":
            raise SettingsError(f"column {RESCUED!r} is {columns[RESCUED]}, and is to be for what does not fit")
        for field in rule.columns.fields:
            type = columns.setdefault(field.column, field.type)
            if type != field.type:
                raise SettingsError(f"column {field.column!r} cannot be {type} and {field.type}: give fields one type")
    return columns
