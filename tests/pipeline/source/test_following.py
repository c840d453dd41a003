"""The source follows the stores of an edge, of which it is told one address."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.pipeline.jobs.clocks import ask
from headwater.pipeline.source import addresses as module
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.stores import DataLoss
from headwater.store.directory import Directory, Holding
from headwater.store.reader import Refused, StoreReader, Unreachable
from tests.pipeline.source.some_stores import WatchedStore, batch, fill, names, rows, settings, span, stream
from tests.store.rest.served import EVERYTHING, Served
from tests.store.rest.some_edge import SomeEdge, an_edge

ALL = ReadAllAvailable()
NOBODY = "http://127.0.0.1:9"
Two = tuple[SomeEdge, Served, Served]


@pytest.fixture(scope="module")
def lasting() -> Iterator[tuple[SomeEdge, list[Served]]]:
    with an_edge("s1", "s2", make=WatchedStore) as found:
        yield found


@pytest.fixture
def two(lasting: tuple[SomeEdge, list[Served]], monkeypatch: pytest.MonkeyPatch) -> Two:
    """Both stores are there, and `s1` alone is of an edge."""
    monkeypatch.setattr(module, "BETWEEN_DIRECTORIES", 0.0)
    edge, (one, other) = lasting
    one.use(WatchedStore("s1"))
    other.use(WatchedStore("s2"))
    edge.holdings, edge.moves, edge.token = [], [], EVERYTHING
    edge.holds(one, "#")
    return edge, one, other


def ended(two: Two, at: int) -> None:
    """`s2` has ended, and its node is gone."""
    edge, _, other = two
    edge.holds(other, "old/#", last=at)
    edge.holdings[-1] = edge.holdings[-1]._replace(url=NOBODY)


def read(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    return names(rows(reader, list(reader.partitions(start, end))))


def test_a_store_that_comes_while_it_runs_is_read_from_its_beginning(two: Two) -> None:
    edge, one, other = two
    fill(one, 3)
    fill(other, 2)
    reader = stream(one, startingOffsets="latest")
    begin = reader.initialOffset()
    assert begin == {"s1": 3}
    edge.holds(other, "a/#", epoch=1)
    first = reader.latestOffset(begin, ALL)
    assert first == {"s1": 3, "s2": 0}
    second = reader.latestOffset(first, ALL)
    assert read(reader, first, second) == span("s2", 1, 2)


@pytest.mark.parametrize("which", [0, 1])
def test_any_node_is_enough(two: Two, which: int) -> None:
    edge, one, other = two
    edge.holds(other, "a/#")
    fill(one, 3)
    fill(other, 2)
    reader = stream((one, other)[which])
    begin = reader.initialOffset()
    assert read(reader, begin, reader.latestOffset(begin, ALL)) == [*span("s1", 1, 3), *span("s2", 1, 2)]
    spark = batch((one, other)[which])
    assert names(rows(spark, list(spark.partitions()))) == [*span("s1", 1, 3), *span("s2", 1, 2)]


def test_unless_it_is_told_not_to(two: Two) -> None:
    edge, one, other = two
    edge.holds(other, "a/#")
    assert stream(one, follow="false").initialOffset() == {"s1": 0}
    assert stream(one, other, follow="false").initialOffset() == {"s1": 0, "s2": 0}
    assert stream(one, store="s2").initialOffset() == {"s2": 0}


def test_all_addresses_of_an_edge_are_asked_once(two: Two) -> None:
    edge, one, other = two
    edge.holds(other, "a/#")
    assert Addresses(settings(one, other)).now() == [one.url, other.url]
    assert Addresses(settings(other, one)).now() == [other.url, one.url]
    assert Addresses(settings(one)).now() == [one.url, other.url]


def test_a_node_without_a_store_says_where_the_stores_are(two: Two) -> None:
    edge, one, other = two
    edge.holdings = []
    edge.holds(other, "#")
    assert Addresses(settings(one)).now() == [other.url]


def test_a_store_that_has_ended_is_not_missed_once_it_is_read(two: Two) -> None:
    _, one, _ = two
    ended(two, 5)
    fill(one, 2)
    reader = stream(one)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"s1": 0, "s2": 5}, ALL) == {"s1": 2, "s2": 5}
    known = '{"s1": 1, "s2": 5}'
    spark = batch(one, startingOffsets=known, unknownStores="keep")
    assert names(rows(spark, list(spark.partitions()))) == span("s1", 2, 2)


def test_a_store_that_has_ended_and_was_not_read_is_missed(two: Two) -> None:
    _, one, _ = two
    ended(two, 5)
    reader = stream(one)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises((Unreachable, DataLoss), match=r"no answer|none of the addresses"):
        reader.latestOffset({"s1": 0, "s2": 4}, ALL)
    with pytest.raises(Unreachable, match="no answer"):
        batch(one).partitions()
    with pytest.raises(Unreachable, match="no answer"):
        batch(one, startingOffsets='{"s1": 1, "s2": 4}', unknownStores="keep").partitions()


def test_one_that_goes_on_and_is_away_is_missed(two: Two) -> None:
    edge, one, _ = two
    ended(two, 5)
    edge.holdings[-1] = edge.holdings[-1]._replace(last=None)
    with pytest.raises(Unreachable, match="no answer"):
        stream(one).prepareForTriggerAvailableNow()


def test_the_clock_of_a_store_that_has_ended_goes_on(two: Two) -> None:
    _, one, _ = two
    ended(two, 5)
    fill(one, 2)
    silent: dict[str, str] = {}
    before = datetime.now(UTC)
    found = ask(Addresses(settings(one)), silent)
    assert silent == {}
    assert found["s2"][0] >= before
    assert found["s2"][1] == 6


def test_what_was_said_holds_while_nobody_says_anything(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, one, other = two
    edge.holds(other, "a/#")
    addresses = Addresses(settings(one))
    assert addresses.now() == [one.url, other.url]

    def away(self: StoreReader) -> None:
        raise Unreachable("nobody listens")

    monkeypatch.setattr(StoreReader, "directory", away)
    assert addresses.now() == [one.url, other.url]


def test_who_asks_is_not_shown_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Directory(
        [Holding("s1", "n1", "https://n1", ("#",), 1, None), Holding("s2", "n2", "http://n2", ("x",), 1, None)]
    )
    known.node = "n1"
    monkeypatch.setattr(StoreReader, "directory", lambda self: known)
    with pytest.raises(Refused, match="which has no TLS"):
        Addresses(settings(url="https://n1:8080")).now()
    assert Addresses(settings(url="http://n1:8080")).now() == ["http://n1:8080", "http://n2"]


def test_offsets_of_a_reader_are_told_to_every_store(two: Two, tmp_path: Path) -> None:
    edge, one, other = two
    edge.holds(other, "a/#")
    fill(one, 3)
    fill(other, 2)
    reader = stream(one, reader="lake")
    begin = reader.initialOffset()
    reader.commit(reader.latestOffset(begin, ALL))
    assert (one.store.reader("lake").position, other.store.reader("lake").position) == (3, 2)
