"""Blocks: messages by topic in pages, and what is known of them without reading a page."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.store import block
from headwater.store.block import Image, Index, Summary, TopicExtent, chosen, in_order, page_chunk, sealed
from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.query import Query
from tests.store.messages import NOON, asked, contents, numbered, queries

messages = st.lists(contents(), min_size=1, max_size=40).map(lambda found: numbered(found, 5))


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "PAGE", 200)
        yield


def pages_of(image: Image, names: list[str]) -> tuple[Index, list[Chunk]]:
    index = Index.unpack(image.places)
    return index, [page_chunk(record, names, index, page) for page, record in enumerate(image.pages)]


@given(messages)
@settings(deadline=None)
def test_its_pages_have_its_messages_topic_by_topic(entries: list[Entry]) -> None:
    chunk = Chunk.of(entries)
    index, pages = pages_of(sealed(chunk), list(chunk.names))
    whole = Chunk.joined(pages)
    assert whole.topic.tolist() == sorted(chunk.topic.tolist())
    assert list(in_order(whole).entries()) == entries
    for number, name in enumerate(chunk.names):
        rows = index.rows_of(numpy.array([number], numpy.int32))
        assert len(rows) == 1
        assert list(whole.slice(*rows[0]).entries()) == [entry for entry in entries if entry.topic == name]


@given(messages, st.data())
@settings(deadline=None)
def test_what_is_left_of_its_topics_behind_some_first_messages(entries: list[Entry], data: st.DataObject) -> None:
    chunk = Chunk.of(entries)
    seen = data.draw(st.integers(0, len(entries)))
    rest = sealed(chunk).extent.without(chunk.topic[:seen])
    left = [chunk.names.index(entry.topic) for entry in entries[seen:]]
    assert dict(zip(rest.topic.tolist(), rest.messages.tolist(), strict=True)) == {
        number: left.count(number) for number in left
    }
    assert rest.last.tolist() == [5 + len(entries) - 1 - left[::-1].index(number) for number in rest.topic.tolist()]


@pytest.mark.parametrize("counted", [[0, 0, 0], [0, 7], [-1]])
def test_messages_that_it_has_not(counted: list[int]) -> None:
    extent = TopicExtent(*(numpy.array(column) for column in ([0, 1], [2, 1], [1, 3], [2, 3], [0, 0], [0, 0])))
    with pytest.raises(StorageError, match="damaged"):
        extent.without(numpy.array(counted, numpy.int32))


@given(messages)
@settings(deadline=None)
def test_what_is_known_of_it(entries: list[Entry]) -> None:
    chunk = Chunk.of(entries)
    image = sealed(chunk)
    summary = Summary.unpack(image.summary.pack())
    values = [entry.value for entry in entries if entry.value is not None]
    assert (summary.first, summary.end) == (5, 5 + len(entries))
    assert (summary.earliest, summary.latest) == (min(e.time for e in entries), max(e.time for e in entries))
    assert summary.newest == max(entry.arrival for entry in entries)
    assert (summary.low, summary.high) == (min(values), max(values)) if values else summary.low != summary.low
    assert summary.payload_size == sum(len(entry.payload) for entry in entries)
    assert summary.size == sum(map(len, image.pages)) + len(image.places)
    assert summary.pages == len(image.pages)
    extent = TopicExtent.unpack(image.extent.pack())
    for row, number in enumerate(extent.topic.tolist()):
        of_it = [entry for entry in entries if entry.topic == chunk.names[number]]
        assert extent.messages[row] == len(of_it)
        assert (extent.first[row], extent.first_time[row]) == (of_it[0].position, of_it[0].time)
        assert (extent.last[row], extent.last_time[row]) == (of_it[-1].position, of_it[-1].time)
    assert sorted(chunk.names[number] for number in extent.topic) == sorted({entry.topic for entry in entries})


@given(messages, queries(50))
@settings(deadline=None, max_examples=200)
def test_no_page_and_no_block_is_passed_over_that_has_something(entries: list[Entry], query: Query) -> None:
    chunk = Chunk.of(entries)
    image = sealed(chunk)
    index, pages = pages_of(image, list(chunk.names))
    plain = query._replace(filter=None, may_read=None, limit=None)
    wanted = asked(entries, plain)
    assert list(chosen(chunk, plain, None).entries()) == wanted
    assert list(chosen(chunk, image.summary.left_of(plain), None).entries()) == wanted
    if wanted:
        assert image.summary.may_have(plain)
    for page, there in enumerate(pages):
        if len(chosen(there, plain, None)):
            assert index.may_have(page, plain)


def test_a_block_without_values_is_not_looked_into_for_values() -> None:
    summary = sealed(Chunk.of([Entry(1, "a", b"", 0, False, "", NOON, NOON, None)])).summary
    assert summary.may_have(Query(start=NOON, end=NOON + 1, after=0, before=2))
    for query in (Query(low=0.0), Query(high=0.0), Query(start=NOON + 1), Query(end=NOON), Query(after=1)):
        assert not summary.may_have(query)
    assert not summary.may_have(Query(before=1))


def test_ranges_that_touch_are_one() -> None:
    entries = [Entry(at, "abcd"[at % 4], b"", 0, False, "", NOON, NOON, None) for at in range(1, 9)]
    chunk = Chunk.of(entries)
    index = Index.unpack(sealed(chunk).places)
    assert index.rows_of(numpy.array([0, 1, 3, 9], numpy.int32)) == [(0, 4), (6, 8)]
    assert index.rows_of(numpy.array([7], numpy.int32)) == []


def test_a_message_that_is_larger_than_a_page_has_one_of_its_own() -> None:
    sizes = [10, 1000, 10, 10]
    chunk = Chunk.of([Entry(at, "a", bytes(size), 0, False, "", NOON, NOON, None) for at, size in enumerate(sizes, 1)])
    _, pages = pages_of(sealed(chunk), ["a"])
    assert [page.position.tolist() for page in pages] == [[1, 2], [3, 4]]


IMAGE = sealed(Chunk.of([Entry(at, "ab"[at % 2], b"x", 0, False, "", NOON, NOON, 1.0) for at in range(1, 30)]))
RECORDS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (IMAGE.summary.pack(), Summary.unpack),
    (IMAGE.extent.pack(), TopicExtent.unpack),
    (IMAGE.places, Index.unpack),
]


@given(st.sampled_from(RECORDS), st.data())
@settings(deadline=None, max_examples=300)
def test_damage_is_a_storage_error_or_not_seen(
    record: tuple[bytes, Callable[[bytes], object]], data: st.DataObject
) -> None:
    content, unpack = record
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        unpack(bytes(damaged))
    except StorageError as error:
        assert "restore a backup" in str(error)
    with pytest.raises(StorageError, match="damaged"):
        unpack(content[: data.draw(st.integers(0, len(content) - 1))])
