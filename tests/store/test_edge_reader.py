"""Reading all stores of an edge by way of one of its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.store import edge_reader as module
from headwater.store.directory import Directory, Holding, Precedence
from headwater.store.edge_reader import EdgeReader, bounds_of
from headwater.store.memory import MemoryStore
from headwater.store.reader import Refused, StoreReader, Unreachable
from tests.store.messages import MICROSECONDS, NOON, SECOND
from tests.store.rest.served import EVERYTHING, Served
from tests.store.rest.some_edge import SomeEdge, an_edge

Two = tuple[SomeEdge, Served, Served]


@pytest.fixture(scope="module")
def lasting() -> Iterator[tuple[SomeEdge, list[Served]]]:
    with an_edge("a", "b") as found:
        yield found


@pytest.fixture
def two(lasting: tuple[SomeEdge, list[Served]], monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr(module, "ALONE_FOR", 0.0)
    edge, (a, b) = lasting
    a.use(MemoryStore("a", MICROSECONDS))
    b.use(MemoryStore("b", MICROSECONDS))
    edge.holdings, edge.moves, edge.token = [], [], EVERYTHING
    return edge, a, b


def reader(served: Served) -> EdgeReader:
    return EdgeReader(StoreReader(served.url, token=EVERYTHING, retries=0, timeout=3.0))


def write(served: Served, topic: str, count: int) -> None:
    for _ in range(count):
        served.writer.take(topic, b"x", arrival=NOON + served.writer.next * SECOND)
    served.writer.sync()


def rows(edge: EdgeReader, after: dict[str, int] | None = None, topic: str | None = None) -> list[tuple[str, int]]:
    return [(id, position) for id, batch in edge.read(after, topic) for position in batch["position"].to_pylist()]


def test_a_node_that_knows_of_no_edge_is_one(two: Two) -> None:
    _, a, _ = two
    write(a, "x", 3)
    edge = reader(a)
    assert rows(edge) == [("a", 1), ("a", 2), ("a", 3)]
    assert edge.is_alone
    assert rows(edge, {"a": 2}) == [("a", 3)]


def test_all_stores_are_read_and_what_moved_is_in_order(two: Two) -> None:
    known, a, b = two
    write(a, "x", 2)
    write(b, "y", 1)
    write(b, "x", 2)
    write(a, "x", 1)
    known.holds(b, "y")
    known.holds(a, "x", last=2, epoch=1)
    known.holds(b, "x", first=2, last=3, epoch=2)
    known.holds(a, "x", first=3, epoch=3)
    for node in (a, b):
        found = rows(reader(node))
        assert sorted(found) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
        assert found.index(("a", 2)) < found.index(("b", 2))
        assert found.index(("b", 3)) < found.index(("a", 3))
    assert rows(reader(b), {"a": 3, "b": 2}) == [("b", 3)]
    assert rows(reader(a), topic="y") == [("b", 1)]


def test_stores_that_come_are_found(two: Two) -> None:
    known, a, b = two
    known.holds(a, "x")
    edge = reader(a)
    assert rows(edge) == []
    write(b, "x", 1)
    known.holds(b, "x", epoch=2)
    assert rows(edge) == [("b", 1)]


def test_one_that_does_not_answer_is_an_error_unless_it_has_ended_and_was_read(two: Two) -> None:
    known, a, b = two
    write(a, "x", 1)
    known.holds(a, "x")
    known.holds(b, "y", last=7)
    known.holdings[1] = known.holdings[1]._replace(url="http://127.0.0.1:9")
    with pytest.raises(Unreachable):
        rows(reader(a), {"b": 6})
    assert rows(reader(a), {"b": 7}) == [("a", 1)]


def test_another_node_says_which_stores_there_are_when_the_first_is_away(two: Two) -> None:
    known, a, b = two
    known.holds(a, "x")
    known.holds(b, "y")
    edge = reader(a)
    edge.look()
    edge.home = reader(a).home.at("http://127.0.0.1:9")
    known.holds(a, "z", epoch=5)
    assert [each.filters for each in edge.look().holdings] == [("x",), ("y",), ("z",)]
    with pytest.raises(Unreachable):
        EdgeReader(edge.home).look()


def test_what_is_known_is_not_forgotten_by_asking_one_who_has_not_heard_of_it(two: Two) -> None:
    known, a, b = two
    known.holds(a, "x", last=4, epoch=1)
    known.holds(b, "x", epoch=2)
    edge = reader(a)
    edge.look()
    known.holdings = [known.holdings[0]._replace(last=None)]
    assert edge.look().places["a"].ended == 4
    assert "b" in edge.directory.places


def test_nobody_is_told_without_tls_who_we_are(two: Two) -> None:
    known, a, b = two
    known.holds(a, "x")
    known.holds(b, "y")
    edge = reader(a)
    edge.look()
    edge.home._secure = True
    with pytest.raises(Refused, match="no TLS"):
        edge.reader(edge.directory.places["b"])


def test_who_waits_for_whom() -> None:
    known = Directory(
        [
            Holding("a", "n", "", ("x",), 1, 4, 1),
            Holding("b", "m", "", ("x",), 7, 9, 2),
            Holding("a", "n", "", ("x",), 6, None, 3),
        ]
    )
    assert bounds_of(known, {"a": 0, "b": 0}, ["a", "b"]) == {"a": 6, "b": 7}
    assert bounds_of(known, {"a": 4, "b": 6}, ["a", "b"]) == {"a": 6}
    assert bounds_of(known, {"a": 5, "b": 9}, ["a"]) == {}
    assert bounds_of(known, {"a": 5, "b": 6}, ["a"]) == {"a": 6}, "b does not answer"


def test_a_circle_of_a_wrong_directory_holds_nothing_for_ever() -> None:
    known = Directory([Holding("a", "n", "", ("x", "y"), 1, 9, 1), Holding("b", "m", "", ("x",), 1, 9, 2)])
    known.waiting = lambda done: [Precedence("a", 9, "b", 1), Precedence("b", 9, "a", 1)]  # type: ignore[method-assign]
    assert bounds_of(known, {"a": 0, "b": 0}, ["a", "b"]) == {"b": 1}
