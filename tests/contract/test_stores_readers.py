"""What every store of messages promises to readers with names. What they hold back is in test_stores_keeping.py."""

from __future__ import annotations

import time

import pytest

from headwater.store.readers import MOST
from headwater.store.store import Reader, UnknownReader
from tests.contract.conftest import Stores
from tests.store.kinds import Kind, every_kind
from tests.store.steady import written


@every_kind
def test_a_reader_comes_into_being_with_its_first_commit(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 10)
    with pytest.raises(UnknownReader):
        store.reader("spark")
    begin = time.time_ns() // 1000
    made = store.commit("spark", 0)
    end = time.time_ns() // 1000
    assert made == Reader("spark", 0, 0, made.created, made.created)
    assert begin <= made.created <= end
    assert store.reader("spark") == made
    assert store.readers() == [made]


@every_kind
def test_commits_go_forward_and_back(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 10)
    made = store.commit("spark", 5)
    for position in (10, 3, 3, 0, 7):
        reader = store.commit("spark", position)
        assert (reader.name, reader.position, reader.lost, reader.created) == ("spark", position, 0, made.created)
        assert reader.committed >= made.committed
        assert store.reader("spark") == reader
    assert len(store.readers()) == 1


@every_kind
def test_readers_are_in_the_order_of_names(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 10)
    for position, name in enumerate(["b", "a.2", "Z", "a", "0", "a:1@x-y_z"]):
        store.commit(name, position)
    assert [reader.name for reader in store.readers()] == ["0", "Z", "a", "a.2", "a:1@x-y_z", "b"]
    assert [reader.position for reader in store.readers()] == [4, 2, 3, 1, 5, 0]


@every_kind
def test_a_position_that_was_not_given_cannot_be_committed(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 10)
    for position in (11, 12, 10**30):
        with pytest.raises(ValueError, match="not been given"):
            store.commit("spark", position)
    assert store.readers() == []
    store.commit("spark", 4)
    with pytest.raises(ValueError, match="the last one is 10"):
        store.commit("spark", 11)
    assert store.reader("spark").position == 4


@every_kind
@pytest.mark.parametrize("name", ["", ".", "-a", "_", "a b", "a/b", "a\n", "é", "a\0", "x" * 129, "../a"])
def test_names_that_are_not_good_ones(kind: Kind, name: str, stores: Stores) -> None:
    store = written(stores.open(kind), 1)
    with pytest.raises(ValueError, match="name"):
        store.commit(name, 1)
    for ask in (store.reader, store.forget):
        with pytest.raises(UnknownReader):
            ask(name)
    assert store.readers() == []


@every_kind
def test_the_longest_name(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 1)
    assert store.commit("x" * 128, 1).name == "x" * 128


@every_kind
def test_a_reader_that_is_forgotten_is_not_there(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind), 10)
    store.commit("a", 5)
    store.commit("b", 5)
    store.forget("a")
    for ask in (store.reader, store.forget):
        with pytest.raises(UnknownReader):
            ask("a")
    assert [reader.name for reader in store.readers()] == ["b"]
    assert store.commit("a", 1).position == 1


@every_kind
def test_there_are_not_too_many_readers(kind: Kind, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST >= 100
    monkeypatch.setattr("headwater.store.readers.MOST", 3)
    store = written(stores.open(kind), 1)
    for name in "abc":
        store.commit(name, 1)
    with pytest.raises(ValueError, match="readers already"):
        store.commit("d", 1)
    assert store.commit("a", 0).position == 0
    store.forget("b")
    assert store.commit("d", 1).position == 1
