"""Decoders that look at each message by itself: documents with paths and fields, and what users wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, Final

import pyarrow as pa

from headwater.pipeline.decoding.bulk import UNKNOWN, members_of
from headwater.pipeline.decoding.fields import RESCUED, Field, Misfit, Violation, scalars, shown
from headwater.pipeline.decoding.json_text import canonical, dump, keys_in
from headwater.pipeline.decoding.naming import Naming
from headwater.pipeline.decoding.outcome import Collector, Messages, Outcome
from headwater.pipeline.decoding.paths import EPOCH, Path, at, moment, number
from headwater.pipeline.decoding.reading import MOST_READINGS, Checked, Message, Refused, checked, reason

FAULTS: Final = (Exception, SystemExit)
"""What a decoder of a user may raise without ending more than one message."""


@dataclass(frozen=True)
class Columns:
    """How a document becomes further columns: by `fields`, or `inferred`, or not at all. If it `rescues`, what is of
    another type than declared is null in its column, and in the column RESCUED; else the message is refused."""

    fields: tuple[Field, ...] = ()
    inferred: bool = False
    rescues: bool = False

    def __bool__(self) -> bool:
        return self.inferred or bool(self.fields)

    def of(self, document: Any) -> Mapping[str, Any]:
        if self.inferred:
            return scalars(document)
        if not self.rescues:
            return {field.column: field.of_document(document) for field in self.fields}
        found: dict[str, Any] = {}
        misfits: dict[str, Any] = {}
        for field in self.fields:
            try:
                found[field.column] = field.of_document(document)
            except Misfit as misfit:
                misfits[".".join(field.path)] = misfit.found
        found[RESCUED] = dump(misfits) if misfits else None
        return found

    def collector(self) -> Collector:
        return Collector(bool(self), fitting=bool(self.fields))


@dataclass(frozen=True)
class Places:
    """Where things are in a document; empty: not said. `unit` is that of the time, in nanoseconds."""

    time: Path = ()
    unit: int = 0
    value: Path = ()
    each: Path = ()
    device: Naming | None = None
    metric: Naming | None = None

    def __bool__(self) -> bool:
        named = [naming.path for naming in (self.device, self.metric) if naming is not None]
        return any((self.time, self.value, self.each, *named))


class Documents:
    """`parse` makes a document of a payload or raises ValueError with what the payload does; `is_json`: the payload
    is its text."""

    def __init__(
        self, parse: Callable[[bytes], Any], is_json: bool, places: Places, columns: Columns, longest: int
    ) -> None:
        self._parse = parse
        self._is_json = is_json
        self._places = places
        self._columns = columns
        self._longest = longest

    def decode(self, messages: Messages) -> Outcome:
        collector = self._columns.collector()
        has_columns = bool(self._columns)
        payloads = zip(messages.payloads, messages["value"].to_pylist(), self._members(messages), strict=True)
        for row, (payload, value, members) in enumerate(payloads):
            if len(payload) > self._longest:
                collector.refuse(row, f"the payload has {len(payload)} bytes, and documents may have {self._longest}")
                continue
            try:
                document = self._parse(payload)
            except ValueError as error:
                collector.refuse(row, f"the payload {error}")
                continue
            try:
                readings = self._readings(payload, document, value, members)
                fields = [self._columns.of(each.document) for each in readings] if has_columns else []
            except (Refused, Violation) as error:
                collector.refuse(row, str(error))
            else:
                collector.add(row, readings, fields)
        return collector.outcome()

    def _members(self, messages: Messages) -> Iterable[int]:
        """Of payloads that are to stand as they are, if they have that many keys (`bulk.members_of`)."""
        is_kept = self._is_json and not self._places.each
        return members_of(messages["payload"]) if is_kept else repeat(UNKNOWN, len(messages))

    def _readings(self, payload: bytes, document: Any, value: float | None, members: int) -> list[Checked]:
        if not self._places.each:
            is_flat = type(document) is dict and len(document) == members
            if is_flat or (members != UNKNOWN and keys_in(document) == members):
                text = payload.decode()
            else:
                text = canonical(payload, document) or payload.decode() if self._is_json else dump(document)
            return [self._reading(document, document, text, value)]
        parts = at(document, self._places.each)
        where = ".".join(self._places.each)
        if not isinstance(parts, list) or not parts:
            raise Refused(f"field {where} has no list of readings")
        if len(parts) > MOST_READINGS:
            raise Refused(f"field {where} has {len(parts)} readings, and {MOST_READINGS} are allowed")
        return [self._reading(each, document, dump(each), None) for each in parts]

    def _reading(self, part: Any, document: Any, data: str, found: float | None) -> Checked:
        places = self._places
        value, text = _value_and_text(part, places.value)
        if part is document and isinstance(part, dict) and not places.value:
            value, text = found, None
        time = None
        if places.time:
            time = self._time(_first(part, document, places.time))
        device = _name(places.device, part, document)
        metric = _name(places.metric, part, document)
        return Checked(value, text, data, None, time, device, metric, part)

    def _time(self, found: Any) -> int | None:
        if found is None:
            return None
        exact = moment(found, self._places.unit)
        if exact is None:
            raise Refused(f"field {'.'.join(self._places.time)} is {shown(found)}, and no time")
        return exact


def _value_and_text(part: Any, path: Path) -> tuple[float | None, str | None]:
    """By a path, or of a part of a list. True is 1: who asks for a truth by its path wants to count it."""
    if path:
        part = at(part, path)
        if isinstance(part, bool):
            return float(part), None
    elif isinstance(part, dict):
        part = part.get("value")
    return (None, part) if isinstance(part, str) else (number(part), None)


def _first(part: Any, document: Any, path: Path) -> Any:
    """What a part of a document says, or else the whole."""
    found = at(part, path)
    return at(document, path) if found is None and part is not document else found


def _name(naming: Naming | None, part: Any, document: Any) -> str | None:
    if naming is None or not naming.path:
        return None
    return naming.in_document(part) or naming.in_document(document) or None


class Custom:
    """A function of a user, whatever it does."""

    def __init__(self, function: Callable[[Message], Any], columns: Columns, longest: int) -> None:
        self._function = function
        self._columns = columns
        self._longest = longest

    def decode(self, messages: Messages) -> Outcome:
        collector = self._columns.collector()
        for row, message in enumerate(_one_by_one(messages)):
            try:
                readings = checked(self._function(message), self._longest)
                fields = [self._columns.of(each.document) for each in readings]
            except Violation as error:
                collector.refuse(row, str(error))
            except FAULTS as error:
                collector.refuse(row, reason(error))
            else:
                collector.add(row, readings, fields)
        return collector.outcome()


def _one_by_one(messages: Messages) -> list[Message]:
    return [
        Message(topic, payload, publisher, time, arrival, value)
        for topic, payload, publisher, time, arrival, value in zip(
            messages["topic"].to_pylist(),
            messages.payloads,
            messages["publisher"].to_pylist(),
            _datetimes(messages["time"]),
            _datetimes(messages["arrival"]),
            messages["value"].to_pylist(),
            strict=True,
        )
    ]


def _datetimes(column: pa.Array) -> list[datetime]:
    return [EPOCH + timedelta(microseconds=each) for each in column.cast(pa.int64()).to_pylist()]
