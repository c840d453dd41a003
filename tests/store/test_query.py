from __future__ import annotations

import pytest

from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.query import Query

ELSEWHERE = {"filter", "may_read", "limit", "where"}
"""Asked once for each topic, of the whole, or of what a message says (store/rest/messages.py)."""
MESSAGE = Chunk.of([Entry(5, "a", b"", 1, False, "device", 5, 5, 5.0)])


@pytest.mark.parametrize("name", [name for name in Query._fields if name not in ELSEWHERE])
def test_each_condition_lets_some_messages_pass_and_not_others(name: str) -> None:
    """A field without a test would be a condition that everything meets."""
    answers = {bool(test.all()) for bound in (0, 6) for test in Query(**{name: bound}).met_by(MESSAGE)}  # type: ignore[arg-type]
    assert answers == {True, False}


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_asked_elsewhere_is_no_test_of_messages(name: str) -> None:
    assert Query(**{name: "a"}).met_by(MESSAGE) == []  # type: ignore[arg-type]
