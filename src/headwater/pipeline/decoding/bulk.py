"""Decoders that work on whole columns, for what most messages are.

Theory. The store has looked into each payload already: `time` and `value` are columns. What is left for a JSON
document is to see that it is one, and that its bytes may stand in the table as they are (`json_text`). So each
document is parsed once and thrown away, and `data` is a copy of the payload column. That no key comes twice is seen
by counting `":` in all payloads at once: there are at least as many as members of objects, unless white space stands
between (such rows are looked at one by one); so if there are no more than keys in the parsed document, all members
are there, and none twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.decoding import json_text
from headwater.pipeline.decoding.json_text import LONG, NotJson, canonical, keys_in, parse
from headwater.pipeline.decoding.outcome import Messages, Outcome, flags_of, mask_of, patched

SPACED_COLONS: Final = (b" :", b"\t:", b"\n:", b"\r:")
UNKNOWN: Final = -1
CHUNK: Final = 512
"""Documents that are parsed together: what they become is thrown away before it leaves the processor's caches."""
SPACES: Final = 64
"""Bytes in which a long document has to begin."""
LONGEST_NUMBER: Final = 400
"""Bytes of a payload that is nothing but a number."""
NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters: who finds one takes the payload for binary."""


class Raw:
    """Each payload as it is."""

    def decode(self, messages: Messages) -> Outcome:
        return Outcome(columns={"raw": messages["payload"]})


class Text:
    """UTF-8. Texts longer than `longest` bytes are refused."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def decode(self, messages: Messages) -> Outcome:
        texts: dict[int, str] = {}
        refused: dict[int, str] = {}
        for row, payload in enumerate(messages.payloads):
            if len(payload) > self._longest:
                refused[row] = _too_long(payload, self._longest)
                continue
            try:
                texts[row] = payload.decode()
            except UnicodeDecodeError as error:
                refused[row] = f"the payload is no UTF-8: {error.reason} at byte {error.start}"
        return _readings(texts, "text", pa.string(), refused)


class Number:
    """A number in figures, as Python and JSON write them, spaces around it allowed."""

    def decode(self, messages: Messages) -> Outcome:
        values: dict[int, float] = {}
        refused: dict[int, str] = {}
        for row, payload in enumerate(messages.payloads):
            value = _number(payload)
            if value is None:
                refused[row] = (
                    f"the payload is no finite number: {payload[:40]!r}" if payload else "the payload is empty"
                )
            else:
                values[row] = value
        return _readings(values, "value", pa.float64(), refused)


def _number(payload: bytes) -> float | None:
    if len(payload) > LONGEST_NUMBER or b"_" in payload:
        return None
    try:
        value = float(payload)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _readings(found: dict[int, Any], name: str, type: Any, refused: dict[int, str]) -> Outcome:
    rows = pa.array(found.keys(), pa.int64()) if refused else None
    return Outcome(rows, None, {name: pa.array(found.values(), type)}, refused=refused)


class Json:
    """Any JSON, as it is; documents longer than `longest` bytes are refused."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def decode(self, messages: Messages) -> Outcome:
        sorted = _Sorted(messages, self._longest, self._sort)
        return sorted.without_refused()

    def _sort(self, sorted: _Sorted, row: int, payload: bytes, document: Any) -> None:
        if isinstance(document, NotJson):
            sorted.refused[row] = f"the payload {document}"
        else:
            sorted.as_document(row, payload, document)
            if isinstance(document, str):
                sorted.texts[row] = document


class Auto:
    """JSON objects and lists are documents; a number is a number, and text is text; all else is kept as it is. What
    begins as an object or list and is longer than `longest` bytes is refused: its time and value are not known."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def decode(self, messages: Messages) -> Outcome:
        return _Sorted(messages, self._longest, self._sort).without_refused()

    def _sort(self, sorted: _Sorted, row: int, payload: bytes, document: Any) -> None:
        if isinstance(document, dict | list):
            sorted.as_document(row, payload, document)
        elif isinstance(document, int | float) and not isinstance(document, bool):
            sorted.values[row] = float(document)
        elif isinstance(document, str):
            sorted.texts[row] = document
        else:
            self._sort_other(sorted, row, payload)

    def _sort_other(self, sorted: _Sorted, row: int, payload: bytes) -> None:
        if 0 < len(payload) <= self._longest:
            try:
                text = payload.decode()
            except UnicodeDecodeError:
                pass
            else:
                if not NOT_TEXT.search(text):
                    sorted.texts[row] = text
                    return
        elif payload[:SPACES].lstrip()[:1] in (b"{", b"["):
            sorted.refused[row] = _too_long(payload, self._longest)
            return
        sorted.raws[row] = payload


class _Sorted:
    """Payloads, most of which are documents that can stand as they are; `sort` is asked what the others are."""

    def __init__(self, messages: Messages, longest: int, sort: Callable[[_Sorted, int, bytes, Any], None]) -> None:
        self._messages = messages
        self._kept = bytearray(len(messages))
        self._written: dict[int, str] = {}
        self.texts: dict[int, str] = {}
        self.values: dict[int, float] = {}
        self.raws: dict[int, bytes] = {}
        self.refused: dict[int, str] = {}
        self._look(longest, sort)

    def _look(self, longest: int, sort: Callable[[_Sorted, int, bytes, Any], None]) -> None:
        payloads, members = self._messages.payloads, members_of(self._messages["payload"])
        for start in range(0, len(payloads), CHUNK):
            some = slice(start, start + CHUNK)
            expected = members[some]
            if UNKNOWN in expected or not self._keep(start, payloads[some], expected, sort):
                self._look_one_by_one(start, zip(payloads[some], expected, strict=True), longest, sort)

    def _keep(
        self, start: int, payloads: list[bytes], expected: list[int], sort: Callable[[_Sorted, int, bytes, Any], None]
    ) -> bool:
        """All of a chunk, of which nothing is to be looked at with care; False: not all of them are JSON."""
        try:
            documents = list(map(json_text.loads, payloads))
        except ValueError:
            return False
        found = [len(each) if type(each) is dict else UNKNOWN for each in documents]
        if found == expected:
            self._kept[start : start + len(found)] = b"\x01" * len(found)
            return True
        for row, (document, known) in enumerate(zip(documents, expected, strict=True), start):
            if type(document) is dict and (len(document) == known or keys_in(document) == known):
                self._kept[row] = 1
            else:
                sort(self, row, payloads[row - start], document)
        return True

    def _look_one_by_one(
        self,
        start: int,
        payloads: Iterable[tuple[bytes, int]],
        longest: int,
        sort: Callable[[_Sorted, int, bytes, Any], None],
    ) -> None:
        loads, kept = json_text.loads, self._kept
        for row, (payload, members) in enumerate(payloads, start):
            document: Any
            try:
                if members == UNKNOWN:
                    document = NotJson(_long(payload, longest)) if len(payload) > longest else parse(payload)
                else:
                    document = loads(payload)
                    if type(document) is dict and (len(document) == members or keys_in(document) == members):
                        kept[row] = 1
                        continue
            except NotJson as error:
                document = error
            except ValueError as error:
                document = NotJson(f"is no JSON: {error}" if payload else "is empty")
            sort(self, row, payload, document)

    def as_document(self, row: int, payload: bytes, document: Any) -> None:
        text = canonical(payload, document)
        if text is None:
            self._kept[row] = 1
        else:
            self._written[row] = text
        if isinstance(document, int | float) and not isinstance(document, bool):
            self.values[row] = float(document)

    def outcome(self) -> Outcome:
        payload = self._messages["payload"]
        # Only rows that are known to be UTF-8 are copied out of it.
        seen_as_text = payload.view(pa.string())
        kept = flags_of(self._kept)
        columns = {
            "data": patched(pc.if_else(kept, seen_as_text, pa.scalar(None, pa.string())), self._written),
            "value": patched(self._messages["value"], self.values),
        }
        if self.texts:
            columns["text"] = patched(pa.nulls(len(payload), pa.string()), self.texts)
        if self.raws:
            columns["raw"] = pc.if_else(mask_of(len(payload), self.raws), payload, pa.scalar(None, pa.binary()))
        return Outcome(columns=columns)

    def without_refused(self) -> Outcome:
        outcome = self.outcome()
        if self.refused:
            taken = pc.invert(mask_of(len(self._messages), self.refused))
            outcome.rows = pc.indices_nonzero(taken).cast(pa.int64())
            outcome.columns = {name: column.filter(taken) for name, column in outcome.columns.items()}
            outcome.refused = self.refused
        return outcome


def members_of(payload: pa.Array) -> list[int]:
    """For each payload how many members its objects have at most; UNKNOWN for those to be looked at with care."""
    careful = pc.greater_equal(pc.binary_length(payload), LONG)
    together = _joined(payload)
    for spaced in SPACED_COLONS:
        if spaced in together:  # which looks at all of them as quickly as at one
            careful = pc.or_(careful, pc.match_substring(payload, spaced.decode()))
    counted = pc.count_substring(payload, '":')
    found: list[int] = pc.if_else(careful, pa.scalar(UNKNOWN, counted.type), counted).to_pylist()
    return found


def _joined(payload: pa.Array) -> bytes:
    """All payloads, one behind the other."""
    _, offsets, data = payload.buffers()
    if not len(payload) or data is None:
        return b""
    ends = memoryview(offsets).cast("i")
    found: bytes = data[ends[payload.offset] : ends[payload.offset + len(payload)]].to_pybytes()
    return found


def _long(payload: bytes, longest: int) -> str:
    return f"has {len(payload)} bytes, and documents may have {longest}"


def _too_long(payload: bytes, longest: int) -> str:
    return f"the payload {_long(payload, longest)}"
