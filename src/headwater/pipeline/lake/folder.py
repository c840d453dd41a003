"""A lake: the place of tables, of how far things are, and of the lease of whoever writes.

tables/bronze/ …        Delta tables, readable by anything that reads Delta
checkpoints/bronze/     how far Spark is with the streaming query; only in a folder
running                 who writes here: locked in a folder, a lease elsewhere (`lease`)
id                      of the lake, made once: stores know it by that

A lake is a folder, or lies in an object store. Spark needs a folder of this machine in any case, for its log and its
checkpoints. That of a lake elsewhere is the scratch folder, which may be lost: the tables say how far they are, and a
run that begins takes what it finds there for nothing (`Pipeline`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.objects import Missing, Place, PlaceError, open_place
from headwater.pipeline.lake.holder import Holder
from headwater.pipeline.lake.lease import EXPIRY, Lease, Leases
from headwater.pipeline.lake.log import LakeError, Log
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import BY_NAME, TABLES, Table, table_of

ID: Final = "id"
RUNNING: Final = "running"
OURS: Final = "delta-rs"
"""As commits name what made them."""


class Lake:
    """`keeping` says how much of the past its tables keep; `options` are those of the object store."""

    def __init__(
        self, where: str | Path | Place, keeping: UpkeepSettings | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        try:
            self.place = where if isinstance(where, Place) else open_place(where, options)
        except PlaceError as error:
            raise LakeError(f"{where} is no place for a lake: {error}") from None
        self.where = self.place.where
        self.keeping = keeping or UpkeepSettings()
        self.expiry = EXPIRY
        """Seconds after which a writer that gives no sign of life is taken for dead, where there are no locks."""
        self.epoch: int | None = None
        """Of the lease, while there is one."""
        self.other_engines = "refuse"
        """Or allow: tables in an object store that something else has written to."""
        self._lease: Lease | None = None
        self._logs: dict[str, Log] = {}
        self._snapshots: dict[str, Snapshot] = {}

    @property
    def folder(self) -> Path:
        """Raises LakeError if it is no folder."""
        if self.place.folder is None:
            raise LakeError(f"{self.where} is no folder")
        return self.place.folder

    @property
    def is_folder(self) -> bool:
        return self.place.folder is not None

    @property
    def scratch(self) -> Path:
        """A folder of this machine, for what Spark needs one for. What is in it may be lost."""
        if self.place.folder is not None:
            return self.place.folder
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        digest = hashlib.sha256(self.where.encode()).hexdigest()[:12]
        return home / "headwater" / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', self.place.name)}-{digest}"

    def path(self, table: Table) -> Path:
        """Raises LakeError if the lake is no folder."""
        return self.folder / self.prefix(table)

    def prefix(self, table: Table) -> str:
        """Where the table is in the lake's place."""
        return f"tables/{table.name}"

    def checkpoint(self, query: str) -> Path:
        return self.scratch / "checkpoints" / query

    def forget_checkpoint(self, query: str) -> None:
        """Of a lake elsewhere: another machine may have gone on since, so only the table is believed."""
        if not self.is_folder:
            shutil.rmtree(self.checkpoint(query), ignore_errors=True)

    def log(self, table: Table) -> Log:
        """Of a table, which is made if it is not there."""
        log = self._log(table)
        log.declare(table)
        return log

    def reading(self, table: Table) -> Log:
        """Of a table that may not be there, and is not made."""
        return self._log(table)

    def snapshot(self, table: Table) -> Snapshot:
        """As the table is now; the same one as before if nothing was committed since."""
        return self._snapshot(table.name, self.log(table))

    def existing(self) -> dict[str, Snapshot]:
        """Of the tables that have been made, by their names; none is made."""
        logs = {table.name: self._log(table) for table in (*TABLES, *self._defined())}
        return {name: self._snapshot(name, log) for name, log in logs.items() if log.exists()}

    def _log(self, table: Table) -> Log:
        if table.name not in self._logs:
            properties = self.keeping.properties(table.name)
            place = self.place.below(self.prefix(table))
            self._logs[table.name] = Log(place, table.partition, properties=properties, epoch=self.epoch)
        return self._logs[table.name]

    def _snapshot(self, name: str, log: Log) -> Snapshot:
        known = self._snapshots.get(name)
        if known is None or known.view is not log.look():
            known = self._snapshots[name] = Snapshot(log)
        return known

    def keep(self, keeping: UpkeepSettings) -> None:
        """From now on; of tables that are there, the properties are changed. To be called by who holds the lake."""
        self.keeping = keeping
        for table in (*TABLES, *self._defined()):
            log = self._log(table)
            log.properties = keeping.properties(table.name)
            if log.exists():
                log.configure()

    def exists(self) -> bool:
        return bool(self.place.level("tables").folders)

    def tables(self) -> list[Table]:
        """Those that have been made."""
        return [table for table in (*TABLES, *self._defined()) if self._log(table).exists()]

    def _defined(self) -> list[Table]:
        """Tables of `[[windows]]`, of which the lake alone knows."""
        names = sorted(each.rstrip("/").rpartition("/")[2] for each in self.place.level("tables").folders)
        found = [table_of(name) for name in names if name not in BY_NAME]
        return [table for table in found if table is not None]

    def id(self) -> str | None:
        """None: it has none yet."""
        try:
            return self.place.get(ID).data.decode().strip() or None
        except Missing:
            return None

    def make_id(self) -> str:
        """One for ever; that which it has, if it has one. To be called by who holds the lake."""
        known = self.id()
        if known is not None:
            return known
        self.place.put_if_absent(ID, f"{uuid.uuid4().hex[:12]}\n".encode())
        made = self.id()
        if made is None:
            raise LakeError(f"{self.where} has an empty file {ID}, and needs none or a name in it")
        return made

    # ---- who writes --------------------------------------------------------------------------------------------

    def writer(self) -> Holder | None:
        """Who writes here now; None: nobody does, as far as is known. For people: the lock of a folder is not tried,
        because a pipeline that starts at that moment would find it taken."""
        if self.place.folder is None:
            now = Leases(self.place)
            return None if not now.epoch or now.is_over else now.holder()
        try:
            found = Holder.read((self.place.folder / RUNNING).read_bytes())
        except FileNotFoundError:
            return None
        return None if found is None or found.is_gone else found

    def check_free(self) -> None:
        """Raises LakeError if it is known that somebody writes here; for who would have to do much before `writing`."""
        if self.place.folder is None:
            Lease(self.place, "", self.expiry).check_free()
            return
        holder = self.writer()
        if holder is not None and holder.is_here:
            raise taken(self.folder, holder)

    @contextmanager
    def writing(self, what: str = "pipeline") -> Iterator[None]:
        """One pipeline writes at a time. Raises LakeError if another does."""
        with self._locked(what) if self.is_folder else self._leased(what):
            yield

    def check(self) -> None:
        """Raises LakeError if it is known that somebody else writes here by now."""
        if self._lease is not None:
            self._lease.check()

    @contextmanager
    def _locked(self, what: str) -> Iterator[None]:
        """The kernel opens the lock when the process has ended, however it did."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / RUNNING).open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise taken(self.folder, Holder.read(file.read())) from None
            file.truncate(0)
            file.write(Holder.me(what).written())
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    @contextmanager
    def _leased(self, what: str) -> Iterator[None]:
        """All tables are there and know the lease, before anything else is done."""
        self._lease = Lease(self.place, what, self.expiry)
        self.epoch = self._lease.take()
        try:
            if self.other_engines == "refuse":
                self._check_engines()
            for table in (*TABLES, *self._defined()):
                self._log(table).epoch = self.epoch
                self.log(table).fence()
            yield
        finally:
            self._lease.give_back()
            self._lease = None

    def _check_engines(self) -> None:
        for log in map(self._log, (*TABLES, *self._defined())):
            others = log.engines() - {OURS} if log.exists() else set()
            if others:
                raise LakeError(
                    f"{log.where} was written by {', '.join(sorted(others))}: in an object store one engine writes to "
                    "a table, as another may replace its commits. Stop it; if it puts commits under a condition, as we "
                    'do, set other_engines = "allow"'
                )


def taken(folder: Path, holder: Holder | None) -> LakeError:
    who = "whose name cannot be read" if holder is None else holder
    return LakeError(f"another pipeline writes into {folder}: {who}; stop it, or choose another folder")
