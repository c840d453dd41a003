"""The columns of a stored message, declared once.

Theory. A message is shown in many forms: Arrow, JSON, CSV, the description of REST, Spark's schema, the table bronze,
the command line. Each form knows the kinds of columns; which columns there are, only this module knows. So a new column
that follows from what is stored is declared here, and `Chunk` says how many messages at a time have it.

A column with data of its own is optional: older messages do not have it. It has a `bit`, and is bytes where a message
has it, under its name, from whoever takes messages in (node/delivery) to disk and back: intake.py, chunk.py and page.py
need not know which optional columns there are. `Entry` has it as a field with a default.

    form                                   where a kind becomes it
    Arrow's types, and arrays              store/arrow_schema.py, store/arrow.py
    JSON, CSV                              store/rest/formats.py
    the description of REST                store/rest/description.py
    Spark's schema, tables of the lake     `Column.ddl`, pipeline/tables.py

Needs nothing but the standard library: executors import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.store.chunk import Chunk


class Kind(Enum):
    """What a column holds; the text says what `Column.read` gives for a chunk."""

    WHOLE = "an array of 64 bits"
    SMALL = "an array of 8 bits, signed"
    TRUTH = "an array that is not 0 where it is true"
    NUMBER = "an array of floats, NaN where there is none"
    TIME = "an array of microseconds since 1970"
    NAME = "an array of indices, and what they are indices into"
    BYTES = "pieces; in text, two columns: the text, and base64 where it is not UTF-8"
    DOCUMENT = "pieces of JSON, empty where there is none; or None"


SPARK: Final = {
    Kind.WHOLE: "bigint",
    Kind.SMALL: "tinyint",
    Kind.TRUTH: "boolean",
    Kind.NUMBER: "double",
    Kind.TIME: "timestamp",
    Kind.NAME: "string",
    Kind.BYTES: "binary",
    Kind.DOCUMENT: "string",
}


@dataclass(frozen=True)
class Column:
    """`doc` is a sentence or two, or empty; it holds for all forms. A column that comes later is nullable, since lakes
    have rows from before. `bit`, if not 0: it is optional, and this bit of a record says that it is there (page.py)."""

    name: str
    kind: Kind
    read: Callable[[Chunk], Any]
    doc: str = ""
    nullable: bool = False
    bit: int = 0

    @property
    def type(self) -> str:
        """Spark's name of it."""
        return SPARK[self.kind]

    @property
    def ddl(self) -> str:
        """For Spark."""
        return f"{self.name} {self.type.upper()}{'' if self.nullable else ' NOT NULL'}"

    @cached_property
    def base64(self) -> str | None:
        """What the second column of its text is called, if it has one."""
        return f"{self.name}_base64" if self.kind is Kind.BYTES else None


COLUMNS: Final = (
    Column("position", Kind.WHOLE, lambda chunk: chunk.position, "Position of the message in its store."),
    Column("topic", Kind.NAME, lambda chunk: (chunk.topic, chunk.names)),
    Column("payload", Kind.BYTES, lambda chunk: chunk.payload, "As it came."),
    Column("qos", Kind.SMALL, lambda chunk: chunk.qos),
    Column("retain", Kind.TRUTH, lambda chunk: chunk.retain),
    Column(
        "publisher",
        Kind.NAME,
        lambda chunk: (chunk.publisher, chunk.publishers),
        "Client id of who published it; empty: the node itself.",
    ),
    Column("time", Kind.TIME, lambda chunk: chunk.time, "Time of measurement as the payload says it, else of arrival."),
    Column("arrival", Kind.TIME, lambda chunk: chunk.arrival, "When the store took it; never goes back in a store."),
    Column(
        "value",
        Kind.NUMBER,
        lambda chunk: chunk.value,
        "The number that the store found in the payload.",
        nullable=True,
    ),
    Column(
        "properties",
        Kind.DOCUMENT,
        lambda chunk: chunk.optional.get("properties"),
        "Properties of MQTT 5 that travel with a message, as JSON.",
        nullable=True,
        bit=4,
    ),
)
OPTIONAL: Final = tuple(each for each in COLUMNS if each.bit)
NAMES: Final = tuple(each.name for each in COLUMNS)
IN_TEXT: Final = tuple(name for each in COLUMNS for name in (each.name, each.base64) if name is not None)
"""Names of the columns of CSV."""
