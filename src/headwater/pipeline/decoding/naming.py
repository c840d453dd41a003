"""Names that rules give: a device or metric from a topic or a document, and columns from the names in a document.

`"{3}"` is the third level of the topic, counted from 1, `"{-1}"` its last; `"{topic}"` and `"{publisher}"` are what
they say; several may stand in one text (`"{1}-{3}"`). `"$.meta.id"` is what the document has there. Where a topic has
no such level, or a document nothing that is a name, the default stands: the publisher for a device, the last level
for a metric.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from headwater.pipeline.decoding.paths import Path, at, path
from headwater.pipeline.decoding.schemas import FIXED

PLACE: Final = re.compile(r"\{([^{}]*)\}")
NO_NAME: Final = re.compile(r"\W+")
LONGEST_COLUMN: Final = 100


@dataclass(frozen=True)
class Naming:
    """Either `path`, in the document, or `template`, for topic and publisher."""

    template: str = ""
    path: Path = ()

    @classmethod
    def of(cls, text: str) -> Naming:
        """Raises ValueError that says what is wrong."""
        if text.startswith("$."):
            return cls(path=path(text))
        for place in PLACE.findall(text):
            if place not in ("topic", "publisher") and not re.fullmatch("-?[1-9][0-9]{0,4}", place):
                raise ValueError(
                    f"there is no {{{place}}} in a name; there are {{1}} for the first level of the topic, {{-1}} for "
                    "the last, {topic}, {publisher}, or $.path for what the document has there"
                )
        if not text or re.search("[{}]", PLACE.sub("", text)):
            raise ValueError(f"{text!r} is no name such as {{2}}, {{1}}-{{3}} or $.meta.id")
        return cls(template=text)

    @property
    def by_publisher(self) -> bool:
        return "{publisher}" in self.template

    def in_topic(self, topic: str, publisher: str = "") -> str | None:
        """None if the topic has no such level."""
        levels = topic.split("/")

        def place(found: re.Match[str]) -> str:
            name = found[1]
            if name in ("topic", "publisher"):
                return topic if name == "topic" else publisher
            number = int(name)
            return levels[number - 1 if number > 0 else number]

        try:
            return PLACE.sub(place, self.template)
        except IndexError:
            return None

    def in_document(self, document: Any) -> str | None:
        """None if there is nothing, or a list or an object."""
        found = at(document, self.path)
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(found) if isinstance(found, str | int | float) else None


def last_level(topic: str) -> str:
    return topic.rpartition("/")[2]


@lru_cache(maxsize=10_000)
def column_name(names: Path) -> str:
    """A name that Spark and Delta take and that is none of silver's own, for what is at this path in a document.

    Spark does not tell capital letters from small ones, so all are small."""
    safe = NO_NAME.sub("_", "_".join(names).lower())[:LONGEST_COLUMN] or "_"
    if safe[0].isdigit():
        safe = f"_{safe}"
    return f"{safe}_" if safe in FIXED else safe
