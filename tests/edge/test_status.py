"""The status of an edge as JSON and back, whatever is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.status import (
    EdgeNode,
    EdgeStatus,
    MalformedStatus,
    Move,
    Ownership,
    Stretch,
    Unowned,
    decode,
    encode,
)

TEXT = st.text(max_size=8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
NUMBER = st.integers(0, 1 << 62)
TIME = st.floats(0, 1e10, allow_nan=False)


STATUSES = st.builds(
    EdgeStatus,
    TEXT,
    TEXT,
    st.lists(st.builds(EdgeNode, TEXT, TEXT, TEXTS, TEXT, TEXT, TEXT, TEXT, st.booleans()), max_size=3).map(tuple),
    st.lists(st.builds(Ownership, TEXT, TEXT, TEXT, NUMBER, TEXT), max_size=3).map(tuple),
    st.lists(st.builds(Move, TEXT, NUMBER, TEXTS, TEXT, TEXT, TIME, TEXTS), max_size=3).map(tuple),
    st.lists(st.builds(Stretch, *[TEXT] * 3, TEXTS, TEXT, NUMBER, NUMBER, st.none() | NUMBER), max_size=3).map(tuple),
    st.builds(Unowned, TEXT, TEXT, NUMBER, TEXTS),
)

PAGE = Path(__file__).parents[2] / "docs" / "edge-tiers.md"
EXAMPLE: dict[str, Any] = json.loads(PAGE.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0])
"""As docs/edge-tiers.md shows it."""


@given(STATUSES)
def test_what_was_written_is_read(status: EdgeStatus) -> None:
    assert decode(json.loads(json.dumps(encode(status)))) == status


def test_the_names_of_fields() -> None:
    status = decode(EXAMPLE)
    assert json.loads(json.dumps(encode(status))) == EXAMPLE
    assert encode(status) == EXAMPLE, "it is a value of JSON before it is written, too"
    assert status.stores[0].last is None
    assert status.stores[1].last == 40960
    assert status.owner_of("plant/#") == "n-d1"
    assert status.owner_of("plant/1") == ""


def test_what_a_later_version_says_besides_is_left_out() -> None:
    more = {**EXAMPLE, "new": 1, "nodes": [{**EXAMPLE["nodes"][0], "colour": "red"}]}
    assert decode(more) == decode(EXAMPLE)


@pytest.mark.parametrize("name", list(EXAMPLE))
def test_what_is_needed_has_to_be_there(name: str) -> None:
    with pytest.raises(MalformedStatus):
        decode({key: value for key, value in EXAMPLE.items() if key != name})


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3)))
def test_anything_else_is_refused(value: object) -> None:
    node = EXAMPLE["nodes"][0]
    wrong = [value, {**EXAMPLE, "stores": [value]}]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        wrong.append({**EXAMPLE, "nodes": [{**node, "roles": value}]})
    for each in wrong:
        with pytest.raises(MalformedStatus):
            decode(each)
