"""The proof that a store has what was sent: it accepts what is right, and finds each thing that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater_lab.store_messages import publisher_of, readings, topic_of
from headwater_lab.store_proof import Proof

MESSAGES = 700
Row = dict[str, Any]


def sent() -> tuple[Proof, list[Row]]:
    proof = Proof()
    rows: list[Row] = []
    for each in readings(MESSAGES, 1, 300):
        proof.add(each)
        for device, time, value, payload in zip(*(list(column) for column in each), strict=True):
            names = {"topic": topic_of(device), "publisher": publisher_of(device)}
            rows.append({"position": 0, "time": int(time), "value": float(value), "payload": payload, **names})
    return proof, numbered(rows)


def numbered(rows: list[Row]) -> list[Row]:
    return [{**row, "position": position} for position, row in enumerate(rows, 1)]


def differences(proof: Proof, rows: list[Row], cuts: list[int], dictionaries: bool = True) -> list[str]:
    returned = proof.returned()
    bounds = [0, *sorted(cuts), len(rows)]
    text = pa.dictionary(pa.int32(), pa.string()) if dictionaries else pa.string()
    kinds = {"position": pa.int64(), "time": pa.timestamp("us", "UTC"), "value": pa.float64()}
    schema = pa.schema([*kinds.items(), ("payload", pa.binary()), ("topic", text), ("publisher", text)])
    for start, end in pairwise(bounds):
        returned.add(pa.RecordBatch.from_pylist(rows[start:end], schema=schema))
    return returned.differences()


@given(st.lists(st.integers(0, MESSAGES), max_size=5), st.booleans())
@settings(deadline=None, max_examples=20)
def test_what_was_sent_is_right_however_it_is_divided(cuts: list[int], dictionaries: bool) -> None:
    proof, rows = sent()
    assert proof.messages == MESSAGES and proof.payload_bytes == sum(len(row["payload"]) for row in rows)
    assert differences(proof, rows, cuts, dictionaries) == []


def test_publishers_may_overtake_each_other() -> None:
    proof, rows = sent()
    assert differences(proof, numbered(sorted(rows, key=lambda row: str(row["publisher"]))), [100]) == []


def changed(rows: list[Row], **columns: Any) -> list[Row]:
    return [*rows[:50], {**rows[50], **columns}, *rows[51:]]


def swapped(rows: list[Row]) -> list[Row]:
    """Two messages of one publisher, in the wrong order."""
    rows[5], rows[105] = rows[105], rows[5]
    return numbered(rows)


WRONG: dict[str, Callable[[list[Row]], list[Row]]] = {
    "one less": lambda rows: rows[:-1],
    "one less in the middle": lambda rows: numbered(rows[:50] + rows[51:]),
    "one twice": lambda rows: numbered([*rows[:50], *rows[49:]]),
    "a gap": lambda rows: [*rows[:-1], {**rows[-1], "position": MESSAGES + 1}],
    "a position twice": lambda rows: changed(rows, position=50),
    "two swapped": swapped,
    "another time": lambda rows: changed(rows, time=rows[50]["time"] + 1),
    "another value": lambda rows: changed(rows, value=rows[50]["value"] + 0.01),
    "no value": lambda rows: changed(rows, value=None),
    "another payload": lambda rows: changed(rows, payload=rows[50]["payload"].replace(b"ok", b"OK")),
    "another topic": lambda rows: changed(rows, topic=topic_of(51)),
    "an unknown topic": lambda rows: changed(rows, topic="a"),
    "another publisher": lambda rows: changed(rows, publisher=publisher_of(51)),
    "an unknown publisher": lambda rows: changed(rows, publisher="who"),
    "nothing": lambda rows: [],
}


@pytest.mark.parametrize("how", WRONG)
def test_what_is_wrong_is_found(how: str) -> None:
    proof, rows = sent()
    assert differences(proof, WRONG[how](rows), [40])


def test_payloads_that_are_divided_otherwise_are_found() -> None:
    proof, rows = sent()
    first, second = rows[5]["payload"], rows[105]["payload"]
    rows[5]["payload"], rows[105]["payload"] = first + second[:1], second[1:]
    assert differences(proof, rows, [])
