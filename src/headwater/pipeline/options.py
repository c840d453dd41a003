"""Options of our formats, as Spark hands them over: text by name, whose case does not matter."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.suggestion import unknown

TRUE = ("true", "yes", "1", "on")
FALSE = ("false", "no", "0", "off")
OF_SPARK = ("checkpointlocation", "queryname", "path")
"""Spark hands these on as well, whatever the format."""


STORAGE = "storage."
"""With it begin the names of options that are those of an object store, such as storage.AWS_ENDPOINT_URL."""


def storage_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Those of the store, by the store's names, and the others."""
    theirs = {name: value for name, value in given.items() if name.lower().startswith(STORAGE)}
    others = {name: value for name, value in given.items() if name not in theirs}
    return {name[len(STORAGE) :]: value for name, value in theirs.items()}, others


class OptionError(ValueError):
    """An option is not known, or its value is none; the text says what to write instead."""


class Options:
    """`known` are the names that a format has, as people write them; others are errors. `format` is for messages."""

    def __init__(self, format: str, given: Mapping[str, str], known: Collection[str]) -> None:
        self._format = format
        self._given = {name.lower(): value for name, value in given.items()}
        lower = {name.lower() for name in known}
        for name in given:
            if name.lower() not in lower and name.lower() not in OF_SPARK:
                raise OptionError(unknown("option", name, known, f" of format({format!r})"))

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower(), default)

    def needed(self, name: str, example: str) -> str:
        found = self.text(name)
        if not found:
            raise self.wrong(name, f"is needed, such as {example}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        found = self.text(name)
        if found is None:
            return default
        if found.lower() not in (*TRUE, *FALSE):
            raise self.wrong(name, f"is true or false, not {found!r}")
        return found.lower() in TRUE

    def count(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        found = self.text(name)
        if found is None:
            return default
        if not found.isdecimal() or int(found) < least:
            raise self.wrong(name, f"is a whole number from {least} on, not {found!r}")
        return int(found)

    def seconds(self, name: str, default: float) -> float:
        found = self.text(name)
        try:
            value = default if found is None else float(found)
        except ValueError:
            value = -1.0
        if not 0.0 <= value < float("inf"):
            raise self.wrong(name, f"is a number of seconds, not {found!r}")
        return value

    def wrong(self, name: str, why: str) -> OptionError:
        return OptionError(f"format({self._format!r}): the option {name!r} {why}")
