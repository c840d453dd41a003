"""The commits of a table: which files it consists of, and how far of which store it contains everything.

Theory. A commit of Delta is one file that appears at once or not at all. Ours carries, beside the files, notes (`txn`
actions): `JOB/STORE` at position n says that all that JOB makes of the messages of STORE up to n is in the table. Who
wants to add something looks at the notes first; what they say is there already is not added again. So a commit whose
author died before it could tell anybody is found by whoever tries it again.

Nor is a commit made on what somebody has seen before somebody else changed it: the notes that it writes have to be as
they were `seen`, and Delta refuses it if one of them changes while it is made. So it does no harm if a process that
was thought to be dead wakes up and commits: one of the two is refused.

A table that is committed to every second is opened once: a `Log` holds it and reads only what was committed since.
What it hands out are views of one version, which do not change while the table does.

Readers skip files by bounds, and our files have bounds of some columns only. Which ones is said in a property of the
table: without it, some readers (deltalake's `to_pyarrow_dataset`) take a bound that is not there for one that no row
fulfils, and find nothing.

The names of stores are kept in a file beside the table, because Delta answers only for a note whose name one knows. A
name is there before the first note of it; one too many does no harm.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headwater.disk.crash_points import crash_point
from headwater.pipeline.lake.files import WrittenFile, measured
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import Table

NAMES: Final = "_headwater/stores"
BOUNDED: Final = "delta.dataSkippingStatsColumns"
"""The property that names the columns of which files have bounds."""
TRIES: Final = 5
Positions = dict[str, int]
T = TypeVar("T")


class LakeError(Exception):
    """A table cannot be written to, or is damaged; the text says what to do."""


class View:
    """A table as it was at one version, whatever is committed meanwhile. `files` has a row for each file, as Delta's
    `get_add_actions` says it."""

    def __init__(self, log: Log, table: DeltaTable) -> None:
        self._log = log
        self._notes: dict[str, int | None] = {}
        self._files: pa.Table | None = None
        self.version = table.version()
        self.schema: pa.Schema = pa.schema(table.schema().to_arrow())

    def note(self, name: str) -> int | None:
        if name not in self._notes:
            self._notes[name] = self._log.at(self.version, lambda table: table.transaction_version(name))
        return self._notes[name]

    @property
    def files(self) -> pa.Table:
        if self._files is None:
            self._files = self._log.at(self.version, lambda table: pa.table(table.get_add_actions(flatten=True)))
        return self._files

    def positions(self, job: str) -> Positions:
        """How far the table contains what the job makes, for each store of which it contains anything."""
        found = {store: self.note(f"{job}/{store}") for store in self._log.stores()}
        return {store: position for store, position in found.items() if position is not None}

    def paths(self) -> list[str]:
        """Of all files, relative to the folder."""
        return [str(each) for each in self.files.column("path").to_pylist()]


class Log:
    """Of the table in a folder. `partition` is what its files are laid out by. `clock` gives seconds since 1970."""

    def __init__(
        self,
        folder: str | Path,
        partition: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = Path(folder)
        self.partition = partition
        self.properties = UpkeepSettings().properties() if properties is None else properties
        self.clock = clock
        self._lock = threading.RLock()
        self._held: DeltaTable | None = None
        self._stamp: tuple[int, int] | None = None
        """Of the file of the last commit that the held table has: another one there is of another table."""
        self._view: View | None = None

    @classmethod
    def of(cls, folder: str | Path, table: Table) -> Log:
        """Of a declared table, which is made if it is not there."""
        log = cls(folder, table.partition)
        log.declare(table)
        return log

    # ---- the table ---------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return self._is_held() or ((self.folder / "_delta_log").is_dir() and DeltaTable.is_deltatable(str(self.folder)))

    def declare(self, table: Table) -> None:
        """The table is made if it is not there."""
        self.create(arrow_schema(table), table.name, table.doc)

    def create(self, schema: pa.Schema, name: str | None = None, doc: str | None = None) -> None:
        """Nothing if it is there."""
        if self.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        by = [] if self.partition is None else [self.partition]
        configuration = {**self.properties, BOUNDED: ",".join(measured(schema))}
        DeltaTable.create(
            str(self.folder), schema, "ignore", by, name=name, description=doc, configuration=configuration
        )

    def configure(self) -> None:
        """The properties of a table that was made with others."""
        with self._lock:
            table = self._current()
            known = table.metadata().configuration
            wanted = dict(self.properties)
            if BOUNDED not in known:  # columns that came later may have nulls, and older files lack them
                schema = pa.schema(table.schema().to_arrow())
                wanted[BOUNDED] = ",".join(name for name in measured(schema) if not schema.field(name).nullable)
            if any(known.get(name) != value for name, value in wanted.items()):
                table.alter.set_table_properties(wanted)
                self._hold(table)

    def look(self) -> View:
        """As it is now: only what was committed since the last look is read. Raises LakeError."""
        with self._lock:
            return self._viewed(self._current())

    def _viewed(self, held: DeltaTable) -> View:
        if self._view is None or self._view.version != held.version():
            self._view = View(self, held)
        return self._view

    def at(self, version: int, ask: Callable[[DeltaTable], T]) -> T:
        """What the table as it was at a version answers."""
        with self._lock:
            held = self._held
            if held is None or held.version() != version:
                held = DeltaTable(str(self.folder), version=version)
            return ask(held)

    def _current(self) -> DeltaTable:
        """The table that is held, with all commits."""
        if self._held is not None and self._is_held():
            if self._stamp_of(self._held.version() + 1) is None:  # nothing new, which a look at the file tells
                return self._held
            try:
                self._hold(self._held)
            except DeltaError:  # commits or summaries that it had not read are gone
                self._held = None
        else:
            self._held = None
        if self._held is None:
            self._view = None
            self._hold(self.open())
        assert self._held is not None
        return self._held

    def _hold(self, table: DeltaTable) -> None:
        table.update_incremental()
        self._held, self._stamp = table, self._stamp_of(table.version())

    def _is_held(self) -> bool:
        """Whether the table that is held is the one in the folder: it may have been removed and made anew."""
        return self._held is not None and self._stamp == self._stamp_of(self._held.version()) is not None

    def _stamp_of(self, version: int) -> tuple[int, int] | None:
        try:
            found = (self.folder / "_delta_log" / f"{version:020d}.json").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def features(self) -> list[str]:
        """Of Delta, that a reader has to know."""
        with self._lock:
            return self._current().protocol().reader_features or []

    def open(self) -> DeltaTable:
        """As it is now, and the caller's own. Raises LakeError."""
        try:
            return DeltaTable(str(self.folder))
        except TableNotFoundError:
            raise LakeError(f"there is no table in {self.folder}") from None

    def paths(self) -> list[str]:
        """Of all files, relative to the folder."""
        return self.look().paths()

    # ---- notes -------------------------------------------------------------------------------------------------

    def stores(self) -> list[str]:
        """Of which there may be notes."""
        try:
            lines = (self.folder / NAMES).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        return list(dict.fromkeys(filter(None, lines)))

    def positions(self, job: str) -> Positions:
        """How far the table contains what the job makes, for each store of which it contains anything."""
        return self.look().positions(job)

    def batch(self, app: str) -> int | None:
        """The last batch of a query that is in the table."""
        return self.look().note(app)

    def remember_stores(self, stores: Iterable[str]) -> None:
        """Before the first note of each."""
        known = self.stores()
        new = [each for each in dict.fromkeys(stores) if each not in known]
        if not new:
            return
        path = self.folder / NAMES
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:  # others may add theirs: nobody's name is written over
            file.write("".join(f"\n{each}\n" for each in new))  # a line that was cut off before is no part of ours
            file.flush()
            os.fsync(file.fileno())
        crash_point("pipeline-after-names", self.folder.name)

    # ---- commits -----------------------------------------------------------------------------------------------

    def commit(
        self,
        files: Sequence[WrittenFile],
        notes: Mapping[str, int],
        *,
        job: str = "",
        positions: Positions | None = None,
        replaced: Sequence[str] = (),
        seen: View | None = None,
        changes: bool = True,
    ) -> int:
        """One transaction: the files are in the table, those `replaced` are not any more, and the notes are. Notes are
        versions by name; `positions` are notes of a job. `seen` is the table as it was when one looked at its notes.
        Without `changes`, the rows are the same as before, in other files. Returns the table's version. Raises
        LakeError."""
        if positions:
            self.remember_stores(positions)
        all_notes = {**notes, **{f"{job}/{store}": position for store, position in (positions or {}).items()}}
        with self._lock:
            before = self.look()
            if not files and not all_notes and not replaced:
                return before.version
            for left in reversed(range(TRIES)):
                try:
                    return self._commit(files, all_notes, replaced, seen or before, changes)
                except CommitFailedError as error:
                    # Delta does not see that two replace the same file, so it may not put such a commit behind another
                    # one by itself: we look again.
                    if not replaced or not left:
                        raise LakeError(
                            f"{self.folder}: somebody else has written to the table at the same time ({error}); is the "
                            "same pipeline running twice?"
                        ) from error
        raise AssertionError("the last try returns or raises")

    def _commit(
        self,
        files: Sequence[WrittenFile],
        notes: Mapping[str, int],
        replaced: Sequence[str],
        seen: View,
        changes: bool,
    ) -> int:
        table = self._current()
        schema = self._widened(table, files)
        now = self._viewed(table)  # what is committed behind it is Delta's to compare
        self._check_notes(notes, now, seen)
        self._check_replaced(replaced, now)
        actions: list[AddAction | RemoveAction] = [addition(each, changes) for each in files]
        actions += [_removal(path, self.folder, self.clock(), changes) for path in replaced]
        crash_point("pipeline-before-commit", self.folder.name)
        table.create_write_transaction(
            actions,
            "append",
            schema,
            [] if self.partition is None else [self.partition],
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in notes.items()],
                max_commit_retries=0 if replaced else TRIES,
            ),
            post_commithook_properties=PostCommitHookProperties(True, cleanup_expired_logs=False),
        )
        crash_point("pipeline-after-commit", self.folder.name)
        self._hold(table)
        return table.version()

    def _check_notes(self, names: Iterable[str], now: View, seen: View) -> None:
        if now.version == seen.version:
            return
        for name in names:
            there, before = now.note(name), seen.note(name)
            if there != before:
                raise LakeError(
                    f"{self.folder}: somebody else has written to the table meanwhile ({name} was at {before}, and is "
                    f"at {there}); is the same pipeline running twice?"
                )

    def _check_replaced(self, replaced: Sequence[str], now: View) -> None:
        """What is in their place would be in the table twice if somebody else had replaced them already."""
        away = set(replaced) - set(now.paths()) if replaced else set()
        if away:
            raise LakeError(
                f"{self.folder}: somebody else has replaced files of the table meanwhile ({len(away)} of "
                f"{len(replaced)}); is the same pipeline running twice?"
            )

    def _widened(self, table: DeltaTable, files: Sequence[WrittenFile]) -> Schema:
        """The table's schema, after it got the columns that the files bring. They come in a commit of their own, before
        any file that has them: a column without values does no harm."""
        known = {each.name: each.type for each in table.schema().fields}
        fresh: dict[str, Any] = {}
        small = {name.lower(): name for name in known}
        for file in files:
            for each in Schema.from_arrow(file.arrow_schema()).fields:
                expected = known.get(each.name, fresh.get(each.name))
                if small.setdefault(each.name.lower(), each.name) != each.name:
                    raise LakeError(
                        f"{self.folder}: the table has a column {small[each.name.lower()]}, and {each.name} is to be "
                        "added; names of columns differ by more than case"
                    )
                if expected is None:
                    fresh[each.name] = each.type
                elif expected != each.type:
                    raise LakeError(
                        f"{self.folder}: the column {each.name} is {expected} in the table, and {each.type} in what is "
                        "to be added"
                    )
        if fresh:
            table.alter.add_columns([Field(name, type, nullable=True) for name, type in fresh.items()])
            self._hold(table)
            crash_point("pipeline-after-columns", self.folder.name)
        return table.schema()


def addition(file: WrittenFile, changes: bool) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: _stated(value, False) for name, value in file.low.items()},
        "maxValues": {name: _stated(value, True) for name, value in file.high.items()},
        "nullCount": file.nulls,
    }
    return AddAction(file.path, file.size, file.partition, file.made, changes, json.dumps(stats))


def _removal(path: str, folder: Path, now: float, changes: bool) -> RemoveAction:
    partition: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, partition[name] = part.partition("=")
    file = folder / path
    size = file.stat().st_size if file.exists() else None
    return RemoveAction(path, changes, int(now * 1000), size, partition or None)


def _stated(value: Any, is_greatest: bool) -> Any:
    """Delta has times in milliseconds: a bound has to stay one."""
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if is_greatest and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
