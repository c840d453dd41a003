"""A store of messages that came one each second, and whether it is whole."""

from __future__ import annotations

import pytest

from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import Store
from tests.store.kinds import COMMIT
from tests.store.messages import NOON, SECOND, Writer, found, read

MESSAGES = 200
"""At NOON + 1 s, NOON + 2 s …"""
MUCH_LATER = NOON + 10_000 * SECOND


def written(store: Store, messages: int = MESSAGES) -> Store:
    """With so many messages more: every other one is of topic `a` or `b`, and some early ones are of `old`."""
    writer = Writer(store)
    for position in range(store.next, store.next + messages):
        topic = "old" if position < 100 and position % 3 == 0 else "ab"[position % 2]
        writer.take(topic, b"%d" % position, arrival=at(position))
        if position % COMMIT == 0:
            writer.sync()
    writer.sync()
    return store


def at(position: int) -> int:
    return NOON + position * SECOND


def aged(seconds: int, hard: int | None = None) -> Retention:
    return Retention(age=seconds * SECOND, hard_age=None if hard is None else hard * SECOND)


def assert_is_whole(store: Store) -> None:
    """All that is left is there, and everything says the same of it."""
    left = list(range(store.first, store.next))
    entries = found(store)
    assert [entry.position for entry in entries] == left
    assert [entry.payload for entry in entries] == [b"%d" % position for position in left]
    topics = {entry.topic for entry in entries}
    assert [each.topic for each in store.topics()] == sorted(topics)
    for each in store.topics():
        of_it = [entry for entry in entries if entry.topic == each.topic]
        assert (each.messages, each.first, each.last) == (len(of_it), of_it[0].position, of_it[-1].position)
        assert (each.first_time, each.last_time) == (of_it[0].time, of_it[-1].time)
        assert read([store.latest(each.topic) or pytest.fail("nothing")]) == [of_it[-1]]
        assert found(store, Query(filter=each.topic)) == of_it
    statistics = store.statistics()
    assert (statistics.first, statistics.next, statistics.topics) == (store.first, store.next, len(topics))
    assert statistics.payload_size == sum(len(entry.payload) for entry in entries)
