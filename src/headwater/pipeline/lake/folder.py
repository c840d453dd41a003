"""A lake: the folder that holds tables, checkpoints of queries, and the lock of whoever writes.

tables/bronze/ …        Delta tables, readable by anything that reads Delta
checkpoints/bronze/     how far Spark is with the streaming query
running                 locked while a pipeline writes here
id                      of the lake, made once: stores know it by that
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import TABLES, Table

OTHER: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""An address, such as s3://bucket/lake, of which pathlib leaves one slash."""


class Lake:
    """`keeping` says how much of the past its tables keep."""

    def __init__(self, folder: str | Path, keeping: UpkeepSettings | None = None) -> None:
        if OTHER.match(str(folder)):
            raise LakeError(
                f"{folder} is no folder: a lake is a folder that driver and executors share, such as /data/lake; "
                "object storage is not supported"
            )
        self.folder = Path(folder).absolute()
        self.keeping = keeping or UpkeepSettings()
        self._logs: dict[str, Log] = {}
        self._snapshots: dict[str, Snapshot] = {}

    def path(self, table: Table) -> Path:
        return self.folder / "tables" / table.name

    def checkpoint(self, query: str) -> Path:
        return self.folder / "checkpoints" / query

    def log(self, table: Table) -> Log:
        """Of a table, which is made if it is not there."""
        log = self._log(table)
        log.declare(table)
        return log

    def snapshot(self, table: Table) -> Snapshot:
        """As the table is now; the same one as before if nothing was committed since."""
        return self._snapshot(table.name, self.log(table))

    def existing(self) -> dict[str, Snapshot]:
        """Of the tables that have been made, by their names; none is made."""
        logs = {table.name: self._log(table) for table in TABLES}
        return {name: self._snapshot(name, log) for name, log in logs.items() if log.exists()}

    def _log(self, table: Table) -> Log:
        if table.name not in self._logs:
            properties = self.keeping.properties(table.name)
            self._logs[table.name] = Log(self.path(table), table.partition, properties=properties)
        return self._logs[table.name]

    def _snapshot(self, name: str, log: Log) -> Snapshot:
        known = self._snapshots.get(name)
        if known is None or known.view is not log.look():
            known = self._snapshots[name] = Snapshot(log)
        return known

    def keep(self, keeping: UpkeepSettings) -> None:
        """From now on; of tables that are there, the properties are changed. To be called by who holds the lake."""
        self.keeping = keeping
        for table in TABLES:
            log = self._log(table)
            log.properties = keeping.properties(table.name)
            if log.exists():
                log.configure()

    def exists(self) -> bool:
        return (self.folder / "tables").is_dir()

    def tables(self) -> list[Table]:
        """Those that have been made."""
        return [table for table in TABLES if (self.path(table) / "_delta_log").is_dir()]

    def id(self) -> str | None:
        """None: it has none yet."""
        try:
            return (self.folder / "id").read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None

    def make_id(self) -> str:
        """One for ever; that which it has, if it has one. To be called by who holds the lake."""
        known = self.id()
        if known is not None:
            return known
        made = uuid.uuid4().hex[:12]
        new = self.folder / "id.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(f"{made}\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / "id")
        return made

    def writer(self) -> int | None:
        """The process that writes here now; None: nobody does. For people: the lock is not tried, because a pipeline
        that starts at that moment would find it taken."""
        try:
            process = int((self.folder / "running").read_text(encoding="utf-8"))
            os.kill(process, 0)
        except PermissionError:
            return process
        except (OSError, ValueError):
            return None
        return process

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One pipeline writes at a time. Raises LakeError if another does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "running").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip() or "unknown"
                raise LakeError(
                    f"another pipeline writes into {self.folder} (process {who}); stop it, or choose another folder"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)
