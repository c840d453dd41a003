"""One message as conditions see it: each part is taken apart when the first condition asks for it, and once.

A payload is JSON, CBOR or text, which is found out like this: a content type of CBOR, or a first byte that no text of
JSON begins with, and it is read as CBOR; a first character with which JSON begins, and it is read as JSON; if it is
neither, it is text, if it is UTF-8. One that is longer than `most` bytes is not looked at, and has no values.
"""

from __future__ import annotations

import json
from typing import Final

from headwater.message import UserProperties
from headwater.routing.conditions.cbor import NotCbor, read_cbor
from headwater.routing.conditions.values import ABSENT

MOST: Final = 65536
JSON_BEGINS: Final = b'{["-0123456789tfn'
SPACES: Final = b" \t\r\n"


def _refuse(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity are not JSON


_JSON: Final = json.JSONDecoder(parse_constant=_refuse)


class Reading:
    """`number` tells it from all others of its reader."""

    def __init__(
        self,
        number: int,
        topic: str,
        payload: bytes,
        user_properties: UserProperties | None = None,
        content_type: str | None = None,
        most: int = MOST,
    ) -> None:
        self.number = number
        self.topic = topic
        self.payload = payload
        self.user_properties = user_properties
        self.content_type = content_type
        self.most = most
        self.remembered: list[object] | None = None
        """What the last message that was let through had, where `changed` is asked for; None: there was none."""
        self.is_too_long = False
        self._levels: list[str] | None = None
        self._users: dict[str, str] | None = None
        self._has_document = False
        self._document: object = ABSENT

    def document(self) -> object:
        if not self._has_document:
            self._has_document = True
            if len(self.payload) > self.most:
                self.is_too_long = True
            else:
                self._document = read_payload(self.payload, self.content_type)
        return self._document

    def level(self, number: int) -> object:
        levels = self._levels
        if levels is None:
            levels = self._levels = self.topic.split("/")
        return levels[number] if number < len(levels) else ABSENT

    def user_property(self, name: str) -> object:
        """The first of that name."""
        users = self._users
        if users is None:
            users = self._users = {}
            for pair in self.user_properties or []:
                users.setdefault(pair[0], pair[1])
        return users.get(name, ABSENT)


def read_payload(payload: bytes, content_type: str | None) -> object:
    """The document; else the text; else ABSENT. Never raises."""
    first = payload.lstrip(SPACES)[:1]
    if (first and first[0] >= 0x80) or (payload and content_type is not None and _is_cbor(content_type)):
        try:
            return read_cbor(payload)  # that of -1 is a space
        except NotCbor:
            pass
    if not first:
        return payload.decode()
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return ABSENT
    if first in JSON_BEGINS:
        try:
            found: object = _JSON.decode(text)
            return found
        except (ValueError, RecursionError):  # a number of thousands of digits, too, and what is nested too deeply
            pass
    return text


def _is_cbor(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/cbor" or kind.endswith("+cbor")
