"""The commits of a table: which files it consists of, and how far of which store it contains everything.

Theory. A commit of Delta is one file that appears at once or not at all. Ours carries, beside the files, notes (`txn`
actions): `JOB/STORE` at position n says that all that JOB makes of the messages of STORE up to n is in the table. Who
wants to add something looks at the notes first; what they say is there already is not added again. So a commit whose
author died before it could tell anybody is found by whoever tries it again.

Nor is a commit made on what somebody has seen before somebody else changed it: the notes that it writes have to be as
they were `seen`, and Delta refuses it if one of them changes while it is made. So it does no harm if a process that
was thought to be dead wakes up and commits: one of the two is refused.

The names of stores are kept in a file beside the table, because Delta answers only for a note whose name one knows. A
name is there before the first note of it; one too many does no harm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headwater.disk.crash_points import crash_point
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.types import arrow_schema
from headwater.pipeline.tables import Table

NAMES: Final = "_headwater/stores"
CHECKPOINT_EVERY: Final = 100
"""Commits between two summaries of the log."""
TRIES: Final = 5
PROPERTIES: Final = {"delta.checkpointInterval": str(CHECKPOINT_EVERY)}
Positions = dict[str, int]


class LakeError(Exception):
    """A table cannot be written to, or is damaged; the text says what to do."""


class Log:
    """Of the table in a folder. `partition` is what its files are laid out by."""

    def __init__(self, folder: str | Path, partition: str | None = None) -> None:
        self.folder = Path(folder)
        self.partition = partition

    @classmethod
    def of(cls, folder: str | Path, table: Table) -> Log:
        """Of a declared table, which is made if it is not there."""
        log = cls(folder, table.partition)
        log.create(arrow_schema(table), table.name, table.doc)
        return log

    # ---- the table ---------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return (self.folder / "_delta_log").is_dir() and DeltaTable.is_deltatable(str(self.folder))

    def create(self, schema: pa.Schema, name: str | None = None, doc: str | None = None) -> None:
        """Nothing if it is there."""
        if self.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        by = [] if self.partition is None else [self.partition]
        DeltaTable.create(
            str(self.folder), schema, "ignore", by, name=name, description=doc, configuration=dict(PROPERTIES)
        )

    def open(self) -> DeltaTable:
        """As it is now. Raises LakeError."""
        try:
            return DeltaTable(str(self.folder))
        except TableNotFoundError:
            raise LakeError(f"there is no table in {self.folder}") from None

    def paths(self, table: DeltaTable | None = None) -> list[str]:
        """Of all files, relative to the folder."""
        return _paths(table or self.open())

    # ---- notes -------------------------------------------------------------------------------------------------

    def stores(self) -> list[str]:
        """Of which there may be notes."""
        try:
            lines = (self.folder / NAMES).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        return list(dict.fromkeys(filter(None, lines)))

    def positions(self, job: str, table: DeltaTable | None = None) -> Positions:
        """How far the table contains what the job makes, for each store of which it contains anything."""
        table = table or self.open()
        found = {store: table.transaction_version(f"{job}/{store}") for store in self.stores()}
        return {store: position for store, position in found.items() if position is not None}

    def batch(self, app: str) -> int | None:
        """The last batch of a query that is in the table."""
        return self.open().transaction_version(app)

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
        seen: DeltaTable | None = None,
    ) -> int:
        """One transaction: the files are in the table, those `replaced` are not any more, and the notes are. Notes are
        versions by name; `positions` are notes of a job. `seen` is the table as it was when one looked at its notes.
        Returns the table's version. Raises LakeError."""
        table = self.open()
        if positions:
            self.remember_stores(positions)
        all_notes = {**notes, **{f"{job}/{store}": position for store, position in (positions or {}).items()}}
        if not files and not all_notes and not replaced:
            return table.version()
        schema = self._widened(table, files)
        self._check_notes(all_notes, table, seen or table)
        self._check_replaced(replaced, table)
        actions: list[AddAction | RemoveAction] = [addition(each) for each in files]
        actions += [_removal(path, self.folder) for path in replaced]
        crash_point("pipeline-before-commit", self.folder.name)
        try:
            table.create_write_transaction(
                actions,
                "append",
                schema,
                [] if self.partition is None else [self.partition],
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(name, version) for name, version in all_notes.items()],
                    max_commit_retries=TRIES,
                ),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )
        except CommitFailedError as error:
            raise LakeError(
                f"{self.folder}: somebody else has written to the table at the same time ({error}); is the same "
                "pipeline running twice?"
            ) from error
        crash_point("pipeline-after-commit", self.folder.name)
        table.update_incremental()
        return table.version()

    def _check_notes(self, names: Iterable[str], now: DeltaTable, seen: DeltaTable) -> None:
        for name in names:
            there, before = now.transaction_version(name), seen.transaction_version(name)
            if there != before:
                raise LakeError(
                    f"{self.folder}: somebody else has written to the table meanwhile ({name} was at {before}, and is "
                    f"at {there}); is the same pipeline running twice?"
                )

    def _check_replaced(self, replaced: Sequence[str], table: DeltaTable) -> None:
        """What is in their place would be in the table twice if somebody else had replaced them already."""
        away = set(replaced) - set(_paths(table)) if replaced else set()
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
            table.update_incremental()
            crash_point("pipeline-after-columns", self.folder.name)
        return table.schema()


def _paths(table: DeltaTable) -> list[str]:
    return [str(each) for each in table.get_add_actions().column("path").to_pylist()]


def addition(file: WrittenFile) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: _stated(value, False) for name, value in file.low.items()},
        "maxValues": {name: _stated(value, True) for name, value in file.high.items()},
        "nullCount": file.nulls,
    }
    return AddAction(file.path, file.size, file.partition, file.made, True, json.dumps(stats))


def _removal(path: str, folder: Path) -> RemoveAction:
    partition: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, _, partition[name] = part.partition("=")
    file = folder / path
    size = file.stat().st_size if file.exists() else None
    return RemoveAction(path, True, int(datetime.now().timestamp() * 1000), size, partition or None)


def _stated(value: Any, is_greatest: bool) -> Any:
    """Delta has times in milliseconds: a bound has to stay one."""
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if is_greatest and rounded != value:
            rounded += timedelta(milliseconds=1)
        return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
