"""What keeps a table as quick and as small after a month as on its first day.

Theory. A pipeline commits every second, so everything that a commit leaves behind has to go at the same pace: small
files are merged (`compaction`), files that were replaced are removed, the log forgets. A visit does a bounded part of
each, as part of the pipeline's round, and readers are not disturbed:

    replaced files       stay for `keep_replaced` after the commit that replaced them. When that was is in the log,
                         whose commits are read once each
    files of dead tasks  no commit ever named them. They go after a week by their age: a batch that is under way has
                         such files, too, and a machine may sleep in the middle of it
    commits              those before the last summary that is older than `keep_log` go, the oldest first, so that what
                         is there can always be read from that summary on
    summaries            one for each quarter of `keep_log` stays, and the newest ones

Delta's properties of the table say the same (`UpkeepSettings.properties`), for other writers.

Rows that somebody else deleted are known by the commit that did it, so that is noted beside the table before the log
forgets it: who looks for what is missing does not take it for lost.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from headwater.disk.crash_points import crash_point
from headwater.objects import Item, Missing, Place, PlaceError
from headwater.pipeline.lake.actions import commit_name
from headwater.pipeline.lake.compaction import TableFile, files_of, groups, merge
from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError, Log, View
from headwater.pipeline.lake.upkeep_settings import OFTEN, UpkeepSettings
from headwater.pipeline.tables import Table

DEAD: Final = 7 * 86_400.0
"""Seconds for which files stay that no commit names."""
SWEEP_EVERY: Final = 86_400.0
"""Seconds between two looks for them."""
MOST_REMOVED: Final = 10_000
"""Files that a visit removes at most, of each kind."""
RECENT: Final = 3
"""Summaries of a log that stay, however old the commits before them."""
LOG: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")
CHECKPOINT: Final = "checkpoint.parquet"
DELETIONS: Final = "_headwater/deletions"
DELETE: Final = "DELETE"
"""What Delta calls it. Our own commits write."""
FOREIGN: Final = ("deletionVectors", "columnMapping")
"""With these features of Delta, which we do not use, rows are not what the files have: such tables are not merged."""
log_of_this = logging.getLogger(__name__)


@dataclass(frozen=True)
class Upkeep:
    """What was done to a table: how many files it had and has, how many old ones and how many commits of its log were
    removed, how many bytes were rewritten."""

    table: str
    before: int
    after: int
    removed: int = 0
    forgotten: int = 0
    rewritten: int = 0


class TableUpkeep:
    """Of one table, visit after visit. To be used by who writes to the lake."""

    def __init__(self, log: Log, name: str, keeping: UpkeepSettings) -> None:
        self._log = log
        self._name = name
        self._keeping = keeping
        self._read: int | None = None
        """The last commit that was looked through for files that it removed."""
        self._gone: dict[str, float] = {}
        """Files that were replaced and are still there, and since when; in seconds since 1970."""
        self._swept: float | None = None

    def visit(self, most: int | None = None) -> Upkeep:
        """A bounded part of what is to be done. About `most` bytes are rewritten; without it, all that has to be."""
        before = len(self._log.look().paths())
        rewritten = self._compact(most)
        removed = self._vacuum() + self._sweep()
        forgotten = clean_log(self._log, self._keeping.keep_log)
        return Upkeep(self._name, before, len(self._log.look().paths()), removed, forgotten, rewritten)

    # ---- small files -------------------------------------------------------------------------------------------

    def _compact(self, most: int | None) -> int:
        """How many bytes were read for it."""
        done = 0
        while self._name not in OFTEN and not self._is_foreign():  # `latest` is merged when it is written
            before, view = done, self._log.look()
            files = files_of(view.files, self._log.partition)
            for group in list(groups(files, self._keeping, self._log.clock())):
                size = sum(each.size for each in group)
                if most is not None and done + size > most:
                    return done
                done += size if self._merge(group, view) else 0
            if done == before or most is not None:
                break
        return done

    def _merge(self, group: list[TableFile], view: View) -> bool:
        """False: somebody else has changed the files meanwhile, which is theirs to do; or one cannot be read, which who
        reads its rows will say. The table is as it was."""
        written: list[WrittenFile] = []
        try:
            merged = merge(self._log.place, self._log.partition, view.schema, group)
            written = [replace(each, made=int(self._log.clock() * 1000)) for each in merged]
            self._log.commit(written, {}, replaced=[each.path for each in group], changes=False)
        except (LakeError, PlaceError, OSError, pa.ArrowException) as error:
            log_of_this.info("%s is not compacted this time: %s", self._name, error)
            self._log.discard(written)
            return False
        crash_point("pipeline-in-tidy", self._log.place.name)
        return True

    def _is_foreign(self) -> bool:
        return bool(set(FOREIGN) & set(self._log.features()))

    # ---- old files ---------------------------------------------------------------------------------------------

    def _vacuum(self) -> int:
        view = self._log.look()
        self._learn(view.version)
        kept, now = set(view.paths()), self._log.clock()
        due = [path for path, since in self._gone.items() if since <= now - self._keeping.kept(self._name)]
        due = due[:MOST_REMOVED]
        for path in due:
            del self._gone[path]
        old = [path for path in due if path not in kept]
        self._log.place.delete(old)
        return len(old)

    def _learn(self, version: int) -> None:
        """Which files commits have removed, up to this one."""
        if self._read is None:
            known = (number for number, kind, _ in _entries(self._log) if kind == "json")
            self._read = min(known, default=version) - 1
        deleted = []
        for number in range(self._read + 1, version + 1):
            operation, removed = _read_commit(self._log.place, number)
            self._gone.update(removed)
            if operation == DELETE:
                deleted.append(number)
        _note_deletions(self._log, deleted)
        self._read = version

    def _sweep(self) -> int:
        """Files that no commit names, by their age."""
        now = self._log.clock()
        if self._swept is not None and now - self._swept < SWEEP_EVERY:
            return 0
        self._swept = now
        named = {*self._log.look().paths(), *self._gone}
        found = (each for each in _data_files(self._log.place) if each.modified <= now - DEAD)
        dead = [each.name for each in found if each.name not in named]
        self._log.place.delete(dead)
        return len(dead)


class LakeUpkeep:
    """Of all tables of a lake: each visit begins with another table, and rewrites about as much as one file has."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables: dict[str, TableUpkeep] = {}
        self._visits = 0

    def visit(self) -> list[Upkeep]:
        tables = self._lake.tables()
        turn = self._visits % max(1, len(tables))
        self._visits += 1
        left, done = self._lake.keeping.file_size, []
        for table in tables[turn:] + tables[:turn]:
            done.append(self._of(table).visit(max(0, left)))
            left -= done[-1].rewritten
        return done

    def _of(self, table: Table) -> TableUpkeep:
        if table.name not in self._tables:
            self._tables[table.name] = TableUpkeep(self._lake.log(table), table.name, self._lake.keeping)
        return self._tables[table.name]


def tidy(lake: Lake, table: Table, *, keep: float | None = None) -> Upkeep:
    """Everything that has to be done to a table, at once. Replaced files stay for `keep` hours, or as long as the lake
    keeps them."""
    keeping = lake.keeping
    if keep is not None:
        seconds = keep * 3600.0
        keeping = replace(
            keeping, keep_replaced=seconds, keep_latest=seconds, keep_log=max(keeping.keep_log, seconds), few_files=2
        )
    return TableUpkeep(lake.log(table), table.name, keeping).visit()


# ---- logs --------------------------------------------------------------------------------------------------------


def clean_log(log: Log, keep: float) -> int:
    """Commits and summaries that nobody needs any more; how many files went."""
    found = list(_entries(log))
    old = log.clock() - keep
    summaries = sorted((number, made) for number, kind, made in found if kind == CHECKPOINT)
    base = max((number for number, made in summaries if made <= old), default=None)
    if base is None:
        return 0
    due = sorted((number, kind) for number, kind, _ in found if number < base)
    due += [(number, CHECKPOINT) for number in _superfluous(summaries, base, keep / 4)]
    names = [commit_name(number, kind) for number, kind in due[:MOST_REMOVED]]
    log.place.delete(names)
    return len(names)


def _superfluous(summaries: list[tuple[int, float]], base: int, apart: float) -> Iterator[int]:
    last: float | None = None
    for number, made in summaries[:-RECENT]:
        if number < base:
            continue
        if last is not None and made - last < apart:
            yield number
        else:
            last = made


def _entries(log: Log) -> Iterator[tuple[int, str, float]]:
    """Of a log's folder: number, kind and age of commits and summaries. Others, such as summaries in parts, which we do
    not write, stay."""
    for each in log.place.level("_delta_log").items:
        if found := LOG.fullmatch(PurePosixPath(each.name).name):
            yield int(found[1]), found[2], each.modified


def _read_commit(place: Place, number: int) -> tuple[str | None, dict[str, float]]:
    """What was done, and the files of ours that were removed by it, with when."""
    try:
        lines = place.get(commit_name(number)).data.decode().splitlines()
    except Missing:
        return None, {}
    operation, removed = None, {}
    for line in lines:
        if '"remove"' not in line and '"commitInfo"' not in line:
            continue
        action = json.loads(line)
        operation = action.get("commitInfo", {}).get("operation", operation)
        if "remove" in action:
            path = unquote(action["remove"]["path"])
            if ":" not in path and not path.startswith("/") and ".." not in PurePosixPath(path).parts:
                removed[path] = action["remove"].get("deletionTimestamp", 0) / 1000
    return operation, removed


def noted_deletions(log: Log) -> set[int]:
    """Versions by which other tools have deleted rows."""
    try:
        return {int(each) for each in log.place.get(DELETIONS).data.split()}
    except Missing:
        return set()


def _note_deletions(log: Log, versions: Sequence[int]) -> None:
    known = noted_deletions(log)
    if new := [each for each in versions if each not in known]:
        log.place.change(DELETIONS, lambda there: there + "".join(f"{each}\n" for each in new).encode())


def _data_files(place: Place) -> Iterable[Item]:
    """But not what lies in folders that begin with an underscore: those are not the table's."""
    return (
        each
        for each in place.list()
        if each.name.endswith(".parquet") and not any(part.startswith("_") for part in each.name.split("/"))
    )
