"""What every store of messages promises to threads: one writes, one removes, and any others read."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.store import PositionGone
from tests.contract.conftest import Stores
from tests.store.kinds import COMMIT, Kind, every_kind
from tests.store.messages import SECOND, Writer, found, positions
from tests.store.steady import assert_is_whole, at


@every_kind
def test_threads_read_while_one_writes(kind: Kind, stores: Stores) -> None:
    store = stores.open(kind)
    messages = 2000
    wrong: list[BaseException] = []
    more = threading.Condition()
    done = threading.Event()

    def tell() -> None:
        with more:
            more.notify_all()

    def read_on() -> None:
        try:
            seen = 0
            while seen < messages:
                with more:
                    while store.next <= seen + 1:
                        assert more.wait(60)
                next = store.next
                entries = found(store, Query(after=seen))
                assert [entry.position for entry in entries] == list(range(seen + 1, seen + 1 + len(entries)))
                assert all(entry.payload == b"%d" % entry.position for entry in entries)
                seen += len(entries)
                assert seen >= next - 1
        except BaseException as error:
            wrong.append(error)

    def ask() -> None:
        try:
            while not done.is_set():
                next = store.next
                assert sum(each.messages for each in store.topics()) >= next - 1
                assert store.statistics().next >= next
                some = positions(store, Query(filter="t/1", before=next))
                assert some == list(range(1, next, 3))
                latest = store.latest("t/1")
                assert next == 1 or (latest is not None and int(latest.position[0]) >= (next - 2) // 3 * 3 + 1)
        except BaseException as error:
            wrong.append(error)

    store.watch(tell)
    threads = [threading.Thread(target=target) for target in (read_on, read_on, ask)]
    for thread in threads:
        thread.start()
    writer = Writer(store)
    for position in range(1, messages + 1):
        writer.take(f"t/{position % 3}", b"%d" % position)
        if position % 11 == 0:
            writer.sync()
    writer.sync()
    for thread in threads[:2]:
        thread.join()
    done.set()
    threads[2].join()
    assert wrong == []


@every_kind
def test_threads_read_while_one_writes_and_another_removes(kind: Kind, stores: Stores) -> None:
    """Topics come, go and come again meanwhile. Whoever reads on misses nothing but what it is told of."""
    store = stores.open(kind, retention=Retention(age=50 * SECOND))
    messages = 2000
    done = threading.Event()
    wrong: list[BaseException] = []

    def topic(position: int) -> str:
        return f"t/{position // 40 % 5}" if position % 2 else f"once/{position}"

    def read_on(query: Query, wanted: Callable[[int], bool]) -> None:
        seen = 0
        while seen < messages:
            last, next = seen, store.next
            try:
                for chunk in store.select(query._replace(after=seen)):
                    for entry in chunk.entries():
                        assert entry.topic == topic(entry.position)
                        assert not any(map(wanted, range(last + 1, entry.position)))
                        last = entry.position
                assert not any(map(wanted, range(last + 1, next)))
                seen = max(last, next - 1)
            except PositionGone as gone:
                assert last + 1 < gone.first
                seen = gone.first - 1

    def look_around() -> None:
        while not done.is_set():
            for each in store.topics("t/#"):
                assert topic(each.first) == topic(each.last) == each.topic
                latest = store.latest(each.topic)
                assert latest is None or next(latest.entries()).topic == each.topic

    def remove() -> None:
        while not done.is_set():
            store.trim(at(store.next))

    def watched(run: Callable[..., None], *arguments: object) -> None:
        try:
            run(*arguments)
        except BaseException as error:
            wrong.append(error)
            done.set()

    readers = [
        threading.Thread(target=watched, args=(read_on, Query(), lambda position: True)),
        threading.Thread(
            target=watched, args=(read_on, Query(filter="t/2"), lambda position: topic(position) == "t/2")
        ),
    ]
    others = [threading.Thread(target=watched, args=(run,)) for run in (look_around, remove)]
    for thread in (*readers, *others):
        thread.start()
    writer = Writer(store)
    for position in range(1, messages + 1):
        writer.take(topic(position), b"%d" % position, arrival=at(position))
        if position % COMMIT == 0:
            writer.sync()
    for thread in readers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert wrong == []
    assert store.trim(at(messages)).first > messages - 51 - kind.grain
    assert_is_whole(store)
    if kind.on_disk:
        before = found(store)
        store.close()
        assert found(stores.open(kind)) == before
