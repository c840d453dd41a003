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

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headwater.disk.crash_points import crash_point
from headwater.objects import Missing, Place, open_place
from headwater.pipeline.lake.actions import addition, commit_name, removal
from headwater.pipeline.lake.files import WrittenFile, measured
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.lake.upkeep_settings import UpkeepSettings
from headwater.pipeline.tables import Table

NAMES: Final = "_headwater/stores"
EPOCH: Final = "headwater.epoch"
"""The property with the number of the lease under which the table is written (`lake.lease`)."""
BOUNDED: Final = "delta.dataSkippingStatsColumns"
"""The property that names the columns of which files have bounds."""
TRIES: Final = 5
RECENT: Final = 5
"""Commits that are asked what made them."""
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
    """Of the table at a place. `partition` is what its files are laid out by. `clock` gives seconds since 1970."""

    def __init__(
        self,
        where: str | Path | Place,
        partition: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        epoch: int | None = None,
    ) -> None:
        self.place = where if isinstance(where, Place) else open_place(where)
        self.where = self.place.where
        self._storage = dict(self.place.options)
        self.partition = partition
        self.properties = UpkeepSettings().properties() if properties is None else properties
        self.clock = clock
        self.epoch = epoch
        """Of the lease under which we write; None: the lake is locked otherwise."""
        self._lock = threading.RLock()
        self._held: DeltaTable | None = None
        self._stamp: str | None = None
        """Of the file of the last commit that the held table has: another one there is of another table."""
        self._view: View | None = None

    @classmethod
    def of(cls, where: str | Path | Place, table: Table) -> Log:
        """Of a declared table, which is made if it is not there."""
        log = cls(where, table.partition)
        log.declare(table)
        return log

    @property
    def folder(self) -> Path:
        """Raises LakeError if it is no folder."""
        if self.place.folder is None:
            raise LakeError(f"{self.where} is no folder")
        return self.place.folder

    # ---- the table ---------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        if self._is_held():
            return True
        folder = self.place.folder
        if folder is not None and not (folder / "_delta_log").is_dir():
            return False
        return DeltaTable.is_deltatable(self.where, self._storage)

    def declare(self, table: Table) -> None:
        """The table is made if it is not there."""
        self.create(arrow_schema(table), table.name, table.doc)

    def create(self, schema: pa.Schema, name: str | None = None, doc: str | None = None) -> None:
        """Nothing if it is there."""
        if self.exists():
            return
        if self.place.folder is not None:
            self.place.folder.mkdir(parents=True, exist_ok=True)
        by = [] if self.partition is None else [self.partition]
        configuration = {**self.properties, BOUNDED: ",".join(measured(schema))}
        if self.epoch is not None:
            configuration[EPOCH] = str(self.epoch)
        DeltaTable.create(
            self.where,
            schema,
            "ignore",
            by,
            name=name,
            description=doc,
            configuration=configuration,
            storage_options=self._storage,
            raise_if_key_not_exists=False,  # ours is not one of Delta's
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

    def fence(self) -> None:
        """From now on, commits of older leases are refused: by who looks, as the number is greater; by Delta, as the
        table's properties were changed after they were made. Raises LakeError if there is a newer one."""
        with self._lock:
            for left in reversed(range(TRIES)):
                table = self._current()
                if self.check_epoch(table) == self.epoch:
                    return
                try:
                    table.alter.set_table_properties({EPOCH: str(self.epoch)}, raise_if_not_exists=False)
                    self._hold(table)
                except CommitFailedError as error:
                    if not left:
                        raise LakeError(f"{self.where}: somebody else writes to the table all the time") from error

    def check_epoch(self, table: DeltaTable) -> int:
        """The table's. Raises LakeError if a newer lease has fenced it."""
        known = int(table.metadata().configuration.get(EPOCH, 0))
        if known > (self.epoch or 0):
            raise LakeError(
                f"{self.where}: another pipeline has taken the lake over (lease {known}, ours is {self.epoch})"
            )
        return known

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
                held = self.open(version)
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

    def forget(self) -> None:
        """The table was removed, or is about to be."""
        with self._lock:
            self._held = self._view = None

    def _is_held(self) -> bool:
        """Whether the table that is held is the one in the folder: it may have been removed and made anew. Elsewhere,
        where each look is a request, who does that has to say so (`forget`)."""
        if self._held is None or self.place.folder is None:
            return self._held is not None
        return self._stamp == self._stamp_of(self._held.version()) is not None

    def _stamp_of(self, version: int) -> str | None:
        found = self.place.head(commit_name(version))
        return None if found is None else found.etag

    def engines(self) -> set[str]:
        """What has made the last commits, without versions."""
        said = (str(each.get("engineInfo", "an unknown engine")) for each in self.open().history(RECENT))
        return {each.partition(":")[0].partition("/")[0] for each in said}

    def features(self) -> list[str]:
        """Of Delta, that a reader has to know."""
        with self._lock:
            return self._current().protocol().reader_features or []

    def open(self, version: int | None = None) -> DeltaTable:
        """As it is now, or was, and the caller's own. Raises LakeError."""
        try:
            return DeltaTable(self.where, version=version, storage_options=self._storage)
        except TableNotFoundError:
            raise LakeError(f"there is no table in {self.where}") from None

    def paths(self) -> list[str]:
        """Of all files, relative to the folder."""
        return self.look().paths()

    # ---- notes -------------------------------------------------------------------------------------------------

    def stores(self) -> list[str]:
        """Of which there may be notes."""
        try:
            return _lines(self.place.get(NAMES).data)
        except Missing:
            return []

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
        self.place.change(NAMES, lambda there: _with_lines(there, new))  # others may add theirs
        crash_point("pipeline-after-names", self.place.name)

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
                    if self._is_there(files, all_notes, self.look()):  # the answer to a try was lost
                        return self.look().version
                    # Delta does not see that two replace the same file, so it may not put such a commit behind another
                    # one by itself: we look again.
                    if not replaced or not left:
                        raise LakeError(
                            f"{self.where}: somebody else has written to the table at the same time ({error}); is the "
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
        if self.epoch is not None:
            self.check_epoch(table)
        schema = self._widened(table, files)
        now = self._viewed(table)  # what is committed behind it is Delta's to compare
        self._check_notes(notes, now, seen)
        self._check_replaced(replaced, now)
        actions: list[AddAction | RemoveAction] = [addition(each, changes) for each in files]
        sizes = _sizes(now) if replaced else {}
        actions += [removal(path, sizes.get(path), self.clock(), changes) for path in replaced]
        crash_point("pipeline-before-commit", self.place.name)
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
        crash_point("pipeline-after-commit", self.place.name)
        self._hold(table)
        return table.version()

    def _is_there(self, files: Sequence[WrittenFile], notes: Mapping[str, int], now: View) -> bool:
        """Whether a commit that failed was made all the same. Nobody else has files of these names."""
        if files:
            return files[0].path in now.paths()
        return bool(notes) and all(now.note(name) == version for name, version in notes.items())

    def discard(self, files: Iterable[WrittenFile]) -> None:
        """Remove files that were to be committed, but for those that the table has got. On an object store they stay
        until upkeep sweeps: a commit whose answer was lost may still arrive."""
        if self.place.folder is None:
            return
        there = set(self.paths()) if self.exists() else set()
        self.place.delete(each.path for each in files if each.path not in there)

    def _check_notes(self, names: Iterable[str], now: View, seen: View) -> None:
        if now.version == seen.version:
            return
        for name in names:
            there, before = now.note(name), seen.note(name)
            if there != before:
                raise LakeError(
                    f"{self.where}: somebody else has written to the table meanwhile ({name} was at {before}, and is "
                    f"at {there}); is the same pipeline running twice?"
                )

    def _check_replaced(self, replaced: Sequence[str], now: View) -> None:
        """What is in their place would be in the table twice if somebody else had replaced them already."""
        away = set(replaced) - set(now.paths()) if replaced else set()
        if away:
            raise LakeError(
                f"{self.where}: somebody else has replaced files of the table meanwhile ({len(away)} of "
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
                        f"{self.where}: the table has a column {small[each.name.lower()]}, and {each.name} is to be "
                        "added; names of columns differ by more than case"
                    )
                if expected is None:
                    fresh[each.name] = each.type
                elif expected != each.type:
                    raise LakeError(
                        f"{self.where}: the column {each.name} is {expected} in the table, and {each.type} in what is "
                        "to be added"
                    )
        if fresh:
            table.alter.add_columns([Field(name, type, nullable=True) for name, type in fresh.items()])
            self._hold(table)
            crash_point("pipeline-after-columns", self.place.name)
        return table.schema()


def _sizes(view: View) -> dict[str, int]:
    columns = (view.files.column(name).to_pylist() for name in ("path", "size_bytes"))
    return dict(zip(*columns, strict=True))


def _lines(data: bytes) -> list[str]:
    return list(dict.fromkeys(filter(None, data.decode().split("\n"))))


def _with_lines(data: bytes, new: Iterable[str]) -> bytes:
    return "".join(f"{each}\n" for each in dict.fromkeys([*_lines(data), *new])).encode()
