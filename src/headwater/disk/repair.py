"""RocksDB's logs when they are damaged: a torn end is cut off and told of, anything else is for the operator to decide.

Theory. A power cut leaves the last of what was written in part, or as rubbish; nothing of it had been promised. Any
other damage (a flipped bit, a lost sector, a missing file) has whole batches behind it, and these were promised.
RocksDB does not tell the two apart: its mode `point_in_time` takes the first damage for the end, and all behind it is
gone; `absolute` refuses both. So a store is opened with `absolute`. If that fails, or if headers or sequence numbers
look wrong, the logs are read here (wal.py), and what is found decides:

    nothing whole behind the damage    a torn end: it is cut off, with a warning, and the store opens
    whole batches behind it            `DamagedLog`: nothing is changed; the text has the figures

`salvage` is what an operator may ask for then: logs with all whole batches and nothing else take the place of the
damaged ones. What the batches mean together is for those to mend whose they are. Either way the logs as they were found
are kept beside the store.

Zeros at the end, as file systems leave them, are no damage. A log cut exactly between two batches cannot be told from
one that ended there, unless another log follows. Headers are walked through before RocksDB sees them also because a
record whose kind belongs to recycled logs, which we never have, makes it loop for ever (rocksdict 0.3.29).
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from headwater.disk.errors import StorageError
from headwater.disk.files import sync_folder
from headwater.disk.wal import Batch, Hole, first_log, read_log, walk, write_log

log = logging.getLogger("headwater.disk")

KEPT: Final = "damaged"
WAY_OUT: Final = (
    "nothing was changed: restore a backup, or let `headwater repair` keep what is whole (--dry-run: only say what is "
    "lost)"
)


class Damage(NamedTuple):
    """Bytes `begin` to before `end` of a log that are no whole batch; none if a batch, or a whole log, is missing.
    `lost` is how many changes are missing; None, not known, unless there are whole batches before and behind. Behind
    are so many `batches` with `changes` and `size` bytes, in this log and later ones."""

    log: Path
    begin: int
    end: int
    lost: int | None
    batches: int = 0
    changes: int = 0
    size: int = 0

    def __str__(self) -> str:
        what = f"{self.end - self.begin:,} bytes of {self.log} at byte {self.begin:,} cannot be read"
        if self.end == self.begin:
            what = f"changes before byte {self.begin:,} of {self.log} are missing"
        if not self.batches:
            return f"{what}, and nothing whole follows"
        lost = "an unknown number of" if self.lost is None else f"{self.lost:,}"
        return (
            f"{what}: {lost} changes are lost; {self.batches:,} whole batches with {self.changes:,} changes "
            f"({self.size:,} bytes) follow"
        )


class DamagedLog(StorageError):
    """There are whole batches behind damage. `meaning` is what is known of what was lost."""

    def __init__(self, store: Path, damages: list[Damage], meaning: str = "") -> None:
        more = f", and {len(damages) - 1} more places are damaged" if len(damages) > 1 else ""
        super().__init__(
            f"the log of {store} is damaged: {damages[0]}{more}{f'; {meaning}' if meaning else ''}; {WAY_OUT}"
        )
        self.store = store
        self.damages = damages


def logs_of(store: Path) -> list[Path]:
    """Those that count, oldest first: a crash may have come before older ones were deleted."""
    try:
        oldest = first_log(store / (store / "CURRENT").read_text().strip())
    except OSError:
        oldest = 0
    return [each for each in _all_logs(store) if int(each.stem) >= oldest]


def _all_logs(store: Path) -> list[Path]:
    return [each for each in sorted(store.glob("*.log")) if each.stem.isdecimal()]


def examine(store: Path, see: Callable[[Batch], object] | None = None) -> list[Damage]:
    """All damage of the logs, in order; `see` is called with each whole batch."""
    found: list[Damage] = []
    expected = 0
    for file in logs_of(store):
        hole: Hole | None = None
        for each in read_log(file):
            if isinstance(each, Hole):
                hole = each
                continue
            missing = max(0, each.sequence - expected) if expected else None
            if hole is not None or missing:
                place = hole or Hole(each.begin, each.begin)
                found.append(Damage(file, *place, missing))
                hole = None
            expected = each.sequence + each.changes
            for at, damage in enumerate(found):
                found[at] = damage._replace(
                    batches=damage.batches + 1,
                    changes=damage.changes + each.changes,
                    size=damage.size + each.end - each.begin,
                )
            if see is not None:
                see(each)
        if hole is not None:
            found.append(Damage(file, *hole, None))
    return found


def salvage(store: Path, kept: Path, wanted: Callable[[Batch], bool] | None = None) -> None:
    """Give the store logs that hold all whole batches, or those of them that are `wanted`, and nothing else. The logs
    as they are found are in `kept` then, a folder that is made. Whoever opens the store then has to say that it was
    repaired. Who is cut off does it again."""
    logs = logs_of(store)
    _keep(logs, kept)
    for file in logs:
        content = list(read_log(file))
        whole = [each for each in content if isinstance(each, Batch) and (wanted is None or wanted(each))]
        if len(whole) < len(content):
            new = kept / f"{file.name}.new"
            write_log(new, whole)
            os.replace(new, file)
    sync_folder(store)


def _keep(logs: list[Path], kept: Path) -> None:
    """Give the logs a second name: recovery deletes the first."""
    kept.mkdir(mode=0o700)
    for file in logs:
        os.link(file, kept / file.name)
    sync_folder(kept)


class LogCheck:
    """Of the logs of a store that is not open; a torn end is kept in a folder beside it, in place of earlier ones."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.kept = store.parent / KEPT

    def looks_whole(self) -> bool:
        """As far as headers say; what they hold, RocksDB checks."""
        for each in self.store.glob("MANIFEST-*"):
            if walk(each).strange is not None:
                raise StorageError(f"{each} is damaged; restore a backup; nothing was deleted")
        next = 0
        for file in _all_logs(self.store):
            strange, gap, next = walk(file, next)
            if strange is not None or gap is not None:
                return False
        return True

    def cut_torn_end(self) -> bool:
        """Cut off the end of the log if that is all that is damaged, and say so. False: nothing is. Raises DamagedLog,
        and nothing has changed."""
        damages = examine(self.store)
        if not damages:
            return False
        if damages[0].batches:
            raise DamagedLog(self.store, [each for each in damages if each.batches])
        shutil.rmtree(self.kept, ignore_errors=True)
        _keep(logs_of(self.store), self.kept)
        for damage in damages:
            self._cut(damage.log, damage.begin)
        sync_folder(self.store)
        log.warning(
            "the end of the log %s was damaged, and nothing whole follows: what is before it is there, up to %d bytes "
            "of changes are not; the damaged files are kept in %s",
            *(damages[0].log, sum(each.end - each.begin for each in damages), self.kept),
        )
        return True

    def _cut(self, file: Path, size: int) -> None:
        shorter = self.kept / "shorter"
        with open(file, "rb") as source, open(shorter, "wb") as target:
            shutil.copyfileobj(source, target)
            target.truncate(size)
            target.flush()
            os.fsync(target.fileno())
        os.replace(shorter, file)
