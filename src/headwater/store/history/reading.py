"""Reading what a store has in object storage, without its node. Needs pyarrow, and what reaches the place.

Theory. Objects are read one behind the other, and the next ones are on their way meanwhile, so that neither the network
nor the processor waits for the other; what is held is bounded by their number. A manifest that is known stays good as
long as its objects are there: when one is missing, retention or somebody who erases messages has replaced it, and the
manifest is read again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa

from headwater.objects import Missing, PlaceError, open_place
from headwater.store.history.manifest import Catalog, Entry, Manifest
from headwater.store.history.rows import NAMES, Wanted, rows_of
from headwater.store.store import PositionGone

AHEAD: Final = 2
"""Objects that are read at a time, by as many threads."""
FEW: Final = ("payload", "properties")
"""Who wants neither of these reads parts of an object."""
TURN: Final = 0.01
"""Seconds, if others wait for theirs."""
Columns = Sequence[str]
Found = tuple[Entry, pa.RecordBatch | None]
"""What is wanted of an object; None: it was not looked into."""


class History:
    """Of one store. Any thread may ask, and it can be pickled; `cache` bytes of objects stay in memory."""

    def __init__(self, url: str, store: str, options: Mapping[str, str] | None = None, cache: int = 0) -> None:
        """Raises PlaceError if that is no address of a place."""
        self.catalog = Catalog(open_place(url, options), store)
        self._made = (url, store, options, cache)
        self._cache = cache
        self._cached: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._manifest: Manifest | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return History, self._made

    def manifest(self, end: int = 0) -> Manifest:
        """One that goes to this position, if there is one; it may be older than the last. Raises PlaceError."""
        known = self._manifest
        return known if known is not None and known.end >= end else self.refresh()

    def refresh(self) -> Manifest:
        """As it is now."""
        self._manifest = found = self.catalog.load()
        return found

    def parts(self, wanted: Wanted, before: int, columns: Columns = NAMES) -> Iterator[pa.RecordBatch]:
        """What is wanted of all up to `before`, which is in history; one batch for each object that has some of it. One
        without `after` begins with the first that is left. Raises PositionGone, also in the middle; PlaceError."""
        return (rows for rows in self.in_turns(wanted, before, columns, None) if rows is not None)

    def in_turns(
        self, wanted: Wanted, before: int, columns: Columns = NAMES, turn: float | None = TURN
    ) -> Generator[pa.RecordBatch | None, None, None]:
        """The same, and None whenever a turn has passed without anything: others may have theirs."""
        manifest = self.manifest(before)
        next = manifest.first if wanted.after is None else wanted.after + 1
        while next < before:
            if next < manifest.first:
                raise PositionGone(next, manifest.first)
            try:
                with contextlib.closing(self._read(manifest, wanted, next, before, columns, turn)) as reading:
                    for found in reading:
                        if found is None:
                            yield None
                            continue
                        entry, rows = found
                        if entry.first > next:
                            raise PositionGone(next, entry.first)
                        if rows is not None and rows.num_rows:
                            yield rows
                        next = entry.end
            except Missing as error:
                stale, manifest = manifest, self.refresh()
                if manifest.etag == stale.etag:
                    raise PlaceError(f"an object of the history is lost: {error}") from None
                continue
            if next < before:
                raise PositionGone(next, before)

    def _read(
        self, manifest: Manifest, wanted: Wanted, next: int, before: int, columns: Columns, turn: float | None
    ) -> Generator[Found | None, None, None]:
        """Each object with what is wanted of it; the next ones are read meanwhile."""
        end = before if wanted.before is None else min(before, wanted.before)
        wanted = wanted._replace(after=next - 1, before=end)
        pool = ThreadPoolExecutor(AHEAD, "headwater-history")
        waiting: deque[tuple[Entry, Future[pa.RecordBatch] | None]] = deque()
        try:
            for entry in self.catalog.entries(manifest, next - 1, before):
                rows = pool.submit(self._rows, entry, wanted, columns) if wanted.may_be_in(entry) else None
                waiting.append((entry, rows))
                while waiting and (waiting[0][1] is None or len(waiting) > AHEAD):
                    yield from _result(*waiting.popleft(), turn)
            while waiting:
                yield from _result(*waiting.popleft(), turn)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _rows(self, entry: Entry, wanted: Wanted, columns: Columns) -> pa.RecordBatch:
        try:
            is_small = wanted.beginning or not any(name in columns for name in FEW)
            if is_small and entry.name not in self._cached:
                with self.catalog.place.open(entry.name, entry.size) as file:
                    return rows_of(file, entry, wanted, columns)
            return rows_of(self._whole(entry), entry, wanted, columns)
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise PlaceError(f"{self.catalog.place.url}/{entry.name} cannot be read: {error}") from None

    def _whole(self, entry: Entry) -> pa.Buffer:
        with self._lock:
            found = self._cached.get(entry.name)
            if found is not None:
                self._cached.move_to_end(entry.name)
                return found
        data = self.catalog.place.get(entry.name).data
        if sha256(data).hexdigest() != entry.checksum:
            raise PlaceError(f"{self.catalog.place.url}/{entry.name} cannot be read: its bytes have changed")
        content = pa.py_buffer(data)
        with self._lock:
            self._cached[entry.name] = content
            while self._cached and sum(each.size for each in self._cached.values()) > self._cache:
                self._cached.popitem(last=False)
        return content


def _result(entry: Entry, rows: Future[pa.RecordBatch] | None, turn: float | None) -> Iterator[Found | None]:
    while rows is not None and turn is not None and not wait([rows], turn).done:
        yield None
    yield entry, None if rows is None else rows.result()
