"""Keeps catalogs up to date with a lake: after rounds of a pipeline, or once by command.

A catalog that does not answer keeps nobody waiting: it is tried again after a while, and what it says is logged. Only
where something has changed is anything asked: a table's place and columns are compared with what was registered last.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from headwater.pipeline.catalogs.described import CatalogError, Described, describe
from headwater.pipeline.catalogs.iceberg import IcebergTables
from headwater.pipeline.catalogs.settings import Catalog, Iceberg
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.snapshot import Snapshot

FAREWELL: Final = 5.0
"""Seconds that a pipeline which ends waits for a catalog."""
AGAIN: Final = 60.0
"""Seconds until a catalog that failed is asked again."""
log = logging.getLogger(__name__)


class Registering(Protocol):
    def register(self, table: Described) -> bool:
        """Whether anything had to be done. Raises CatalogError."""


def registering(settings: Catalog) -> Registering:
    """Raises CatalogError."""
    if settings.kind == "unity":
        from headwater.pipeline.catalogs.unity import Unity

        return Unity(settings)
    if settings.kind == "glue":
        from headwater.pipeline.catalogs.glue import Glue

        return Glue(settings)
    from headwater.pipeline.catalogs.hive import Hive

    return Hive(settings)


class One:
    """A catalog, and what it knows."""

    def __init__(self, settings: Catalog) -> None:
        self.settings = settings
        self.label = f"{settings.kind} {settings.name}"
        self.after = 0.0
        """When it may be asked again."""
        self._catalog: Registering | None = None
        self._known: dict[str, Described] = {}

    def bring(self, lake: Lake, snapshots: Mapping[str, Snapshot]) -> list[str]:
        """The names of tables that it did not know so. Raises CatalogError."""
        if self._catalog is None:
            self._catalog = registering(self.settings)
        done = []
        for name in self.settings.tables:
            if name not in snapshots:
                continue
            table = describe(lake, name, snapshots[name])
            if self._known.get(name) == table:
                continue
            if self._catalog.register(table):
                done.append(name)
            self._known[name] = table
        return done


class Registrar:
    """For one thread at a time. `clock` is monotonic."""

    def __init__(
        self,
        lake: Lake,
        catalogs: Sequence[Catalog],
        iceberg: Iceberg | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._clock = clock
        self._catalogs = [One(each) for each in catalogs]
        self._iceberg = None if iceberg is None else IcebergTables(lake, iceberg, clock)
        self._iceberg_after = 0.0

    @property
    def has_any(self) -> bool:
        return bool(self._catalogs) or self._iceberg is not None

    def saw(self, _: object = None) -> None:
        """After a round. What fails is logged, and tried again later."""
        if self.has_any:
            self.look(self._lake.existing())

    def look(self, snapshots: Mapping[str, Snapshot]) -> None:
        """The same, of tables as they were seen."""
        try:
            self._look(snapshots)
        except Exception as error:  # whatever a catalog's library raises, the pipeline goes on
            log.warning("catalogs: %s: %s", type(error).__name__, error)

    def _look(self, snapshots: Mapping[str, Snapshot]) -> None:
        now = self._clock()
        for each in self._catalogs:
            if now < each.after:
                continue
            try:
                self._say(each.label, each.bring(self._lake, snapshots))
            except CatalogError as error:
                each.after = now + AGAIN
                log.warning("%s; tried again in %d s", error, AGAIN)
        if self._iceberg is not None and now >= self._iceberg_after:
            try:
                self._iceberg.bring(snapshots)
            except CatalogError as error:
                self._iceberg_after = now + AGAIN
                log.warning("%s; tried again in %d s", error, AGAIN)

    def _say(self, label: str, done: list[str]) -> None:
        if done:
            log.info("registered in %s: %s", label, ", ".join(done))

    def once(self) -> dict[str, list[str]]:
        """By catalog, the tables that were registered or told. Raises CatalogError."""
        snapshots = self._lake.existing()
        found = {each.label: each.bring(self._lake, snapshots) for each in self._catalogs}
        if self._iceberg is not None:
            found["iceberg"] = self._iceberg.bring(snapshots, at_once=True)
        return found


class Beside:
    """Lets a registrar look in a thread of its own: a catalog that hangs keeps no round waiting. While it looks, rounds
    are left out; the next one has all. Use it as a context around the pipeline."""

    def __init__(self, lake: Lake, registrar: Registrar) -> None:
        self._lake = lake
        self._registrar = registrar
        self._seen: queue.Queue[Mapping[str, Snapshot] | None] = queue.Queue(1)
        self._thread = threading.Thread(target=self._run, name="pipeline-catalogs", daemon=True)

    def __enter__(self) -> Beside:
        if self._registrar.has_any:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """What is under way may take a few seconds more."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(queue.Full):
            self._seen.put(None, timeout=FAREWELL)
            self._thread.join(FAREWELL)

    def saw(self, _: object = None) -> None:
        """By the pipeline's thread, after each round."""
        if self._thread.is_alive() and self._seen.empty():
            with contextlib.suppress(queue.Full):
                self._seen.put_nowait(dict(self._lake.existing()))

    def _run(self) -> None:
        while (snapshots := self._seen.get()) is not None:
            self._registrar.look(snapshots)
