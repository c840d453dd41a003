"""Messages as text: JSON objects, lines of JSON, CSV. Many rows at a time, column by column, and never by pydantic.

A payload is text where it is UTF-8; where it is not, the text is missing and `payload_base64` has its bytes.
"""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy
import orjson
from numpy.typing import NDArray

from headwater.store.chunk import Chunk, Floats, Indices, Integers, Pieces
from headwater.store.columns import COLUMNS, IN_TEXT, NAMES, Kind

LINE: Final = b"\n"
Texts = list[str | None]


def objects(chunk: Chunk) -> list[dict[str, Any]]:
    """Each message as what becomes a JSON object."""
    columns: list[Sequence[Any]] = []
    encoded: dict[str, Texts] = {}
    for read, rows, name in _JSON:
        if name is None:
            columns.append(rows(read(chunk), len(chunk)))
            continue
        texts, base64 = rows(read(chunk), len(chunk))
        columns.append(texts)
        if base64 is not None:
            encoded[name] = base64
    made = _made(zip(*columns, strict=True))
    for key, column in encoded.items():
        for row, value in zip(made, column, strict=True):
            if value is not None:
                row[key] = value
    return made


def json_lines(chunk: Chunk) -> bytes:
    return b"".join([orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in objects(chunk)])


def csv_lines(chunk: Chunk) -> bytes:
    columns: list[Sequence[Any]] = []
    for read, rows, name in _CSV:
        if name is None:
            columns.append(rows(read(chunk), len(chunk)))
            continue
        texts, base64 = rows(read(chunk), len(chunk))
        columns += [texts, [None] * len(chunk) if base64 is None else base64]
    lines = io.StringIO()
    csv.writer(lines).writerows(zip(*columns, strict=True))
    return lines.getvalue().encode()


def csv_head() -> bytes:
    return (",".join(IN_TEXT) + "\r\n").encode()


def iso_column(times: Integers) -> list[str]:
    """As `entry.iso`, for many."""
    found: list[str] = numpy.datetime_as_string(times.view("datetime64[us]"), unit="us", timezone="UTC").tolist()
    return found


# ---- columns -----------------------------------------------------------------------------------------------------


def _maker(names: Sequence[str]) -> Callable[[Iterable[tuple[Any, ...]]], list[dict[str, Any]]]:
    """Makes dictionaries of rows. It is written out, as namedtuple is: that takes half the time of `dict(zip(…))`."""
    values = [f"_{number}" for number in range(len(names))]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    found: Callable[[Iterable[tuple[Any, ...]]], list[dict[str, Any]]]
    found = eval(f"lambda rows: [{{{items}}} for {', '.join(values)} in rows]", {"__builtins__": {}})
    return found


def _plain(data: Integers, size: int) -> list[Any]:
    found: list[Any] = data.tolist()
    return found


def _truths(data: NDArray[Any], size: int) -> list[bool]:
    found: list[bool] = data.astype(numpy.bool_).tolist()
    return found


def _words(data: NDArray[Any], size: int) -> list[str]:
    return ["true" if each else "false" for each in data.tolist()]


def _numbers(data: Floats, size: int) -> list[float | None]:
    return [None if value != value else value for value in data.tolist()]


def _times(data: Integers, size: int) -> list[str]:
    return iso_column(data)


def _names(indexed: tuple[Indices, Sequence[str]], size: int) -> list[str]:
    indices, names = indexed
    return [names[index] for index in indices.tolist()]


def _fragments(pieces: Pieces | None, size: int) -> Sequence[orjson.Fragment | None]:
    if pieces is None:
        return [None] * size
    return [orjson.Fragment(each) if each else None for each in pieces.rows()]


def _documents(pieces: Pieces | None, size: int) -> list[str]:
    return [""] * size if pieces is None else [each.decode() for each in pieces.rows()]


def _texts(pieces: Pieces, size: int) -> tuple[Texts, Texts | None]:
    """Of each row the text, or None; and base64 where there is no text, if that is anywhere."""
    if pieces.data.isascii():  # one text, whose characters are its bytes
        whole = pieces.data.decode()
        return [whole[start:end] for start, end in pairwise(pieces.offsets.tolist())], None
    rows = pieces.rows()
    texts = [_decoded(row) for row in rows]
    if None not in texts:
        return texts, None
    return texts, [b64encode(row).decode() if text is None else None for row, text in zip(rows, texts, strict=True)]


def _decoded(row: bytes) -> str | None:
    try:
        return row.decode()
    except UnicodeDecodeError:
        return None


_made: Final = _maker(NAMES)
_ROWS: Final[dict[Kind, Callable[[Any, int], Sequence[Any]]]] = {
    Kind.WHOLE: _plain,
    Kind.SMALL: _plain,
    Kind.TRUTH: _truths,
    Kind.NUMBER: _numbers,
    Kind.TIME: _times,
    Kind.NAME: _names,
    Kind.BYTES: _texts,
    Kind.DOCUMENT: _fragments,
}
"""What makes rows of what `Column.read` gives, and of the number of messages."""
_ROWS_OF_CSV: Final = _ROWS | {Kind.TRUTH: _words, Kind.DOCUMENT: _documents}
_JSON: Final = tuple((each.read, _ROWS[each.kind], each.base64) for each in COLUMNS)
_CSV: Final = tuple((each.read, _ROWS_OF_CSV[each.kind], each.base64) for each in COLUMNS)
