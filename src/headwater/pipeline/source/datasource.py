"""`format("headwater")` as Spark sees it: a batch reader and a stream reader over stores.

Theory. What a batch of a stream contains is written down by Spark as two offsets, `{store id: last position}`, before
anything is read. Positions have no gaps and what is at one never changes, so the same two offsets are the same rows,
however often and wherever they are read. When a batch is done for good, Spark says so, and the stores' named reader
moves: only then may retention remove them. So every stored message is in exactly one batch.

    driver   latestOffset -> partitions(start, end) -> commit(end)      asks the stores, holds nothing
    executor read(partition)                                            one range of one store, as Arrow
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.disk.crash_points import crash_point
from headwater.pipeline.options import OptionError
from headwater.pipeline.portable import Portable
from headwater.pipeline.source.admission import admit, count_waiting, rows_for_bytes
from headwater.pipeline.source.pacing import Pace
from headwater.pipeline.source.pushdown import Pushed
from headwater.pipeline.source.reading import Range, read
from headwater.pipeline.source.settings import FORMAT, WAIT_FOR_BATCH, Settings, read_settings
from headwater.pipeline.source.shape import Shape, ddl
from headwater.pipeline.source.stores import DataLoss, Offsets, StoreNow, Stores, beginnings, check_named, ends
from headwater.store.direct import ends_of
from headwater.store.reader import StoreError

log = logging.getLogger(__name__)


class HeadwaterSource(Portable, DataSource):
    """`spark.dataSource.register(HeadwaterSource)`; options are described in settings.OPTIONS."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Spark reads what `payloadSchema` declares."""
        return ddl(read_settings(self.options))

    def reader(self, schema: StructType) -> Reader:
        settings = read_settings(self.options, wait=WAIT_FOR_BATCH)
        return (PushingReader if settings.pushdown else Reader)(settings, Shape.of(schema, settings))

    def streamReader(self, schema: StructType) -> StreamReader:
        settings = read_settings(self.options)
        if settings.end != "latest":
            raise OptionError(f"format({FORMAT!r}): endingOffsets is for spark.read; a stream has no end")
        return StreamReader(settings, Shape.of(schema, settings))


class RangePartition(InputPartition):
    def __init__(self, range: Range) -> None:
        self.range = range

    def __repr__(self) -> str:
        return f"{self.range.store}:{self.range.after + 1}..{self.range.last}"


class _Ranges(Portable):
    """What both readers do: ranges into partitions, and partitions into rows."""

    def __init__(self, settings: Settings, shape: Shape) -> None:
        self.settings = settings
        self.shape = shape
        self.pushed = Pushed(settings.topic, settings.store, [settings.measured_from, settings.measured_to])

    def _range(self, stores: Stores, id: str, url: str, after: int, last: int) -> Range:
        low, high = (None if each is None else each.isoformat() for each in self.pushed.time)
        columns = self.shape.stored
        return Range(id, url, after, last, self.pushed.filter, low, high, columns, stores.place_of(id))

    def _partitions(self, ranges: Iterable[Range]) -> list[InputPartition]:
        rows, options = self.settings.rows_per_partition, self.settings.history_options
        return [
            RangePartition(part)
            for each in ranges
            for part in each.parts(rows, (each.place and ends_of(each.place, options, each.after, each.last)) or ())
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return  # Spark makes one of its own where there are none
        crash_point("pipeline-before-read")
        for batch in read(partition.range, self.settings):
            yield self.shape.shaped(batch)


class Reader(_Ranges, DataSourceReader):
    """What is there now, or between two offsets. Spark asks once for each DataFrame that is loaded, and every query of
    it reads that."""

    def partitions(self) -> Sequence[InputPartition]:
        if self.pushed.is_contradiction:
            return []
        settings = replace(self.settings, store=self.pushed.store)
        start = self.settings.start
        stores = Stores(settings)
        found = stores.look_until_all_answer(start if isinstance(start, dict) else {})
        check_named(found, self.settings)
        begin, end = beginnings(found, settings.start, settings), ends(found, settings.end, settings)
        ranges: list[Range] = []
        for id, now in found.items():
            low, high = self._narrowed(now, begin[id], end[id])
            if high > low:
                ranges.append(self._range(stores, id, now.url, low, high))
        return self._partitions(ranges)

    def _narrowed(self, now: StoreNow, after: int, last: int) -> tuple[int, int]:
        """By conditions on positions and arrivals; what retention has removed is not asked for, or is an error."""
        client = self.settings.client(now.url)
        low, high = self.pushed.position
        early, late = self.pushed.arrival
        after = max([after, *([] if low is None else [low - 1])])
        last = min([last, *([] if high is None else [high - 1])])
        if early is not None:
            after = max(after, client.position_at(early) - 1)
        if late is not None:
            last = min(last, client.position_at(late) - 1)
        if after < now.first - 1 and isinstance(self.settings.start, dict):
            _lost(now, after, self.settings)
        return max(after, now.first - 1), last


class PushingReader(Reader):
    """The same, and the stores answer conditions. It has to be asked for, because Spark 4.3 keeps what one query of a
    DataFrame has pushed for all the others of it (and for both sides of its union with itself), which then miss rows.
    Two that are loaded have nothing to do with each other."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return list(self.pushed.push(filters))


class StreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Batch after batch, each the same whenever it is read."""

    def __init__(self, settings: Settings, shape: Shape) -> None:
        super().__init__(settings, shape)
        self.stores = Stores(settings)
        self.pace = Pace(settings.least_rows, settings.longest_delay)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._told: Offsets = {}
        """What the stores' named reader has committed, as far as we know."""

    # ---- offsets -----------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        found = self.stores.look_until_any_answers()
        check_named(found, self.settings, self.stores.silent)
        begin = beginnings(found, self.settings.start, self.settings)
        self._hold(found, begin)
        return begin

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.settings.most_rows is not None:
            return ReadMaxRows(self.settings.most_rows)
        return ReadAllAvailable() if self.settings.most_bytes is None else ReadMaxBytes(self.settings.most_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        found = self.stores.look() if self._target is None else self.stores.look_for(_left(start, self._target))
        self._latest = dict(sorted({**start, **{id: now.last for id, now in found.items()}}.items()))
        for id, now in found.items():
            self._check(now, start.get(id, now.first - 1))
        self.commit(start)
        if self._target is not None:
            target = self._target
            found = {id: replace(now, next=target[id] + 1) for id, now in found.items() if id in target}
        elif self.pace.waits(count_waiting(start, found)):
            return start
        return admit(start, found, self._most(limit, start, found))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """Every store has to answer, or its part would be left out without a word; but of one that has ended it is
        known how far it goes, and it has to answer only if it has not been read so far."""
        self._target = {id: now.last for id, now in self.stores.look_until_all_answer(None).items()}
        self._target = {**self.stores.ends, **self._target}

    def _most(self, limit: ReadLimit, start: Offsets, found: Mapping[str, StoreNow]) -> int | None:
        """Both limits of ours hold; Spark hands over only one, or wants everything."""
        if isinstance(limit, ReadAllAvailable) and self._target is None:
            return None
        allowed = [] if self.settings.most_rows is None else [self.settings.most_rows]
        if self.settings.most_bytes is not None:
            allowed.append(rows_for_bytes(self.settings.most_bytes, start, found))
        return min(allowed, default=None)

    def _check(self, now: StoreNow, after: int) -> None:
        if after > now.last:
            raise DataLoss(
                f"the store {now.id} at {now.url} ends at position {now.last}, and {after} was read before: it has "
                "gone back in time (restored from a copy?). Begin anew with another checkpoint and table."
            )
        if after < now.first - 1:
            _lost(now, after, self.settings)

    # ---- ranges ------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = []
        for id, last in end.items():
            after = start.get(id, last)  # a store that is new has only been given its beginning
            if last > after:
                # A batch may have been written down before this process began: then its store is to be found again.
                url = self.stores.url_of(id) or self.stores.look_for([id])[id].url
                ranges.append(self._range(self.stores, id, url, after, last))
        return self._partitions(ranges)

    # ---- commits -----------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Retention may remove these. A store that does not answer is told with the next batch. Spark calls this when
        it plans the batch after, and never for the last; but it asks for more (`latestOffset`) only when all before is
        done, so that counts as well."""
        news = {id: last for id, last in end.items() if last > self._told.get(id, -1)}
        if self.settings.reader is None or not news:
            return
        crash_point("pipeline-before-reader")
        for id, last in news.items():
            url = self.stores.url_of(id)
            if url is None:
                continue
            try:
                self.settings.client(url, retries=1, timeout=5.0).commit(self.settings.reader, f"{id}:{last}")
                self._told[id] = last
            except StoreError as error:
                log.warning("the store %s could not be told what is read: %s", id, error)
        crash_point("pipeline-after-reader")

    def _hold(self, found: Mapping[str, StoreNow], begin: Offsets) -> None:
        """A named reader that begins: retention waits for it from now on."""
        for id, now in found.items():
            if self.settings.reader is not None and now.first - 1 <= begin[id] <= now.last:
                self.settings.client(now.url).commit(self.settings.reader, f"{id}:{begin[id]}")
                self._told[id] = begin[id]

    def stop(self) -> None:
        """There is nothing to let go of."""


def _left(start: Offsets, target: Offsets) -> list[str]:
    """The stores that are not at their ends yet."""
    return [id for id, last in target.items() if start.get(id, 0) < last]


def _lost(now: StoreNow, after: int, settings: Settings) -> None:
    """Positions behind `after` are gone: an error, or a word."""
    lost = (
        f"the store {now.id} has lost the positions {after + 1} to {now.first - 1} to retention before they were read"
    )
    if settings.fail_on_loss:
        raise DataLoss(
            f"{lost}. Give the source a `reader`, so that retention waits for it; to go on without them, set "
            "failOnDataLoss to false."
        )
    log.warning("%s; going on behind them, as failOnDataLoss is false", lost)
