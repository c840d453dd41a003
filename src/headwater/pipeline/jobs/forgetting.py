"""Somebody is forgotten: by the lake, by the history of the stores, and with a receipt of it.

Theory. What is to go is found in bronze, the one table that has every message, so bronze loses it last: who is killed
finds it there again, and does all of it again, which changes nothing that was done.

    the fact, in `erased`          nothing of it is lost, or is fetched again
    the stores                     positions from bronze; of topics also what bronze has not read yet
    what the stores erased         into `erased`, as far as it is not there
    the tables, bronze last
    the receipt, in `forgotten`

A store may erase messages of which a lake has not been told (by REST, or for another lake). `learn` asks for them.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.erasing import Found, Wanted, erase, record, vacuum
from headwater.pipeline.jobs.facts import before_first, erased_ranges
from headwater.pipeline.jobs.positions import Range, Ranges, union, without
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.source.stores import StoreNow, Stores
from headwater.pipeline.tables import BRONZE, FORGOTTEN, LATEST
from headwater.store.reader import StoreError, StoreReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Ranges of positions of one call of a store."""
IN_THE_STORE: Final = "erased in the store"
"""What is said of positions that a store has erased, and this lake did not ask for."""


@dataclass(frozen=True)
class Request:
    """Why, and who has asked for it."""

    why: str
    who: str


@dataclass
class Receipt:
    """`stores`: messages that each has erased; `up_to`: the last position that was looked at there. `files_until`: when
    files of before have gone, if upkeep goes on; `vacuumed`: when they were removed at once."""

    id: str
    what: str
    why: str
    who: str
    begun: datetime
    done: datetime
    messages: int
    tables: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    up_to: dict[str, int] = field(default_factory=dict)
    files_until: datetime | None = None
    vacuumed: datetime | None = None
    files_removed: int | None = None

    def row(self) -> dict[str, Any]:
        documents = {name: json.dumps(getattr(self, name)) for name in ("tables", "stores", "up_to")}
        return {**vars(self), **documents}

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        times = {name: each.isoformat() for name, each in vars(self).items() if isinstance(each, datetime)}
        return {**vars(self), **times}


def forget(
    spark: SparkSession,
    lake: Lake,
    settings: Settings,
    wanted: Wanted,
    found: Found,
    request: Request,
    stores: Mapping[str, StoreNow],
    *,
    clean: bool,
) -> Receipt:
    """Forget what was found (`erasing.find`), here and in these stores; `clean`: old files go at once. To be called by
    who holds the lake. Raises StoreError; then the same call again does the rest."""
    receipt = Receipt(uuid.uuid4().hex, str(wanted), request.why, request.who, _now(), _now(), found.rows)
    if found.positions:
        record(lake, found.positions, str(wanted), request.why)
    for id, now in stores.items():
        client = settings.source().client(now.url)
        receipt.stores[id] = _erase_in(client, id, now.last, wanted, found.positions.get(id, []))
        receipt.up_to[id] = now.last if wanted.filters else min(now.last, lake.log(BRONZE).positions(APP).get(id, 0))
        _learn_from(lake, client, id, str(wanted), request.why)
    if found.positions:
        receipt.tables = erase(spark, lake, settings, wanted, found, request.why).erased
    receipt.done = _now()
    keeping = settings.upkeep
    receipt.files_until = receipt.done + timedelta(seconds=max(keeping.kept(""), keeping.kept(LATEST.name)))
    if clean:
        receipt.files_removed, receipt.vacuumed = vacuum(lake), _now()
        receipt.files_until = receipt.vacuumed
    rows = pa.RecordBatch.from_pylist([receipt.row()], arrow_schema(FORGOTTEN))
    table = lake.log(FORGOTTEN)
    table.commit(write_files([rows], table.place, table.partition), {})
    return receipt


def _erase_in(client: StoreReader, id: str, last: int, wanted: Wanted, positions: list[Range]) -> int:
    erased = sum(_erase_all(client, id, last, topic=each) for each in wanted.filters)
    if wanted.filters:
        return erased
    for part in (positions[at : at + AT_ONCE] for at in range(0, len(positions), AT_ONCE)):
        text = ",".join(f"{first}-{end}" for first, end in part)
        erased += _erase_all(client, id, part[-1][1], after=part[0][0] - 1, positions=text)
    return erased


def _erase_all(client: StoreReader, id: str, last: int, *, after: int = 0, **what: Any) -> int:
    """Part by part, up to the position `last`."""
    erased, more = 0, True
    while more and after < last:
        messages, after, more = client.erase(**what, after=f"{id}:{after}", before=f"{id}:{last + 1}")
        erased += messages
    return erased


def learn(lake: Lake, settings: Settings) -> int:
    """Positions that the stores that answer have erased, and that this lake counted as its own; how many ranges."""
    source = settings.source()
    known = lake.log(BRONZE).positions(APP)
    learnt = 0
    for id, now in Stores(source).look().items():
        if id in known:
            try:
                client = source.client(now.url, retries=1, timeout=5.0)
                learnt += _learn_from(lake, client, id, IN_THE_STORE, "")
            except StoreError as error:
                log.warning("the store %s does not say what was erased in it: %s", id, error)
    return learnt


def _learn_from(lake: Lake, client: StoreReader, id: str, what: str, why: str) -> int:
    begin = before_first(lake.snapshot(BRONZE)).get(id, 0)
    told: Ranges = union((id, first, last) for first, last in _told(client, begin))
    new = without(told, erased_ranges(lake))
    if new:
        record(lake, new, what, why, considered=False)
    return sum(len(each) for each in new.values())


def _told(client: StoreReader, begin: int) -> Iterator[Range]:
    for first, last in client.erased(begin):
        yield max(first, begin + 1), last


def _now() -> datetime:
    return datetime.now(UTC)
