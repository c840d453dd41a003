"""`format("headwater-delta")` as a reader of tables in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.objects import Place, open_place
from headwater.pipeline.lake.commits import REMOVED
from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.log import Log
from headwater.pipeline.lake.rows import FilesGone
from headwater.pipeline.options import STORAGE
from headwater.pipeline.tables import BRONZE
from tests.objects.s3_server import S3Server, s3_server
from tests.pipeline.lake.reads import read, rows_of, stream
from tests.pipeline.lake.some_rows import messages


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def place(s3: S3Server) -> Place:
    return open_place(f"{s3.bucket()}/tables/bronze", s3.options())


@pytest.fixture
def log(place: Place) -> Log:
    return Log.of(place, BRONZE)


def commit(log: Log, first: int, last: int, **more: Any) -> None:
    notes = more.pop("notes", {})
    log.commit(write_files([messages("s", first, last)], log.place, log.partition), notes, **more)


def options(place: Place) -> dict[str, str]:
    """As somebody gives them to Spark."""
    return {f"{STORAGE}{name}": value for name, value in place.options.items()}


def positions(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["position"] for row in rows)


def test_versions_changes_and_a_stream(place: Place, log: Log) -> None:
    given = options(place)
    commit(log, 1, 5)
    commit(log, 6, 10)
    reader = stream(place.url, **given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert positions(rows_of(stream(place.url, **given), reader.partitions(start, end))) == [*range(1, 11)]
    commit(log, 1, 12, replaced=log.paths())
    assert positions(read(place.url, **given)) == [*range(1, 13)]
    assert positions(read(place.url, versionAsOf=1, **given)) == [*range(1, 6)]
    assert positions(read(place.url, startingVersion=3, readChangeFeed=True, **given)) == [11, 12]
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert positions(rows_of(stream(place.url, **given), reader.partitions(end, later))) == [11, 12]


def test_replaced_objects_that_are_gone(place: Place, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    given = options(place)
    commit(log, 1, 5)
    old = log.paths()
    commit(log, 1, 4, replaced=old, notes={REMOVED: 1})
    place.delete(old)
    assert read(place.url, startingVersion=2, readChangeFeed=True, **given) == []
    assert "1 rows were removed" in caplog.text
    old = log.paths()
    commit(log, 1, 6, replaced=old)
    place.delete(old)
    with pytest.raises(FilesGone, match=r"version 3 .* keep_replaced"):
        read(place.url, startingVersion=3, **given)
