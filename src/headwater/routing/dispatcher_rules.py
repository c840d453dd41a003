"""Which dispatcher a shared group gets: by patterns of its name, in order, else the default one.

A pattern is written as the subscription is, `$share/{name}/{filter}`, and read level by level as a topic filter is: `+`
stands for any one level, `#` at the end for all that follow. The levels of the group's own filter are taken as they
are, also if they are wildcards: `$share/+/jobs/#` is for the group `$share/workers/jobs/+/new`.
"""

from __future__ import annotations

from typing import Final

from headwater.routing.dispatcher import Dispatcher
from headwater.routing.shared import dispatcher
from headwater.routing.topics import InvalidTopicFilter, check_filter

PREFIX: Final = "$share/"


def check_pattern(pattern: str) -> None:
    """ValueError if it is no pattern of a shared group's name."""
    if not pattern.startswith(PREFIX):
        raise ValueError(f"{pattern!r} does not begin with {PREFIX}")
    try:
        check_filter(pattern, len(pattern))
    except InvalidTopicFilter as error:
        raise ValueError(f"{pattern!r} is not written as a topic filter: {error}") from error


def covers(pattern: str, name: str) -> bool:
    levels = name.split("/")
    for at, level in enumerate(pattern.split("/")):
        if level == "#":
            return True
        if at >= len(levels) or (level != "+" and level != levels[at]):
            return False
    return len(levels) == pattern.count("/") + 1


class DispatcherRules:
    def __init__(self, default: str, rules: list[tuple[str, str]]) -> None:
        self.default = default
        self.rules = rules

    def name_for(self, group: str) -> str:
        for pattern, name in self.rules:
            if covers(pattern, group):
                return name
        return self.default

    def new(self, group: str) -> Dispatcher:
        """A dispatcher for the group of that name."""
        return dispatcher(self.name_for(group))

    def put_first(self, pattern: str, name: str) -> None:
        """A rule that goes before all others and replaces one of the same pattern. ValueError: no such dispatcher, or
        no pattern."""
        check_pattern(pattern)
        dispatcher(name)
        self.rules = [(pattern, name)] + [rule for rule in self.rules if rule[0] != pattern]
