"""The table of windows that are not final: what `headwater.pipeline.provisional` finds, for any reader of tables.

Theory. Gold's windows are written once, minutes after they began. Who cannot wait reads `gold_open`: all windows behind
those that are final, of all definitions, by what silver has now. It is a function of silver and of how far gold goes,
so nothing is remembered: each commit replaces the whole table, and what has become final meanwhile is in gold, which
is committed first.

The windows that are open may be of many readings. So the table is written at most every `provisional` seconds, takes at
most a fifth of the process's time, and writes no more bytes a second than `latest` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.derive.settings import Settings
from headwater.pipeline.jobs.silver import JOB as SILVER_JOB
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.provisional import provisional
from headwater.pipeline.tables import OPEN, SILVER, gold_of

SHARE: Final = 4.0
"""It rests for so many times what it took."""


class OpenWindows:
    """What a process knows of the table, from round to round. `every` is the least time between two commits; 0: there
    is none. `clock` gives seconds."""

    def __init__(self, lake: Lake, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lake = lake
        self._every = every
        self._clock = clock
        self._after = 0.0
        self._seen: tuple[object, ...] = ()

    @property
    def is_due(self) -> bool:
        return self._every > 0 and self._clock() >= self._after

    def step(self, definitions: Mapping[str, Settings]) -> int | None:
        """How many windows are open; None: nothing has changed."""
        if not self._every:
            return None
        lake = self._lake
        silver = lake.snapshot(SILVER)
        now = (silver.version, *(lake.snapshot(gold_of(name)).version for name in definitions))
        if now == self._seen:
            return None
        began = self._clock()
        newest = max((each for each in silver.highs("arrival") if each is not None), default=None)
        rows = open_windows(lake, definitions, newest)
        old, log = lake.snapshot(OPEN), lake.log(OPEN)
        files = write_files(rows.to_batches(), log.place, None, lean=True)
        notes = {} if files or not old.files else {REMOVED: old.rows}
        log.commit(
            files, notes, job=OPEN.name, positions=silver.positions(SILVER_JOB), replaced=old.files, seen=old.view
        )
        self._seen = now
        ended = self._clock()
        pause = lake.keeping.pause(sum(file.size for file in files)) if rows.num_rows else 0.0
        pause = 0.0 if pause <= lake.keeping.latest_every else pause  # it is small: `every` says how often
        self._after = max(began + self._every, ended + SHARE * (ended - began), began + pause)
        return rows.num_rows or None


def open_windows(lake: Lake, definitions: Mapping[str, Settings], newest: datetime | None) -> pa.Table:
    """The table's rows as they are now."""
    schema = arrow_schema(OPEN)
    parts = []
    for name, settings in definitions.items():
        table = gold_of(name)
        rows = provisional(lake, settings, table)
        more = {"windows": table.name, "final": False, "seen": newest}
        columns = [
            pa.array([more[each.name]] * rows.num_rows, each.type) if each.name in more else rows.column(each.name)
            for each in schema
        ]
        parts.append(
            pa.Table.from_arrays(
                [pc.cast(one, two.type) for one, two in zip(columns, schema, strict=True)], schema=schema
            )
        )
    return pa.concat_tables(parts).combine_chunks()
