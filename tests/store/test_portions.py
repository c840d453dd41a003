from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.portions import portions
from tests.store.messages import contents, numbered, read


@given(st.lists(contents(), min_size=1, max_size=40).map(numbered), st.integers(1, 50), st.integers(0, 100))
def test_portions_are_bounded_and_all_there_is(entries: list[Entry], rows: int, size: int) -> None:
    found = list(portions(Chunk.of(entries), rows, size))
    assert read(found) == entries
    for part in found:
        assert 1 <= len(part) <= rows
        for column in ("payload", "properties"):
            assert len(part) == 1 or sum(len(getattr(entry, column)) for entry in part.entries()) <= size


def test_nothing_has_no_portions() -> None:
    assert list(portions(Chunk.of([]), 1, 1)) == []
