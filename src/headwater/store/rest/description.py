"""What a message is in JSON, for the description of REST: rows are written without it (`formats`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, create_model

from headwater.store.columns import COLUMNS, Column, Kind


class Properties(BaseModel):
    """Of MQTT 5; only those that the message has."""

    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: str | None = Field(default=None, description="Base64.")
    payload_format: int | None = Field(default=None, description="1: the publisher says that it is UTF-8.")
    user: list[tuple[str, str]] | None = None
    expiry: int | None = Field(default=None, description="Seconds after which the message was not to be delivered.")


TYPES: Final[dict[Kind, tuple[Any, str]]] = {
    Kind.WHOLE: (int, ""),
    Kind.SMALL: (int, ""),
    Kind.TRUTH: (bool, ""),
    Kind.NUMBER: (float, ""),
    Kind.TIME: (str, "ISO 8601, UTC."),
    Kind.NAME: (str, ""),
    Kind.BYTES: (str | None, "Text; null if it is not UTF-8."),
    Kind.DOCUMENT: (Properties, ""),
}
"""Of each kind the type in JSON, and what is to be said of it."""


def _described(column: Column) -> dict[str, Any]:
    type, note = TYPES[column.kind]
    doc = " ".join(filter(None, (column.doc, note))) or None
    fields: dict[str, Any] = {column.name: (type | None if column.nullable else type, Field(description=doc))}
    if column.base64 is not None:
        only = Field(default=None, description=f"The bytes of `{column.name}`, only if it is not UTF-8.")
        fields[column.base64] = (str | None, only)
    return fields


if TYPE_CHECKING:

    class StoredMessage(BaseModel): ...

else:
    StoredMessage = create_model(
        "StoredMessage",
        __doc__="A message as the store has it.",
        **{name: field for each in COLUMNS for name, field in _described(each).items()},
    )
