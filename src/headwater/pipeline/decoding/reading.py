"""What a decoder gets and gives. A user's decoder is a function of this kind:

    from headwater.pipeline.decoding import Message, Reading, Refused

    def scale(message: Message, *, factor: float = 1.0) -> Reading:
        if len(message.payload) != 2:
            raise Refused("a scale sends two bytes")
        return Reading(value=int.from_bytes(message.payload, "big") * factor)

It returns a reading, or several (any iterable, generators too). Keyword arguments are the rule's `options`. Whatever
it raises sends the message to quarantine with what the exception says, and so does a reading that cannot be; it is
called again for the same message when a batch is repeated, so it must give the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from headwater.pipeline.decoding.json_text import dump
from headwater.pipeline.decoding.paths import microseconds, number
from headwater.pipeline.decoding.plain import NotPlain, plain

MOST_READINGS: Final = 10_000
"""Of one message."""
LONGEST_REASON: Final = 300


class Refused(ValueError):
    """A decoder cannot read a message; the text is the reason that stands in quarantine."""


class Message(NamedTuple):
    """`time` is what the store found in the payload, or the arrival; `value` the number that it found."""

    topic: str
    payload: bytes
    publisher: str
    time: datetime
    arrival: datetime
    value: float | None


@dataclass(slots=True)
class Reading:
    """All may be left out. `data` is any document of dicts, lists, texts and numbers; bytes in it become Base64.
    `time` is a datetime (UTC if it has no zone); else that of the store stands. `device` and `metric` override the
    rule's."""

    value: float | None = None
    text: str | None = None
    data: Any = None
    raw: bytes | None = None
    time: datetime | None = None
    device: str | None = None
    metric: str | None = None


class Checked(NamedTuple):
    """A reading as columns take it: `time` in microseconds, `data` as text beside its `document`."""

    value: float | None
    text: str | None
    data: str | None
    raw: bytes | None
    time: int | None
    device: str | None
    metric: str | None
    document: Any


def checked(found: Any, most: int) -> list[Checked]:
    """The readings that a decoder returned, or Refused, or whatever a generator raises. `most` bounds each document."""
    readings = [_checked(each, most) for each in _bounded(found)]
    if not readings:
        raise Refused("the decoder found no reading")
    return readings


def _bounded(found: Any) -> Iterator[Any]:
    if isinstance(found, Reading):
        yield found
    elif isinstance(found, Iterable) and not isinstance(found, str | bytes | dict):
        for count, each in enumerate(found):
            if count == MOST_READINGS:
                raise Refused(f"the decoder gives more than {MOST_READINGS} readings")
            yield each
    elif found is not None:
        raise Refused(f"the decoder returned {type(found).__name__}, neither a Reading nor several")


def _checked(reading: Any, most: int) -> Checked:
    if not isinstance(reading, Reading):
        raise Refused(f"the decoder returned {type(reading).__name__} among its readings")
    try:
        document = None if reading.data is None else plain(reading.data, most)
    except NotPlain as error:
        raise Refused(f"the decoder's data {error}") from None
    return Checked(
        _value(reading.value),
        _text("text", reading.text),
        None if document is None else dump(document),
        _bytes(reading.raw),
        _time(reading.time),
        _text("device", reading.device),
        _text("metric", reading.metric),
        document,
    )


def _value(found: Any) -> float | None:
    if found is None:
        return None
    exact = number(found)
    if exact is None:
        raise Refused(f"the decoder's value is {type(found).__name__} and no finite number")
    return exact


def _text(name: str, found: Any) -> str | None:
    if found is None:
        return None
    if not isinstance(found, str):
        raise Refused(f"the decoder's {name} is {type(found).__name__} and no str")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise Refused(f"the decoder's {name} has half of a surrogate pair") from None
    return str(found)


def _bytes(found: Any) -> bytes | None:
    if found is None or isinstance(found, bytes):
        return found
    raise Refused(f"the decoder's raw is {type(found).__name__} and no bytes")


def _time(found: Any) -> int | None:
    if found is None:
        return None
    exact = microseconds(found) if isinstance(found, datetime) else None
    if exact is None:
        raise Refused(f"the decoder's time is no datetime of the years 1 to 9999 in UTC ({type(found).__name__})")
    return exact


def reason(error: BaseException) -> str:
    """What an exception says, whoever wrote it."""
    try:
        said = str(error)
    except Exception:
        said = ""
    if isinstance(error, Refused):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def sentence(reason: str) -> str:
    """As a table can hold it."""
    return reason[:LONGEST_REASON].encode("utf-8", "replace").decode() or "no reason was given"
