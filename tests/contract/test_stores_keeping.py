"""What every store of messages removes, what it does not, and what named readers hold back of that."""

from __future__ import annotations

import pytest

from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import PositionGone, Trimmed, UnknownReader
from tests.contract.conftest import Stores
from tests.store.kinds import COMMIT, Kind, every_kind, every_kind_on_disk
from tests.store.messages import found, positions, read
from tests.store.steady import MESSAGES, MUCH_LATER, aged, assert_is_whole, at, written

# ---- retention -----------------------------------------------------------------------------------------------------


@every_kind
def test_without_limits_nothing_is_removed(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind))
    for now in (0, at(MESSAGES), 10**18):
        assert store.trim(now) == Trimmed(1, 0, 0, None)
    assert_is_whole(store)
    assert store.next == MESSAGES + 1


@every_kind
def test_what_is_too_old_is_removed_and_nothing_younger(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60)))
    assert store.trim(at(61)) == Trimmed(1, 0, 0, None)
    size = store.statistics().size
    for now in (130, 131, 180, 100, MESSAGES):
        before = store.first
        trimmed = store.trim(at(now))
        assert trimmed == Trimmed(store.first, store.first - before, trimmed.size, None)
        assert (trimmed.size > 0) is (trimmed.messages > 0)
        oldest = max(now - 60, before)
        assert oldest - kind.grain < store.first <= oldest
        assert_is_whole(store)
        assert store.trim(at(now)) == Trimmed(store.first, 0, 0, None)
    assert store.next == MESSAGES + 1
    assert store.first == 1 or store.statistics().size < size


@every_kind
def test_positions_are_not_used_again_when_all_is_removed(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(1)))
    trimmed = store.trim(MUCH_LATER)
    assert trimmed == Trimmed(MESSAGES + 1, MESSAGES, trimmed.size, None)
    assert (store.first, store.next) == (MESSAGES + 1, MESSAGES + 1)
    assert_is_whole(store)
    assert store.commit("spark", MESSAGES).position == MESSAGES
    for topic in ("a", "b", "old"):
        assert store.latest(topic) is None
        assert found(store, Query(filter=topic)) == []
    written(store, 20)
    assert_is_whole(store)
    assert (store.first, store.next) == (MESSAGES + 1, MESSAGES + 21)


@every_kind
def test_what_is_too_much_is_removed_and_not_more(kind: Kind, stores: Stores) -> None:
    most = 5000
    store = stores.open(kind, retention=Retention(size=most))
    removed = 0
    while removed < 5:
        before = written(store, COMMIT).statistics()
        trimmed = store.trim(0)
        assert trimmed == Trimmed(store.first, store.first - before.first, trimmed.size, None)
        assert store.statistics().size <= most
        if trimmed.messages:
            removed += 1
            # What is in no block yet may have become smaller meanwhile.
            assert before.size > most
            assert trimmed.messages <= kind.grain + COMMIT
        assert_is_whole(store)


@every_kind
def test_who_asks_for_what_was_removed_is_told_what_is_left(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60)))
    store.commit("spark", 3)
    store.forget("spark")
    store.trim(at(MESSAGES))
    first = store.first
    for after in range(first - 1):
        with pytest.raises(PositionGone, match=f"first that is left is {first}") as gone:
            store.select(Query(filter="a", after=after, before=after, limit=1))
        assert (gone.value.asked, gone.value.first) == (after + 1, first)
        with pytest.raises(PositionGone) as gone:
            store.commit("spark", after)
        assert (gone.value.asked, gone.value.first) == (after + 1, first)
    assert store.readers() == []
    assert positions(store, Query(after=first - 1)) == list(range(first, MESSAGES + 1))
    assert store.commit("spark", first - 1).position == first - 1


@every_kind
@pytest.mark.parametrize("query", [Query(), Query(filter="a"), Query(after=3)], ids=["all", "a topic", "after"])
def test_a_query_that_retention_overtakes_is_told_so_or_gets_all(kind: Kind, query: Query, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60)))
    expected = positions(store, query)
    begun, asked = store.select(query), store.select(query)
    known = next(begun).position.tolist()
    store.trim(MUCH_LATER)
    for chunks, before in ((begun, known), (asked, [])):
        try:
            assert before + [entry.position for entry in read(chunks)] == expected
        except PositionGone as gone:
            assert gone.first == store.first > 1


# ---- readers hold retention back -----------------------------------------------------------------------------------


@every_kind
def test_what_a_reader_has_not_committed_is_kept(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60)))
    fast, slow = store.commit("fast", 180), store.commit("slow", 100)
    for position in (100, 150):
        slow = store.commit("slow", position)
        trimmed = store.trim(MUCH_LATER)
        assert position + 1 - kind.grain < store.first <= position + 1
        assert (trimmed.first, trimmed.held_by) == (store.first, "slow")
        assert store.readers() == [fast, slow]
        assert_is_whole(store)
    store.forget("slow")
    assert store.trim(MUCH_LATER).held_by == "fast"
    assert 181 - kind.grain < store.first <= 181
    store.commit("fast", MESSAGES)
    assert store.trim(MUCH_LATER).held_by is None
    assert store.first == store.next


@every_kind
def test_a_reader_holds_what_is_too_much_back_too(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=Retention(size=1)))
    store.commit("slow", 150)
    assert store.trim(0).held_by == "slow"
    assert 151 - kind.grain < store.first <= 151
    assert store.reader("slow").lost == 0


@every_kind
def test_beyond_the_hard_limit_a_reader_is_told_what_it_lost(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60, hard=100)))
    slow, fast = store.commit("slow", 20), store.commit("fast", 180)
    for now in (MESSAGES, MESSAGES + 40, MESSAGES + 60):
        store.trim(at(now))
        assert now - 100 - kind.grain < store.first <= now - 100
        gone = max(20, store.first - 1)
        assert store.readers() == [fast, slow._replace(position=gone, lost=gone - 20)]
        assert_is_whole(store)
    store.trim(MUCH_LATER)
    assert store.first == store.next
    assert store.readers() == [
        fast._replace(position=MESSAGES, lost=20),
        slow._replace(position=MESSAGES, lost=180),
    ]
    written(store, 10)
    committed = store.commit("slow", MESSAGES + 5)
    assert (committed.position, committed.lost, committed.created) == (MESSAGES + 5, 180, slow.created)


@every_kind
def test_the_hard_limit_of_size(kind: Kind, stores: Stores) -> None:
    most = 5000
    store = written(stores.open(kind, retention=Retention(size=1, hard_size=most)), 1)
    slow = store.commit("slow", 0)
    removed = 0
    while removed < 5:
        before = written(store, COMMIT).statistics()
        trimmed = store.trim(0)
        assert trimmed.held_by == "slow"
        assert store.statistics().size <= most
        if trimmed.messages:
            removed += 1
            assert before.size > most
        assert store.reader("slow") == slow._replace(position=store.first - 1, lost=store.first - 1)
        assert_is_whole(store)


@every_kind
def test_a_hard_limit_below_the_other_one_counts_as_that_one(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60, hard=10)))
    store.commit("slow", 20)
    assert store.trim(at(MESSAGES)).held_by is None
    assert 140 - kind.grain < store.first <= 140


@every_kind
def test_compaction_changes_nothing_that_can_be_read(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60)))
    store.trim(at(MESSAGES))
    before = found(store)
    store.compact()
    assert found(store) == before
    assert_is_whole(store)
    written(store, 20)
    assert_is_whole(store)


@every_kind_on_disk
def test_opened_again_it_knows_readers_and_what_is_gone(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(60, hard=100)))
    store.commit("slow", 20)
    store.commit("fast", MESSAGES)
    store.commit("forgotten", 1)
    store.forget("forgotten")
    store.trim(at(MESSAGES))
    before = (store.id, store.first, store.next, store.readers(), store.topics(), found(store))
    store.close()
    store = stores.open(kind, retention=aged(60, hard=100))
    assert (store.id, store.first, store.next, store.readers(), store.topics(), found(store)) == before
    assert_is_whole(store)
    with pytest.raises(UnknownReader):
        store.reader("forgotten")
    if store.first > 1:
        with pytest.raises(PositionGone):
            store.select(Query(after=0))
    written(store, 20)
    assert_is_whole(store)


@every_kind_on_disk
def test_opened_again_when_all_was_removed_it_goes_on_where_it_was(kind: Kind, stores: Stores) -> None:
    store = written(stores.open(kind, retention=aged(1)))
    store.trim(MUCH_LATER)
    store.close()
    store = stores.open(kind, retention=aged(1))
    assert (store.first, store.next) == (MESSAGES + 1, MESSAGES + 1)
    assert_is_whole(store)
    written(store, 3)
    assert_is_whole(store)
