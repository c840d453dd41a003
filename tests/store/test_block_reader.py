"""Reading blocks: the right pages, no more of them than needed, and what is removed while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.store import block as block_module
from headwater.store.block import Index, Summary, sealed
from headwater.store.block_reader import WHOLES, BlockReader, rows_by_page
from headwater.store.chunk import Chunk, Indices
from headwater.store.entry import Entry
from headwater.store.query import Query
from headwater.store.shelf import BLOCK, EXTENT, INDEX, Shelf, page_key, position_key
from headwater.store.store import PositionGone
from headwater.store.topic_table import TopicTable
from tests.store.messages import NOON

NAMES = [f"t/{number}" for number in range(10)]
MESSAGES = 200


def named() -> TopicTable:
    table = TopicTable()
    for name in NAMES:
        table.number(name.encode())
    return table


def entry(position: int) -> Entry:
    topic = NAMES[position * position % 10]
    return Entry(position, topic, b"%04d" % position, 0, False, "device", NOON + position, NOON, float(position))


class Counted(Shelf):
    def __init__(self, path: Path) -> None:
        super().__init__(path, 1 << 20, True)
        self.read: list[str] = []

    def get(self, key: bytes) -> bytes | None:
        self.read.append(key[:1].decode())
        return super().get(key)

    def page(self, first: int, page: int) -> bytes | None:
        self.read.append(f"page {page}")
        return super().page(first, page)

    def pages(self, first: int) -> list[bytes]:
        self.read.append("all")
        return super().pages(first)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(block_module, "PAGE", 500)
    shelf = Counted(tmp_path / "db")
    yield shelf
    shelf.close()


def put(shelf: Shelf, first: int) -> Summary:
    """A block of MESSAGES."""
    chunk = Chunk.of([entry(position) for position in range(first, first + MESSAGES)])
    topics = [NAMES.index(chunk.names[number]) for number in chunk.topic]
    chunk.topic, chunk.names = numpy.array(topics, numpy.int32), NAMES
    image = sealed(chunk)
    records = [(BLOCK, image.summary.pack()), (INDEX, image.places), (EXTENT, image.extent.pack())]
    shelf.write(
        [(position_key(kind, first), record) for kind, record in records],
        pages=[(page_key(first, number), page) for number, page in enumerate(image.pages)],
    )
    return image.summary


def expected(first: int, topics: list[int] | None = None) -> list[Entry]:
    found = [entry(position) for position in range(first, first + MESSAGES)]
    return [each for each in found if topics is None or NAMES.index(each.topic) in topics]


def numbers(*topics: int) -> Indices:
    return numpy.array(topics, numpy.int32)


def test_few_topics_read_their_pages_and_many_read_all(shelf: Counted) -> None:
    block = put(shelf, 1)
    reader = BlockReader(shelf, named(), 1 << 20)
    assert list(reader.select(block, Query(), numbers(5)).entries()) == expected(1, [5])
    assert set(shelf.read) < {"i", *(f"page {page}" for page in range(block.pages))}
    assert "all" not in shelf.read
    shelf.read.clear()
    assert list(reader.select(block, Query(), numbers(0, 1, 4, 6)).entries()) == expected(1, [0, 1, 4, 6])
    assert shelf.read == ["all"]
    assert list(reader.select(block, Query(), None).entries()) == expected(1)
    assert shelf.read == ["all"]  # it is the block that was read last
    assert len(reader.select(block, Query(), numbers(2))) == 0


def test_pages_of_other_times_and_values_are_not_read(shelf: Counted) -> None:
    block = put(shelf, 1)
    reader = BlockReader(shelf, named(), 1 << 20)
    wanted = expected(1, [5])
    asked = Query(start=wanted[3].time, end=wanted[5].time, low=0.0, high=wanted[4].value)
    assert list(reader.select(block, asked, numbers(5)).entries()) == wanted[3:5]
    assert f"page {page_of(shelf, block, 5, 3)}" in shelf.read
    shelf.read.clear()
    assert len(reader.select(block, Query(low=1e9), numbers(5))) == 0
    assert shelf.read == []


def page_of(shelf: Shelf, block: Summary, topic: int, nth: int) -> int:
    index = Index.unpack(shelf.get(position_key(INDEX, block.first)) or b"")
    row = index.rows_of(numbers(topic))[0][0] + nth
    return int(numpy.searchsorted(index.pages, row, "right")) - 1


def test_indexes_that_were_asked_for_last_stay(shelf: Counted) -> None:
    blocks = [put(shelf, first) for first in (1, 1001, 2001)]
    size = Index.unpack(shelf.get(position_key(INDEX, 1)) or b"").size
    reader = BlockReader(shelf, named(), 2 * size)
    shelf.read.clear()
    for block in (*blocks[:2], blocks[0], blocks[2], blocks[0], blocks[1]):
        reader.select(block, Query(low=1e9), numbers(5))
    assert shelf.read.count("i") == 4  # the second had to go for the third
    reader.forget(blocks)
    assert reader._size == 0


@pytest.mark.parametrize("wanted", [None, numbers(5)])
@pytest.mark.parametrize("index_known", [True, False])
def test_what_is_removed_is_gone_and_what_is_missing_is_damage(
    wanted: Indices | None, index_known: bool, shelf: Counted
) -> None:
    blocks = [put(shelf, first) for first in (1, 1001)]
    reader = BlockReader(shelf, named(), 1 << 20)
    if index_known:
        for block in blocks:
            reader.select(block, Query(low=1e9), numbers(5))
    reader.forget(blocks[:1])
    keys = [position_key(kind, block.first) for block in blocks for kind in (BLOCK, INDEX, EXTENT)]
    shelf.remove(keys, [], pages_before=5000)
    with pytest.raises(PositionGone) as gone:
        reader.select(blocks[0], Query(), wanted)
    assert (gone.value.asked, gone.value.first) == (1, 1 + MESSAGES)
    with pytest.raises(StorageError, match="from position 1001 to 1200 are damaged"):
        reader.select(blocks[1], Query(), wanted)
    with pytest.raises(StorageError, match="damaged"):
        reader.extent(blocks[1])


def test_two_who_read_neighbouring_ranges_make_the_block_between_them_once(shelf: Counted) -> None:
    blocks = [put(shelf, 1 + number * MESSAGES) for number in range(4)]
    reader = BlockReader(shelf, named(), 1 << 20)
    for at in (0, 1, 1, 2, 2, 3):  # one goes on with what the other has begun with
        assert list(reader.select(blocks[at], Query(), None).entries()) == expected(1 + at * MESSAGES)
    assert shelf.read.count("all") == 4
    assert len(reader._wholes) == WHOLES


def test_positions_at_the_edges_of_a_range_move_no_messages(shelf: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    block = put(shelf, 1)
    reader = BlockReader(shelf, named(), 1 << 20)
    whole = reader.select(block, Query(), None)
    monkeypatch.setattr(Chunk, "take", lambda *_: pytest.fail("messages are moved"))
    for after, before in ((0, 9), (4, MESSAGES - 3), (MESSAGES - 1, MESSAGES + 5), (7, 8)):
        found = reader.select(block, Query(after=after, before=before), None)
        assert list(found.entries()) == [each for each in whole.entries() if after < each.position < before]


def test_a_block_that_was_removed_while_it_was_read_is_not_remembered(
    shelf: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = put(shelf, 1)
    reader = BlockReader(shelf, named(), 1 << 20)
    pages = shelf.pages

    def removed_meanwhile(first: int) -> list[bytes]:
        found = pages(first)
        reader.forget([block])
        return found

    monkeypatch.setattr(shelf, "pages", removed_meanwhile)
    assert list(reader.select(block, Query(), None).entries()) == expected(1)
    assert not reader._wholes


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 12)), max_size=5),
)
@settings(deadline=None)
def test_rows_by_page(page_sizes: list[int], steps: list[tuple[int, int]]) -> None:
    pages = numpy.cumsum([0, *page_sizes], dtype=numpy.int32)
    ranges: list[tuple[int, int]] = []
    behind = 0
    for gap, length in steps:
        start, end = behind + gap, behind + gap + length
        if end <= pages[-1]:
            ranges.append((start, end))
            behind = end
    rows = [row for start, end in ranges for row in range(start, end)]
    found = [
        int(pages[page] + row)
        for page, parts in rows_by_page(ranges, pages).items()
        for start, end in parts
        for row in range(start, end)
    ]
    assert sorted(found) == rows


def test_topics_that_lose_their_names_while_a_block_is_read_keep_them_for_this_reading(shelf: Counted) -> None:
    table = named()
    reader = BlockReader(shelf, table, 1 << 20)
    block = put(shelf, 1)
    reading = shelf.pages

    def pages_while_topics_go(first: int) -> list[bytes]:
        table.drop(range(len(NAMES)))
        return reading(first)

    shelf.pages = pages_while_topics_go  # type: ignore[method-assign]
    assert {each.topic for each in reader.select(block, Query(), None).entries()} <= set(NAMES)
    assert table.names == [""] * len(NAMES)
