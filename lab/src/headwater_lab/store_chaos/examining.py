"""What is found in a folder after a kill, and what should not be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headwater.disk.errors import StorageError
from headwater.store.disk_store import DiskStore
from headwater.store.entry import Entry
from headwater.store.query import Query
from headwater.store.shelf import BLOCK, EXTENT, INDEX, LOG, position_in
from headwater_lab.store_chaos.account import FORGOTTEN, Account
from headwater_lab.store_chaos.living import Settings, opened
from headwater_lab.store_chaos.messages import message_at

WRONG: Final = ("lost", "gap", "doubled", "changed", "back", "counts", "reader", "left over", "broken", "ended")
"""Kinds of violations: each text begins with one."""
TOPICS_LOOKED_AT: Final = 12


def examine(folder: Path, settings: Settings, account: Account) -> dict[str, Any]:
    """`wrong` is what is; the others are what is there."""
    try:
        store = opened(folder, settings, seal=False)
    except StorageError as error:
        return {"wrong": [f"broken: {error}"]}
    try:
        entries = [entry for chunk in store.select(Query()) for entry in chunk.entries()]
        wrong = [
            *_positions(store, account, entries),
            *_counts(store, entries),
            *_readers(store, account),
            *_records(store),
        ]
        readers = {reader.name: reader.position for reader in store.readers()}
        return {"wrong": wrong, "id": store.id, "first": store.first, "next": store.next, "readers": readers}
    except StorageError as error:
        return {"wrong": [f"broken: {error}"]}
    finally:
        store.close()


def _positions(store: DiskStore, account: Account, entries: list[Entry]) -> Iterator[str]:
    if account.id not in (None, store.id):
        yield f"changed: the store has the id {store.id}, and had {account.id}"
    if store.first < account.first:
        yield f"back: the first position is {store.first}, and was {account.first}"
    if store.next < account.end:
        yield f"lost: the next position is {store.next}, and {account.end - 1} was promised"
    found = [entry.position for entry in entries]
    if len(set(found)) != len(found):
        yield "doubled: a position is there twice"
    missing = sorted(set(range(store.first, store.next)) - set(found))
    if missing:
        yield f"gap: {len(missing)} positions are not there, the first is {missing[0]}"
    for entry in entries:
        if entry != message_at(account.seed, account.life_of(entry.position), entry.position):
            yield f"changed: {entry}, of life {account.life_of(entry.position)}"


def _counts(store: DiskStore, entries: list[Entry]) -> Iterator[str]:
    of: dict[str, list[Entry]] = {}
    for entry in entries:
        of.setdefault(entry.topic, []).append(entry)
    told = {each.topic: each for each in store.topics()}
    if told.keys() != of.keys():
        yield f"counts: other topics: {sorted(told.keys() ^ of.keys())[:5]}"
    for topic, found in of.items():
        each = told.get(topic)
        expected = (len(found), found[0].position, found[-1].position, found[0].time, found[-1].time)
        if each is not None and each[1:] != expected:
            yield f"counts: {each} instead of {expected}"
    for topic in sorted(of, key=lambda topic: hash((topic, store.next)))[:TOPICS_LOOKED_AT]:
        chosen = [entry for chunk in store.select(Query(filter=topic)) for entry in chunk.entries()]
        latest = store.latest(topic)
        if chosen != of[topic] or latest is None or list(latest.entries()) != of[topic][-1:]:
            yield f"counts: asked for {topic}, it has {len(chosen)} messages instead of {len(of[topic])}"
    statistics = store.statistics()
    payload = sum(len(entry.payload) for entry in entries)
    if (statistics.topics, statistics.payload_size) != (len(of), payload):
        yield f"counts: {statistics} instead of {len(of)} topics and {payload} bytes"


def _readers(store: DiskStore, account: Account) -> Iterator[str]:
    found = {reader.name: reader for reader in store.readers()}
    for name in {*found, *account.readers}:
        allowed = account.readers.get(name, {FORGOTTEN})
        reader = found.get(name)
        position = FORGOTTEN if reader is None else reader.position
        overtaken = reader is not None and account.hard_limit and reader.lost > 0 and position >= min(allowed)
        if position not in allowed and not overtaken:
            yield f"reader: {name} is at {position}, and was at {sorted(allowed)}"
        if reader is not None and position < store.first - 1:
            yield f"reader: {name} is at {position}, and the first message is {store.first}"


def _records(store: DiskStore) -> Iterator[str]:
    """Nothing is in the log and in a block, and nothing is there of blocks that are not."""
    shelf = store._shelf
    blocks = {block.first for block in store._blocks}
    sealed = store._blocks[-1].end if store._blocks else store.first
    logged = [position_in(key) for key, _ in shelf.scan(LOG)]
    if any(position < sealed for position in logged):
        yield "doubled: messages are in the log and in a block"
    for kind in (BLOCK, INDEX, EXTENT):
        if blocks != {position_in(key) for key, _ in shelf.scan(kind)}:
            yield f"left over: records of kind {kind!r}"
    pages = {int.from_bytes(key[:8], "big") for key, _ in shelf._items(shelf._pages.iter(), b"", b"")}
    if blocks != pages:
        yield f"left over: pages of {sorted(pages - blocks)}"
