"""What a read of `format("headwater-delta")` asks for: the options, and which versions of a table they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from deltalake.exceptions import DeltaError

from headwater.objects import Place, PlaceError, open_place
from headwater.pipeline.lake.commits import first_since
from headwater.pipeline.lake.log import LakeError, Log, View
from headwater.pipeline.options import Options, storage_options

FORMAT: Final = "headwater-delta"
OPTIONS: Final = {
    "path": "the folder or URL of the table, the same for all executors",
    "versionAsOf": "the table as it was at this version",
    "timestampAsOf": "the table as it was at this time (ISO 8601)",
    "startingVersion": "what commits have added from this version on; for streams also latest",
    "startingTimestamp": "the same, from the first commit at this time or later (ISO 8601)",
    "endingVersion": "for batch reads of what was added: up to this version",
    "endingTimestamp": "the same, up to the last commit before this time",
    "readChangeFeed": "true: rows that came (insert) and went (delete), with _change_type, _commit_version and "
    "_commit_timestamp",
    "pushdown": "true: what conditions of `where` exclude is not read; for DataFrames with one query, as Spark mixes "
    "them up",
    "maxFilesPerTrigger": "for streams: commits of so many files in a batch, one commit at least",
    "maxBytesPerTrigger": "for streams: commits of so many bytes of files in a batch, one commit at least",
}
FILES_PER_TRIGGER: Final = 1000
OF_STREAMS: Final = ("maxFilesPerTrigger", "maxBytesPerTrigger")
OF_BATCHES: Final = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "pushdown")
LATEST: Final = "latest"
Point = int | datetime | None
"""A version, or a time; None: not given."""


@dataclass(frozen=True)
class Asked:
    """Picklable. `start` is where changes begin, `at` the version of a snapshot."""

    place: Place
    at: Point = None
    start: Point = None
    end: Point = None
    from_latest: bool = False
    feed: bool = False
    pushdown: bool = False
    most_files: int = FILES_PER_TRIGGER
    most_bytes: int | None = None

    @property
    def path(self) -> str:
        """For people."""
        return self.place.where

    def log(self) -> Log:
        """Of the table, opened anew."""
        return Log(self.place)

    @property
    def is_of_changes(self) -> bool:
        return self.feed or self.start is not None

    def pinned(self) -> Asked:
        """The same of a batch read, as the table is now: whatever is committed later is not in it. Raises LakeError."""
        log = self.log()
        if self.is_of_changes:
            first, last = self.span(log)
            return replace(self, start=first, end=last)
        return replace(self, at=view_at(log, self.at).version)

    def first(self, log: Log, now: int) -> int:
        """The version with which changes begin. Raises LakeError."""
        if isinstance(self.start, datetime):
            return first_since(log, self.start, now)
        if self.from_latest or self.start is None:
            return now + 1
        if self.start > now + 1:
            raise LakeError(f"{log.where}: startingVersion is {self.start}, and the table's last version is {now}")
        return self.start

    def span(self, log: Log) -> tuple[int, int]:
        """The first and last version of the changes; none if the last is before the first. Raises LakeError."""
        last = now = log.look().version
        if isinstance(self.end, datetime):
            last = first_since(log, self.end, now) - 1
        elif self.end is not None:
            if self.end > now:
                raise LakeError(f"{log.where}: endingVersion is {self.end}, and the table's last version is {now}")
            last = self.end
        return self.first(log, now), last


def view_at(log: Log, at: Point) -> View:
    """Raises LakeError: there is no such version, or it is not kept any more."""
    if at is None:
        return log.look()
    try:
        table = log.open(at if isinstance(at, int) else None)
        if isinstance(at, datetime):
            table.load_as_version(at)
    except DeltaError as error:
        raise LakeError(
            f"{log.where}: there is no version {at} to be read ({error}). A table keeps versions for keep_log seconds "
            "([upkeep])."
        ) from None
    return View(log, table)


def read_options(given: Mapping[str, str], *, is_stream: bool | None = None) -> Asked:
    """`is_stream` None: it is not known yet. Raises OptionError."""
    storage, given = storage_options(given)
    options = Options(FORMAT, given, OPTIONS)
    if is_stream is not None:
        _check_kind(options, is_stream)
    from_latest = is_stream is not False and options.text("startingVersion") == LATEST
    start = None if from_latest else _one_of(options, "startingVersion", "startingTimestamp")
    asked = Asked(
        place=_place(options, storage),
        at=_one_of(options, "versionAsOf", "timestampAsOf"),
        start=start,
        end=_one_of(options, "endingVersion", "endingTimestamp"),
        from_latest=from_latest,
        feed=options.flag("readChangeFeed", False),
        pushdown=options.flag("pushdown", False),
        most_files=options.count("maxFilesPerTrigger", FILES_PER_TRIGGER) or FILES_PER_TRIGGER,
        most_bytes=options.count("maxBytesPerTrigger"),
    )
    if asked.at is not None and (asked.feed or start is not None or asked.end is not None):
        raise options.wrong(
            "versionAsOf", "is for the table as it was; what changed has startingVersion and endingVersion"
        )
    if start is None and (asked.end is not None or (asked.feed and is_stream is False)):
        raise options.wrong("startingVersion", "is needed to say since when, or startingTimestamp")
    return asked


def _place(options: Options, storage: Mapping[str, str]) -> Place:
    path = options.needed("path", "/data/lake/tables/bronze")
    try:
        return open_place(path, storage)
    except PlaceError as error:
        raise options.wrong("path", f"is {path}: {error}") from None


def _check_kind(options: Options, is_stream: bool) -> None:
    for name in OF_BATCHES if is_stream else OF_STREAMS:
        if options.text(name) is not None:
            raise options.wrong(name, f"is for spark.{'read' if is_stream else 'readStream'}")


def _one_of(options: Options, version: str, timestamp: str) -> Point:
    number, text = options.count(version, least=0), options.text(timestamp)
    if text is None:
        return number
    if number is not None:
        raise options.wrong(timestamp, f"says the same as {version}; give one of them")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise options.wrong(timestamp, f"is a time such as 2026-01-31T12:00:00Z, not {text!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
