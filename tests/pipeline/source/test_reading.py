"""What an executor does: a range as it is, or an error; never less without a word."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.pipeline.source import reading
from headwater.pipeline.source.reading import SCHEMA, DataMissing, Range, read
from headwater.store import asking
from headwater.store.chunk import Chunk
from headwater.store.query import Query
from headwater.store.reader import Gone, Unreachable
from tests.pipeline.source.some_stores import EXPIRED, WatchedStore, fill, settings
from tests.store.rest.served import Served


def positions(range: Range, *servers: Served, **options: object) -> list[int]:
    batches = read(range, settings(*servers, **options))
    return [position for batch in batches for position in batch["position"].to_pylist()]


@given(st.integers(0, 1 << 40), st.integers(0, 5000), st.integers(1, 700))
def test_parts_cover_a_range_exactly_and_none_is_too_large(after: int, size: int, most: int) -> None:
    whole = Range("s", "http://s", after, after + size, "a/#", "x", "y", ("position",))
    parts = whole.parts(most)
    assert [position for each in parts for position in range(each.after + 1, each.last + 1)] == list(
        range(after + 1, after + size + 1)
    )
    sizes = [each.last - each.after for each in parts]
    assert all(0 < each <= most for each in sizes) and max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(parts) == -(-size // most)
    assert all((each.topic, each.measured_from, each.columns) == ("a/#", "x", ("position",)) for each in parts)


def test_only_the_columns_that_are_wanted_in_their_order(one: Served) -> None:
    fill(one, 3)
    [batch] = read(Range("s1", one.url, 0, 3, columns=("topic", "store", "position")), settings(one))
    assert batch.schema.names == ["topic", "store", "position"]
    assert batch.to_pylist()[2] == {"topic": "a/0", "store": "s1", "position": 3}


def test_many_batches_are_one_range(one: Served) -> None:
    fill(one, 2500)
    assert positions(Range("s1", one.url, 7, 2490), one) == list(range(8, 2491))
    batches = list(read(Range("s1", one.url, 0, 2500), settings(one)))
    assert all(batch.schema == SCHEMA for batch in batches)


class Forgetful(WatchedStore):
    """Lacks a message in the middle."""

    def select(self, query: Query) -> Iterator[Chunk]:
        for chunk in super().select(query):
            yield Chunk.of([entry for entry in chunk.entries() if entry.position != 3])


def test_a_store_that_gives_less_than_its_positions_is_an_error(one: Served) -> None:
    one.use(Forgetful("s1"))
    fill(one, 5)
    with pytest.raises(DataMissing, match="s1 has given 4 messages for the positions 1 to 5"):
        positions(Range("s1", one.url, 0, 5), one)
    assert positions(Range("s1", one.url, 3, 5), one) == [4, 5]
    assert positions(Range("s1", one.url, 0, 5, topic="a/1"), one) == [1, 4]  # who asks for some cannot know


def test_a_range_that_is_not_there_yet_is_an_error(one: Served) -> None:
    fill(one, 5)
    with pytest.raises(DataMissing, match="given 5 messages for the positions 1 to 9"):
        positions(Range("s1", one.url, 0, 9), one)


@pytest.mark.parametrize(("first", "last", "left"), [(0, 15, [11, 12, 13, 14, 15]), (2, 8, []), (9, 12, [11, 12])])
def test_what_is_gone_is_an_error_or_left_out(
    one: Served, first: int, last: int, left: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    fill(one, 10)
    one.store.trim(EXPIRED)
    fill(one, 5)
    with pytest.raises(Gone, match="1"):
        positions(Range("s1", one.url, first, last), one)
    assert positions(Range("s1", one.url, first, last), one, failOnDataLoss="false") == left
    assert "s1:" in caplog.text and "failOnDataLoss is false" in caplog.text


class Ailing(WatchedStore):
    """Breaks off after the first chunk, so many times."""

    def __init__(self, id: str, times: int) -> None:
        super().__init__(id)
        self.times = times

    def select(self, query: Query) -> Iterator[Chunk]:
        for chunk in super().select(query):
            if self.times:
                self.times -= 1
                if self.times % 8 == 0:
                    yield chunk.slice(0, 2)
                raise StorageError("broken")
            yield chunk


def test_a_store_that_ails_for_a_while_is_waited_for(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOST_FOR", 0.01)
    monkeypatch.setattr(asking, "FIRST_WAIT", 0.001)
    one.use(Ailing("s1", 20))
    fill(one, 60)
    assert positions(Range("s1", one.url, 0, 60), one, waitForStore=60) == list(range(1, 61))


def test_one_that_stays_away_is_an_error_in_the_end(mortal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOST_FOR", 0.01)
    monkeypatch.setattr(asking, "FIRST_WAIT", 0.001)
    url = mortal.url
    mortal.stop()
    with pytest.raises(Unreachable, match=url):
        positions(Range("s3", url, 0, 5), url=url, waitForStore=0.1)


@given(
    st.integers(0, 500),
    st.integers(1, 2000),
    st.lists(st.integers(1, 2600), unique=True).map(sorted),
    st.integers(1, 700),
)
def test_ranges_of_object_storage_are_cut_between_objects_if_that_makes_no_large_parts(
    after: int, size: int, ends: list[int], most: int
) -> None:
    parts = Range("s", "http://s", after, after + size).parts(most, ends)
    assert [position for each in parts for position in range(each.after + 1, each.last + 1)] == list(
        range(after + 1, after + size + 1)
    )
    assert all(0 < each.last - each.after <= most + most // 4 for each in parts)
    for left, right in pairwise(parts):  # a cut within an object is of one that is too large
        if left.last not in ends:
            begin = max((end for end in ends if end < left.last), default=after)
            close = min((end for end in ends if end > left.last), default=after + size)
            assert close - begin > most or right.last - begin > most


@pytest.mark.parametrize("erased", ["1", "3", "5", "1-2,5", "1-5"])
def test_what_was_erased_is_missing_and_that_is_right(one: Served, erased: str) -> None:
    fill(one, 5)
    one.call("DELETE", "/v1/messages", {"positions": erased})
    gone = {int(each) for part in erased.split(",") for each in range(int(part[0]), int(part[-1]) + 1)}
    assert positions(Range("s1", one.url, 0, 5), one) == [each for each in range(1, 6) if each not in gone]


def test_what_is_missing_beside_what_was_erased_is_an_error(one: Served) -> None:
    one.use(Forgetful("s1"))
    fill(one, 6)
    one.call("DELETE", "/v1/messages", {"positions": "4"})
    with pytest.raises(DataMissing, match="s1 has given 4 messages for the positions 1 to 6"):
        positions(Range("s1", one.url, 0, 6), one)
