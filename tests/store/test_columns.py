"""The columns are declared once: each form has all of them, and means the same by them."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.pipeline.source.reading import DDL
from headwater.pipeline.source.reading import SCHEMA as OF_SOURCE
from headwater.pipeline.tables import BRONZE
from headwater.store import arrow_schema, columns, entry
from headwater.store.arrow import record_batch
from headwater.store.chunk import Chunk
from headwater.store.columns import COLUMNS, IN_TEXT, NAMES, Kind
from headwater.store.entry import Entry, iso
from headwater.store.rest import description
from headwater.store.rest.formats import csv_head, csv_lines, json_lines, objects
from tests.store.messages import contents, numbered

some = st.lists(contents(), max_size=12).map(numbered)


def in_json(entry: Entry) -> dict[str, Any]:
    """A second opinion, message by message."""
    found = entry._asdict() | {"time": iso(entry.time), "arrival": iso(entry.arrival)}
    found["properties"] = orjson.loads(entry.properties) if entry.properties else None
    try:
        found["payload"] = entry.payload.decode()
    except UnicodeDecodeError:
        found |= {"payload": None, "payload_base64": b64encode(entry.payload).decode()}
    return found


def in_csv(entry: Entry) -> list[Any]:
    found = in_json(entry) | {"retain": "true" if entry.retain else "false", "properties": entry.properties.decode()}
    return [found.get(name) for name in IN_TEXT]


@given(some)
@example(
    numbered(
        [Entry(0, "a", "é".encode()[:1], 0, False, "", 0, 0, None), Entry(0, "a", b"\xa9", 0, True, "", 0, 0, 1.0)]
    )
)
def test_text_has_each_message_as_it_is(entries: list[Entry]) -> None:
    """In the example two payloads are no text, though they are one behind the other."""
    chunk = Chunk.of(entries)
    lines = json_lines(chunk).splitlines()
    assert [orjson.loads(line) for line in lines] == [in_json(entry) for entry in entries]
    expected = io.StringIO()
    csv.writer(expected).writerows(map(in_csv, entries))
    assert csv_lines(chunk).decode() == expected.getvalue()


def test_each_form_has_all_columns_in_one_order() -> None:
    chunk = Chunk.of(numbered([Entry(0, "a", b"\xff", 0, False, "", 0, 0, None)]))
    names = list(NAMES)
    assert list(objects(chunk)[0]) == [*names, "payload_base64"]
    assert csv_head().decode().strip().split(",") == list(IN_TEXT) == list(description.StoredMessage.model_fields)
    assert [name for name in IN_TEXT if name != "payload_base64"] == names
    assert record_batch(chunk).schema.names == arrow_schema.PLAIN.names == names
    assert OF_SOURCE.names == [each.split()[0] for each in DDL.split(", ")] == ["store", *names]
    assert list(BRONZE.names) == ["store", *names, "day"]


@pytest.mark.parametrize("wanted", [("value",), ("topic", "position"), NAMES])
def test_only_the_columns_that_are_wanted(wanted: tuple[str, ...]) -> None:
    chunk = Chunk.of(numbered([Entry(0, "a", b"1", 0, False, "", 0, 0, 1.0)]))
    assert record_batch(chunk, wanted).equals(record_batch(chunk).select(list(wanted)))


def test_optional_columns_are_fields_of_an_entry_and_have_a_bit_each() -> None:
    """A new one need not be told to what is in between; bits 1 and 2 mean something else (page.py)."""
    assert tuple(each.name for each in columns.OPTIONAL) == entry.OPTIONAL == tuple(NAMES[-len(entry.OPTIONAL) :])
    bits = [each.bit for each in columns.OPTIONAL]
    assert bits == [4 << number for number in range(len(bits))] and bits[-1] < 256
    assert all(each.nullable for each in columns.OPTIONAL)


def test_every_kind_has_every_form() -> None:
    assert set(columns.SPARK) == set(arrow_schema.TYPES) == set(description.TYPES) == set(Kind)
    assert {each.kind for each in COLUMNS} == set(Kind)  # so the test of text above has seen all
