"""What holds for all payloads, topics and rules."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.decoding import Message, Reading, Rules, bulk, decode
from headwater.pipeline.decoding.json_text import parse
from tests.pipeline.decoding.bronze import NOON, bronze, rows

YEARS = st.integers(-62135596800000000, 253402300799999999)
TOPICS = st.sampled_from(["a", "a/b", "a/b/c", "b", "b/", "/", "$SYS/a", "ü/😀"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "A", "value", "r", "t", "data", "1", ""]), inner, max_size=4)
    ),
    max_leaves=10,
)
JSON = DOCUMENTS.map(lambda document: json.dumps(document).encode())
TWICE = st.lists(st.tuples(st.sampled_from(["a", "b"]), JSON), max_size=4).map(
    lambda members: b"{%s}" % b", ".join(b'"%s" :%s' % (name.encode(), value) for name, value in members)
)
CBOR = DOCUMENTS.map(cbor2.dumps)
HOSTILE = st.sampled_from(
    [b"", b"[" * 5000, b'{"a":' * 300, b"1e999", b"NaN", b'{"a":NaN}', b'"\\ud800"', b"9" * 500, b"\x00", b"\x9f" * 300]
)
PAYLOADS = st.binary(max_size=30) | JSON | TWICE | CBOR | HOSTILE | st.text(max_size=10).map(str.encode)


def moody(message: Message) -> Any:
    """A user's decoder that does one of many things, by the payload."""
    choices: list[Any] = [None, 5, Reading(value=float("nan")), Reading(text="\ud800"), [Reading(), Reading(value=2)]]
    choice = len(message.payload) % (len(choices) + 2)
    if choice == len(choices):
        raise KeyError(message.payload)
    return Reading(data={"a": message.payload}) if choice > len(choices) else choices[choice]


SETTINGS: list[dict[str, Any]] = [
    {"decoder": "auto"},
    {"decoder": "json"},
    {"decoder": "json", "time": "t", "value": "a", "device": "$.b", "metric": "$.value"},
    {"decoder": "json", "each": "r", "time": "t", "unit": "ns"},
    {"decoder": "json", "fields": {"a": "double", "b": "string not null", "t": "timestamp", "value": "bigint"}},
    {"decoder": "json", "mode": "inferred"},
    {"decoder": "cbor"},
    {"decoder": "cbor", "mode": "inferred", "value": "a"},
    {"decoder": "number", "device": "{publisher}{2}"},
    {"decoder": "text", "metric": "{-2}"},
    {"decoder": "raw"},
    {"decoder": f"{__name__}:moody", "mode": "inferred"},
]
RULES = st.lists(
    st.tuples(st.sampled_from(SETTINGS), st.sampled_from(["#", "a/#", "+", "b/+", "$SYS/#"])), min_size=1, max_size=4
).map(lambda chosen: Rules.from_settings([{**each, "filter": filter} for each, filter in chosen], most_columns=8))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    payloads = draw(st.lists(PAYLOADS, max_size=8))
    count = len(payloads)

    def some(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    return bronze(
        payloads,
        some(TOPICS),
        publishers=some(st.sampled_from(["p", "", "ü"])),
        times=some(YEARS),
        arrivals=some(YEARS),
        values=some(st.none() | st.floats()) or None,
        dictionaries=draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None)
@given(batches(), RULES)
def test_every_message_is_in_exactly_one_table(batch: pa.RecordBatch, rules: Rules) -> None:
    readings, quarantined = decode(batch, rules)
    readings.validate(full=True)
    quarantined.validate(full=True)
    read = Counter(readings["position"].to_pylist())
    refused = Counter(quarantined["position"].to_pylist())
    assert not read.keys() & refused.keys()
    assert sorted({*read, *refused}) == batch["position"].to_pylist()
    assert all(count == 1 for count in refused.values())
    names = list(zip(readings["position"].to_pylist(), readings["part"].to_pylist(), strict=True))
    assert names == [(position, part) for position in sorted(read) for part in range(read[position])]


@settings(max_examples=200, deadline=None)
@given(batches(), RULES)
def test_a_batch_is_what_its_rows_are(batch: pa.RecordBatch, rules: Rules) -> None:
    """With the columns that the rows before have established, which is how a table grows."""
    whole = decode(batch, rules)
    known = rules
    found: list[list[dict[str, Any]]] = [[], []]
    for row in range(batch.num_rows):
        for made, each in zip(found, decode(batch.slice(row, 1), known), strict=True):
            made.extend(rows(each))
        known = known.knowing(_further(decode(batch.slice(row, 1), known).readings.schema))
    empty = dict.fromkeys(whole.readings.schema.names)
    assert [{**empty, **row} for row in found[0]] == rows(whole.readings)
    assert found[1] == rows(whole.quarantined)


def _further(schema: pa.Schema) -> dict[str, str]:
    spark = {pa.float64(): "double", pa.int64(): "bigint", pa.bool_(): "boolean", pa.string(): "string"}
    return {
        field.name: "timestamp" if pa.types.is_timestamp(field.type) else spark[field.type]
        for field in list(schema)[len(Rules().schema) :]
    }


PLAIN = st.sampled_from(SETTINGS[:2]).map(lambda each: Rules.from_settings([each], longest=400))
MOSTLY_JSON = st.lists(
    JSON
    | TWICE
    | st.builds(
        b'{"value": %d, "a": {"b": "%s"}}'.__mod__,
        st.tuples(st.integers(0, 99), st.sampled_from([b"", b'\\":', b"x" * 400, b" :", b"\xff"])),
    )
    | PAYLOADS,
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(MOSTLY_JSON, PLAIN, st.sampled_from([1, 2, 3, bulk.CHUNK]), st.integers(0, 3))
def test_documents_parsed_together_are_what_they_are_one_by_one(
    payloads: list[bytes], rules: Rules, chunk: int, skipped: int
) -> None:
    batch = bronze(payloads).slice(min(skipped, len(payloads)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "CHUNK", chunk)
        together = decode(batch, rules)
        patch.setattr(bulk._Sorted, "_keep", lambda *_: False)
        one_by_one = decode(batch, rules)
    assert together.readings.equals(one_by_one.readings)
    assert together.quarantined.equals(one_by_one.quarantined)


@settings(max_examples=100, deadline=None)
@given(batches(), RULES)
def test_the_schema_is_told_before(batch: pa.RecordBatch, rules: Rules) -> None:
    made = decode(batch, rules)
    assert list(made.readings.schema)[: len(rules.schema)] == list(rules.schema)
    assert len(rules.schema) - len(Rules().schema) <= 8 and len(made.readings.schema) - len(Rules().schema) <= 8
    if not rules.infers:
        assert made.readings.schema == rules.schema
    assert decode(batch, rules.knowing({}, closed=True)).readings.schema == rules.schema


@settings(max_examples=200, deadline=None)
@given(PAYLOADS)
def test_every_text_in_data_is_read_alike_by_all(payload: bytes) -> None:
    for rules in (
        Rules(),
        Rules.from_settings([{"decoder": "json", "value": "a"}]),
        Rules.from_settings([{"decoder": "cbor"}]),
    ):
        for row in rows(decode(bronze([payload]), rules).readings):
            if row["data"] is None:
                continue

            def object_of(members: list[tuple[str, Any]]) -> dict[str, Any]:
                assert len(dict(members)) == len(members)
                return dict(members)

            def constant(name: str) -> Any:
                raise AssertionError(name)

            json.loads(row["data"], object_pairs_hook=object_of, parse_constant=constant)
            parse(row["data"].encode())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, len(SETTINGS) - 1))
def test_arbitrary_bytes_and_any_rule(payload: bytes, choice: int) -> None:
    rules = Rules.from_settings([SETTINGS[choice]])
    readings, quarantined = decode(bronze([payload], arrivals=NOON), rules)
    assert (readings.num_rows > 0) + quarantined.num_rows == 1
