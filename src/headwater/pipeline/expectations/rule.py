"""Expectations as settings say them, one table of TOML each:

    [[expectations]]
    name = "plausible"             # counted by this name
    table = "silver"               # or gold
    condition = "value BETWEEN -40 AND 125"
    # function = "my_package.rules:plausible"     instead of a condition
    action = "quarantine"          # expect, drop, quarantine, fail
    filter = "plant/+/temp"        # or a list; other topics are not asked

A row fulfils an expectation if its condition is true. False and null do not, as in WHERE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.pipeline.decoding.plugins import NoDecoder, load
from headwater.pipeline.tables import GOLD, SILVER
from headwater.routing.topics import LEVELS_ASKED, InvalidTopicFilter, check_filter, matches
from headwater.suggestion import unknown

EXPECT: Final = "expect"
DROP: Final = "drop"
QUARANTINE: Final = "quarantine"
FAIL: Final = "fail"
ACTIONS: Final = (EXPECT, DROP, QUARANTINE, FAIL)
DECIDING: Final = (DROP, QUARANTINE)
"""Actions that decide which rows a table has."""
TABLES: Final = (SILVER.name, GOLD.name)
KEYS: Final = ("name", "table", "condition", "function", "action", "filter")
MOST: Final = 100
"""Expectations of a pipeline."""
LONGEST_NAME: Final = 100


class ExpectationError(ValueError):
    """An expectation that cannot be; says which, where, and what to do."""


@dataclass(frozen=True)
class Expectation:
    """`expression` is the condition for Arrow; None if a function is asked. Can be pickled."""

    name: str
    table: str
    action: str
    said: str
    """The condition, or the function's place."""
    filters: tuple[str, ...] = ()
    expression: Any = field(default=None, compare=False)

    def is_about(self, topic: str) -> bool:
        return not self.filters or any(matches(each, topic) for each in self.filters)

    def function(self) -> Callable[..., Any]:
        """Raises ExpectationError: this machine has it not."""
        try:
            return load(self.said)
        except NoDecoder as error:
            raise ExpectationError(str(error).replace("decoder", "function")) from error


def deciding(given: Sequence[Mapping[str, Any]], table: str) -> list[dict[str, Any]]:
    """Of expectations as they are said, those that decide the rows of a table: what a commit notes of them."""
    return [dict(each) for each in given if each.get("action") in DECIDING and each.get("table", SILVER.name) == table]


def expectations_of(
    given: Sequence[Mapping[str, Any]], columns: Mapping[str, Mapping[str, str]]
) -> tuple[Expectation, ...]:
    """`columns` are those of each table, with Spark's names of their types. Raises ExpectationError, which names the
    rule by its number, from 1."""
    if len(given) > MOST:
        raise ExpectationError(f"there are {len(given)} expectations, and {MOST} are allowed")
    made: list[Expectation] = []
    for number, each in enumerate(given, 1):
        name = each.get("name") if isinstance(each, Mapping) else None
        called = f"expectation {number} ({name})" if isinstance(name, str) else f"expectation {number}"
        try:
            found = _expectation(each, columns)
            if any(other.name == found.name for other in made):
                raise ExpectationError("another one has this name; they are counted by it")
        except ValueError as error:
            raise ExpectationError(f"{called}: {error}") from error
        made.append(found)
    return tuple(made)


def _expectation(given: Any, columns: Mapping[str, Mapping[str, str]]) -> Expectation:
    if not isinstance(given, Mapping):
        raise ExpectationError(f"an expectation is a table of settings, not {given!r}")
    for key in given:
        if key not in KEYS:
            raise ExpectationError(unknown("setting", key, KEYS, " of an expectation"))
    for key in ("name", "table", "condition", "function", "action"):
        if key in given and (not isinstance(given[key], str) or not given[key]):
            raise ExpectationError(f"{key} is a text, not {given[key]!r}")
    name, table, action = given.get("name", ""), given.get("table", SILVER.name), given.get("action", EXPECT)
    if not name or len(name) > LONGEST_NAME:
        raise ExpectationError(f"name is a text of up to {LONGEST_NAME} characters, by which it is counted")
    if table not in TABLES:
        raise ExpectationError(unknown("table", table, TABLES))
    if action not in ACTIONS:
        raise ExpectationError(unknown("action", action, ACTIONS))
    if ("condition" in given) == ("function" in given):
        raise ExpectationError("it has a condition, or a function, and not both")
    filters = _filters(given.get("filter", ()))
    if "function" in given:
        made = Expectation(name, table, action, given["function"], filters)
        made.function()
        return made
    return Expectation(name, table, action, given["condition"], filters, _compiled(given["condition"], columns[table]))


def _compiled(text: str, columns: Mapping[str, str]) -> Any:
    from headwater.pipeline.expectations.conditions import ConditionError, condition

    try:
        return condition(text, columns)
    except ConditionError as error:
        raise ExpectationError(f"condition {text!r}: {error}") from error


def _filters(found: Any) -> tuple[str, ...]:
    filters = (found,) if isinstance(found, str) else tuple(found) if isinstance(found, list | tuple) else None
    if filters is None or not all(isinstance(each, str) for each in filters):
        raise ExpectationError(f"filter is a topic filter or a list of some, not {found!r}")
    for each in filters:
        try:
            check_filter(each, LEVELS_ASKED)
        except InvalidTopicFilter as error:
            raise ExpectationError(f"filter {each!r}: {error}") from error
    return filters
